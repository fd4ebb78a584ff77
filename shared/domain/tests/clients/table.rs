//! The items of one bucket, with the conditions of the clients' writes and the rules that each write must keep.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use tidegate_domain::{
    admission::Take,
    bucket::{Limit, Shard},
    split::{self, Plan},
    state::{ShardCount, Terms},
    tokens::Millitokens,
};

use crate::{
    items::{Amounts, LIMITS, START, State, States, count, full, limit, shift, time},
    reference::Reference,
};

#[derive(Clone, Debug)]
pub struct Item {
    pub state: State,
    /// Whether clients have marked it with `vu = 0`.
    pub has_vu: bool,
    /// The id of the last write of a Rust client.
    pub operation: u64,
}

/// The rules that a write of a Rust client can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A write lowers what is available by at least what it takes.
    NeverRaises,
    /// A write loses less than a millitoken, apart from what others lowered a full shard by since it was seen.
    Keeps,
    /// What is available covers what is granted, in the item and in the reference.
    Covers,
    /// The reference covers the item.
    Reference,
    /// The time of the last refill moves neither back nor beyond the client's clock.
    Time,
    /// A refill, and what is given back, fill a share and no more.
    Overfills,
    /// Tokens and consumption change together, but for refills.
    Conserves,
    /// A Python client grants too much for a reason that is not among [`Fault`].
    Python,
    /// A write that follows from the item as it is meets its conditions.
    Progress,
    /// A client that waits for the announced time is then granted.
    Waits,
}

/// Why clients grant more than their own rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The time of the last refill falls behind what was credited: in 0.10 by a clock behind, in 0.17 only by one that is
    /// set back during the slow path.
    MovesBack,
    /// 0.10: the slow path refills shard 0 with all shards' refill.
    Undivided,
    /// 0.10: the slow path does not clamp a limit that accrues nothing.
    Unclamped,
    /// What was given back since the read is not clamped. In 0.17, only a write that lowers the tokens does so.
    StacksUp,
    /// The terms or the number of shards have changed since the read, and the refill follows the old ones.
    OldTerms,
    /// Others have taken since the read, and no condition of the write protects what they took.
    TakesTwice,
}

/// What was granted or given back.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: i64,
    /// When the client decided on it.
    pub decided: i64,
    pub limit: Limit<'static>,
    /// Below zero if it was given back.
    pub taken: i64,
    /// The tokens that all shards stored before, without debts.
    pub stored: i64,
}

#[derive(Clone, Debug)]
pub struct World {
    pub now: i64,
    pub items: BTreeMap<Shard, Item>,
    reference: BTreeMap<(Shard, Limit<'static>), Reference>,
    pub journal: Vec<Entry>,
    pub broken: Vec<(Rule, String)>,
    pub faults: BTreeSet<Fault>,
}

/// A change of one limit by a lease; the conditions are those of the client's `Adjustment`.
#[derive(Clone, Debug)]
pub struct Adjustment {
    pub limit: Limit<'static>,
    pub tokens: i64,
    pub consumed: i64,
    pub at_most: Option<i64>,
    pub at_least: Option<i64>,
    /// The number of shards and the terms from which the amounts follow.
    pub share: Option<(ShardCount, Terms)>,
}

impl World {
    /// A bucket of so many full shards.
    pub fn new(terms: &[Terms], shards: u32) -> Self {
        let item = Item { state: full(terms, shards, START), has_vu: false, operation: 0 };
        let items: BTreeMap<_, _> = (0..shards).map(|shard| (Shard::new(shard), item.clone())).collect();
        let (reference, journal) = (BTreeMap::new(), Vec::new());
        let mut world = Self { now: START, items, reference, journal, broken: Vec::new(), faults: BTreeSet::new() };
        (0..shards).for_each(|shard| world.settle(Shard::new(shard)));
        world
    }

    pub fn fail(&mut self, rule: Rule, what: impl Debug) {
        self.broken.push((rule, format!("{} ms: {what:?}", self.now - START)));
    }

    /// Makes the reference hold what the item holds.
    pub fn settle(&mut self, shard: Shard) {
        let state = &self.items[&shard].state;
        for limit in state.limits.keys() {
            self.reference.insert((shard, limit.clone()), Reference::of(state, limit));
        }
    }

    pub fn reference(&mut self, shard: Shard, limit: &Limit<'static>) -> &mut Reference {
        self.reference.get_mut(&(shard, limit.clone())).unwrap()
    }

    /// Adds to the tokens of a shard and to its consumption.
    pub fn change(&mut self, shard: Shard, limit: &Limit<'static>, tokens: i64, consumed: i64) {
        let item = self.items.get_mut(&shard).unwrap();
        shift(&mut item.state, limit, tokens, consumed);
    }

    /// Writes down what is about to be granted, or given back if it is below zero.
    fn record(&mut self, limit: &Limit<'static>, taken: i64, decided: i64) {
        let stored = self.items.values().map(|item| item.state.limits[limit].tokens.get().max(0)).sum();
        self.journal.push(Entry { at: self.now, decided, limit: limit.clone(), taken, stored });
    }

    /// Tests that the reference covers the item. Returns the limits for which the item grants more.
    pub fn excess(&self, shard: Shard) -> Vec<Limit<'static>> {
        let state = &self.items[&shard].state;
        let is_more =
            |limit: &&Limit<'static>| !self.reference[&(shard, (*limit).clone())].covers(&Reference::of(state, limit));
        state.limits.keys().filter(is_more).cloned().collect()
    }

    fn test_excess(&mut self, shard: Shard, write: &impl Debug) {
        let excess = self.excess(shard);
        if !excess.is_empty() {
            self.fail(Rule::Reference, (excess, write));
        }
    }

    /// The speculative write, of all versions: it takes stored tokens and one write unit.
    pub fn speculate(&mut self, shard: Shard, amounts: &Amounts, heeds_vu: bool, operation: Option<u64>) -> bool {
        let Some(item) = self.items.get_mut(&shard) else { return false };
        let mut amounts = amounts.clone();
        amounts.insert(limit(Limit::WRITE_UNITS), 1000);
        let has = |(limit, amount): (_, &i64)| {
            item.state.limits.get(limit).is_some_and(|of| of.tokens >= Millitokens::new(*amount))
        };
        if heeds_vu && item.has_vu || !amounts.iter().all(has) {
            return false;
        }
        item.operation = operation.unwrap_or(item.operation);
        for (limit, amount) in &amounts {
            let reference = self.reference(shard, limit);
            let is_covered = reference.stored() >= reference.scaled(*amount);
            reference.add(-amount);
            self.record(limit, *amount, self.now);
            self.change(shard, limit, -amount, *amount);
            if !is_covered {
                self.fail(Rule::Covers, (shard, limit, amount));
            }
        }
        self.test_excess(shard, &amounts);
        true
    }

    /// Whether a [`Take`] from an item as it was seen would be written.
    pub fn can_take(&self, shard: Shard, seen: &Item, take: &Take<'static>) -> bool {
        let Some(Item { state, has_vu, .. }) = self.items.get(&shard) else { return false };
        let holds = |(limit, of): (&Limit<'static>, &tidegate_domain::state::LimitState)| {
            let Some(now) = state.limits.get(limit) else { return false };
            let change = take.changes[limit];
            now.terms == of.terms
                && now.tokens <= of.tokens
                && ((change.taken.get() == 0 && change.credit.get() >= 0) || now.tokens >= change.at_least)
        };
        state.last_refill == seen.state.last_refill
            && state.shards == seen.state.shards
            && *has_vu == seen.has_vu
            && seen.state.limits.iter().all(holds)
    }

    /// Writes a [`Take`] that was decided on when the client's clock showed `clock`. Its conditions must hold.
    pub fn take(&mut self, shard: Shard, seen: &Item, take: &Take<'static>, clock: i64, operation: u64) {
        let before = self.items[&shard].clone();
        let after = take.applied_to(before.state.clone());
        for (limit, change) in &take.changes {
            self.test_take(shard, (seen, &before), &after, limit, clock);
            let reference = self.reference(shard, limit);
            // Without a refill, nothing happens to a limit that nothing is taken from.
            if change.taken.get() > 0 || take.until > before.state.last_refill {
                reference.refill(clock);
            }
            reference.add(-change.taken.get());
            self.record(limit, change.taken.get(), clock);
            self.change(shard, limit, -change.taken.get(), 0);
        }
        let item = self.items.get_mut(&shard).unwrap();
        (item.state, item.has_vu, item.operation) = (after, false, operation);
        if take.until < before.state.last_refill || take.until.get() > clock.max(before.state.last_refill.get()) {
            self.fail(Rule::Time, (shard, clock, take));
        }
        self.test_excess(shard, &(seen, take));
    }

    /// Tests what a [`Take`] changes of one limit.
    fn test_take(
        &mut self,
        shard: Shard,
        (seen, before): (&Item, &Item),
        after: &State,
        limit: &Limit<'static>,
        clock: i64,
    ) {
        let (old, new) = (Reference::of(&before.state, limit), Reference::of(after, limit));
        let (was, is) = (before.state.limits[limit], after.limits[limit]);
        let taken = is.consumed.get() - was.consumed.get();
        let now = clock.max(before.state.last_refill.get());
        let what = (shard, limit, clock, &before.state, after);
        // A debt rejects only what asks for the limit.
        let left = old.available(now) - old.scaled(taken);
        if taken < 0
            || taken > 0 && left < 0
            || self.reference(shard, limit).potential(now) < old.scaled(taken) && taken > 0
        {
            self.fail(Rule::Covers, what);
        }
        let is_lower = if taken > 0 { new.potential(now) <= left } else { new.available(now) <= left };
        if !is_lower {
            self.fail(Rule::NeverRaises, what);
        }
        // A client that has seen a full shard forfeits what has accrued, although others have lowered the tokens since.
        let image = Reference::of(&seen.state, limit);
        let refills = taken > 0 || after.last_refill > before.state.last_refill || image.stored() > image.share();
        let forfeits = refills && image.potential(now) >= image.share();
        let late = if forfeits { seen.state.limits[limit].tokens.get() - was.tokens.get() } else { 0 };
        if new.available(now) <= left - old.scaled(late + 1) {
            self.fail(Rule::Keeps, what);
        }
        // The write removes the mark that asks to clamp the tokens.
        if new.stored() > new.share() {
            self.fail(Rule::Overfills, what);
        }
        let credited = i128::from(is.tokens.get() + is.consumed.get() - was.tokens.get() - was.consumed.get());
        if old.scaled(1) * credited > old.potential(now) - old.stored() {
            self.fail(Rule::Conserves, what);
        }
    }

    /// A lease's change, if the conditions hold: nothing else protects what was given back.
    pub fn adjust(&mut self, shard: Shard, adjustments: &[Adjustment], operation: u64) -> bool {
        let Some(item) = self.items.get_mut(&shard) else { return false };
        let holds = |of: &Adjustment| {
            let tokens = item.state.limits[&of.limit].tokens.get();
            let present = (item.state.shards, item.state.limits[&of.limit].terms);
            of.at_most.is_none_or(|most| tokens <= most)
                && of.at_least.is_none_or(|least| tokens >= least)
                && of.share.is_none_or(|seen| seen == present)
        };
        if !adjustments.iter().all(holds) {
            return false;
        }
        item.operation = operation;
        for Adjustment { limit, tokens, consumed, .. } in adjustments {
            if *tokens > 0 {
                self.record(limit, -tokens, self.now);
            }
            self.reference(shard, limit).add(*tokens);
            self.change(shard, limit, *tokens, *consumed);
            if *tokens > (-consumed).max(0) || *consumed > 0 && *tokens != -consumed {
                self.fail(Rule::Conserves, (limit, tokens, consumed));
            }
        }
        self.test_excess(shard, &adjustments);
        true
    }

    /// Tests that what was given back by what was `seen` does not lift a limit above its share.
    pub fn test_overfill(&mut self, shard: Shard, seen: &State, before: &State, limit: &Limit<'static>) {
        let state = &self.items[&shard].state;
        let (of, was) = (state.limits[limit], before.limits[limit]);
        if of.tokens > was.tokens && of.tokens > state.share(limit, &of).capacity {
            self.fail(Rule::Overfills, (shard, seen, before, limit));
        }
    }

    /// The transaction that gives the bucket more shards. Returns whether it is written.
    pub fn split(&mut self, seen: &BTreeMap<Shard, Item>, plan: &Plan<'static>) -> bool {
        let holds = plan.splits.iter().all(|split| {
            let (item, seen) = (&self.items[&split.donor], &seen[&split.donor].state);
            let state = &item.state;
            let has_terms = |limit| state.limits[limit].terms == seen.limits[limit].terms;
            let covers =
                |(limit, gift): (_, &Millitokens)| gift.get() <= 0 || state.limits[limit].tokens >= split.given(limit);
            !item.has_vu
                && state.last_refill == seen.last_refill
                && state.shards == seen.shards
                && seen.limits.keys().all(has_terms)
                && split.gifts.iter().all(covers)
                && split.targets.iter().all(|target| !self.items.contains_key(target))
        });
        if !holds || !plan.raises.is_empty() {
            return false;
        }
        let before: States = self.items.iter().map(|(shard, item)| (*shard, item.state.clone())).collect();
        let mut after = before.clone();
        split::apply(plan, &mut after);
        for limit in LIMITS.map(limit) {
            // New shards get the terms of shard 0, which 0.10 changes alone.
            let terms: Vec<_> = before.values().filter_map(|state| Some(state.limits.get(&limit)?.terms)).collect();
            if terms.iter().any(|other| *other != terms[0]) {
                continue;
            }
            let sum = |states: &States, parts: i128| -> i128 {
                let latest = states.values().map(|state| state.last_refill.get()).max().unwrap();
                let potentials = states.values().filter(|state| state.limits.contains_key(&limit));
                potentials.map(|state| Reference::of(state, &limit).potential(latest) * parts).sum()
            };
            let parts = i128::from(plan.shards.get()) / i128::try_from(before.len()).unwrap();
            if sum(&before, parts) != sum(&after, 1) {
                self.fail(Rule::Conserves, (&before, plan));
            }
        }
        for (shard, state) in after {
            let new = Item { state: state.clone(), has_vu: false, operation: 0 };
            let item = self.items.entry(shard).or_insert(new);
            item.state = state;
            self.settle(shard);
        }
        true
    }

    /// Changes the terms of one limit, on the first shards, as clients do. From 0.14 on, they mark the items.
    pub fn set_limits(&mut self, shards: u32, marks: bool, at: usize, terms: Terms) {
        let limit = limit(LIMITS[at]);
        for shard in (0..shards).map(Shard::new) {
            let Some(item) = self.items.get_mut(&shard) else { continue };
            let Some(of) = item.state.limits.get_mut(&limit) else { continue };
            of.terms = terms;
            item.has_vu |= marks;
            self.settle(shard);
        }
    }

    /// The doubling of all shards, as it would be written now.
    pub fn doubling(&self) -> Option<Plan<'static>> {
        let states: States = self.items.iter().map(|(shard, item)| (*shard, item.state.clone())).collect();
        let doubled = count(u32::try_from(2 * states.len()).unwrap());
        if self.items.values().any(|item| item.has_vu) { None } else { split::plan(&states, doubled) }
    }

    /// The items' time, for decisions at a client's clock.
    pub fn clock(&self, skew: i64) -> tidegate_domain::time::EpochMillis {
        time(self.now + skew)
    }
}
