//! Proof that usage is counted exactly once, on models of a table's streams and their consumers.
//!
//! [`delivery`] proves it for everything that a stream delivers, [`redrive`] for what it no longer delivers.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod delivery;
mod redrive;

use std::ops::Range;

use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, Entity, Limit, Namespace, Resource, Shard},
    sequence::{SequenceNumber, StreamLabel},
    time::EpochMillis,
    tokens::Millitokens,
};

/// Late on the last evening of a year: 2025-12-31T21:36:40Z.
const START: i64 = 1_767_217_000_000;

/// One invocation of the function.
struct Invocation<T> {
    /// The places of its records in their stream shard.
    batch: Range<usize>,
    /// Whether the event source mapping still waits for the answer.
    is_awaited: bool,
    /// What it still has to do.
    todo: T,
}

/// The change that creates a bucket shard with these counters. `at` becomes its sequence number.
fn created(entity: &str, shard: u32, label: &str, at: usize, new: Counters<'static>) -> BucketChange<'static> {
    BucketChange {
        bucket: BucketKey {
            namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
            entity: Entity::new(entity.to_owned()).unwrap(),
            resource: Resource::new("api").unwrap(),
            shard: Shard::new(shard),
        },
        stream: StreamLabel::parse(label).unwrap(),
        sequence: SequenceNumber::parse(&format!("1{at:024}")).unwrap(),
        created: EpochMillis::new(START).unwrap(),
        kind: ChangeKind::Created,
        old: Counters::default(),
        new,
    }
}

/// Counters of these limits, in millitokens.
fn counters<'a>(consumed: impl IntoIterator<Item = (&'a str, i64)>) -> Counters<'static> {
    let counter = |consumed| Counter { consumed: Millitokens::new(consumed), overdrawn: false };
    let limits =
        consumed.into_iter().map(|(limit, consumed)| (Limit::new(limit.to_owned()).unwrap(), counter(consumed)));
    limits.collect()
}

/// Maps any number to an index below `len`. `None` if there is nothing to pick.
fn pick(any: usize, len: usize) -> Option<usize> {
    (len > 0).then(|| any % len)
}
