//! Processes that announce, release and restore at the same time, step by step, around one scalable target.
//!
//! Any process may stop for ever after any step. A call that sets the minimum may take effect at any time until
//! [`CALLS_END`], more than once, or never. The owner sets odd minimums, announcements need even ones, so that the origin of
//! each value is known.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use tidegate_domain::{
    capacity::{
        Capacity, ScalableTarget, Utilization,
        announcement::{Announcement, Limits, Measured, accept, demand},
        minimum::{CALL, CALLS_END, MinimumPlan, MinimumRecord, plan},
    },
    time::EpochMillis,
};

use crate::{at, request, table, units};

const MAXIMUM: u64 = 1_000;
const LIMITS: Limits =
    Limits { units: None, units_per_caller: None, duration: Duration::from_hours(1), announcements: 100 };

/// What a process is to do, and then the schedule's steps.
#[derive(Clone, Copy, Debug)]
enum Job {
    Announce { id: u8, hundreds: u64, seconds: u64 },
    Release { id: u8 },
    Restore,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Start(Job),
    Step(usize),
    /// The same. A description lags behind, if the minimum has changed lately.
    StepBehind(usize),
    Crash(usize),
    /// A call takes effect. It may do so again.
    Land(usize),
    OwnerSets(u64),
    /// The owner sets a minimum, and nothing else happens until no description lags behind.
    OwnerSetsAlone(u64),
    Pass(u64),
}

/// Where a process is.
#[derive(Clone, Debug)]
enum Place {
    Begin,
    /// Its announcement is written. It goes on as the schedule does.
    Announced,
    HasRecord(Stored),
    HasAll(Stored, Vec<Announcement>),
    /// It has read the minimum, at this moment.
    Found(Stored, Vec<Announcement>, Capacity, EpochMillis),
    /// It has written this record, and is to set this minimum.
    Written {
        minimum: Capacity,
        end: EpochMillis,
    },
    /// It has set the minimum, and looks at the record again.
    Called(Capacity),
}

#[derive(Clone, Debug)]
struct Process {
    job: Job,
    place: Place,
}

/// The record and its version. A version without a record is that of a deleted one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stored {
    version: u64,
    record: Option<MinimumRecord>,
}

struct World {
    now: u64,
    minimum: Capacity,
    /// The minimum before, and until when a description may show it.
    before: Option<(Capacity, EpochMillis)>,
    stored: Stored,
    announcements: Vec<Announcement>,
    processes: Vec<Process>,
    /// Calls that may still take effect.
    calls: Vec<(Capacity, EpochMillis)>,
    /// What the owner has ever set, and what the minimum must be at the end, if that is known.
    owners: BTreeSet<Capacity>,
    owner: Option<Capacity>,
}

impl World {
    fn new() -> Self {
        let minimum = units(7);
        Self {
            now: 0,
            minimum,
            before: None,
            stored: Stored::default(),
            announcements: Vec::new(),
            processes: Vec::new(),
            calls: Vec::new(),
            owners: BTreeSet::from([minimum]),
            owner: Some(minimum),
        }
    }

    fn now(&self) -> EpochMillis {
        at(self.now)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(job) => self.processes.push(Process { job, place: Place::Begin }),
            Action::Step(place) if !self.processes.is_empty() => self.step(place % self.processes.len(), self.minimum),
            Action::StepBehind(place) if !self.processes.is_empty() => {
                let found = self.lagging();
                self.step(place % self.processes.len(), found);
            }
            Action::Crash(place) if !self.processes.is_empty() => {
                self.processes.remove(place % self.processes.len());
            }
            Action::Land(place) if !self.calls.is_empty() => {
                let (minimum, end) = self.calls[place % self.calls.len()];
                if self.now() < end {
                    self.set(minimum);
                }
            }
            Action::OwnerSets(minimum) => {
                self.set(units(2 * minimum + 1));
                self.owners.insert(self.minimum);
                // A process that has read another value may set its own before any process reads this one.
                self.owner = None;
            }
            Action::OwnerSetsAlone(minimum) => {
                self.settle();
                self.set(units(2 * minimum + 1));
                self.owners.insert(self.minimum);
                // An earlier minimum of the owner may as well have been restored by a late call.
                let record = self.stored.record.as_ref();
                let is_ambiguous = record.is_some_and(|record| record.calls.contains_key(&self.minimum));
                self.owner = (!is_ambiguous).then_some(self.minimum);
                self.now += CALL.as_secs();
                self.look();
            }
            Action::Pass(seconds) => self.now += seconds,
            _ => {}
        }
    }

    fn set(&mut self, minimum: Capacity) {
        if minimum != self.minimum {
            self.before = Some((self.minimum, self.now().after(CALL)));
            self.minimum = minimum;
        }
    }

    /// What a description may show: the minimum before the last change, for a while.
    fn lagging(&self) -> Capacity {
        self.before.filter(|(_, end)| self.now() < *end).map_or(self.minimum, |(before, _)| before)
    }

    fn step(&mut self, place: usize, found: Capacity) {
        let process = self.processes[place].clone();
        match self.next(&process, found) {
            Some(next) => {
                if matches!(next, Place::Announced) {
                    self.processes[place].job = Job::Restore;
                }
                self.processes[place].place = next;
            }
            None => drop(self.processes.remove(place)),
        }
    }

    /// Does a process's next step. `None` if it has finished.
    fn next(&mut self, process: &Process, found: Capacity) -> Option<Place> {
        match process.place.clone() {
            Place::Begin => {
                if let Job::Release { id } = process.job {
                    self.announcements.retain(|announcement| announcement.id != name(id));
                }
                Some(Place::HasRecord(self.stored.clone()))
            }
            Place::HasRecord(stored) => Some(Place::HasAll(stored, self.announcements.clone())),
            Place::HasAll(stored, announcements) => Some(Place::Found(stored, announcements, found, self.now())),
            Place::Found(stored, announcements, minimum, read) => {
                self.decide(process.job, &stored, &announcements, minimum, read)
            }
            Place::Written { minimum, end } => {
                self.calls.push((minimum, end));
                Some(Place::Called(minimum))
            }
            Place::Announced => Some(Place::HasRecord(self.stored.clone())),
            Place::Called(minimum) => {
                let planned = self.stored.record.as_ref().map(|record| record.planned);
                let restart = planned.is_some_and(|planned| planned != minimum);
                restart.then_some(Place::HasRecord(self.stored.clone()))
            }
        }
    }

    fn decide(
        &mut self,
        job: Job,
        stored: &Stored,
        announcements: &[Announcement],
        minimum: Capacity,
        now: EpochMillis,
    ) -> Option<Place> {
        let target =
            ScalableTarget { minimum, maximum: units(MAXIMUM), utilization: Utilization::from_percent(50.0).unwrap() };
        if let Job::Announce { id, hundreds, seconds } = job {
            let measured = Measured { minutes: Vec::new(), maximum: Some(target.maximum), may_scale_in: true };
            let request = request(&name(id), hundreds * 100, seconds);
            let Ok(accepted) = accept(request, &[measured], announcements, &LIMITS, now, now) else { return None };
            return Some(if self.stored.version == stored.version {
                self.stored.version += 1;
                self.announcements.retain(|announcement| announcement.id != accepted.id);
                self.announcements.push(accepted);
                Place::Announced
            } else {
                Place::Begin
            });
        }
        let demand = demand(announcements, &table(), now);
        let MinimumPlan { record, set, .. } = plan(stored.record.as_ref(), Some(&target), demand, false, now);
        if record != stored.record {
            if self.stored.version != stored.version {
                return Some(Place::HasRecord(self.stored.clone()));
            }
            self.stored = Stored { version: stored.version + 1, record };
        }
        set.map(|minimum| Place::Written { minimum, end: now.after(CALLS_END) })
    }

    /// Lets all processes and calls end.
    fn settle(&mut self) {
        self.processes.clear();
        self.now += CALLS_END.as_secs();
        self.calls.clear();
        self.look();
    }

    /// The schedule looks at the target, alone. Its call takes effect at once.
    fn look(&mut self) {
        let mut process = Process { job: Job::Restore, place: Place::Begin };
        while let Some(place) = self.next(&process, self.minimum) {
            if let Some((minimum, _)) = self.calls.pop() {
                self.set(minimum);
            }
            process.place = place;
        }
    }

    /// What announcements in force need at least.
    fn need(&self) -> Option<Capacity> {
        let demand = demand(&self.announcements, &table(), self.now())?;
        Some(units(2 * demand.total().get()).min(units(MAXIMUM)))
    }
}

fn name(id: u8) -> String {
    format!("job-{id}")
}

fn jobs() -> impl Strategy<Value = Job> {
    prop_oneof![
        3 => (0..3_u8, 1..4_u64, 1..400_u64)
            .prop_map(|(id, hundreds, seconds)| Job::Announce { id, hundreds, seconds }),
        2 => (0..3_u8).prop_map(|id| Job::Release { id }),
        2 => Just(Job::Restore),
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => jobs().prop_map(Action::Start),
        12 => (0..8_usize).prop_map(Action::Step),
        2 => (0..8_usize).prop_map(Action::StepBehind),
        1 => (0..8_usize).prop_map(Action::Crash),
        5 => (0..8_usize).prop_map(Action::Land),
        1 => (0..20_u64).prop_map(Action::OwnerSets),
        1 => (0..20_u64).prop_map(Action::OwnerSetsAlone),
        2 => (1..120_u64).prop_map(Action::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn the_rule_holds_after_a_look(actions in prop::collection::vec(actions(), 1..120)) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        world.settle();
        match world.need() {
            Some(need) => prop_assert!(world.minimum >= need, "{} is below {need}", world.minimum),
            None => prop_assert!(world.owners.contains(&world.minimum), "{} stays", world.minimum),
        }
        world.now += 400;
        world.look();
        prop_assert!(world.owners.contains(&world.minimum), "{} stays", world.minimum);
        if let Some(owner) = world.owner {
            prop_assert_eq!(world.minimum, owner);
        }
        // Nothing remains of what has ended.
        world.settle();
        prop_assert_eq!(world.stored.record, None);
    }
}
