//! The rollup at work: clients draw from buckets, the stream is pumped through `usage-rollup` under
//! faults, and every snapshot is compared with what the clients were granted.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
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
    usage_totals::UsageTotals,
};
use tokio::sync::mpsc;
use usage_rollup::{UsageRollup, report::RollupReport};

use crate::{progress::Progress, traffic::Traffic};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Writes that the clients make
    #[arg(long, default_value_t = 20_000, allow_negative_numbers = true)]
    pub records: usize,
    /// Tenants that the clients draw for, each with three resources
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub entities: u32,
    /// Shards of each bucket
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub shards: u32,
    /// Share of deliveries and of writes that go wrong on purpose, from 0 to 0.9
    #[arg(long, default_value = "0.2", value_parser = share, allow_negative_numbers = true)]
    pub faults: f64,
    /// What the clients do and how faults are drawn; two runs differ in what meets what at which moment
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The most records in one invocation, up to 10000
    #[arg(long, default_value = "500", value_parser = batch_size)]
    pub batch_size: NonZeroUsize,
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

/// The clients' writes come in so many waves, with the stream read behind each.
const WAVES: u32 = 24;
/// 2025-12-31T21:10:00Z: an hour, a day, a month and a year end within the run.
const START: i64 = 1_767_215_400_000;
/// Simulated time between two waves.
const STEP: i64 = 17 * 60 * 1000;
/// Of the faults, the share that is poison.
const POISON: f64 = 0.01;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What the clients were granted.
    pub ledger: UsageTotals,
    /// What the snapshots say.
    pub books: UsageTotals,
    /// The function's counts, over all invocations that came to an end.
    pub report: RollupReport,
    /// Invocations that came to an end.
    pub invocations: u64,
    pub delivery_faults: BTreeMap<Fault, usize>,
    pub call_faults: FaultCounts,
    /// Conditional writes that reached the table.
    pub table_writes: usize,
    /// Poison records that the clients wrote, and how many of them are in the dead-letter queue.
    pub poison: (usize, usize),
    /// Records of the stream, those of the snapshots among them.
    pub delivered: usize,
    pub client_writes: usize,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// One line for everything that is not as it should be.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.books.differences(&self.ledger);
        let (written, parked) = self.poison;
        if written != parked {
            problems.push(format!("{written} poison records were written, {parked} are in the dead-letter queue"));
        }
        problems
    }

    /// What the process is to end with: 0 if everything is as it should be, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.problems().is_empty())
    }
}

/// Runs clients and rollup against the services.
pub async fn run(options: &Options, services: &Services, progress: &Progress) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let http = FaultyHttp::new(FaultRates::spread(options.faults), options.seed);
    let mut pumps = Pumps {
        options,
        services,
        http: &http,
        function: usage_rollup(services, &http),
        by_shard: BTreeMap::new(),
        delivered: 0,
    };
    let mut clients =
        Traffic::new(services.dynamodb.clone(), &services.table, options.entities, options.shards, options.seed);
    let mut reader = StreamReader::new(services.streams.clone(), services.stream_arn().await?);

    let (sender, mut receiver) = mpsc::channel(1);
    let write = async {
        for wave in 0..WAVES {
            let now = EpochMillis::new(START + i64::from(wave) * STEP)?;
            let acts = share_of(options.records, wave);
            clients.act(now, acts, options.faults * POISON, || progress.wrote()).await?;
            let records = reader.drain(now).await?;
            progress.read(records.values().map(Vec::len).sum());
            if sender.send(records).await.is_err() {
                break;
            }
        }
        drop(sender);
        anyhow::Ok(())
    };
    let deliver = async {
        while let Some(records) = receiver.recv().await {
            pumps.deliver(records, progress).await?;
        }
        anyhow::Ok(())
    };
    futures::try_join!(write, deliver)?;
    pumps.finish().await?;

    // What is left are the snapshots' own records: they must cause nothing.
    let own = reader.drain(EpochMillis::new(START)?).await?;
    progress.read(own.values().map(Vec::len).sum());
    let postings = pumps.report().postings;
    pumps.deliver(own, progress).await?;
    pumps.finish().await?;
    ensure!(pumps.report().postings == postings, "writes of the rollup caused further writes");

    progress.finish();
    let tallies: Vec<_> = pumps.by_shard.values().map(Pump::tally).collect();
    let mut delivery_faults = BTreeMap::new();
    for (fault, count) in tallies.iter().flat_map(|tally| &tally.faults) {
        *delivery_faults.entry(*fault).or_default() += count;
    }
    Ok(Outcome {
        ledger: clients.ledger().clone(),
        books: UsageTotals::read(&services.dynamodb, &services.table).await?,
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

/// How many of `records` belong to a wave, so that all waves have all of them.
fn share_of(records: usize, wave: u32) -> usize {
    let until = |wave: u32| records * wave as usize / WAVES as usize;
    until(wave + 1) - until(wave)
}

fn parked(services: &Services) -> usize {
    let messages = services.queue.messages();
    messages.iter().filter_map(|message| sequence_number(&message.body)).collect::<BTreeSet<_>>().len()
}

/// One pump a stream shard.
struct Pumps<'a> {
    options: &'a Options,
    services: &'a Services,
    http: &'a FaultyHttp,
    function: Arc<UsageRollup>,
    by_shard: BTreeMap<String, Pump<UsageRollup>>,
    delivered: usize,
}

impl Pumps<'_> {
    async fn deliver(
        &mut self,
        records: BTreeMap<String, Vec<StreamRecord>>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        for (shard, records) in records {
            self.delivered += records.len();
            if !self.by_shard.contains_key(&shard) {
                let pump = self.pump();
                self.by_shard.insert(shard.clone(), pump);
            }
            let pump = self.by_shard.get_mut(&shard).context("a pump was made for each shard")?;
            pump.deliver(records, |settled| progress.delivered(settled)).await?;
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
