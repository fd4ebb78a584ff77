//! Clients at work in simulated time, with the sweeper or without it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate::{
    ManualClock,
    reservation::{Reservation, Reservations},
};
use tidegate_aws::{client, table, token_tables::TokenTables};
use tidegate_domain::{sweep::TokenKey, time::EpochMillis};

use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    emr::EmbeddedEmr,
    faults::{FaultRates, FaultyHttp, sdk_config},
};

use super::{
    Figures,
    client::{Clients, LIMITS, Limit, RESERVED, capacity},
    ledger::{End, Ledger, RECONCILE_EVERY},
    resources::{self, HELD, HELD_FOR_LONG, Kind, Scenario, Timing},
    sweeper::Sweeper,
};
use crate::clock::{self, Agenda};

/// When the simulation begins, in epoch seconds: the unit of all its times.
const START: i64 = clock::START.get() / 1000;
const BASE_NAME: &str = "demo";
/// The mapping's batching window, in seconds.
const WINDOW: i64 = 5;
const SAMPLE_EVERY: i64 = 60;
/// Seconds within which every event arrives and every message is deleted or parked.
const LAST_EVENTS: i64 = 3_600;
/// One resource in so many causes an invalid event when it ends.
const STRAYS: usize = 15;

/// What happens next.
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
    /// Whether it uses our client. The others behave like rate-limiter-py.
    is_ours: bool,
    rng: StdRng,
    /// Seconds until it tries again if the limit is reached.
    retry_delay: i64,
}

/// A resource of a worker.
#[derive(Clone, Debug)]
struct Task {
    worker: usize,
    key: TokenKey,
    number: usize,
    /// `None` if it outlives the run.
    scenario: Option<Scenario>,
    timing: Timing,
}

#[derive(Debug)]
pub(crate) struct SimulationRun {
    clients: Clients,
    /// The clock of our client.
    clock: ManualClock,
    /// The reservations of our client that are not bound yet.
    reservations: BTreeMap<TokenKey, Reservation>,
    workers: Vec<Worker>,
    agenda: Agenda<i64, Action>,
    ledger: Ledger,
    sweeper: Option<Sweeper>,
    figures: Figures,
    /// Resources that will still be started.
    to_start: usize,
    /// Resources that were started and will end.
    running: usize,
    /// Resources so far, for their numbers.
    numbered: usize,
    is_at_work: bool,
    bar: ProgressBar,
    emr: EmbeddedEmr,
    _dynamodb: EmbeddedDynamoDb,
}

impl SimulationRun {
    pub(crate) async fn new(with_sweeper: bool, events: usize, seed: u64, bar: ProgressBar) -> anyhow::Result<Self> {
        let (dynamodb, emr) = (EmbeddedDynamoDb::start(None).await?, EmbeddedEmr::start().await?);
        let client = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::new(FaultRates::default(), 0)));
        let tables = TokenTables::of(BASE_NAME);
        table::create_token_tables(&client, &tables).await.context("the token tables")?;
        let sweeper =
            with_sweeper.then(|| Sweeper::new(BASE_NAME, dynamodb.endpoint(), emr.endpoint(), seed)).transpose()?;
        let clock = ManualClock::new(START * 1000);
        let ours = Reservations::builder(client.clone(), tables.clone()).clock(clock.clone()).build();
        let clients = Clients { dynamodb: client, table: tables.non_fungible, ours };
        clients.put_limits(&tables.limits).await?;
        let mut run = Self {
            clients,
            clock,
            reservations: BTreeMap::new(),
            workers: Vec::new(),
            agenda: Agenda::new(START),
            ledger: Ledger::default(),
            sweeper,
            figures: Figures::default(),
            to_start: events,
            running: 0,
            numbered: 0,
            is_at_work: true,
            bar,
            emr,
            _dynamodb: dynamodb,
        };
        Box::pin(run.begin(seed)).await?;
        Ok(run)
    }

    /// For each limit, starts one resource that outlives the run, and fewer clients than it has tokens.
    async fn begin(&mut self, seed: u64) -> anyhow::Result<()> {
        for limit in &LIMITS {
            for place in 1..limit.tokens - 2 {
                let worker = self.workers.len();
                let rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(worker as u64));
                let is_ours = place % 2 == 0;
                self.workers.push(Worker { limit, is_ours, rng, retry_delay: SAMPLE_EVERY });
                if place == 1 {
                    let timing = Timing { start: 5, write: 5, end: 0, event_delays: vec![] };
                    self.reserve(worker, None, timing).await?;
                }
                let at = self.workers[worker].rng.random_range(0..300);
                self.agenda.after(at, Action::Reserve { worker });
            }
        }
        self.agenda.after(WINDOW, Action::Poll);
        self.agenda.after(RECONCILE_EVERY, Action::Reconcile);
        self.agenda.after(0, Action::Sample);
        Ok(())
    }

    /// Works for so many seconds, or until the last resource has ended. Returns how many seconds that took.
    pub(crate) async fn work(&mut self, seconds: Option<i64>) -> anyhow::Result<i64> {
        let until = seconds.map_or(i64::MAX, |seconds| START + seconds);
        while (seconds.is_some() || self.to_start + self.running > 0) && self.act_next(until).await? {}
        self.figures.live = self.live().await?;
        Ok(self.now() - START)
    }

    /// Waits for the last events and redeliveries, the last expiry, and two reconciles.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<()> {
        self.is_at_work = false;
        let until = self.ledger.last_expiry().max(self.now() + LAST_EVENTS) + 2 * RECONCILE_EVERY;
        while self.act_next(until).await? {}
        self.agenda.advance(until);
        self.ledger.compare_at_rest(&self.clients.all().await?, until);
        self.figures.live = self.live().await?;
        Ok(())
    }

    pub(crate) fn into_figures(self) -> Figures {
        let Ledger { leaked, taken, .. } = &self.ledger;
        let (leaked, taken) = (leaked.iter().cloned().collect(), taken.iter().cloned().collect());
        let running = self.ledger.running(self.now());
        let tally = self.sweeper.map(Sweeper::into_tally).unwrap_or_default();
        self.bar.finish();
        Figures { running, leaked, taken, tally, ..self.figures }
    }

    /// Does the next action that is due by then. Returns whether there was one.
    async fn act_next(&mut self, until: i64) -> anyhow::Result<bool> {
        let Some(action) = self.agenda.next(until) else { return Ok(false) };
        self.act(action).await?;
        Ok(true)
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<()> {
        let behind = self.now() * 1000 - self.clock.epoch_millis();
        self.clock.advance(Duration::from_millis(behind.unsigned_abs()));
        match action {
            Action::Reserve { worker } if self.to_start > 0 => self.reserve_next(worker).await?,
            Action::Reserve { .. } => {}
            Action::Start(task) => self.start(task)?,
            Action::Write(task) => self.write(task).await?,
            Action::End(task) => self.end(&task)?,
            Action::Send(event) => {
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.queue.send(event, self.agenda.now());
                }
            }
            Action::Poll => {
                let now = self.now();
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.poll(now).await?;
                }
                self.agenda.after(WINDOW, Action::Poll);
            }
            Action::Reconcile => {
                let now = self.now();
                if let Some(sweeper) = &mut self.sweeper {
                    sweeper.reconcile(now).await?;
                }
                self.agenda.after(RECONCILE_EVERY, Action::Reconcile);
            }
            Action::Sample => self.sample().await?,
        }
        Ok(())
    }

    async fn reserve_next(&mut self, worker: usize) -> anyhow::Result<()> {
        let scenario = match Scenario::of(self.numbered) {
            // Our client binds a reservation once.
            Scenario::Reused if self.workers[worker].is_ours => Scenario::Plain,
            scenario => scenario,
        };
        let timing = Timing::draw(scenario, &mut self.workers[worker].rng);
        if self.reserve(worker, Some(scenario), timing).await? {
            self.workers[worker].retry_delay = SAMPLE_EVERY;
        } else {
            let delay = self.workers[worker].retry_delay;
            self.workers[worker].retry_delay = (delay * 2).min(8 * SAMPLE_EVERY);
            self.agenda.after(delay, Action::Reserve { worker });
        }
        Ok(())
    }

    /// Reserves a token and plans the start of its resource. Returns whether the limit allowed it.
    async fn reserve(&mut self, worker: usize, scenario: Option<Scenario>, timing: Timing) -> anyhow::Result<bool> {
        let number = self.numbered;
        let is_abandoned = scenario == Some(Scenario::Abandoned);
        let Some(key) = self.reserve_token(worker, is_abandoned).await? else {
            self.figures.refused += 1;
            return Ok(false);
        };
        self.numbered += 1;
        self.figures.reserved += 1;
        if is_abandoned {
            self.figures.abandoned += 1;
            self.agenda.after(SAMPLE_EVERY, Action::Reserve { worker });
        } else {
            self.count_start(scenario);
            let start = timing.start;
            self.agenda.after(start, Action::Start(Task { worker, key, number, scenario, timing }));
        }
        Ok(true)
    }

    /// Reserves a token with the worker's client. An abandoned one is freed by our client, and expires with the other.
    async fn reserve_token(&mut self, worker: usize, is_abandoned: bool) -> anyhow::Result<Option<TokenKey>> {
        let (now, Worker { limit, is_ours, .. }) = (self.now(), &self.workers[worker]);
        let key = if *is_ours {
            let Some((key, mut reservation)) = self.clients.reserve_ours(limit).await? else { return Ok(None) };
            if is_abandoned {
                reservation.release().await?;
                return Ok(Some(key));
            }
            self.reservations.insert(key.clone(), reservation);
            key
        } else {
            let reservation = format!("00000000-0000-4000-9000-{:012}", self.numbered);
            if !self.clients.reserve(limit, &reservation, now).await? {
                return Ok(None);
            }
            TokenKey { coordinate: limit.coordinate(), reservation }
        };
        self.ledger.reserved(key.clone(), now, now + RESERVED);
        Ok(Some(key))
    }

    fn count_start(&mut self, scenario: Option<Scenario>) {
        if scenario.is_some() {
            self.to_start = self.to_start.saturating_sub(1);
            self.running += 1;
        }
    }

    fn start(&mut self, task: Task) -> anyhow::Result<()> {
        let (kind, id) = self.resource(&task);
        self.ledger.started(&id);
        if kind == Kind::Cluster {
            self.emr.runs(&id);
        }
        self.agenda.after(0, Action::Send(kind.running(task.number, self.now())?));
        self.agenda.after(task.timing.write, Action::Write(task.clone()));
        if task.scenario.is_some() {
            self.agenda.after(task.timing.end, Action::End(task));
        }
        Ok(())
    }

    async fn write(&mut self, task: Task) -> anyhow::Result<()> {
        let (_, id) = self.resource(&task);
        let lifetime = if task.scenario.is_some() { HELD } else { HELD_FOR_LONG };
        let expires = self.now() + lifetime;
        match self.reservations.remove(&task.key) {
            Some(mut reservation) => {
                reservation.bind(&id, Duration::from_secs(lifetime.unsigned_abs())).await?;
            }
            None => self.clients.create_token(&task.key, &id, expires).await?,
        }
        self.figures.created += 1;
        self.ledger.created(task.key, &id, self.now(), expires);
        Ok(())
    }

    fn end(&mut self, task: &Task) -> anyhow::Result<()> {
        let (kind, id) = self.resource(task);
        let is_cluster = kind == Kind::Cluster;
        if is_cluster {
            self.emr.ends(&id);
        }
        let now = self.now();
        let first_event = task.timing.event_delays.iter().min().map(|delay| now + delay);
        self.ledger.ended(&id, End { at: now, first_event, is_cluster });
        self.figures.lost += usize::from(first_event.is_none());
        for delay in &task.timing.event_delays {
            self.agenda.after(*delay, Action::Send(kind.end(task.number, now)?));
        }
        self.running -= 1;
        self.bar.inc(1);
        if task.number.is_multiple_of(STRAYS) {
            self.agenda.after(1, Action::Send(resources::stray(task.number / STRAYS, now)?));
            self.figures.strays += 1;
            // An event of a cluster that has no token.
            self.agenda.after(1, Action::Send(Kind::Cluster.end(1_000_000 + task.number, now)?));
        }
        let (worker, rng) = (task.worker, &mut self.workers[task.worker].rng);
        if task.scenario == Some(Scenario::Reused) {
            let timing = Timing::draw(Scenario::Plain, rng);
            let number = self.numbered;
            self.numbered += 1;
            self.count_start(Some(Scenario::Plain));
            let next = Task { number, scenario: Some(Scenario::Plain), timing, ..task.clone() };
            self.agenda.after(next.timing.start, Action::Start(next));
        } else {
            let pause = rng.random_range(30..300);
            self.agenda.after(pause, Action::Reserve { worker });
        }
        Ok(())
    }

    async fn sample(&mut self) -> anyhow::Result<()> {
        let table = self.clients.all().await?;
        self.ledger.compare(&table, self.now());
        if self.is_at_work {
            let live = i64::try_from(self.live().await?)?;
            self.figures.free.push(i64::try_from(capacity())? - live);
        }
        self.agenda.after(if self.is_at_work { SAMPLE_EVERY } else { RECONCILE_EVERY }, Action::Sample);
        Ok(())
    }

    /// Counts the tokens and reservations that have not expired.
    async fn live(&self) -> anyhow::Result<usize> {
        let (table, now) = (self.clients.all().await?, moment(self.now())?);
        Ok(table.iter().filter(|token| !token.is_expired(now)).count())
    }

    fn resource(&self, task: &Task) -> (Kind, String) {
        let kind = self.workers[task.worker].limit.kind;
        (kind, kind.id(task.number))
    }

    fn now(&self) -> i64 {
        self.agenda.now()
    }
}

pub(crate) fn moment(seconds: i64) -> anyhow::Result<EpochMillis> {
    Ok(EpochMillis::new(seconds * 1000)?)
}
