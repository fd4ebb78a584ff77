//! `cargo run`: clients take tokens from buckets, `usage-rollup` handles the stream under faults, and every snapshot is
//! compared with what the clients were granted.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use indicatif::ProgressBar;
use rand::{SeedableRng as _, rngs::StdRng};
use tidegate_aws::stream::sequence_number;
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::{
    faults::{FaultCounts, FaultRates, FaultyHttp},
    functions::usage_rollup,
    mapping::{MAX_BATCH_SIZE, StreamRecord},
    pump::{Chaos, Fault, Pump},
    services::Services,
    stream::StreamReader,
    usage_totals::{SnapshotName, Usage, UsageTotals},
};
use tokio::sync::mpsc;
use usage_rollup::{UsageRollup, report::RollupReport};

use crate::{
    clock,
    print::{self, Bars, Outcome, float},
    traffic::Traffic,
};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Writes that the clients make
    #[arg(long, default_value_t = 20_000, allow_negative_numbers = true)]
    pub(crate) records: usize,
    /// Tenants that the clients draw for, each with three resources
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) entities: u32,
    /// Shards of each bucket
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shards: u32,
    /// Share of deliveries and of writes that go wrong on purpose, from 0 to 0.9
    #[arg(long, default_value = "0.2", value_parser = share, allow_negative_numbers = true)]
    pub(crate) faults: f64,
    /// Seed of the clients and the faults. Concurrency still differs between two runs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The most records in one invocation, up to 10000
    #[arg(long, default_value = "500", value_parser = batch_size)]
    pub(crate) batch_size: NonZeroUsize,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=0.9).contains(&share) { Ok(share) } else { Err(format!("{share} is not between 0 and 0.9")) }
}

fn batch_size(text: &str) -> Result<NonZeroUsize, String> {
    let size: NonZeroUsize = text.parse().map_err(|_| format!("{text:?} is no number above 0"))?;
    if size <= MAX_BATCH_SIZE {
        Ok(size)
    } else {
        Err(format!("an event source mapping takes at most {MAX_BATCH_SIZE}"))
    }
}

/// The clients write in so many waves. The stream is read after each.
const WAVES: u32 = 24;
/// 2025-12-31T21:10:00Z: an hour, a day, a month and a year end within the run.
const START: i64 = clock::START.get() - 170 * 60 * 1000;
/// Simulated time between two waves.
const STEP: i64 = 17 * 60 * 1000;
/// The share of poison among the faults.
const POISON: f64 = 0.01;

#[derive(Debug)]
pub(crate) struct RollupRun {
    /// What the clients were granted.
    pub(crate) granted: UsageTotals,
    /// What the snapshots show.
    snapshots: UsageTotals,
    /// The counts of the invocations that answered.
    report: RollupReport,
    /// Invocations that answered.
    invocations: u64,
    pub(crate) delivery_faults: BTreeMap<Fault, usize>,
    call_faults: FaultCounts,
    /// Conditional writes that reached the table.
    table_writes: usize,
    /// Poison records that the clients wrote, and how many of them are in the dead-letter queue.
    pub(crate) poison: (usize, usize),
    /// Records of the stream, those of the snapshots included.
    delivered: usize,
    client_writes: usize,
    elapsed: Duration,
}

impl RollupRun {
    pub(crate) fn outcome(&self) -> Outcome {
        let mut problems = self.snapshots.differences(&self.granted);
        let (written, parked) = self.poison;
        if written != parked {
            problems.push(format!("{written} poison records were written, {parked} are in the dead-letter queue"));
        }
        let snapshots = self.granted.iter().count();
        let passed = match snapshots {
            0 => "the clients wrote nothing, so there was nothing to compare".to_owned(),
            _ => format!("EXACT: all {snapshots} snapshots hold what the clients were granted, to the last token"),
        };
        let failed = format!("WRONG: {} differences in {snapshots} snapshots", problems.len());
        Outcome { problems, passed, failed }
    }

    /// The tables: the windows and their tokens, and what the run did.
    pub(crate) fn table(&self) -> String {
        let windows = self.by_window().into_iter().map(|(window, Sums { snapshots, tokens, granted, events })| {
            let numbers = [snapshots as i128, tokens, granted, events.into(), tokens - granted];
            [window].into_iter().chain(numbers.map(|number| number.to_string())).collect::<Vec<_>>()
        });
        let header = ["window", "snapshots", "tokens", "granted", "events", "off by"];
        let windows = print::table(&header, 1, windows);

        let Self { report, delivered, table_writes, client_writes, .. } = self;
        let per_second = float(*delivered as u64) / self.elapsed.as_secs_f64();
        let per_client_write = float(*table_writes as u64) / float((*client_writes).max(1) as u64);
        let mut rows = vec![
            ["stream records, those of the snapshots included".to_owned(), delivered.to_string()],
            ["records handled, redeliveries included".to_owned(), report.records.to_string()],
            ["invocations that answered".to_owned(), self.invocations.to_string()],
            ["records per second, clients included".to_owned(), format!("{per_second:.0}")],
            ["snapshot writes that reached the table".to_owned(), table_writes.to_string()],
            ["snapshot writes per client write".to_owned(), format!("{per_client_write:.3}")],
            [
                "postings already written, in whole or in part".to_owned(),
                (report.already_posted + report.remainders).to_string(),
            ],
            ["poison records parked, of those written".to_owned(), format!("{} of {}", self.poison.1, self.poison.0)],
        ];
        let delivery_faults = self.delivery_faults.iter().map(|(fault, count)| (fault.to_string(), count.to_string()));
        let call_faults = self.call_faults.iter().map(|(fault, count)| (fault.to_string(), count.to_string()));
        rows.extend(delivery_faults.chain(call_faults).map(|(fault, count)| [format!("fault: {fault}"), count]));
        format!("{windows}\n{}", print::table(&[], 1, rows))
    }

    fn by_window(&self) -> BTreeMap<String, Sums> {
        fn tokens(usage: &Usage) -> i128 {
            usage.tokens.values().sum()
        }
        let mut windows: BTreeMap<String, Sums> = BTreeMap::new();
        for (SnapshotName { window, .. }, usage) in self.snapshots.iter() {
            let sums = windows.entry(window.clone()).or_default();
            sums.snapshots += 1;
            sums.tokens += tokens(usage);
            sums.events += usage.events;
        }
        for (SnapshotName { window, .. }, usage) in self.granted.iter() {
            windows.entry(window.clone()).or_default().granted += tokens(usage);
        }
        windows
    }
}

#[derive(Default)]
struct Sums {
    snapshots: usize,
    tokens: i128,
    granted: i128,
    events: u64,
}

/// Runs clients and rollup against the services.
pub(crate) async fn run(options: &Options, services: &Services) -> anyhow::Result<RollupRun> {
    let started = Instant::now();
    let bars = Bars::new("")?;
    let (written, delivered) = (bars.add("clients wrote", options.records as u64), bars.add("records delivered", 0));
    let http = FaultyHttp::new(FaultRates::spread(options.faults), options.seed);
    let mut pumps = Pumps {
        options,
        services,
        http: &http,
        function: usage_rollup(services, &http),
        by_shard: BTreeMap::new(),
        delivered: 0,
        bar: delivered.clone(),
    };
    let mut clients =
        Traffic::new(services.dynamodb.clone(), &services.table, options.entities, options.shards, options.seed);
    let mut reader = StreamReader::new(services.streams.clone(), services.stream_arn().await?);

    let (sender, mut receiver) = mpsc::channel(1);
    let write = async {
        for wave in 0..WAVES {
            let now = EpochMillis::new(START + i64::from(wave) * STEP)?;
            let acts = share_of(options.records, wave);
            clients.act(now, acts, options.faults * POISON, || written.inc(1)).await?;
            let records = reader.drain(now).await?;
            delivered.inc_length(records.values().map(Vec::len).sum::<usize>() as u64);
            if sender.send(records).await.is_err() {
                break;
            }
        }
        drop(sender);
        anyhow::Ok(())
    };
    let deliver = async {
        while let Some(records) = receiver.recv().await {
            pumps.deliver(records).await?;
        }
        anyhow::Ok(())
    };
    futures::try_join!(write, deliver)?;
    pumps.finish().await?;

    // The remaining records are those of the snapshots, which must cause no writes.
    let own = reader.drain(EpochMillis::new(START)?).await?;
    delivered.inc_length(own.values().map(Vec::len).sum::<usize>() as u64);
    let postings = pumps.report().postings;
    pumps.deliver(own).await?;
    pumps.finish().await?;
    ensure!(pumps.report().postings == postings, "writes of the rollup caused further writes");

    written.finish();
    delivered.finish();
    let tallies: Vec<_> = pumps.by_shard.values().map(Pump::tally).collect();
    let mut delivery_faults = BTreeMap::new();
    for (fault, count) in tallies.iter().flat_map(|tally| &tally.faults) {
        *delivery_faults.entry(*fault).or_default() += count;
    }
    Ok(RollupRun {
        granted: clients.granted().clone(),
        snapshots: UsageTotals::read(&services.dynamodb, &services.table).await?,
        report: pumps.report(),
        invocations: tallies.iter().map(|tally| tally.invocations).sum(),
        delivery_faults,
        call_faults: http.counts(),
        table_writes: usize::try_from(http.writes())?,
        poison: (clients.poisoned(), parked(services)),
        delivered: pumps.delivered,
        client_writes: options.records,
        elapsed: started.elapsed(),
    })
}

/// The part of `records` that belongs to a wave.
fn share_of(records: usize, wave: u32) -> usize {
    let until = |wave: u32| records * wave as usize / WAVES as usize;
    until(wave + 1) - until(wave)
}

fn parked(services: &Services) -> usize {
    let messages = services.queue.messages();
    messages.iter().filter_map(|message| sequence_number(&message.body)).collect::<BTreeSet<_>>().len()
}

/// One pump for each stream shard.
struct Pumps<'a> {
    options: &'a Options,
    services: &'a Services,
    http: &'a FaultyHttp,
    function: Arc<UsageRollup>,
    by_shard: BTreeMap<String, Pump<UsageRollup>>,
    delivered: usize,
    bar: ProgressBar,
}

impl Pumps<'_> {
    async fn deliver(&mut self, records: BTreeMap<String, Vec<StreamRecord>>) -> anyhow::Result<()> {
        for (shard, records) in records {
            self.delivered += records.len();
            if !self.by_shard.contains_key(&shard) {
                let pump = self.pump();
                self.by_shard.insert(shard.clone(), pump);
            }
            let pump = self.by_shard.get_mut(&shard).context("a pump was made for each shard")?;
            let bar = &self.bar;
            pump.deliver(records, |settled| bar.inc(settled as u64)).await?;
        }
        Ok(())
    }

    fn pump(&self) -> Pump<UsageRollup> {
        let chaos = (self.options.faults > 0.0).then(|| Chaos {
            rate: self.options.faults,
            http: self.http.clone(),
            queue: Arc::clone(&self.services.queue),
            rng: StdRng::seed_from_u64(self.options.seed ^ self.by_shard.len() as u64),
        });
        Pump::new(Arc::clone(&self.function), self.options.batch_size, chaos)
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        for pump in self.by_shard.values_mut() {
            pump.finish().await?;
        }
        Ok(())
    }

    fn report(&self) -> RollupReport {
        let mut sum = RollupReport::default();
        for pump in self.by_shard.values() {
            sum += &pump.tally().report;
        }
        sum
    }
}
