//! The keeper's writes: the conditions under which the table applies them, and the rules that each must keep.

use std::{collections::BTreeMap, fmt::Debug};

use tidegate_domain::{
    bucket::{Limit, Shard},
    refill::Refill,
    repair::{self, Alignment, Expiry, Move},
    split::{self, Plan, Split},
    state::LimitState,
    tokens::Millitokens,
};

use crate::table::{Amounts, Item, Rule, START, State, States, World, shift, time};

/// A write, with what its conditions compare.
#[derive(Clone, Debug)]
pub enum Write {
    Refill {
        shard: Shard,
        seen: State,
        refill: Refill<'static>,
    },
    Align {
        shard: Shard,
        seen: State,
        alignment: Alignment<'static>,
    },
    Increase {
        seen: States,
        plan: Plan<'static>,
    },
    /// `at` is the moment of the read that the move was decided on.
    Move {
        at: i64,
        seen: States,
        transfer: Move<'static>,
    },
}

impl Write {
    pub const KINDS: [&str; 5] = ["refill", "trim", "align", "increase", "move"];

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refill { refill, .. } if refill.trims.is_empty() => "refill",
            Self::Refill { .. } => "trim",
            Self::Align { .. } => "align",
            Self::Increase { .. } => "increase",
            Self::Move { .. } => "move",
        }
    }

    /// The items that the write changes, if all its conditions hold.
    pub fn outcome(&self, items: &BTreeMap<Shard, Item>) -> Option<States> {
        match self {
            Self::Refill { shard, seen, refill } => {
                Some([(*shard, refilled(plain(items, *shard)?, seen, refill)?)].into())
            }
            Self::Align { shard, seen, alignment } => {
                Some([(*shard, aligned(plain(items, *shard)?, seen, alignment)?)].into())
            }
            Self::Increase { seen, plan } => increased(items, seen, plan),
            Self::Move { seen, transfer, .. } => moved(items, seen, transfer),
        }
    }
}

/// An item that has no `vu`.
fn plain(items: &BTreeMap<Shard, Item>, shard: Shard) -> Option<State> {
    items.get(&shard).filter(|item| !item.has_vu).map(|item| item.state.clone())
}

fn is_as_seen(state: &State, seen: &State) -> bool {
    state.last_refill == seen.last_refill && state.shards == seen.shards
}

fn has_terms_of(state: &State, seen: &State, limit: &Limit<'_>) -> bool {
    state.limits.get(limit).is_some_and(|now| now.terms == seen.limits[limit].terms)
}

fn tokens(state: &State, limit: &Limit<'_>) -> Millitokens {
    state.limits[limit].tokens
}

/// What clients can admit of a limit on a shard: `min(share, V)`.
fn admissible(state: &State, limit: &Limit<'_>, now: i64) -> i64 {
    let of = &state.limits[limit];
    let share = state.share(limit, of);
    let accrued = share.accrued(time(now).since(state.last_refill).as_millis());
    share.capacity.get().min(of.tokens.get().saturating_add(i64::try_from(accrued).unwrap_or(i64::MAX)))
}

fn refilled(state: State, seen: &State, refill: &Refill<'static>) -> Option<State> {
    let holds = is_as_seen(&state, seen)
        && seen.limits.keys().all(|limit| has_terms_of(&state, seen, limit))
        && refill.credits.keys().all(|limit| tokens(&state, limit) <= tokens(seen, limit))
        && refill.trims.iter().all(|(limit, share)| tokens(&state, limit) > *share);
    holds.then(|| refill.applied_to(state))
}

fn aligned(mut state: State, seen: &State, alignment: &Alignment<'static>) -> Option<State> {
    let holds = alignment.terms.keys().all(|limit| has_terms_of(&state, seen, limit))
        && alignment.added.keys().all(|limit| !state.limits.contains_key(limit))
        && match alignment.expiry {
            Some(Expiry::At(expires)) => state.expires.is_some_and(|old| old < expires),
            Some(Expiry::Never) | None => true,
        };
    repair::apply(alignment, &mut state);
    holds.then_some(state)
}

fn increased(items: &BTreeMap<Shard, Item>, seen: &States, plan: &Plan<'static>) -> Option<States> {
    let mut states = States::new();
    for split in &plan.splits {
        let Split { donor, gifts, targets, .. } = split;
        let state = plain(items, *donor)?;
        let holds = is_as_seen(&state, &seen[donor])
            && gifts.iter().all(|(limit, gift)| gift.get() <= 0 || tokens(&state, limit) >= split.given(limit))
            && !targets.iter().any(|target| items.contains_key(target));
        states.insert(*donor, holds.then_some(state)?);
    }
    for shard in &plan.raises {
        states.insert(*shard, plain(items, *shard).filter(|state| state.shards < plan.shards)?);
    }
    // New shards are copies of shard 0 as it was read.
    let is_written = states.contains_key(&Shard::ZERO);
    states.entry(Shard::ZERO).or_insert_with(|| seen[&Shard::ZERO].clone());
    split::apply(plan, &mut states);
    states.retain(|shard, _| is_written || *shard != Shard::ZERO);
    Some(states)
}

fn moved(items: &BTreeMap<Shard, Item>, seen: &States, transfer: &Move<'static>) -> Option<States> {
    let Move { limit, from, settled, forfeited, to, tokens: moved } = transfer;
    let (mut giver, mut taker) = (plain(items, *from)?, plain(items, *to)?);
    let is_same = |state: &State, seen| is_as_seen(state, seen) && has_terms_of(state, seen, limit);
    let is_seen = is_same(&giver, &seen[from]);
    if let Some(settled) = settled {
        giver = refilled(giver, &seen[from], settled)?;
    }
    let holds = is_seen
        && is_same(&taker, &seen[to])
        && tokens(&giver, limit).get() >= moved.get() + forfeited.get()
        && tokens(&taker, limit) <= tokens(&seen[to], limit);
    shift(&mut giver, limit, -moved.get() - forfeited.get(), 0);
    shift(&mut taker, limit, moved.get(), 0);
    holds.then(|| [(*from, giver), (*to, taker)].into())
}

impl World {
    /// Applies a write if its conditions hold, and tests its effect. Returns whether it is written.
    pub fn apply(&mut self, write: &Write) -> bool {
        let Some(after) = write.outcome(&self.items) else { return false };
        let before: States =
            after.keys().filter_map(|shard| Some((*shard, self.items.get(shard)?.state.clone()))).collect();
        match write {
            Write::Refill { shard, .. } => self.test_refill(*shard, &before[shard], &after[shard]),
            Write::Align { shard, .. } => self.exact.settle(*shard, after.get(shard), self.now),
            Write::Increase { plan, .. } => {
                for Split { donor, targets, .. } in &plan.splits {
                    let parts =
                        [donor].into_iter().chain(targets).map(|shard| (*shard, after[shard].clone())).collect();
                    self.exact.split((*donor, &before[donor]), &parts, self.now);
                }
                // A raise is what clients do to siblings: the share shrinks to its correct size.
                plan.raises.iter().for_each(|shard| self.exact.settle(*shard, after.get(shard), self.now));
            }
            Write::Move { at, transfer: Move { limit, from, settled, to, tokens: moved, .. }, .. } => {
                if let Some(settled) = settled {
                    self.test_refill(*from, &before[from], &settled.applied_to(before[from].clone()));
                }
                // What both can admit together rises by no more than a full giver would have lost without the move, of what
                // it accrues while the write is on its way. Rounding adds less than a millitoken.
                let (giver, of) = (&before[from], &before[from].limits[limit]);
                let part = giver.share(limit, of);
                let accrued = |since| {
                    let elapsed = time(self.now).since(since).as_millis();
                    i64::try_from(part.accrued(elapsed)).unwrap_or(i64::MAX)
                };
                let held = of.tokens.get().saturating_add(accrued(giver.last_refill));
                let late = accrued(time(*at)).min(held.saturating_sub(part.capacity.get()).max(0));
                let both = |states: &States| {
                    admissible(&states[from], limit, self.now) + admissible(&states[to], limit, self.now)
                };
                if both(&after) > both(&before).saturating_add(late).saturating_add(1) {
                    self.fault(Rule::NeverRaises, write);
                }
                self.exact.take(*from, limit, moved.get(), self.now);
                self.exact.take(*to, limit, -moved.get(), self.now);
                let overdraws = moved.get() <= 0 || tokens(&after[from], limit).get() < 0;
                if overdraws || tokens(&after[to], limit) > share(&after[to], limit) {
                    self.fault(Rule::NeverRaises, write);
                }
            }
        }
        if after.iter().any(|(shard, state)| !self.exact.excess(*shard, state, self.now).is_empty()) {
            self.fault(Rule::CoversExact, write);
        }
        let conserves =
            matches!(write, Write::Increase { .. } | Write::Move { transfer: Move { settled: None, .. }, .. });
        if conserves && sums(&before) != sums(&after) {
            self.fault(Rule::Conserves, write);
        }
        for (shard, state) in after {
            self.put(shard, Some(state.into()));
        }
        true
    }

    fn fault(&mut self, rule: Rule, what: &impl Debug) {
        self.faults.push((rule, format!("{} ms: {what:?}", self.now - START)));
    }

    fn test_refill(&mut self, shard: Shard, before: &State, after: &State) {
        let elapsed = i128::from(after.last_refill.get() - before.last_refill.get());
        let mut rounded = Vec::new();
        for (limit, LimitState { tokens: had, terms, .. }) in &before.limits {
            let has = tokens(after, limit);
            let shards = if limit.is_write_units() { 1 } else { before.shards.get() };
            let gained = i128::from(has.get() - had.get()) * i128::from(terms.period) * i128::from(shards);
            let accrued = elapsed * i128::from(terms.refill.get());
            if gained > accrued || has > share(after, limit).max(*had) {
                self.fault(Rule::NeverRaises, &(limit, before, after));
            }
            if 0 < gained && gained < accrued {
                rounded.push(limit);
            }
        }
        // Rounding may take less than a millitoken, where the limits have no common moment without it.
        if self.exact.excess(shard, after, self.now).iter().all(|(limit, more)| rounded.contains(&limit) && *more == 1)
        {
            self.exact.settle(shard, Some(after), self.now);
        }
    }
}

fn share(state: &State, limit: &Limit<'static>) -> Millitokens {
    state.share(limit, &state.limits[limit]).capacity
}

/// What shards hold of each divided limit together.
fn sums(states: &States) -> Amounts {
    let mut sums = Amounts::new();
    for (limit, of) in states.values().flat_map(State::divided) {
        *sums.entry(limit.clone()).or_default() += of.tokens.get();
    }
    sums
}
