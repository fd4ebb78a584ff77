//! A scenario, played on a virtual clock: one event after the other, in the order of their moments.

use std::{collections::BTreeMap, time::Duration};

use super::{
    chance::Chance,
    course::{Course, Reported, Second, WorkerId},
    scenario::Scenario,
    storage::{Storage, Summary},
    worker::Worker,
};
use tidegate_domain::{rates, time::EpochMillis};

/// How often workers report and the aggregator sums up, on average.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// 2026-01-01T00:00:00Z
const START: EpochMillis = match EpochMillis::new(1_767_225_600_000) {
    Ok(moment) => moment,
    Err(_) => panic!("it is within the calendar"),
};

/// Plays a scenario. The same seed makes the same course.
pub fn run(scenario: &Scenario, seed: u64) -> Course {
    let mut simulation = Simulation::new(scenario, seed);
    while let Some(((now, _), event)) = simulation.queue.pop_first() {
        if now > moment(scenario.length) {
            break;
        }
        simulation.now = now;
        simulation.handle(event);
    }
    simulation.course
}

#[derive(Clone, Copy)]
enum Event {
    /// A second has passed.
    Second(u32),
    /// A member's first worker starts.
    Join(usize),
    /// Some worker dies, and another one takes its place.
    Die,
    /// A worker has waited, and reports.
    Report(WorkerId),
    Reported(Reported),
    /// It has the answer to its question for the summary.
    Answered(WorkerId),
    /// The aggregator sums up.
    Aggregate,
    /// Its summary is there.
    Summarised(Summary),
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    chance: Chance,
    now: EpochMillis,
    /// By moment; those of one moment in the order in which they were made.
    queue: BTreeMap<(EpochMillis, u64), Event>,
    events: u64,
    workers: Vec<Option<Worker>>,
    /// By member, how far its clock is ahead, in milliseconds.
    skews: Vec<i64>,
    storage: Storage,
    second: Second,
    course: Course,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let members = scenario.members.len();
        let mut simulation = Self {
            scenario,
            skews: (0..members).map(|_| skew(scenario.weather.skew, &mut chance)).collect(),
            chance,
            now: START,
            queue: BTreeMap::new(),
            events: 0,
            workers: (0..members).map(|_| None).collect(),
            storage: Storage::default(),
            second: Second { consumed: vec![0.0; members], limits: vec![0.0; members] },
            course: Course::default(),
        };
        // First, so that a second is over before anything else happens at its end.
        for second in 1..=scenario.length {
            simulation.at(moment(second), Event::Second(second));
        }
        simulation.begin();
        simulation
    }

    fn begin(&mut self) {
        for (member, of) in self.scenario.members.iter().enumerate() {
            self.at(moment(of.joins), Event::Join(member));
        }
        let every = self.scenario.weather.deaths_every;
        for death in (1..).map(|nth| every * nth).take_while(|at| every > 0 && *at < self.scenario.length) {
            self.at(moment(death), Event::Die);
        }
        for leftover in 0..self.scenario.weather.leftovers {
            let worker = WorkerId { member: self.scenario.members.len() + leftover, life: 0 };
            self.storage.put_report(Reported { worker, at: self.now, rate: self.scenario.rule.maximum() });
        }
        let first = INTERVAL.mul_f64(self.chance.unit());
        self.after(first, Event::Aggregate);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Second(second) => self.end_second(second),
            Event::Join(member) => self.start(WorkerId { member, life: 0 }),
            Event::Die => self.die(),
            Event::Report(id) => self.report(id),
            Event::Reported(report) => {
                self.storage.put_report(report);
                let delay = self.delay();
                self.after(delay, Event::Answered(report.worker));
            }
            Event::Answered(id) => self.adjust(id),
            Event::Aggregate => self.aggregate(),
            Event::Summarised(summary) => self.storage.put_summary(summary),
        }
    }

    fn end_second(&mut self, second: u32) {
        for member in 0..self.workers.len() {
            // What is wanted changes with the second that begins.
            self.consume(member, second - 1);
            self.second.limits[member] = self.workers[member].as_ref().map_or(0.0, Worker::limit);
        }
        self.course.seconds.push(self.second.clone());
        self.second.consumed.fill(0.0);
    }

    fn consume(&mut self, member: usize, second: u32) {
        let demand = self.scenario.members[member].wants_in(second);
        if let Some(worker) = &mut self.workers[member] {
            self.second.consumed[member] += worker.consume(demand, self.now);
        }
    }

    fn start(&mut self, id: WorkerId) {
        self.workers[id.member] = Some(Worker::new(id, self.scenario.rule, self.now));
        self.wait(id);
    }

    fn die(&mut self) {
        let alive: Vec<_> = self.workers.iter().flatten().map(|worker| worker.id).collect();
        if let Some(WorkerId { member, life }) = alive.get(self.chance.below(alive.len())).copied() {
            self.consume(member, self.elapsed_seconds());
            self.start(WorkerId { member, life: life + 1 });
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
            self.after(delay + wait, Event::Report(id));
        } else {
            self.after(delay, Event::Reported(report));
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
            let pass = self.storage.aggregate(self.now);
            let summary = Summary { began: self.now, sum: pass.tally.read().units() };
            self.course.passes.push(pass);
            // One call to read, as all are read at once, and one to write.
            let delay = self.delay() + self.delay();
            if !self.is_lost() {
                self.after(delay, Event::Summarised(summary));
            }
        }
        let wait = self.interval();
        self.after(wait, Event::Aggregate);
    }

    fn wait(&mut self, id: WorkerId) {
        let wait = self.interval();
        self.after(wait, Event::Report(id));
    }

    /// Whether this worker is still the member's.
    fn is_alive(&self, id: WorkerId) -> bool {
        self.workers[id.member].as_ref().is_some_and(|worker| worker.id == id)
    }

    fn is_lost(&mut self) -> bool {
        self.chance.happens(self.scenario.weather.loss)
    }

    fn delay(&mut self) -> Duration {
        self.chance.within(&self.scenario.weather.delay)
    }

    fn interval(&mut self) -> Duration {
        rates::wait(INTERVAL, self.chance.unit())
    }

    /// What a member takes for now.
    fn clock(&self, member: usize) -> EpochMillis {
        EpochMillis::new(self.now.get() + self.skews[member]).unwrap_or(self.now)
    }

    fn elapsed_seconds(&self) -> u32 {
        u32::try_from(self.now.since(START).as_secs()).unwrap_or(u32::MAX)
    }

    fn after(&mut self, elapsed: Duration, event: Event) {
        self.at(self.now.after(elapsed), event);
    }

    fn at(&mut self, moment: EpochMillis, event: Event) {
        self.events += 1;
        self.queue.insert((moment, self.events), event);
    }
}

fn moment(second: u32) -> EpochMillis {
    START.after(Duration::from_secs(second.into()))
}

fn skew(most: Duration, chance: &mut Chance) -> i64 {
    let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX);
    let ahead = chance.within(&(Duration::ZERO..Duration::from_millis(most.unsigned_abs() * 2)));
    i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX) - most
}
