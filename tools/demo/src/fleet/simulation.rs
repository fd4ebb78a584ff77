//! A scenario, played on a virtual clock, and what was observed: second by second, and aggregation by aggregation.

use std::{rc::Rc, time::Duration};

use tidegate_domain::{
    lease::distributable,
    rates::{Rates, summary::Summary, wait},
    time::EpochMillis,
};

use super::{
    aggregator::{Aggregation, Aggregator, Publication},
    leasing::reads,
    scenario::{Member, Scenario},
    store::{Store, WorkerFile},
    worker::{Control, Worker},
};
use crate::{
    clock::{Agenda, START},
    random::SeededRandom,
};

/// The aggregator's SDK makes up to three attempts, a second after each other.
const ATTEMPTS: u64 = 3;

/// How often workers report and the aggregator sums up, on average.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// What was observed of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetTrace {
    pub(crate) seconds: Vec<Second>,
    pub(crate) aggregations: Vec<Aggregation>,
    /// Moments at which the leases together exceed what is given away.
    pub(crate) excesses: Vec<Excess>,
}

/// What the leases together let workers consume, in millionths of a capacity unit a second, and what they should at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) at: EpochMillis,
    pub(crate) leased: u64,
    pub(crate) most: u64,
}

/// One second, by member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Second {
    /// Capacity units that were consumed.
    pub(crate) consumed: Vec<f64>,
    /// The limit at the end of the second; 0 for a member that does not live.
    pub(crate) limits: Vec<f64>,
}

impl Second {
    /// The capacity units that the fleet has consumed.
    pub(crate) fn total(&self) -> f64 {
        self.consumed.iter().sum()
    }
}

/// Plays a scenario. The same seed gives the same trace.
pub(crate) fn run(scenario: &Scenario, seed: u64) -> FleetTrace {
    // Workers' ids sort as their numbers do.
    let ids: Vec<_> = (0..scenario.members.len()).map(|member| format!("worker-{member:04}")).collect();
    let mut simulation = Simulation::new(scenario, &ids, seed);
    while let Some(event) = simulation.agenda.next(moment(scenario.length)) {
        simulation.handle(event);
    }
    simulation.trace
}

enum Event {
    /// A second has passed.
    Second(u32),
    Join(usize),
    Die(usize),
    /// A worker has waited for an interval.
    Cycle(usize),
    /// A file arrives in the store.
    Stored(WorkerFile),
    Answer(Answer),
    Aggregate,
    /// Another process of the aggregator takes over.
    TakeOver,
    Publish(Publication),
}

/// A worker receives the summary that was stored when it asked for it. `None` if the call failed.
struct Answer {
    worker: usize,
    summary: Option<Rc<Summary>>,
    /// Whether a leasing worker reports next.
    in_cycle: bool,
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    ids: &'a [String],
    random: SeededRandom,
    agenda: Agenda<EpochMillis, Event>,
    workers: Vec<Option<Worker>>,
    /// By member, how far its clock is ahead, in milliseconds.
    skews: Vec<i64>,
    store: Store,
    aggregator: Aggregator<'a>,
    second: Second,
    trace: FleetTrace,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, ids: &'a [String], seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let members = scenario.members.len();
        let mut simulation = Self {
            scenario,
            ids,
            skews: (0..members).map(|_| skew(scenario.conditions.skew, &mut random)).collect(),
            random,
            agenda: Agenda::new(START),
            workers: (0..members).map(|_| None).collect(),
            store: Store::default(),
            aggregator: Aggregator::new(reads(scenario.rule.cap()), ids),
            second: Second { consumed: vec![0.0; members], limits: vec![0.0; members] },
            trace: FleetTrace::default(),
        };
        // First, so that a second is over before anything else happens at its end.
        for second in 1..=scenario.length {
            simulation.agenda.at(moment(second), Event::Second(second));
        }
        for (place, member) in scenario.members.iter().enumerate() {
            simulation.agenda.at(moment(member.joins), Event::Join(place));
            if let Some(dies) = member.dies {
                simulation.agenda.at(moment(dies), Event::Die(place));
            }
        }
        if let Some(takeover) = scenario.takeover {
            simulation.agenda.at(moment(takeover), Event::TakeOver);
        }
        let first = INTERVAL.mul_f64(simulation.random.unit());
        simulation.agenda.after(first, Event::Aggregate);
        simulation
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Second(second) => self.end_second(second),
            Event::Join(member) => self.join(member),
            Event::Die(member) => {
                self.consume(member);
                self.workers[member] = None;
            }
            Event::Cycle(member) => self.begin_cycle(member),
            Event::Stored(file) => self.receive(file),
            Event::Answer(answer) => self.answer(answer),
            Event::Aggregate => self.aggregate(),
            Event::TakeOver => self.aggregator = Aggregator::new(reads(self.scenario.rule.cap()), self.ids),
            Event::Publish(Publication { summary, replaces }) => {
                self.store.put_summary(summary, replaces, self.agenda.now());
            }
        }
    }

    fn end_second(&mut self, second: u32) {
        let now = self.agenda.now();
        for member in 0..self.workers.len() {
            // The demand changes with the second that begins.
            self.consume_in(member, second - 1);
            self.second.limits[member] = self.workers[member].as_ref().map_or(0.0, |worker| worker.limit(now));
        }
        self.trace.seconds.push(self.second.clone());
        self.second.consumed.fill(0.0);
        self.check();
        for member in 0..self.workers.len() {
            self.watch(member);
        }
    }

    fn consume(&mut self, member: usize) {
        self.consume_in(member, self.elapsed_seconds());
    }

    fn consume_in(&mut self, member: usize, second: u32) {
        let demand = self.member(member).wants_in(second);
        if let Some(worker) = &mut self.workers[member] {
            self.second.consumed[member] += worker.consume(demand, self.agenda.now());
        }
    }

    /// A leasing worker reports when its wants have changed or its last report failed. It looks at the summary while it wants
    /// more than it has.
    fn watch(&mut self, member: usize) {
        let (wants, now, summary) = (self.wants(member), self.agenda.now(), self.store.summary());
        let Some(Worker { control: Control::Leasing(leasing), .. }) = &self.workers[member] else { return };
        let looks = summary.filter(|summary| leasing.should_look(wants, summary, now));
        if leasing.should_report(wants) {
            self.report(member);
        }
        // A call that fails has no effect.
        if looks.is_some() && !self.is_lost() {
            self.answer_later(member, looks, false);
        }
    }

    fn join(&mut self, member: usize) {
        let Member { kind, .. } = self.scenario.members[member];
        let worker = Worker::new(kind, self.scenario.rule, self.agenda.now());
        let starts_at_once = matches!(worker.control, Control::Leasing(_));
        self.workers[member] = Some(worker);
        if starts_at_once {
            self.begin_cycle(member);
        } else {
            self.wait(member);
        }
    }

    /// A Python worker writes its file and then reads the summary. A leasing worker reads first.
    fn begin_cycle(&mut self, member: usize) {
        match self.workers[member].as_ref().map(|worker| &worker.control) {
            Some(Control::Python(_)) => self.report(member),
            Some(Control::Leasing(_)) => {
                self.read_summary(member);
                self.wait(member);
            }
            None => {}
        }
    }

    fn read_summary(&mut self, member: usize) {
        let summary = if self.is_lost() { None } else { self.store.summary() };
        self.answer_later(member, summary, true);
    }

    fn answer_later(&mut self, worker: usize, summary: Option<Rc<Summary>>, in_cycle: bool) {
        let delay = self.random.within(&self.scenario.conditions.read_delay);
        self.agenda.after(delay, Event::Answer(Answer { worker, summary, in_cycle }));
    }

    /// Writes a worker's file. If that fails, a Python worker waits for the next interval, and a leasing worker reports again
    /// in the next second.
    fn report(&mut self, member: usize) {
        self.consume(member);
        let (wants, now, is_lost) = (self.wants(member), self.agenda.now(), self.is_lost());
        let at = EpochMillis::new(now.get() + self.skews[member]).unwrap_or(now);
        let Some(worker) = &mut self.workers[member] else { return };
        let rate = worker.measure_rate();
        let lease = match &mut worker.control {
            Control::Python(_) => None,
            Control::Leasing(leasing) => Some(leasing.begin_report(wants, now)),
        };
        match &mut worker.control {
            Control::Python(_) if is_lost => self.wait(member),
            Control::Leasing(leasing) if is_lost => leasing.fail_report(),
            Control::Python(_) | Control::Leasing(_) => {
                let delay = self.random.within(&self.scenario.conditions.report_delay);
                self.agenda.after(delay, Event::Stored(WorkerFile { worker: member, at, rate, lease }));
            }
        }
    }

    fn receive(&mut self, file: WorkerFile) {
        let now = self.agenda.now();
        self.store.put_file(file, now);
        match (self.workers[file.worker].as_mut().map(|worker| &mut worker.control), file.lease) {
            (Some(Control::Leasing(leasing)), Some(report)) => leasing.confirm(report.number, now),
            (Some(Control::Python(_)), _) => self.read_summary(file.worker),
            _ => {}
        }
    }

    fn answer(&mut self, Answer { worker: member, summary, in_cycle }: Answer) {
        self.consume(member);
        let now = self.agenda.now();
        let Some(worker) = &mut self.workers[member] else { return };
        match (&mut worker.control, summary) {
            (Control::Python(python), summary) => {
                if let Some(summary) = summary {
                    python.adjust(summary.read.units());
                }
                self.wait(member);
                return;
            }
            (Control::Leasing(leasing), Some(summary)) => {
                leasing.adopt(&summary, &self.ids[member], now);
                self.check();
            }
            (Control::Leasing(_), None) => {}
        }
        if in_cycle {
            self.report(member);
        }
    }

    fn aggregate(&mut self) {
        let outage = &self.scenario.outage;
        if outage.contains(&self.elapsed_seconds()) {
            self.agenda.at(moment(outage.end), Event::Aggregate);
            return;
        }
        let (aggregation, publication) = self.aggregator.aggregate(&self.store, self.agenda.now());
        self.trace.aggregations.push(aggregation);
        let delay = self.random.within(&self.scenario.conditions.summary_delay);
        if let Some(publication) = publication
            && let Some(failed) = (0..ATTEMPTS).find(|_| !self.is_lost())
        {
            self.agenda.after(delay + Duration::from_secs(failed), Event::Publish(publication));
        }
        let wait = self.interval();
        self.agenda.after(wait, Event::Aggregate);
    }

    /// Notes if the leases together exceed what is given away.
    fn check(&mut self) {
        let now = self.agenda.now();
        let held = self.workers.iter().flatten().map(|worker| match &worker.control {
            Control::Python(_) => 0,
            Control::Leasing(leasing) => leasing.leased(now),
        });
        let (leased, most) = (held.sum(), distributable(reads(self.scenario.rule.cap())).read.millionths());
        if leased > most {
            self.trace.excesses.push(Excess { at: now, leased, most });
        }
    }

    fn wait(&mut self, member: usize) {
        let wait = self.interval();
        self.agenda.after(wait, Event::Cycle(member));
    }

    fn member(&self, member: usize) -> &'a Member {
        &self.scenario.members[member]
    }

    /// What a leasing worker would use without a limit of the fleet.
    fn wants(&self, member: usize) -> Rates {
        reads(self.member(member).wants_in(self.elapsed_seconds()).min(self.scenario.rule.maximum()))
    }

    fn is_lost(&mut self) -> bool {
        self.random.happens(self.scenario.conditions.loss)
    }

    fn interval(&mut self) -> Duration {
        wait(INTERVAL, self.random.unit())
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
