//! A model of the store, its workers and two aggregators. Calls are under way until a step delivers or drops them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidegate_domain::{
    lease::{
        EQUAL_WEIGHT, LeaseReport, LeaseTerms, ReportNumber,
        holder::{Basis, LeaseHolder},
        ledger::{Ledger, Sighting, StoredSummary},
    },
    rates::Rates,
    time::EpochMillis,
};

use crate::{at, rate};

/// One process of a worker. Only the last process of a machine runs.
pub(crate) struct Worker {
    id: String,
    started: i64,
    holder: LeaseHolder,
    /// How fast the clock is, in thousandths.
    speed: i64,
    wants: Rates,
    is_running: bool,
}

/// Where a worker runs.
struct Machine {
    /// The place of its last worker.
    worker: usize,
    can_read: bool,
    can_write: bool,
}

struct Aggregator {
    /// The ledger, and the versions of the summaries that were planned with it. `None` after a restart.
    line: Option<(Ledger, BTreeSet<u64>)>,
    speed: i64,
    /// How far the clock is ahead of the store's, in milliseconds.
    ahead: i64,
}

#[derive(Clone)]
struct Summary {
    version: u64,
    terms: LeaseTerms,
    reports: BTreeMap<String, ReportNumber>,
}

/// A call that is under way.
#[derive(Clone)]
enum Call {
    PutReport(usize, LeaseReport),
    /// The store's answer to a put.
    Confirm(usize, ReportNumber),
    /// The summary on its way to a worker.
    GetSummary(usize, LeaseTerms, ReportNumber),
    /// A summary, and the version that it replaces.
    PutSummary(Summary, Option<u64>),
}

/// A step of a history. Numbers choose one of those that there are.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Wait(i64),
    /// The worker wants so much, in millionths of a unit.
    Want(usize, u64, u64),
    Report(usize),
    Read(usize),
    /// The aggregator lists all files, and cannot read those of the workers whose bit is set.
    Plan(usize, u8),
    /// A call that is under way arrives. It may arrive again later.
    Deliver(usize, bool),
    Drop(usize),
    /// The worker reads the summary and reports, and all calls arrive at once.
    Cycle(usize),
    /// The aggregator plans, and the summary arrives at once.
    Aggregate(usize),
    /// So many milliseconds pass, all workers have a cycle, and the first aggregator plans.
    Round(i64),
    /// Whether calls of the machine reach the store: reads and writes.
    Network(usize, bool, bool),
    RestartWorker(usize),
    StopWorker(usize),
    RestartAggregator(usize),
}

pub(crate) struct World {
    /// True time, in milliseconds.
    pub(crate) now: i64,
    cap: Rates,
    workers: Vec<Worker>,
    machines: Vec<Machine>,
    aggregators: Vec<Aggregator>,
    files: BTreeMap<String, (LeaseReport, EpochMillis)>,
    summary: Option<(Summary, EpochMillis)>,
    calls: Vec<Call>,
    versions: u64,
}

impl World {
    /// A fleet with a machine for each speed of a clock, in thousandths, and two aggregators with these speeds and clocks.
    pub(crate) fn new(cap: Rates, speeds: &[i64], aggregators: [(i64, i64); 2]) -> Self {
        let aggregators = aggregators.map(|(speed, ahead)| Aggregator { line: None, speed, ahead }).into();
        let (workers, files, calls) = (Vec::new(), BTreeMap::new(), Vec::new());
        let machines = speeds.iter().map(|_| Machine { worker: 0, can_read: true, can_write: true }).collect();
        let mut world = Self { now: 0, cap, workers, machines, aggregators, files, summary: None, calls, versions: 0 };
        for (machine, speed) in speeds.iter().enumerate() {
            world.start(machine, *speed, Rates { read: rate(1_000_000), write: rate(1_000_000) });
        }
        world
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(millis) => self.now += millis,
            Step::Want(machine, read, write) => {
                self.worker(machine).wants = Rates { read: rate(read), write: rate(write) };
            }
            Step::Report(machine) => self.report(machine),
            Step::Read(machine) => self.read(machine),
            Step::Plan(aggregator, unread) => self.plan(aggregator, unread),
            Step::Deliver(call, again) => self.deliver(call, again),
            Step::Drop(call) if !self.calls.is_empty() => {
                let call = call % self.calls.len();
                self.calls.swap_remove(call);
            }
            Step::Drop(_) => {}
            Step::Cycle(machine) => self.cycle(machine),
            Step::Aggregate(aggregator) => self.aggregate(aggregator),
            Step::Round(wait) => {
                self.now += wait;
                self.round();
            }
            Step::Network(machine, can_read, can_write) => {
                let place = machine % self.machines.len();
                (self.machines[place].can_read, self.machines[place].can_write) = (can_read, can_write);
            }
            Step::RestartWorker(machine) => {
                let (speed, wants) = (self.worker(machine).speed, self.worker(machine).wants);
                self.worker(machine).is_running = false;
                self.start(machine % self.machines.len(), speed, wants);
            }
            Step::StopWorker(machine) => {
                self.worker(machine).is_running = false;
                let id = self.worker(machine).id.clone();
                self.files.remove(&id);
            }
            Step::RestartAggregator(aggregator) => self.aggregator(aggregator).line = None,
        }
    }

    fn round(&mut self) {
        for machine in 0..self.machines.len() {
            self.cycle(machine);
        }
        self.aggregate(0);
    }

    /// Checks the rule: what the workers may use together, by their own clocks and in true time.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut nominal, mut actual) = ([0; 2], [0; 2]);
        for worker in self.workers.iter().filter(|worker| worker.is_running) {
            let allowance = worker.holder.allowance(self.clock(worker));
            if allowance.basis == Basis::Start {
                continue;
            }
            for (kind, rate) in [allowance.rates.read, allowance.rates.write].into_iter().enumerate() {
                let rate = i128::from(rate.millionths());
                nominal[kind] += rate * 1000;
                actual[kind] += rate * i128::from(worker.speed);
            }
        }
        for (kind, cap) in [self.cap.read, self.cap.write].into_iter().enumerate() {
            let cap = i128::from(cap.millionths());
            if nominal[kind] > cap * 980 || actual[kind] > cap * 990 {
                return Err(format!("at {} ms, {} and {} of {cap}", self.now, nominal[kind], actual[kind]));
            }
        }
        Ok(())
    }

    fn clock(&self, worker: &Worker) -> Duration {
        Duration::from_millis(u64::try_from((self.now - worker.started) * worker.speed / 1000).unwrap())
    }

    fn worker(&mut self, machine: usize) -> &mut Worker {
        let machine = machine % self.machines.len();
        &mut self.workers[self.machines[machine].worker]
    }

    fn aggregator(&mut self, aggregator: usize) -> &mut Aggregator {
        let aggregator = aggregator % self.aggregators.len();
        &mut self.aggregators[aggregator]
    }

    fn start(&mut self, machine: usize, speed: i64, wants: Rates) {
        self.machines[machine].worker = self.workers.len();
        let id = format!("{machine}-{}", self.workers.len());
        let holder = LeaseHolder::default();
        self.workers.push(Worker { id, started: self.now, holder, speed, wants, is_running: true });
    }

    /// The machine, and the place of its worker, if that runs.
    fn running(&self, machine: usize) -> Option<(&Machine, usize)> {
        let machine = &self.machines[machine % self.machines.len()];
        self.workers[machine.worker].is_running.then_some((machine, machine.worker))
    }

    fn report(&mut self, machine: usize) {
        let Some((&Machine { can_write, .. }, place)) = self.running(machine) else { return };
        let clock = self.clock(&self.workers[place]);
        let worker = &mut self.workers[place];
        let report = worker.holder.begin_report(worker.wants, EQUAL_WEIGHT, clock);
        if can_write {
            self.calls.push(Call::PutReport(place, report));
        }
    }

    fn read(&mut self, machine: usize) {
        let Some((Machine { can_read: true, .. }, place)) = self.running(machine) else { return };
        let Some((summary, _)) = &self.summary else { return };
        if let Some(seen) = summary.reports.get(&self.workers[place].id) {
            self.calls.push(Call::GetSummary(place, summary.terms, *seen));
        }
    }

    /// The aggregator's own summary may be under way, so the stored one is its own if it has planned it at any time.
    fn plan(&mut self, aggregator: usize, unread: u8) {
        let (base, cap, version) = (self.now, self.cap, self.versions);
        self.versions += 1;
        let stored = self.summary.clone();
        let replaces = stored.as_ref().map(|(summary, _)| summary.version);
        let files: Vec<_> = self.files.iter().map(|(id, file)| (id.clone(), *file)).collect();
        let place = |id: &str| id.split('-').next().and_then(|machine| machine.parse::<u8>().ok()).unwrap_or(0);
        let aggregator = self.aggregator(aggregator);
        let now = at(base * aggregator.speed / 1000 + aggregator.ahead);
        let is_own = |line: &(Ledger, BTreeSet<u64>)| replaces.is_none_or(|replaces| line.1.contains(&replaces));
        let (ledger, versions) = match &mut aggregator.line {
            Some(line) if is_own(line) => line,
            line => {
                let stored =
                    stored.map(|(summary, written)| StoredSummary { written: Some(written), reports: summary.reports });
                line.insert((Ledger::new(stored, now), BTreeSet::new()))
            }
        };
        let sightings = files.iter().map(|(id, (report, written))| Sighting {
            worker: id,
            written: *written,
            report: (unread & (1 << (place(id) % 8)) == 0).then_some(*report),
        });
        let terms = ledger.plan(sightings, cap, Rates::default(), now);
        let reports = ledger.reports().map(|(worker, number)| (worker.to_owned(), number)).collect();
        versions.insert(version);
        self.calls.push(Call::PutSummary(Summary { version, terms, reports }, replaces));
    }

    fn deliver(&mut self, call: usize, again: bool) {
        if self.calls.is_empty() {
            return;
        }
        let place = call % self.calls.len();
        let call = if again { self.calls[place].clone() } else { self.calls.swap_remove(place) };
        // The store truncates times to seconds.
        let written = at(self.now / 1000 * 1000);
        match call {
            Call::PutReport(place, report) => {
                self.files.insert(self.workers[place].id.clone(), (report, written));
                self.calls.push(Call::Confirm(place, report.number));
            }
            Call::Confirm(place, number) => {
                let clock = self.clock(&self.workers[place]);
                self.workers[place].holder.confirm(number, clock);
            }
            Call::GetSummary(place, terms, seen) => {
                let clock = self.clock(&self.workers[place]);
                self.workers[place].holder.adopt(&terms, seen, clock);
            }
            Call::PutSummary(summary, replaces) => {
                if self.summary.as_ref().map(|(stored, _)| stored.version) == replaces {
                    self.summary = Some((summary, written));
                }
            }
        }
    }

    /// Delivers the last call, if there are more than before.
    fn deliver_new(&mut self, before: usize) {
        while self.calls.len() > before {
            self.deliver(self.calls.len() - 1, false);
        }
    }

    fn cycle(&mut self, machine: usize) {
        let before = self.calls.len();
        self.read(machine);
        self.deliver_new(before);
        self.report(machine);
        self.deliver_new(before);
    }

    fn aggregate(&mut self, aggregator: usize) {
        let before = self.calls.len();
        self.plan(aggregator, 0);
        self.deliver_new(before);
    }
}
