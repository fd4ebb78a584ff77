//! One run of all phases: a table, its clients and their clock, with processes of the keeper or without it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use bucket_keeper::report::KeeperReport;
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Namespace, Resource, Shard},
    time::EpochMillis,
};
use tidegate_sandbox::{
    faults::{FaultRates, FaultyHttp},
    functions::{TimedKeeper, bucket_keeper},
    mapping::{MAX_BATCH_SIZE, StreamRecord},
    pump::Pump,
    services::Services,
    stream::StreamReader,
};
use tokio::time::Instant;

use super::{
    client::{Clients, stored_tokens},
    phases::{self, DRAINS, Figures, IDLE_SHARDS, Phase, Units},
};
use crate::clock::{Agenda, START};

/// The resolution of the clients' clock.
const TICK: i64 = 10;
const TICKS: usize = 100;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;
const WINDOW: i64 = SECOND;
/// From the end of a batching window to the function.
const DELAY: i64 = 250;
/// Time for an invocation: more than any needs here.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What happens at the event source mapping of the keeper.
#[derive(Debug)]
enum Event {
    /// A batching window ends: its records are read.
    WindowEnd,
    /// The records of a window are delivered.
    Delivery,
}

#[derive(Debug)]
pub(crate) struct SimulationRun {
    services: Services,
    /// The clients' connection to the table.
    http: FaultyHttp,
    keeper: Option<Keeper>,
    /// In epoch milliseconds.
    agenda: Agenda<i64, Event>,
    seed: u64,
    progress: ProgressBar,
}

/// The keeper's processes, and the event source mapping that invokes them in turn.
#[derive(Debug)]
struct Keeper {
    processes: Vec<Arc<TimedKeeper>>,
    pumps: Vec<Pump<TimedKeeper>>,
    /// The processes' connection to the table.
    http: FaultyHttp,
    reader: StreamReader,
    /// Records that were read and not delivered yet.
    waiting: Vec<StreamRecord>,
    batches: usize,
    repairs: usize,
    repaired: KeeperReport,
}

impl SimulationRun {
    /// A run with so many processes of the keeper, each with its own memory. They receive the batches and the repairs in
    /// turn.
    pub(crate) async fn new(processes: usize, seed: u64, progress: ProgressBar) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-keeper").await?;
        let keeper = match processes {
            0 => None,
            processes => Some(Keeper::new(&services, processes).await?),
        };
        let http = FaultyHttp::new(FaultRates::default(), 0);
        let mut agenda = Agenda::new(START.get());
        if keeper.is_some() {
            agenda.after(WINDOW, Event::WindowEnd);
        }
        Ok(Self { services, http, keeper, agenda, seed, progress })
    }

    /// Runs all phases. The steady one takes so many seconds.
    pub(crate) async fn run(mut self, seconds: u32) -> anyhow::Result<Vec<Figures>> {
        let mut figures = Vec::new();
        for phase in phases::with_traffic(seconds) {
            figures.push(self.phase(&phase).await.with_context(|| format!("phase {}", phase.name))?);
        }
        figures.push(self.phase(&phases::idle()).await.context("phase idle")?);
        Ok(figures)
    }

    async fn phase(&mut self, phase: &Phase) -> anyhow::Result<Figures> {
        // A phase begins with a minute, after the repair.
        self.pass(MINUTE - self.agenda.now() % MINUTE).await?;
        if let Some(keeper) = &mut self.keeper {
            keeper.reset_counts();
        }
        let bucket = key(phase.name)?;
        let dynamodb = self.services.client(self.http.clone());
        let mut clients = Clients::new(dynamodb, &self.services.table, bucket.clone(), phase, self.seed);
        let mut figures = Figures::new(phase, self.agenda.now());
        let units = self.units();
        if phase.name == phases::IDLE {
            self.idle(phase, &mut clients, &mut figures).await?;
        } else {
            self.traffic(phase, &mut clients, &mut figures).await?;
        }
        let now = self.units();
        (figures.clients, figures.keeper) = (now.0.since(units.0), now.1.since(units.1));
        (figures.slow_paths, figures.created) = (clients.slow_paths, clients.created);
        figures.report = self.keeper.as_ref().map(Keeper::report).unwrap_or_default();
        let (stored, shards) = self.stored(&bucket).await?;
        (figures.shards, figures.existing) = (shards, stored.len());
        Ok(figures)
    }

    async fn traffic(&mut self, phase: &Phase, clients: &mut Clients, figures: &mut Figures) -> anyhow::Result<()> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        for acquires in phase.by_second() {
            let mut ticks = [0; TICKS];
            for _ in 0..acquires {
                ticks[rng.random_range(0..TICKS)] += 1;
            }
            for acquires in ticks {
                let now = self.now()?;
                for _ in 0..acquires {
                    figures.count(clients.acquire(now).await?, phase.tokens, now);
                }
                self.progress.inc(acquires);
                self.pass(TICK).await?;
            }
            let (stored, shards) = self.stored(&key(phase.name)?).await?;
            figures.stored.push(stored.values().sum());
            figures.shards_by_second.push(shards.into());
        }
        // The last records reach the keeper.
        self.pass(2 * SECOND).await
    }

    /// Drains the last shard of a bucket and then waits for a minute, several times.
    async fn idle(&mut self, phase: &Phase, clients: &mut Clients, figures: &mut Figures) -> anyhow::Result<()> {
        let (share, drained) = (phase.terms.capacity / i64::from(IDLE_SHARDS), IDLE_SHARDS - 1);
        for shard in 0..IDLE_SHARDS {
            clients.create(shard, IDLE_SHARDS, share * 1000, self.now()?).await?;
        }
        // Count only shards that the phase itself creates.
        clients.created = 0;
        for _ in 0..DRAINS {
            self.pass(SECOND).await?;
            let now = self.now()?;
            for _ in 0..share {
                figures.count(clients.acquire_from(drained, now).await?, phase.tokens, now);
            }
            for rest in [0, MINUTE] {
                self.pass(rest).await?;
                let (stored, _) = self.stored(&key(phase.name)?).await?;
                figures.drained.push(*stored.get(&drained).context("the drained shard is gone")?);
            }
        }
        Ok(())
    }

    /// Reads the shards of a bucket at no cost to the clients.
    async fn stored(&self, bucket: &BucketKey<'_>) -> anyhow::Result<(BTreeMap<u32, i64>, u32)> {
        stored_tokens(&self.services.dynamodb, &self.services.table, bucket).await
    }

    /// Lets time pass.
    async fn pass(&mut self, millis: i64) -> anyhow::Result<()> {
        let until = self.agenda.now() + millis;
        while let Some(event) = self.agenda.next(until) {
            let now = self.now()?;
            let Some(keeper) = &mut self.keeper else { continue };
            match event {
                Event::WindowEnd => {
                    keeper.read(now).await?;
                    self.agenda.after(DELAY, Event::Delivery);
                    self.agenda.after(WINDOW, Event::WindowEnd);
                    if now.get() % MINUTE == 0 {
                        keeper.repair(now).await;
                    }
                }
                Event::Delivery => keeper.deliver(now).await?,
            }
        }
        self.agenda.advance(until);
        Ok(())
    }

    fn now(&self) -> anyhow::Result<EpochMillis> {
        Ok(EpochMillis::new(self.agenda.now())?)
    }

    /// The cost of the clients and of the keeper so far.
    fn units(&self) -> (Units, Units) {
        let of = |http: &FaultyHttp| Units { write: http.write_units(), half_read: http.half_read_units() };
        (of(&self.http), self.keeper.as_ref().map(|keeper| of(&keeper.http)).unwrap_or_default())
    }
}

impl Keeper {
    async fn new(services: &Services, processes: usize) -> anyhow::Result<Self> {
        let http = FaultyHttp::new(FaultRates::default(), 0);
        let processes = (0..processes).map(|_| bucket_keeper(services, &http, START));
        let processes = processes.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self {
            pumps: pumps(&processes),
            processes,
            http,
            reader: StreamReader::new(services.streams.clone(), services.stream_arn().await?),
            waiting: Vec::new(),
            batches: 0,
            repairs: 0,
            repaired: KeeperReport::default(),
        })
    }

    fn reset_counts(&mut self) {
        self.pumps = pumps(&self.processes);
        self.repaired = KeeperReport::default();
    }

    /// The counts of all processes since they were reset.
    fn report(&self) -> KeeperReport {
        let mut report = self.repaired.clone();
        for pump in &self.pumps {
            report += &pump.tally().report;
        }
        report
    }

    /// Reads the records of a batching window at its end.
    async fn read(&mut self, now: EpochMillis) -> anyhow::Result<()> {
        let records = self.reader.drain(EpochMillis::new(now.get() - WINDOW)?).await?;
        self.waiting.extend(records.into_values().flatten());
        Ok(())
    }

    async fn deliver(&mut self, now: EpochMillis) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let process = self.batches % self.processes.len();
        self.batches += 1;
        self.processes[process].set_now(now);
        self.pumps[process].deliver(std::mem::take(&mut self.waiting), |_| ()).await
    }

    async fn repair(&mut self, now: EpochMillis) {
        let process = &self.processes[self.repairs % self.processes.len()];
        self.repairs += 1;
        process.set_now(now);
        self.repaired += &process.repair(Instant::now() + TIMEOUT).await.report;
    }
}

fn pumps(processes: &[Arc<TimedKeeper>]) -> Vec<Pump<TimedKeeper>> {
    processes.iter().map(|process| Pump::new(Arc::clone(process), MAX_BATCH_SIZE, None)).collect()
}

fn key(phase: &str) -> anyhow::Result<BucketKey<'static>> {
    Ok(BucketKey {
        namespace: Namespace::new("TQ5vSMvQTm4")?,
        entity: Entity::new(format!("{phase}-1"))?,
        resource: Resource::new("api")?,
        shard: Shard::ZERO,
    })
}
