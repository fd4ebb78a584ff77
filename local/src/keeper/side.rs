//! One side of the comparison: a table, its clients and their clock, with the keeper or without it.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bucket_keeper::report::Report;
use futures::{StreamExt as _, stream};
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Namespace, Resource, Shard},
    time::EpochMillis,
};
use tokio::time::Instant;

use super::{
    client::{Acquired, Clients},
    function::{TimedKeeper, function},
    measured::Measured,
    phases::{self, IDLE, IDLE_MINUTES, IDLE_SHARDS, Phase},
};
use crate::{
    faults::{FaultRates, FaultyHttp},
    mapping::{MAX_BATCH_SIZE, Settings, StreamRecord},
    pump::Pump,
    services::Services,
    stream::StreamReader,
};

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
/// All acquires of a tick are under way at once.
const TICK: i64 = 25;
const TICKS: usize = 40;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;
/// The most connections of the clients.
const CONNECTIONS: usize = 64;
/// From the end of a batching window to the function.
const DELAY: i64 = 250;
/// Time for an invocation: more than any needs here.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A table and its clients.
#[derive(Debug)]
pub(crate) struct Side {
    services: Services,
    /// The clients' connection to the table.
    http: FaultyHttp,
    keeper: Option<Keeper>,
    clock: i64,
    rng: StdRng,
    progress: ProgressBar,
}

#[derive(Debug)]
struct Keeper {
    function: Arc<TimedKeeper>,
    /// A new one each phase, for its counts.
    pump: Pump<TimedKeeper>,
    http: FaultyHttp,
    reader: StreamReader,
    /// The batching window, in milliseconds.
    window: i64,
    /// Records that were read and not delivered yet.
    waiting: Vec<StreamRecord>,
    repairs: Report,
}

impl Side {
    /// A side with the keeper, fed at the end of each batching `window` of so many seconds, or without.
    pub(crate) async fn new(window: Option<u32>, seed: u64, progress: ProgressBar) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-keeper").await?;
        let keeper = match window {
            Some(seconds) => Some(Keeper::new(&services, i64::from(seconds) * SECOND).await?),
            None => None,
        };
        let http = FaultyHttp::new(FaultRates::default(), 0);
        Ok(Self { services, http, keeper, clock: START, rng: StdRng::seed_from_u64(seed), progress })
    }

    /// Runs a phase with traffic.
    pub(crate) async fn run(&mut self, phase: &Phase) -> anyhow::Result<Measured> {
        self.begin().await?;
        let clients = self.clients(phase.name, phase.tokens)?;
        let mut measured = Measured::new(phase.name, phase.terms, self.clock);
        let units = self.units();
        for acquires in phase.by_second() {
            let mut ticks = [0_usize; TICKS];
            for _ in 0..acquires {
                ticks[self.rng.random_range(0..TICKS)] += 1;
            }
            for acquires in ticks {
                let now = self.now()?;
                let acquired = self.acquire(&clients, acquires, now).await?;
                measured.take(&acquired, phase.tokens, now);
                self.progress.inc(acquires as u64);
                self.pass(TICK).await?;
            }
            self.sample(&clients, &mut measured).await?;
        }
        self.end(&clients, measured, units).await
    }

    /// Drains the last shard of a bucket, and leaves the bucket alone.
    pub(crate) async fn idle(&mut self) -> anyhow::Result<Measured> {
        self.begin().await?;
        let terms = phases::terms(IDLE);
        let (clients, share) = (self.clients(IDLE, 1)?, terms.capacity / i64::from(IDLE_SHARDS));
        let mut measured = Measured::new(IDLE, terms, self.clock);
        let units = self.units();
        for shard in 0..IDLE_SHARDS {
            clients.create(shard, IDLE_SHARDS, share * 1000, self.now()?).await?;
        }
        let drained = IDLE_SHARDS - 1;
        let now = self.now()?;
        clients.drain(drained, share, now).await?;
        measured.take(&vec![Acquired::Speculatively; usize::try_from(share)?], 1, now);
        self.pass(SECOND).await?;
        self.settle().await?;
        for _ in 0..IDLE_MINUTES * 2 {
            let held = clients.held(drained).await?.context("a drained shard is gone")?;
            measured.drained.push(held.tokens / 1000);
            self.pass(MINUTE / 2).await?;
        }
        let held = clients.held(drained).await?.context("a drained shard is gone")?;
        measured.drained.push(held.tokens / 1000);
        self.end(&clients, measured, units).await
    }

    fn clients(&self, phase: &str, tokens: i64) -> anyhow::Result<Clients> {
        let dynamodb = self.services.client(self.http.clone());
        Ok(Clients::new(dynamodb, &self.services.table, key(phase)?, phases::terms(phase), tokens))
    }

    async fn acquire(&mut self, clients: &Clients, acquires: usize, now: EpochMillis) -> anyhow::Result<Vec<Acquired>> {
        let shards: Vec<u32> = (0..acquires).map(|_| clients.draw(&mut self.rng)).collect();
        let under_way = stream::iter(shards).map(|shard| clients.acquire(shard, now)).buffer_unordered(CONNECTIONS);
        under_way.collect::<Vec<_>>().await.into_iter().collect()
    }

    /// Notes what a bucket holds.
    async fn sample(&self, clients: &Clients, measured: &mut Measured) -> anyhow::Result<()> {
        let held = clients.all_held().await?;
        measured.sample(held.iter().map(|held| held.tokens / 1000).sum(), held.first().map_or(0, |zero| zero.shards));
        Ok(())
    }

    /// A phase begins with a minute.
    async fn begin(&mut self) -> anyhow::Result<()> {
        self.clock = self.clock.div_euclid(MINUTE) * MINUTE + MINUTE;
        if let Some(keeper) = &mut self.keeper {
            keeper.repair(self.clock).await?;
            keeper.begin();
        }
        Ok(())
    }

    /// Lets what is still under way reach the keeper.
    async fn settle(&mut self) -> anyhow::Result<()> {
        let window = self.keeper.as_ref().map_or(0, |keeper| keeper.window);
        for _ in 0..(window + SECOND) / TICK {
            self.pass(TICK).await?;
        }
        Ok(())
    }

    async fn end(&mut self, clients: &Clients, mut measured: Measured, units: Units) -> anyhow::Result<Measured> {
        self.settle().await?;
        let now = self.units();
        measured.client_units = now.clients - units.clients;
        measured.keeper_units = now.keeper - units.keeper;
        measured.report = self.keeper.as_ref().map(Keeper::report).unwrap_or_default();
        let held = clients.all_held().await?;
        measured.shards = held.first().map_or(0, |zero| zero.shards);
        measured.existing = held.len();
        Ok(measured)
    }

    /// Lets time pass.
    async fn pass(&mut self, millis: i64) -> anyhow::Result<()> {
        let until = self.clock + millis;
        while self.clock < until {
            self.clock += DELAY.min(until - self.clock);
            if let Some(keeper) = &mut self.keeper {
                keeper.pass(self.clock).await?;
            }
        }
        Ok(())
    }

    fn now(&self) -> anyhow::Result<EpochMillis> {
        Ok(EpochMillis::new(self.clock)?)
    }

    fn units(&self) -> Units {
        let keeper = self.keeper.as_ref().map_or(0, |keeper| keeper.http.write_units());
        Units { clients: self.http.write_units(), keeper }
    }
}

#[derive(Clone, Copy, Debug)]
struct Units {
    clients: u64,
    keeper: u64,
}

impl Keeper {
    async fn new(services: &Services, window: i64) -> anyhow::Result<Self> {
        let http = FaultyHttp::new(FaultRates::default(), 0);
        let function = function(services, &http, EpochMillis::new(START)?)?;
        Ok(Self {
            pump: pump(&function),
            function,
            http,
            reader: StreamReader::new(services.streams.clone(), services.stream_arn().await?),
            window,
            waiting: Vec::new(),
            repairs: Report::default(),
        })
    }

    /// Begins to count anew.
    fn begin(&mut self) {
        self.pump = pump(&self.function);
        self.repairs = Report::default();
    }

    /// What was done since then.
    fn report(&self) -> Report {
        let mut report = self.pump.tally().report.clone();
        report += &self.repairs;
        report
    }

    /// It is `now`: the stream is read at the end of each second, and delivered a while after the end of each
    /// batching window; each minute, there is a repair.
    async fn pass(&mut self, now: i64) -> anyhow::Result<()> {
        if now % SECOND == 0 {
            let drained = self.reader.drain(EpochMillis::new(now - SECOND)?).await?;
            self.waiting.extend(drained.into_values().flatten());
        }
        if now % self.window == DELAY && !self.waiting.is_empty() {
            self.function.set_now(EpochMillis::new(now)?);
            self.pump.deliver(std::mem::take(&mut self.waiting), |_| ()).await?;
        }
        if now % MINUTE == 0 {
            self.repair(now).await?;
        }
        Ok(())
    }

    async fn repair(&mut self, now: i64) -> anyhow::Result<()> {
        self.function.set_now(EpochMillis::new(now)?);
        let repaired = self.function.repair(Instant::now() + TIMEOUT).await;
        self.repairs += &repaired.report;
        Ok(())
    }
}

fn pump(function: &Arc<TimedKeeper>) -> Pump<TimedKeeper> {
    let settings = Settings { batch_size: MAX_BATCH_SIZE, bisect: true, max_retries: None };
    Pump::new(Arc::clone(function), settings, None)
}

fn key(phase: &str) -> Result<BucketKey<'static>, InvalidName> {
    Ok(BucketKey {
        namespace: Namespace::new("TQ5vSMvQTm4")?,
        entity: Entity::new(format!("{phase}-1"))?,
        resource: Resource::new("api")?,
        shard: Shard::ZERO,
    })
}
