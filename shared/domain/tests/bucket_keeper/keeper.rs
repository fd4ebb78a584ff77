//! The keeper: the real decisions, on batches and on reads, and the writes that are under way.

use tidegate_domain::{
    activity,
    bucket::Shard,
    pressure::{self, Policy, Pressure},
    refill::{self, Decision},
    repair, split,
    state::ShardCount,
};

use crate::{
    table::{Change, State, States, World, count, time},
    writes::Write,
};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Written,
    /// The SDK sends it again.
    Twice,
    /// It arrives later. The keeper does not learn the outcome.
    Late,
    Lost,
}

/// Which process handles a batch. All three must agree, because a decision depends on nothing but the images, the
/// batch, the time and the policy.
#[derive(Clone, Copy, Debug)]
pub enum Processes {
    One,
    TwoInTurn,
    NewForEachBatch,
}

impl Processes {
    pub const ALL: [Self; 3] = [Self::One, Self::TwoInTurn, Self::NewForEachBatch];
}

/// The processes of the function, which decide as `functions/bucket-keeper` does. A process owns only its late writes.
pub struct Keeper {
    processes: Processes,
    policy: Policy,
    invocations: usize,
    /// The fates of this invocation's writes, in turn.
    fates: Vec<Fate>,
    under_way: Vec<(usize, Write)>,
    /// The kinds of the writes that were written.
    pub written: Vec<&'static str>,
}

impl Keeper {
    pub fn new(processes: Processes, percent: u8) -> Self {
        let policy = Policy { max_shards: count(64), percent };
        Self { processes, policy, invocations: 0, fates: Vec::new(), under_way: Vec::new(), written: Vec::new() }
    }

    fn process(&self) -> usize {
        match self.processes {
            Processes::One => 0,
            Processes::TwoInTurn => self.invocations % 2,
            Processes::NewForEachBatch => self.invocations,
        }
    }

    /// Handles all records that are new.
    pub fn catch_up(&mut self, world: &mut World) {
        let batch = world.deliver(usize::MAX, 0);
        self.handle(world, batch, &[Fate::Written]);
    }

    pub fn handle(&mut self, world: &mut World, batch: Vec<Change>, fates: &[Fate]) {
        (self.fates, self.invocations) = (fates.to_vec(), self.invocations + 1);
        let now = time(world.now);
        let activities = activity::fold(batch);
        for activity in &activities {
            let Some(state) = activity.image.plain() else { continue };
            let decision = refill::decide(activity, state, now);
            self.apply_decision(world, activity.bucket.shard, state, decision);
        }
        let zero = activities.iter().find(|activity| activity.bucket.shard == Shard::ZERO);
        let Some((zero, state)) = zero.and_then(|zero| Some((zero, zero.image.plain()?))) else { return };
        if state.shards > ShardCount::ONE && zero.has_new_count {
            for (shard, state) in self.complete(world).unwrap_or_default() {
                let decision = refill::decide_idle(&state, now);
                self.apply_decision(world, shard, &state, decision);
            }
        }
        // The tests of the pressure cover whether writes spread over the shards.
        if let Pressure::High(doubled) = pressure::measure(zero, state, now, &self.policy)
            && let Some(states) = world.states()
            && states.get(&Shard::ZERO).is_some_and(|zero| zero.shards == state.shards)
            && let Some(plan) = split::plan(&states, doubled)
        {
            self.send(world, Write::Increase { seen: states, plan });
        }
    }

    /// Creates the missing shards. Returns the shards if they are complete.
    fn complete(&mut self, world: &mut World) -> Option<States> {
        let mut states = world.states()?;
        let shards = states.get(&Shard::ZERO)?.shards;
        if !split::is_supported(shards) {
            return None;
        }
        if let Some(plan) = split::plan(&states, shards) {
            let write = Write::Increase { seen: states.clone(), plan: plan.clone() };
            self.send(world, write).then_some(())?;
            split::apply(&plan, &mut states);
        }
        Some(states)
    }

    pub fn repair(&mut self, world: &mut World, fates: &[Fate]) {
        (self.fates, self.invocations) = (fates.to_vec(), self.invocations + 1);
        let at = time(world.now);
        match world.items.get(&Shard::ZERO).map(|item| &item.state) {
            Some(zero) if zero.shards > ShardCount::ONE && !zero.is_expired(at) => {}
            _ => return,
        }
        let Some(mut states) = self.complete(world) else { return };
        let zero = states[&Shard::ZERO].clone();
        let mut lost = Vec::new();
        for (shard, state) in &mut states {
            let mut is_known = true;
            if *shard != Shard::ZERO
                && let Some(alignment) = repair::align(&zero, state, at)
            {
                let write = Write::Align { shard: *shard, seen: state.clone(), alignment: alignment.clone() };
                is_known = self.send(world, write);
                repair::apply(&alignment, state);
            }
            let decision = refill::decide_idle(state, at);
            if is_known && let Decision::Refill(refill) = &decision {
                is_known = self.apply_decision(world, *shard, state, decision.clone());
                *state = refill.applied_to(state.clone());
            }
            if !is_known {
                lost.push(*shard);
            }
        }
        states.retain(|shard, _| !lost.contains(shard));
        for transfer in repair::rebalance(&states, at) {
            self.send(world, Write::Move { at: at.get(), seen: states.clone(), transfer });
        }
    }

    fn apply_decision(&mut self, world: &mut World, shard: Shard, seen: &State, decision: Decision<'static>) -> bool {
        let Decision::Refill(refill) = decision else { return false };
        self.send(world, Write::Refill { shard, seen: seen.clone(), refill })
    }

    /// Sends a write. Returns whether the keeper learns that it is written.
    fn send(&mut self, world: &mut World, write: Write) -> bool {
        self.fates.rotate_left(1);
        let fate = self.fates[0];
        let is_written = matches!(fate, Fate::Written | Fate::Twice) && self.write(world, &write);
        if fate == Fate::Twice {
            self.write(world, &write);
        } else if fate == Fate::Late {
            self.under_way.push((self.process(), write));
        }
        is_written
    }

    fn write(&mut self, world: &mut World, write: &Write) -> bool {
        let is_written = world.apply(write);
        self.written.extend(is_written.then(|| write.kind()));
        is_written
    }

    /// A late write of any process arrives. It may arrive again.
    pub fn arrive(&mut self, world: &mut World, at: usize, again: bool) {
        self.under_way.sort_by_key(|(process, _)| *process);
        if let Some((_, write)) = self.under_way.get(at % self.under_way.len().max(1)).cloned() {
            self.write(world, &write);
            if !again {
                self.under_way.remove(at % self.under_way.len());
            }
        }
    }
}
