//! Clients at work in simulated time, with the sweeper or without it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_aws::{
    client,
    table::{self, TokenTables},
};
use tidegate_domain::{sweep::TokenKey, time::EpochMillis};

use super::{
    Measured,
    client::{Clients, LIMITS, Limit, RESERVED, capacity},
    event::{self, Kind},
    ledger::{End, Ledger, RECONCILE_EVERY},
    life::{Fate, HELD, HELD_FOR_LONG, Life},
    sweeper::Sweeper,
};
use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    emr::EmbeddedEmr,
    faults::{FaultRates, FaultyHttp, sdk_config},
};

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600;
const BASE_NAME: &str = "demo";
/// The mapping's batching window, in seconds.
const WINDOW: i64 = 5;
const SAMPLE_EVERY: i64 = 60;
/// Seconds in which every event has come and every message is done with or parked.
const LAST_EVENTS: i64 = 3_600;
/// One event in so many is followed by one of no use.
const STRAYS: usize = 15;

/// What is to be done at a moment.
#[derive(Debug)]
enum Action {
    Reserve { worker: usize },
    Start(Task),
    Write(Task),
    End(Task),
    Send(String),
    Poll,
    Reconcile,
    Sample,
}

/// A client that runs one resource after the other.
#[derive(Debug)]
struct Worker {
    limit: &'static Limit,
    rng: StdRng,
    /// Seconds until it asks again for a token that it did not get.
    patience: i64,
}

/// A resource of a worker.
#[derive(Clone, Debug)]
struct Task {
    worker: usize,
    key: TokenKey,
    number: usize,
    /// `None` if it outlives the run.
    fate: Option<Fate>,
    life: Life,
}

#[derive(Debug)]
pub(super) struct SimulationRun {
    clients: Clients,
    workers: Vec<Worker>,
    agenda: BTreeMap<(i64, usize), Action>,
    planned: usize,
    now: i64,
    ledger: Ledger,
    sweeper: Option<Sweeper>,
    measured: Measured,
    /// Resources that may still be started, whose end is awaited, and that were started.
    to_start: usize,
    under_way: usize,
    numbered: usize,
    is_at_work: bool,
    bar: ProgressBar,
    emr: EmbeddedEmr,
    _dynamodb: EmbeddedDynamoDb,
}

impl SimulationRun {
    pub(super) async fn new(swept: bool, events: usize, seed: u64, bar: ProgressBar) -> anyhow::Result<Self> {
        let (dynamodb, emr) = (EmbeddedDynamoDb::start(None).await?, EmbeddedEmr::start().await?);
        let client = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::new(FaultRates::default(), 0)));
        let tables = TokenTables::of(BASE_NAME);
        table::create_token_tables(&client, &tables).await.context("the token tables")?;
        let sweeper = swept.then(|| Sweeper::new(BASE_NAME, dynamodb.endpoint(), emr.endpoint(), seed)).transpose()?;
        let mut side = Self {
            clients: Clients { dynamodb: client, table: tables.non_fungible },
            workers: Vec::new(),
            agenda: BTreeMap::new(),
            planned: 0,
            now: START,
            ledger: Ledger::default(),
            sweeper,
            measured: Measured::default(),
            to_start: events,
            under_way: 0,
            numbered: 0,
            is_at_work: true,
            bar,
            emr,
            _dynamodb: dynamodb,
        };
        side.settle_in(seed).await?;
        Ok(side)
    }

    /// Each account has a resource that outlives the run, and clients that leave tokens to spare.
    async fn settle_in(&mut self, seed: u64) -> anyhow::Result<()> {
        for limit in &LIMITS {
            for place in 1..limit.tokens - 2 {
                let worker = self.workers.len();
                let rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(worker as u64));
                self.workers.push(Worker { limit, rng, patience: SAMPLE_EVERY });
                if place == 1 {
                    let life = Life { start: 5, write: 5, end: 0, told: vec![] };
                    self.reserve(worker, None, life).await?;
                }
                let at = self.workers[worker].rng.random_range(0..300);
                self.plan(at, Action::Reserve { worker });
            }
        }
        self.plan(WINDOW, Action::Poll);
        self.plan(RECONCILE_EVERY, Action::Reconcile);
        self.plan(0, Action::Sample);
        Ok(())
    }

    /// Works until all that was to be started has ended, or for so many seconds; how long it took.
    pub(super) async fn work(&mut self, seconds: Option<i64>) -> anyhow::Result<i64> {
        let until = seconds.map(|seconds| START + seconds);
        while (until.is_some() || self.to_start + self.under_way > 0) && self.act_next(until).await? {}
        self.measured.live = self.live().await?;
        Ok(self.now - START)
    }

    /// Lets everything come to rest: events, redeliveries, what expires, and the reconciles behind that.
    pub(super) async fn rest(&mut self) -> anyhow::Result<()> {
        self.is_at_work = false;
        let until = self.ledger.last_expiry().max(self.now + LAST_EVENTS) + 2 * RECONCILE_EVERY;
        while self.act_next(Some(until)).await? {}
        self.now = until;
        self.ledger.compare_at_rest(&self.clients.all().await?, self.now);
        self.measured.live = self.live().await?;
        Ok(())
    }

    pub(super) fn into_measured(self) -> Measured {
        let Ledger { leaked, taken, .. } = &self.ledger;
        let (leaked, taken) = (leaked.iter().cloned().collect(), taken.iter().cloned().collect());
        let running = self.ledger.running(self.now);
        let tally = self.sweeper.map(Sweeper::into_tally).unwrap_or_default();
        self.bar.finish();
        Measured { running, leaked, taken, tally, ..self.measured }
    }

    /// Does what is next; whether there was anything until that moment.
    async fn act_next(&mut self, until: Option<i64>) -> anyhow::Result<bool> {
        let Some(next) = self.agenda.first_entry() else { return Ok(false) };
        let (at, _) = *next.key();
        if until.is_some_and(|until| at > until) {
            return Ok(false);
        }
        self.now = at;
        let action = next.remove();
        self.act(action).await?;
        Ok(true)
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<()> {
        match action {
            Action::Reserve { worker } if self.to_start > 0 => self.reserve_next(worker).await?,
            Action::Reserve { .. } => {}
            Action::Start(task) => self.start(task)?,
            Action::Write(task) => self.write(task).await?,
            Action::End(task) => self.end(&task)?,
            Action::Send(event) => {
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.queue.send(event, self.now);
                }
            }
            Action::Poll => {
                let moment = self.moment()?;
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.poll(self.now, moment).await?;
                }
                self.plan(WINDOW, Action::Poll);
            }
            Action::Reconcile => {
                let moment = self.moment()?;
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.reconcile(moment).await?;
                }
                self.plan(RECONCILE_EVERY, Action::Reconcile);
            }
            Action::Sample => self.sample().await?,
        }
        Ok(())
    }

    async fn reserve_next(&mut self, worker: usize) -> anyhow::Result<()> {
        let fate = Fate::of(self.numbered);
        let life = Life::draw(fate, &mut self.workers[worker].rng);
        if self.reserve(worker, Some(fate), life).await? {
            self.workers[worker].patience = SAMPLE_EVERY;
        } else {
            let patience = self.workers[worker].patience;
            self.workers[worker].patience = (patience * 2).min(8 * SAMPLE_EVERY);
            self.plan(patience, Action::Reserve { worker });
        }
        Ok(())
    }

    /// Reserves a token for a resource that is to live so: whether there was one.
    async fn reserve(&mut self, worker: usize, fate: Option<Fate>, life: Life) -> anyhow::Result<bool> {
        let (limit, number) = (self.workers[worker].limit, self.numbered);
        let key =
            TokenKey { coordinate: limit.coordinate(), reservation: format!("00000000-0000-4000-9000-{number:012}") };
        if !self.clients.reserve(limit, &key.reservation, self.now).await? {
            self.measured.refused += 1;
            return Ok(false);
        }
        self.numbered += 1;
        self.measured.reserved += 1;
        self.ledger.reserved(key.clone(), self.now, self.now + RESERVED);
        if fate == Some(Fate::Abandoned) {
            self.measured.abandoned += 1;
            self.plan(SAMPLE_EVERY, Action::Reserve { worker });
        } else {
            self.started(fate);
            self.plan(life.start, Action::Start(Task { worker, key, number, fate, life }));
        }
        Ok(true)
    }

    fn started(&mut self, fate: Option<Fate>) {
        if fate.is_some() {
            self.to_start = self.to_start.saturating_sub(1);
            self.under_way += 1;
        }
    }

    fn start(&mut self, task: Task) -> anyhow::Result<()> {
        let (kind, id) = self.resource(&task);
        self.ledger.started(&id);
        if kind == Kind::Cluster {
            self.emr.runs(&id);
        }
        self.plan(0, Action::Send(kind.running(task.number, self.now)?));
        self.plan(task.life.write, Action::Write(task.clone()));
        if task.fate.is_some() {
            self.plan(task.life.end, Action::End(task));
        }
        Ok(())
    }

    async fn write(&mut self, task: Task) -> anyhow::Result<()> {
        let (_, id) = self.resource(&task);
        let expires = self.now + if task.fate.is_some() { HELD } else { HELD_FOR_LONG };
        self.clients.create_token(&task.key, &id, expires).await?;
        self.measured.created += 1;
        self.ledger.held(task.key, &id, self.now, expires);
        Ok(())
    }

    fn end(&mut self, task: &Task) -> anyhow::Result<()> {
        let (kind, id) = self.resource(task);
        let is_cluster = kind == Kind::Cluster;
        if is_cluster {
            self.emr.ends(&id);
        }
        let told = task.life.told.iter().min().map(|after| self.now + after);
        self.ledger.ended(&id, End { at: self.now, told, is_cluster });
        self.measured.lost += usize::from(told.is_none());
        for after in &task.life.told {
            self.plan(*after, Action::Send(kind.end(task.number, self.now)?));
        }
        self.under_way -= 1;
        self.bar.inc(1);
        if task.number.is_multiple_of(STRAYS) {
            self.plan(1, Action::Send(event::stray(task.number / STRAYS, self.now)?));
            self.measured.strays += 1;
            // An event of a cluster that has no token.
            self.plan(1, Action::Send(Kind::Cluster.end(1_000_000 + task.number, self.now)?));
        }
        let (worker, rng) = (task.worker, &mut self.workers[task.worker].rng);
        if task.fate == Some(Fate::Reused) {
            let life = Life::draw(Fate::Plain, rng);
            let number = self.numbered;
            self.numbered += 1;
            self.started(Some(Fate::Plain));
            let next = Task { number, fate: Some(Fate::Plain), life, ..task.clone() };
            self.plan(next.life.start, Action::Start(next));
        } else {
            let pause = rng.random_range(30..300);
            self.plan(pause, Action::Reserve { worker });
        }
        Ok(())
    }

    async fn sample(&mut self) -> anyhow::Result<()> {
        let table = self.clients.all().await?;
        self.ledger.compare(&table, self.now);
        if self.is_at_work {
            let live = i64::try_from(self.live().await?)?;
            self.measured.free.push(i64::try_from(capacity())? - live);
        }
        self.plan(if self.is_at_work { SAMPLE_EVERY } else { RECONCILE_EVERY }, Action::Sample);
        Ok(())
    }

    /// How many tokens and reservations count.
    async fn live(&self) -> anyhow::Result<usize> {
        let (table, now) = (self.clients.all().await?, self.moment()?);
        Ok(table.iter().filter(|token| !token.is_expired(now)).count())
    }

    fn resource(&self, task: &Task) -> (Kind, String) {
        let kind = self.workers[task.worker].limit.kind;
        (kind, kind.id(task.number))
    }

    fn moment(&self) -> anyhow::Result<EpochMillis> {
        Ok(EpochMillis::new(self.now * 1000)?)
    }

    /// Plans something for so many seconds from now.
    fn plan(&mut self, after: i64, action: Action) {
        self.planned += 1;
        self.agenda.insert((self.now + after, self.planned), action);
    }
}
