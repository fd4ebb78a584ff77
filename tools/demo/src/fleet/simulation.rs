//! A scenario, played on a virtual clock, and what was observed: second by second, and aggregation by aggregation.

use std::{collections::BTreeMap, time::Duration};

use tidegate_domain::{
    rates::{
        Cutoff, Field, Report, judge,
        summary::{Previous, Replacement, decide_replacement},
        tally::Tally,
        wait,
    },
    time::EpochMillis,
};

use super::{
    random::SeededRandom,
    scenario::Scenario,
    worker::{Worker, WorkerId, WorkerReport},
};
use crate::clock::{Agenda, START};

/// How often workers report and the aggregator sums up, on average.
const INTERVAL: Duration = Duration::from_secs(5);

/// What was observed of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetTrace {
    pub(crate) seconds: Vec<Second>,
    pub(crate) aggregations: Vec<Aggregation>,
}

/// One second, by member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Second {
    /// Capacity units that were consumed.
    pub(crate) consumed: Vec<f64>,
    /// The limit at the end of the second; 0 for a member that has not joined yet.
    pub(crate) limits: Vec<f64>,
}

impl Second {
    /// The capacity units that the fleet has consumed.
    pub(crate) fn total(&self) -> f64 {
        self.consumed.iter().sum()
    }
}

/// An aggregation: the reports that existed at this moment, and what the aggregator makes of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregation {
    pub(crate) at: EpochMillis,
    pub(crate) reports: Vec<WorkerReport>,
    pub(crate) tally: Tally,
}

/// Plays a scenario. The same seed gives the same trace.
pub(crate) fn run(scenario: &Scenario, seed: u64) -> FleetTrace {
    let mut simulation = Simulation::new(scenario, seed);
    while let Some(event) = simulation.agenda.next(moment(scenario.length)) {
        simulation.handle(event);
    }
    simulation.trace
}

#[derive(Clone, Copy)]
enum Event {
    /// A second has passed.
    Second(u32),
    /// A member's first worker starts.
    Join(usize),
    /// A random worker dies, and another one takes its place.
    Die,
    /// A worker has waited, and reports.
    Report(WorkerId),
    /// The report arrives in S3.
    Reported(WorkerReport),
    /// The worker receives the summary.
    Answered(WorkerId),
    /// The aggregator sums up.
    Aggregate,
    /// Its summary arrives in S3.
    Summarised(Summary),
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    random: SeededRandom,
    agenda: Agenda<EpochMillis, Event>,
    workers: Vec<Option<Worker>>,
    /// By member, how far its clock is ahead, in milliseconds.
    skews: Vec<i64>,
    storage: Storage,
    second: Second,
    trace: FleetTrace,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let members = scenario.members.len();
        let mut simulation = Self {
            scenario,
            skews: (0..members).map(|_| skew(scenario.conditions.skew, &mut random)).collect(),
            random,
            agenda: Agenda::new(START),
            workers: (0..members).map(|_| None).collect(),
            storage: Storage::default(),
            second: Second { consumed: vec![0.0; members], limits: vec![0.0; members] },
            trace: FleetTrace::default(),
        };
        // First, so that a second is over before anything else happens at its end.
        for second in 1..=scenario.length {
            simulation.agenda.at(moment(second), Event::Second(second));
        }
        simulation.begin();
        simulation
    }

    fn begin(&mut self) {
        for (place, member) in self.scenario.members.iter().enumerate() {
            self.agenda.at(moment(member.joins), Event::Join(place));
        }
        let every = self.scenario.conditions.deaths_every;
        for death in (1..).map(|nth| every * nth).take_while(|at| every > 0 && *at < self.scenario.length) {
            self.agenda.at(moment(death), Event::Die);
        }
        for leftover in 0..self.scenario.conditions.leftovers {
            let worker = WorkerId { member: self.scenario.members.len() + leftover, generation: 0 };
            self.storage.put_report(WorkerReport { worker, at: START, rate: self.scenario.rule.maximum() });
        }
        let first = INTERVAL.mul_f64(self.random.unit());
        self.agenda.after(first, Event::Aggregate);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Second(second) => self.end_second(second),
            Event::Join(member) => self.start(WorkerId { member, generation: 0 }),
            Event::Die => self.die(),
            Event::Report(id) => self.report(id),
            Event::Reported(report) => {
                self.storage.put_report(report);
                let delay = self.delay();
                self.agenda.after(delay, Event::Answered(report.worker));
            }
            Event::Answered(id) => self.adjust(id),
            Event::Aggregate => self.aggregate(),
            Event::Summarised(summary) => self.storage.put_summary(summary),
        }
    }

    fn end_second(&mut self, second: u32) {
        for member in 0..self.workers.len() {
            // The demand changes with the second that begins.
            self.consume(member, second - 1);
            self.second.limits[member] = self.workers[member].as_ref().map_or(0.0, Worker::limit);
        }
        self.trace.seconds.push(self.second.clone());
        self.second.consumed.fill(0.0);
    }

    fn consume(&mut self, member: usize, second: u32) {
        let demand = self.scenario.members[member].wants_in(second);
        if let Some(worker) = &mut self.workers[member] {
            self.second.consumed[member] += worker.consume(demand, self.agenda.now());
        }
    }

    fn start(&mut self, id: WorkerId) {
        self.workers[id.member] = Some(Worker::new(id, self.scenario.rule, self.agenda.now()));
        self.wait(id);
    }

    fn die(&mut self) {
        let alive: Vec<_> = self.workers.iter().flatten().map(|worker| worker.id).collect();
        if let Some(WorkerId { member, generation }) = alive.get(self.random.below(alive.len())).copied() {
            self.consume(member, self.elapsed_seconds());
            self.start(WorkerId { member, generation: generation + 1 });
        }
    }

    fn report(&mut self, id: WorkerId) {
        if !self.is_alive(id) {
            return;
        }
        self.consume(id.member, self.elapsed_seconds());
        let clock = self.clock(id.member);
        let Some(report) = self.workers[id.member].as_mut().map(|worker| worker.report(clock)) else { return };
        let delay = self.delay();
        if self.is_lost() {
            // The worker gives up this round, and waits for the next.
            let wait = self.interval();
            self.agenda.after(delay + wait, Event::Report(id));
        } else {
            self.agenda.after(delay, Event::Reported(report));
        }
    }

    fn adjust(&mut self, id: WorkerId) {
        if !self.is_alive(id) {
            return;
        }
        if !self.is_lost()
            && let Some(sum) = self.storage.sum()
        {
            self.consume(id.member, self.elapsed_seconds());
            if let Some(worker) = &mut self.workers[id.member] {
                worker.adjust(sum);
            }
        }
        self.wait(id);
    }

    fn aggregate(&mut self) {
        if !self.scenario.outage.contains(&self.elapsed_seconds()) {
            let aggregation = self.storage.aggregate(self.agenda.now());
            let summary = Summary { began: aggregation.at, sum: aggregation.tally.read().units() };
            self.trace.aggregations.push(aggregation);
            // One call to read, because all reports are read at once, and one to write.
            let delay = self.delay() + self.delay();
            if !self.is_lost() {
                self.agenda.after(delay, Event::Summarised(summary));
            }
        }
        let wait = self.interval();
        self.agenda.after(wait, Event::Aggregate);
    }

    fn wait(&mut self, id: WorkerId) {
        let wait = self.interval();
        self.agenda.after(wait, Event::Report(id));
    }

    /// Returns whether this worker is still the member's.
    fn is_alive(&self, id: WorkerId) -> bool {
        self.workers[id.member].as_ref().is_some_and(|worker| worker.id == id)
    }

    fn is_lost(&mut self) -> bool {
        self.random.happens(self.scenario.conditions.loss)
    }

    fn delay(&mut self) -> Duration {
        self.random.within(&self.scenario.conditions.delay)
    }

    fn interval(&mut self) -> Duration {
        wait(INTERVAL, self.random.unit())
    }

    /// The time by a member's clock.
    fn clock(&self, member: usize) -> EpochMillis {
        let now = self.agenda.now();
        EpochMillis::new(now.get() + self.skews[member]).unwrap_or(now)
    }

    fn elapsed_seconds(&self) -> u32 {
        u32::try_from(self.agenda.now().since(START).as_secs()).unwrap_or(u32::MAX)
    }
}

fn moment(second: u32) -> EpochMillis {
    START.after(Duration::from_secs(second.into()))
}

fn skew(most: Duration, random: &mut SeededRandom) -> i64 {
    let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX);
    let ahead = random.within(&(Duration::ZERO..Duration::from_millis(most.unsigned_abs() * 2)));
    i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX) - most
}

#[derive(Clone, Copy, Debug)]
struct Summary {
    began: EpochMillis,
    sum: f64,
}

/// The S3 bucket between the workers and the aggregator.
#[derive(Default)]
struct Storage {
    reports: BTreeMap<WorkerId, WorkerReport>,
    /// The summary and its sequence number.
    summary: Option<(Summary, u64)>,
}

impl Storage {
    const CUTOFF: Cutoff = Cutoff::DEFAULT;

    fn put_report(&mut self, report: WorkerReport) {
        self.reports.insert(report.worker, report);
    }

    /// The sum that workers find in the summary.
    fn sum(&self) -> Option<f64> {
        self.summary.map(|(summary, _)| summary.sum)
    }

    fn aggregate(&self, now: EpochMillis) -> Aggregation {
        let reports: Vec<_> = self.reports.values().copied().collect();
        let tally = reports.iter().map(|report| judge(&stored(*report), now, Self::CUTOFF)).collect();
        Aggregation { at: now, reports, tally }
    }

    fn put_summary(&mut self, summary: Summary) {
        let previous = self.summary.map(|(previous, sequence)| Previous {
            timestamp: Field::Number(seconds(previous.began)),
            sequence: Some(sequence),
        });
        if let Replacement::Next { sequence } = decide_replacement(previous, summary.began, summary.began, Self::CUTOFF)
        {
            self.summary = Some((summary, sequence));
        }
    }
}

/// The report as it is stored in S3.
fn stored(report: WorkerReport) -> Report {
    Report {
        timestamp: Field::Number(seconds(report.at)),
        read_rate: Field::Number(report.rate),
        write_rate: Field::Number(0.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the calendar's milliseconds are below 2^53")]
fn seconds(moment: EpochMillis) -> f64 {
    moment.get() as f64 / 1000.0
}
