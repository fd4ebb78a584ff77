//! What the clients do: acquires on three buckets, and changes of the limits between them.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::Serialize;

pub(crate) const RESOURCE: &str = "api";
/// A bucket that all clients take from. Its limits change meanwhile.
pub(crate) const SHARED: &str = "customer-1";
/// Consumption cascades from this entity to [`PARENT`].
pub(crate) const CHILD: &str = "customer-2";
pub(crate) const PARENT: &str = "team-1";
/// A bucket whose shards are doubled meanwhile.
pub(crate) const HOT: &str = "customer-3";
pub(crate) const ENTITIES: [&str; 4] = [SHARED, CHILD, PARENT, HOT];

pub(crate) const REQUESTS: &str = "requests";
pub(crate) const TOKENS: &str = "tokens";

/// Tokens a minute of [`TOKENS`], and the most that a bucket holds. Each load is larger, so that some acquires are denied.
pub(crate) const CAPACITY: u64 = 30_000;
/// What the limit of [`SHARED`] becomes, and stays for half of the run.
pub(crate) const LOWERED: u64 = 22_500;

/// One thing that a client does.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Step {
    Acquire {
        #[serde(rename = "acquire")]
        entity: &'static str,
        take: BTreeMap<&'static str, u64>,
        /// The correction of [`TOKENS`].
        adjust: i64,
        /// Everything is given back, without the correction.
        refund: bool,
    },
    SetLimits {
        #[serde(rename = "limits")]
        entity: &'static str,
        capacity: BTreeMap<&'static str, u64>,
    },
}

/// What a client does besides acquires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habits {
    /// It lowers and raises the limits of [`SHARED`].
    pub(crate) sets_limits: bool,
    /// It neither adjusts nor refunds on several shards: the leases of 0.10 refuse that.
    pub(crate) is_old: bool,
}

/// So many acquires of one client.
pub(crate) fn steps(acquires: u32, seed: u64, Habits { sets_limits, is_old }: Habits) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for number in 0..acquires {
        if sets_limits && number == acquires / 4 {
            steps.push(Step::SetLimits { entity: SHARED, capacity: limits(LOWERED) });
        }
        if sets_limits && number == acquires * 3 / 4 {
            steps.push(Step::SetLimits { entity: SHARED, capacity: limits(CAPACITY) });
        }
        let entity = [SHARED, CHILD, HOT][rng.random_range(0..3)];
        let tokens = rng.random_range(100..=400);
        let changes = !(is_old && entity == HOT);
        steps.push(Step::Acquire {
            entity,
            take: [(REQUESTS, 1), (TOKENS, tokens)].into(),
            adjust: if changes && rng.random_bool(0.4) { rng.random_range(-90..=40) } else { 0 },
            refund: changes && rng.random_bool(0.15),
        });
    }
    steps
}

/// All limits, with so many [`TOKENS`] a minute.
pub(crate) fn limits(tokens: u64) -> BTreeMap<&'static str, u64> {
    [(REQUESTS, 100_000), (TOKENS, tokens)].into()
}

/// What a client was granted, by entity and limit, in whole tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) acquires: u64,
    pub(crate) denied: u64,
    pub(crate) tokens: BTreeMap<(&'static str, &'static str), i128>,
    /// What corrections took beyond the grants.
    pub(crate) beyond: i128,
}

impl Granted {
    /// Counts an acquire that was granted, or not.
    pub(crate) fn count(&mut self, step: &Step, is_granted: bool) {
        let Step::Acquire { entity, take, adjust, refund } = step else { return };
        self.acquires += 1;
        if !is_granted {
            self.denied += 1;
            return;
        }
        if *refund {
            return;
        }
        self.beyond += i128::from((*adjust).max(0));
        let entities = if *entity == CHILD { &[CHILD, PARENT][..] } else { std::slice::from_ref(entity) };
        for entity in entities {
            for (limit, tokens) in take {
                let adjust = if *limit == TOKENS { *adjust } else { 0 };
                *self.tokens.entry((entity, limit)).or_default() += i128::from(*tokens) + i128::from(adjust);
            }
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.acquires += other.acquires;
        self.denied += other.denied;
        self.beyond += other.beyond;
        for (of, tokens) in &other.tokens {
            *self.tokens.entry(*of).or_default() += tokens;
        }
    }
}
