//! The Rust clients: the real decisions, and the calls that the crate `tidegate` makes for them.

use std::collections::BTreeMap;

use tidegate_domain::{
    admission::{self, Outcome, Remedy, Shortage, Take, WRITE_UNIT},
    bucket::{Limit, Shard},
    split::Plan,
    tokens::Millitokens,
};

use crate::{
    items::{Amounts, State},
    table::{Adjustment, Item, Rule, World},
};

/// For how long a denial follows from an image, in milliseconds.
pub const DENIAL_LIFETIME: i64 = 1000;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// It is written, but the client does not hear of it.
    ResponseLost,
    /// It arrives after the client has given up, if at all.
    Late,
}

#[derive(Clone, Debug)]
struct Request {
    shard: Shard,
    amounts: admission::Amounts<'static>,
    is_cancelled: bool,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Granted,
    /// `is_fresh` tells whether the table was asked.
    Denied {
        shortages: Vec<Shortage<'static>>,
        is_fresh: bool,
    },
    Failed,
}

/// A write, with what its conditions compare.
#[derive(Clone, Debug)]
pub enum Write {
    Speculate(Shard, Amounts),
    Take(Vec<(Shard, Item, Take<'static>)>, i64),
    Adjust(Shard, State, Vec<Adjustment>),
    Split(BTreeMap<Shard, Item>, Plan<'static>),
}

impl Write {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Speculate(..) => "speculative write",
            Self::Take(takes, _) if takes.len() > 1 => "take from several shards",
            Self::Take(takes, _) if takes[0].1.has_vu => "take that clamps",
            Self::Take(..) => "take",
            Self::Adjust(..) => "adjustment",
            Self::Split(..) => "split",
        }
    }

    /// Whether the write follows from the items as they are.
    fn is_current(&self, world: &World) -> bool {
        let is_seen = |shard: &Shard, state: &State| world.items[shard].state == *state;
        match self {
            Self::Take(takes, _) => takes
                .iter()
                .all(|(shard, seen, _)| is_seen(shard, &seen.state) && world.items[shard].has_vu == seen.has_vu),
            Self::Adjust(shard, seen, _) => is_seen(shard, seen),
            Self::Speculate(..) | Self::Split(..) => false,
        }
    }

    /// Returns whether the conditions hold, and so the write happens.
    pub fn apply(&self, world: &mut World, operation: u64) -> bool {
        match self {
            Self::Speculate(shard, amounts) => world.speculate(*shard, amounts, true, Some(operation)),
            Self::Take(takes, clock) => {
                let is_written = takes.iter().all(|(shard, seen, take)| world.can_take(*shard, seen, take));
                if is_written {
                    for (shard, seen, take) in takes {
                        world.take(*shard, seen, take, *clock, operation);
                    }
                }
                is_written
            }
            Self::Adjust(shard, seen, adjustments) => {
                let before = world.items[shard].state.clone();
                let is_written = world.adjust(*shard, adjustments, operation);
                for of in adjustments {
                    world.test_overfill(*shard, seen, &before, &of.limit);
                }
                is_written
            }
            Self::Split(seen, plan) => world.split(seen, plan),
        }
    }
}

/// A call that is under way.
#[derive(Clone, Debug)]
struct Call {
    operation: u64,
    write: Write,
    /// The requests that the write grants.
    requests: Vec<Request>,
    is_lost: bool,
}

/// A process with one writer. It serves one shard at a time.
#[derive(Clone, Debug, Default)]
pub struct RustClient {
    /// How far its clock is ahead, in milliseconds.
    pub skew: i64,
    /// What it has seen of the shards, and when.
    views: BTreeMap<Shard, (Item, i64)>,
    waiting: Vec<Request>,
    /// Lease changes that wait for a write.
    gives: Vec<(Shard, Amounts)>,
    /// The requests that the next write merges.
    batch: Vec<Request>,
    is_fresh: bool,
    call: Option<Call>,
    /// Shards and amounts that callers hold.
    pub leases: Vec<(Shard, Amounts)>,
    pub replies: Vec<Reply>,
    /// The kinds of the writes that were written.
    pub written: Vec<&'static str>,
}

impl RustClient {
    pub fn new(skew: i64) -> Self {
        Self { skew, ..Self::default() }
    }

    /// A caller asks for tokens of a shard.
    pub fn ask(&mut self, shard: Shard, amounts: &Amounts) {
        let amounts = amounts.iter().map(|(limit, amount)| (limit.clone(), Millitokens::new(*amount))).collect();
        self.waiting.push(Request { shard, amounts, is_cancelled: false });
    }

    /// The caller that has waited longest disappears. If its write is under way, its tokens are given back.
    pub fn cancel(&mut self) {
        let under_way = self.call.iter_mut().flat_map(|call| &mut call.requests);
        if let Some(request) = under_way.chain(&mut self.batch).chain(&mut self.waiting).next() {
            request.is_cancelled = true;
        }
    }

    /// A caller changes what its lease has taken.
    pub fn give(&mut self, shard: Shard, changes: Amounts) {
        self.gives.push((shard, changes));
    }

    /// Forgets everything but what was seen of the items.
    pub fn restart(&mut self) {
        *self = Self { skew: self.skew, views: std::mem::take(&mut self.views), ..Self::default() };
    }

    pub fn is_idle(&self) -> bool {
        self.call.is_none() && self.batch.is_empty() && self.waiting.is_empty() && self.gives.is_empty()
    }

    /// Makes the next call, or receives the response of the one that is under way. Returns a write that arrives later.
    pub fn act(&mut self, world: &mut World, operation: u64, fate: Fate) -> Option<(u64, Write)> {
        match self.call.take() {
            None => self.send(world, operation),
            Some(call) if call.is_lost => self.find(world, call),
            Some(call) => return self.receive(world, call, fate),
        }
        None
    }

    fn send(&mut self, world: &mut World, operation: u64) {
        let now = world.now + self.skew;
        if self.batch.is_empty() {
            if let Some(shard) = self.gives.first().map(|(shard, _)| *shard) {
                return self.send_adjustment(world, shard, operation);
            }
            let Some(shard) = self.waiting.first().map(|request| request.shard) else { return };
            self.batch = self.waiting.extract_if(.., |request| request.shard == shard).collect();
            self.is_fresh = false;
        }
        self.batch.retain(|request| !request.is_cancelled);
        let Some(shard) = self.batch.first().map(|request| request.shard) else { return };
        let amounts: Vec<_> = self.batch.iter().map(|request| request.amounts.clone()).collect();
        let sums = sums(&amounts);
        let seen = self.views.get(&shard).cloned();
        let speculate = Write::Speculate(shard, sums.clone());
        let Some((item, at)) = seen.filter(|(item, _)| item.has_vu || !is_stored(&item.state, &sums)) else {
            let requests = std::mem::take(&mut self.batch);
            self.call = Some(Call { operation, write: speculate, requests, is_lost: false });
            return;
        };
        let decision = admission::decide(&item.state, &amounts, world.clock(self.skew));
        if let Some(take) = decision.take {
            let mut outcomes = decision.outcomes.into_iter();
            let is_granted = |_: &mut Request| outcomes.next() == Some(Outcome::Granted);
            let requests = self.batch.extract_if(.., is_granted).collect();
            let write = Write::Take(vec![(shard, item, take)], now);
            self.call = Some(Call { operation, write, requests, is_lost: false });
            return;
        }
        let is_recent = !item.has_vu && now - at <= DENIAL_LIFETIME;
        if !self.is_fresh && !is_recent {
            let requests = std::mem::take(&mut self.batch);
            self.call = Some(Call { operation, write: speculate, requests, is_lost: false });
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        for (request, outcome) in batch.into_iter().zip(decision.outcomes) {
            let Outcome::Denied(shortages) = outcome else { continue };
            let is_large = shortages.iter().any(|shortage| shortage.remedy == Remedy::SeveralShards);
            if !(is_large && self.send_large(world, request, operation)) {
                self.replies.push(Reply::Denied { shortages, is_fresh: self.is_fresh });
            }
        }
    }

    /// Takes an amount that no shard can hold alone from several shards. Returns whether they hold as much.
    fn send_large(&mut self, world: &World, request: Request, operation: u64) -> bool {
        let now = world.clock(self.skew);
        let items: BTreeMap<_, _> = world.items.iter().filter(|(_, item)| !item.has_vu).collect();
        let states = items.iter().map(|(shard, item)| (**shard, item.state.clone())).collect();
        let Some(parts) = admission::divide(&states, &request.amounts, now).filter(|_| self.call.is_none()) else {
            return false;
        };
        let takes = parts.into_iter().map(|(shard, part)| {
            let take = admission::decide(&states[&shard], &[part], now).take.unwrap();
            (shard, items[&shard].clone(), take)
        });
        let write = Write::Take(takes.collect(), now.get());
        self.call = Some(Call { operation, write, requests: vec![request], is_lost: false });
        true
    }

    fn send_adjustment(&mut self, world: &World, shard: Shard, operation: u64) {
        let mut sums = Amounts::new();
        for (limit, change) in self.gives.extract_if(.., |(of, _)| *of == shard).flat_map(|(_, changes)| changes) {
            *sums.entry(limit).or_default() += change;
        }
        sums.retain(|_, sum| *sum != 0);
        if sums.is_empty() {
            return;
        }
        // A client that has never seen the item reads it.
        let seen = self.views.get(&shard).map_or(&world.items[&shard].state, |(item, _)| &item.state).clone();
        let adjustments = sums.iter().map(|(limit, sum)| adjustment(&seen, limit, *sum)).collect();
        let write = Write::Adjust(shard, seen, adjustments);
        self.call = Some(Call { operation, write, requests: Vec::new(), is_lost: false });
    }

    fn receive(&mut self, world: &mut World, mut call: Call, fate: Fate) -> Option<(u64, Write)> {
        let Call { operation, write, .. } = &call;
        // The SDK repeats a transaction, which is idempotent.
        let is_repeated = matches!(write, Write::Take(takes, _) if takes.len() > 1);
        if fate == Fate::Late {
            let late = (*operation, write.clone());
            call.is_lost = true;
            self.call = Some(call);
            return Some(late);
        }
        let is_current = write.is_current(world);
        let is_written = write.apply(world, *operation);
        if is_current && !is_written {
            world.fail(Rule::Progress, write);
        }
        if is_written {
            self.written.push(write.kind());
        }
        if fate == Fate::ResponseLost && !is_repeated {
            call.is_lost = true;
            self.call = Some(call);
        } else {
            self.close(world, call, is_written);
        }
        None
    }

    /// Reads the item after a lost response: the id tells whether the write happened.
    fn find(&mut self, world: &World, call: Call) {
        let shard = match &call.write {
            Write::Speculate(shard, _) | Write::Adjust(shard, ..) => *shard,
            Write::Take(takes, _) => takes[0].0,
            Write::Split(..) => return,
        };
        if world.items[&shard].operation == call.operation {
            self.close(world, call, true);
        } else {
            // To write it again could charge twice, or create tokens.
            self.replies.extend(call.requests.iter().map(|_| Reply::Failed));
        }
    }

    fn close(&mut self, world: &World, call: Call, is_written: bool) {
        self.is_fresh = true;
        let at = world.now + self.skew;
        let mut see = |shard: Shard| self.views.insert(shard, (world.items[&shard].clone(), at));
        match &call.write {
            Write::Speculate(shard, _) => _ = see(*shard),
            Write::Take(takes, _) => takes.iter().for_each(|(shard, ..)| _ = see(*shard)),
            Write::Adjust(shard, _, adjustments) => {
                see(*shard);
                if !is_written {
                    let changes = adjustments.iter().map(|of| (of.limit.clone(), of.consumed)).collect();
                    self.gives.insert(0, (*shard, changes));
                }
                return;
            }
            Write::Split(..) => return,
        }
        if !is_written {
            self.batch.splice(0..0, call.requests);
            return;
        }
        let parts: Vec<_> = match &call.write {
            Write::Take(takes, _) if takes.len() > 1 => {
                takes.iter().map(|(shard, _, take)| (*shard, taken(take))).collect()
            }
            Write::Speculate(..) | Write::Take(..) | Write::Adjust(..) | Write::Split(..) => call
                .requests
                .iter()
                .map(|request| (request.shard, sums(std::slice::from_ref(&request.amounts))))
                .collect(),
        };
        for request in &call.requests {
            if !request.is_cancelled {
                self.replies.push(Reply::Granted);
            }
        }
        for ((shard, amounts), request) in parts.into_iter().zip(call.requests.iter().cycle()) {
            if request.is_cancelled {
                self.gives.push((shard, amounts.into_iter().map(|(limit, amount)| (limit, -amount)).collect()));
            } else {
                self.leases.push((shard, amounts));
            }
        }
    }
}

fn taken(take: &Take<'static>) -> Amounts {
    let changes = take.changes.iter().filter(|(limit, _)| !limit.is_write_units());
    changes.map(|(limit, change)| (limit.clone(), change.taken.get())).collect()
}

/// What the requests ask for together.
fn sums(requests: &[admission::Amounts<'static>]) -> Amounts {
    let mut sums = Amounts::new();
    for (limit, amount) in requests.iter().flatten() {
        *sums.entry(limit.clone()).or_default() += amount.get();
    }
    sums
}

/// Whether the stored tokens cover all requests together.
fn is_stored(state: &State, sums: &Amounts) -> bool {
    state.write_units().is_some_and(|units| units.tokens >= WRITE_UNIT)
        && sums.iter().all(|(limit, sum)| state.limits[limit].tokens.get() >= *sum)
}

/// The change of one limit. Tokens that are given back fill the shard up to its share, and no further.
fn adjustment(state: &State, limit: &Limit<'static>, taken: i64) -> Adjustment {
    let (limit, of) = (limit.clone(), &state.limits[limit]);
    if taken >= 0 {
        return Adjustment { limit, tokens: -taken, consumed: taken, at_most: None, at_least: None, share: None };
    }
    let (share, stored) = (state.share(&limit, of).capacity.get(), of.tokens.get());
    let tokens = (share - stored).max(0).min(-taken);
    Adjustment {
        limit,
        tokens,
        consumed: taken,
        at_most: Some((share - tokens).max(stored)),
        at_least: (tokens < -taken).then_some(stored),
        share: Some((state.shards, of.terms)),
    }
}
