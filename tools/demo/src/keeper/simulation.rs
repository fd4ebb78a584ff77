//! One run of all phases: a table, its clients and their clock, with the keeper in some processes or without it.

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
    client::{Clients, held},
    figures::{Figures, Units},
    phases::{self, DRAINS, IDLE_SHARDS, Phase},
};

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
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

#[derive(Debug)]
pub(crate) struct SimulationRun {
    services: Services,
    /// The clients' connection to the table.
    http: FaultyHttp,
    keeper: Option<Keeper>,
    clock: i64,
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
    /// A run with so many processes of the keeper, each with a memory of its own. They receive the batches and the
    /// repairs in turn.
    pub(crate) async fn new(processes: usize, seed: u64, progress: ProgressBar) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-keeper").await?;
        let keeper = match processes {
            0 => None,
            processes => Some(Keeper::new(&services, processes).await?),
        };
        let http = FaultyHttp::new(FaultRates::default(), 0);
        Ok(Self { services, http, keeper, clock: START, seed, progress })
    }

    /// Runs all phases, of which the steady one takes so many seconds.
    pub(crate) async fn run(mut self, seconds: u32) -> anyhow::Result<Vec<Figures>> {
        let mut figures = Vec::new();
        for phase in phases::with_traffic(seconds) {
            figures.push(self.phase(&phase).await.with_context(|| format!("phase {}", phase.name))?);
        }
        figures.push(self.phase(&phases::idle()).await.context("phase idle")?);
        Ok(figures)
    }

    async fn phase(&mut self, phase: &Phase) -> anyhow::Result<Figures> {
        // A phase begins with a minute, behind the repair.
        self.pass(MINUTE - self.clock % MINUTE).await?;
        if let Some(keeper) = &mut self.keeper {
            keeper.reset_counts();
        }
        let bucket = key(phase.name)?;
        let dynamodb = self.services.client(self.http.clone());
        let mut clients = Clients::new(dynamodb, &self.services.table, bucket.clone(), phase, self.seed);
        let mut figures = Figures::new(phase, self.clock);
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
        let (held, shards) = self.held(&bucket).await?;
        (figures.shards, figures.existing) = (shards, held.len());
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
            let (held, shards) = self.held(&key(phase.name)?).await?;
            figures.stored.push(held.values().sum());
            figures.shards_by_second.push(shards.into());
        }
        // What is still under way reaches the keeper.
        self.pass(2 * SECOND).await
    }

    /// Drains the last shard of a bucket and leaves it alone for a minute, again and again.
    async fn idle(&mut self, phase: &Phase, clients: &mut Clients, figures: &mut Figures) -> anyhow::Result<()> {
        let (share, drained) = (phase.terms.capacity / i64::from(IDLE_SHARDS), IDLE_SHARDS - 1);
        for shard in 0..IDLE_SHARDS {
            clients.create(shard, IDLE_SHARDS, share * 1000, self.now()?).await?;
        }
        // These shards are the setting, not what the phase shows.
        clients.created = 0;
        for _ in 0..DRAINS {
            self.pass(SECOND).await?;
            let now = self.now()?;
            for _ in 0..share {
                figures.count(clients.acquire_from(drained, now).await?, phase.tokens, now);
            }
            for rest in [0, MINUTE] {
                self.pass(rest).await?;
                let (held, _) = self.held(&key(phase.name)?).await?;
                figures.drained.push(*held.get(&drained).context("the drained shard is gone")?);
            }
        }
        Ok(())
    }

    /// What the shards of a bucket hold, at no cost to the clients, and how many shard 0 counts.
    async fn held(&self, bucket: &BucketKey<'_>) -> anyhow::Result<(BTreeMap<u32, i64>, u32)> {
        held(&self.services.dynamodb, &self.services.table, bucket).await
    }

    /// Lets time pass.
    async fn pass(&mut self, millis: i64) -> anyhow::Result<()> {
        let until = self.clock + millis;
        while self.clock < until {
            self.clock = until.min(self.clock - self.clock % DELAY + DELAY);
            if let Some(keeper) = &mut self.keeper {
                keeper.pass(self.clock).await?;
            }
        }
        Ok(())
    }

    fn now(&self) -> anyhow::Result<EpochMillis> {
        Ok(EpochMillis::new(self.clock)?)
    }

    /// What the clients and the keeper cost so far.
    fn units(&self) -> (Units, Units) {
        let of = |http: &FaultyHttp| Units { write: http.write_units(), half_read: http.half_read_units() };
        (of(&self.http), self.keeper.as_ref().map(|keeper| of(&keeper.http)).unwrap_or_default())
    }
}

impl Keeper {
    async fn new(services: &Services, processes: usize) -> anyhow::Result<Self> {
        let http = FaultyHttp::new(FaultRates::default(), 0);
        let processes = (0..processes)
            .map(|_| bucket_keeper(services, &http, EpochMillis::new(START)?))
            .collect::<anyhow::Result<Vec<_>>>()?;
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

    /// What all processes have done since the counts were reset.
    fn report(&self) -> KeeperReport {
        let mut report = self.repaired.clone();
        for pump in &self.pumps {
            report += &pump.tally().report;
        }
        report
    }

    /// Does what is due at the moment `now`: the records of a batching window are read at its end and delivered a
    /// while later; each minute, there is a repair.
    async fn pass(&mut self, now: i64) -> anyhow::Result<()> {
        if now % WINDOW == 0 {
            let drained = self.reader.drain(EpochMillis::new(now - SECOND)?).await?;
            self.waiting.extend(drained.into_values().flatten());
        }
        if now % WINDOW == DELAY && !self.waiting.is_empty() {
            let process = self.batches % self.processes.len();
            self.batches += 1;
            self.processes[process].set_now(EpochMillis::new(now)?);
            self.pumps[process].deliver(std::mem::take(&mut self.waiting), |_| ()).await?;
        }
        if now % MINUTE == 0 {
            let process = &self.processes[self.repairs % self.processes.len()];
            self.repairs += 1;
            process.set_now(EpochMillis::new(now)?);
            self.repaired += &process.repair(Instant::now() + TIMEOUT).await.report;
        }
        Ok(())
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
