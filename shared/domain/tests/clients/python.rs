//! The Python clients, as zae-limiter 0.10 and 0.17 write.

use tidegate_domain::{
    bucket::{Limit, Shard},
    state::LimitState,
    tokens::Millitokens,
};

use crate::{
    items::{Amounts, time},
    reference::Reference,
    table::{Adjustment, Fault, Item, Rule, World},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 0.10: the slow path and all refunds are on shard 0. The slow path ignores the number of shards.
    V10,
    /// 0.17: they are on the shard that was drawn.
    V17,
}

/// The slow path of an acquire: a read, a write that depends on the time of the last refill, and one that does not.
#[derive(Clone, Debug)]
enum Pass {
    Read,
    /// At the first reading of the clock, a refill of the image credits these millitokens.
    Write {
        image: Item,
        clock: i64,
        refills: Amounts,
    },
    Retry,
}

#[derive(Clone, Debug)]
pub struct PythonClient {
    version: Version,
    /// How far its clock is ahead, in milliseconds.
    pub skew: i64,
    /// The cached number of shards.
    known: u32,
    under_way: Option<(Pass, Shard, Amounts)>,
    /// What leases have taken, and the item after that.
    pub leases: Vec<(Shard, Amounts, Item)>,
    /// The paths on which acquires were granted.
    pub granted: Vec<&'static str>,
}

impl PythonClient {
    pub fn new(version: Version, skew: i64) -> Self {
        Self { version, skew, known: 1, under_way: None, leases: Vec::new(), granted: Vec::new() }
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// The speculative write of an acquire, on the shard that this number draws.
    pub fn acquire(&mut self, world: &mut World, draw: u32, wanted: &Amounts) {
        let shard = Shard::new(draw % self.known);
        if world.speculate(shard, wanted, self.version == Version::V17, None) {
            self.grant(world, shard, wanted, "fast");
        } else {
            let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
            self.under_way = Some((Pass::Read, shard, wanted.clone()));
        }
        self.known = self.known.max(world.items[&shard].state.shards.get());
    }

    fn grant(&mut self, world: &World, shard: Shard, wanted: &Amounts, path: &'static str) {
        self.leases.push((shard, wanted.clone(), world.items[&shard].clone()));
        self.granted.push(path);
    }

    /// Makes the next call of a slow path.
    pub fn act(&mut self, world: &mut World) {
        let Some((pass, shard, wanted)) = self.under_way.take() else { return };
        match pass {
            Pass::Read => {
                let (image, clock) = (world.items[&shard].clone(), world.now + self.skew);
                // A denial writes nothing.
                if let Some(refills) = self.refills(&image, clock, &wanted) {
                    self.under_way = Some((Pass::Write { image, clock, refills }, shard, wanted));
                }
            }
            Pass::Write { image, clock, refills } => {
                if self.write(world, shard, (&image, clock), &refills, &wanted) {
                    self.grant(world, shard, &wanted, "slow");
                } else {
                    self.under_way = Some((Pass::Retry, shard, wanted));
                }
            }
            Pass::Retry => {
                if Self::retry(world, shard, &wanted) {
                    self.grant(world, shard, &wanted, "retry");
                }
            }
        }
    }

    /// The refill of each limit by the image; `None` if a limit is short.
    fn refills(&self, image: &Item, clock: i64, wanted: &Amounts) -> Option<Amounts> {
        let elapsed = i128::from((clock - image.state.last_refill.get()).max(0));
        let mut refills = Amounts::new();
        for (limit, LimitState { tokens, terms, .. }) in &image.state.limits {
            let shards = match self.version {
                Version::V10 if limit.is_write_units() => continue,
                Version::V17 if !limit.is_write_units() => i64::from(image.state.shards.get()),
                Version::V10 | Version::V17 => 1,
            };
            let accrued = elapsed * i128::from(terms.refill.get() / shards) / i128::from(terms.period);
            let refilled = tokens.get() + i64::try_from(accrued).unwrap();
            let is_clamped = accrued > 0 || self.version == Version::V17;
            let refilled = if is_clamped { refilled.min(terms.capacity.get() / shards) } else { refilled };
            // In 0.10, a limit in debt rejects even requests that take nothing from it.
            let least = wanted.get(limit).copied().or((self.version == Version::V10).then_some(0));
            if least.is_some_and(|least| refilled < least) {
                return None;
            }
            refills.insert(limit.clone(), refilled - tokens.get());
        }
        Some(refills)
    }

    /// The write of the slow path. Returns whether its condition holds.
    fn write(
        &self,
        world: &mut World,
        shard: Shard,
        (image, clock): (&Item, i64),
        refills: &Amounts,
        wanted: &Amounts,
    ) -> bool {
        let before = world.items[&shard].clone();
        let tokens = |item: &Item, limit| item.state.limits[limit].tokens.get();
        let holds = |(limit, refill): (_, &i64)| {
            let taken = wanted.get(limit).copied().unwrap_or_default();
            let is_floored = taken <= *refill || tokens(&before, limit) >= taken - refill;
            let stacks = *refill > 0 && tokens(&before, limit) > tokens(image, limit);
            is_floored && (self.version == Version::V10 || !stacks)
        };
        if before.state.last_refill != image.state.last_refill
            || self.version == Version::V17 && before.has_vu != image.has_vu
            || !refills.iter().all(holds)
        {
            return false;
        }
        let stamp = time(world.now + self.skew);
        let stamp = if self.version == Version::V10 { stamp } else { stamp.max(before.state.last_refill) };
        let mut uncovered = Vec::new();
        for limit in before.state.limits.keys() {
            let taken = wanted.get(limit).copied().unwrap_or_default();
            let reference = world.reference(shard, limit);
            reference.refill(clock);
            if taken > 0 && reference.available(clock) < reference.scaled(taken) {
                uncovered.push(limit.clone());
            }
            reference.add(-taken);
            world.change(shard, limit, -taken, taken);
        }
        let item = world.items.get_mut(&shard).unwrap();
        for (limit, refill) in refills {
            let of = item.state.limits.get_mut(limit).unwrap();
            of.tokens = Millitokens::new(of.tokens.get() + refill);
        }
        item.state.last_refill = stamp;
        item.has_vu &= self.version == Version::V10;
        for limit in uncovered {
            self.blame(world, shard, (image, clock, &before), &limit, true);
        }
        for limit in world.excess(shard) {
            self.blame(world, shard, (image, clock, &before), &limit, false);
        }
        world.settle(shard);
        true
    }

    /// Finds out why a write grants too much of a limit.
    fn blame(
        &self,
        world: &mut World,
        shard: Shard,
        (image, clock, before): (&Item, i64, &Item),
        limit: &Limit<'static>,
        takes: bool,
    ) {
        let is_old = self.version == Version::V10;
        let (seen, was) = (image.state.limits[limit], before.state.limits[limit]);
        let stamp = world.items[&shard].state.last_refill.get();
        let causes = [
            (Fault::OldTerms, seen.terms != was.terms || image.state.shards != before.state.shards),
            (Fault::TakesTwice, takes && was.tokens < seen.tokens),
            (Fault::StacksUp, was.tokens > seen.tokens),
            (Fault::MovesBack, stamp < clock || stamp < before.state.last_refill.get()),
            (Fault::Unclamped, is_old && was.tokens > was.terms.capacity),
            (Fault::Undivided, is_old && before.state.shards.get() > 1),
        ];
        match causes.into_iter().find(|(_, is_cause)| *is_cause) {
            Some((fault, _)) => _ = world.faults.insert(fault),
            None => world.fail(
                Rule::Python,
                (self.version, takes, shard, limit, image, before, &world.items[&shard].state.clone()),
            ),
        }
    }

    /// The write after the other one has lost: it refills nothing.
    fn retry(world: &mut World, shard: Shard, wanted: &Amounts) -> bool {
        let state = &world.items[&shard].state;
        let is_covered = wanted.iter().all(|(limit, taken)| *taken == 0 || state.limits[limit].tokens.get() >= *taken);
        if is_covered {
            for (limit, taken) in wanted {
                world.reference(shard, limit).add(-taken);
                world.change(shard, limit, -taken, *taken);
            }
        }
        is_covered
    }

    /// Changes what a lease has taken. Below zero, tokens are given back.
    pub fn adjust(&self, world: &mut World, (shard, image): (Shard, &Item), limit: &Limit<'static>, taken: i64) {
        let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
        let item = &world.items[&shard];
        let (of, seen) = (item.state.limits[limit], image.state.limits[limit]);
        let reference = Reference::of(&image.state, limit);
        let overflows = reference.scaled(of.tokens.get() - taken) > reference.share();
        let is_as_seen = of.terms.capacity == seen.terms.capacity
            && item.state.shards == image.state.shards
            && item.has_vu == image.has_vu;
        let marks = self.version == Version::V17 && taken < 0 && (overflows || !is_as_seen);
        let operation = item.operation;
        let change = Adjustment {
            limit: limit.clone(),
            tokens: -taken,
            consumed: taken,
            at_most: None,
            at_least: None,
            share: None,
        };
        world.adjust(shard, &[change], operation);
        world.items.get_mut(&shard).unwrap().has_vu |= marks;
    }
}
