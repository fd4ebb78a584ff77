//! Usage: what was consumed, by entity, resource and period, counted exactly once.
//!
//! A stream delivers at least once: a batch may come again, whole, cut differently, or twice at the
//! same time. So each snapshot keeps, for each bucket shard that it counted, the position of the last
//! record it holds (a watermark). Records of one bucket item arrive in order, so what is at or below the
//! watermark is in, and what is above it is not. A snapshot's counters and its watermarks change in one
//! conditional write, so a crash leaves both or neither. A position names its stream, because a new
//! stream of the same table may number its records anew.
//!
//! [`fold`] makes the postings of a batch, [`Posting::beyond`] drops what a snapshot already holds.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::Arc,
};

use crate::{
    bucket::{BucketChange, ChangeKind, Entity, Limit, Namespace, Resource, Shard},
    sequence::{Position, SequenceNumber},
    tokens::Tokens,
    window::{Period, Window},
};

/// The position of the last record that a snapshot holds, by bucket shard.
pub type Watermarks = BTreeMap<Shard, Position>;

/// Folds a batch of changes into one posting for each snapshot that they add to, in the order in
/// which the snapshots first appear. Changes without consumption add to none; a record that is in the
/// batch twice counts once.
#[must_use]
pub fn fold<'a>(changes: &[BucketChange<'a>], windows: &[Window]) -> Vec<Posting<'a>> {
    let mut places: HashMap<SnapshotKey<'a>, usize> = HashMap::new();
    let mut postings: Vec<Posting<'a>> = Vec::new();
    for change in changes {
        let Some(consumption) = Consumption::of(change).map(Arc::new) else { continue };
        for window in windows {
            let snapshot = SnapshotKey {
                namespace: change.bucket.namespace.clone(),
                entity: change.bucket.entity.clone(),
                resource: change.bucket.resource.clone(),
                period: window.containing(change.created),
            };
            let place = *places.entry(snapshot).or_insert_with_key(|snapshot| {
                postings.push(Posting { snapshot: snapshot.clone(), sources: BTreeMap::new() });
                postings.len() - 1
            });
            let source = postings[place].sources.entry(change.bucket.shard).or_default();
            source.push(Arc::clone(&consumption));
        }
    }
    for posting in &mut postings {
        for source in posting.sources.values_mut() {
            source.sort_by_key(|consumption| consumption.position);
            source.dedup_by_key(|consumption| consumption.position);
        }
    }
    postings
}

/// One usage snapshot: an entity's consumption of a resource in a period.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotKey<'a> {
    /// The deployment that the buckets belong to.
    pub namespace: Namespace<'a>,
    /// Who consumed.
    pub entity: Entity<'a>,
    /// What was consumed.
    pub resource: Resource<'a>,
    /// When.
    pub period: Period,
}

/// What a batch adds to one snapshot: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting<'a> {
    snapshot: SnapshotKey<'a>,
    /// By bucket shard, ascending by position, never empty.
    sources: BTreeMap<Shard, Vec<Arc<Consumption<'a>>>>,
}

impl<'a> Posting<'a> {
    /// The snapshot to add to.
    #[must_use]
    pub const fn snapshot(&self) -> &SnapshotKey<'a> {
        &self.snapshot
    }

    /// The bucket shards that the consumption came from, each with its lowest and highest position. A write is right if, for each of them, the snapshot's watermark is below the lowest;
    /// it must then set the watermark to the highest.
    pub fn sources(&self) -> impl Iterator<Item = (Shard, Span)> {
        self.sources.iter().filter_map(|(shard, source)| {
            let (first, last) = (source.first()?.position, source.last()?.position);
            Some((*shard, Span { first, last }))
        })
    }

    /// The sequence numbers of all records that the posting counts.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceNumber> {
        self.sources.values().flatten().map(|consumption| consumption.position.sequence)
    }

    /// The sums to add to the snapshot's counters.
    #[must_use]
    pub fn tally(&self) -> Tally<'a> {
        let mut tally = Tally::default();
        for consumption in self.sources.values().flatten() {
            tally.events += 1;
            for used in &consumption.limits {
                add(&mut tally.tokens, &used.limit, used.tokens);
                if used.overdrawn {
                    add(&mut tally.overdrawn, &used.limit, 1);
                }
            }
        }
        tally
    }

    /// The bucket shard and the position of each record that the posting counts.
    pub fn records(&self) -> impl Iterator<Item = (Shard, Position)> {
        self.sources.iter().flat_map(|(shard, source)| source.iter().map(|record| (*shard, record.position)))
    }

    /// The part of the posting that a snapshot with these watermarks does not hold yet; `None` if it holds all.
    #[must_use]
    pub fn beyond(&self, watermarks: &Watermarks) -> Option<Self> {
        self.only(|shard, record| watermarks.get(&shard).is_none_or(|watermark| record > *watermark))
    }

    /// The part of the posting that counts the records that are to be kept; `None` if there are none.
    #[must_use]
    pub fn only(&self, keep: impl Fn(Shard, Position) -> bool) -> Option<Self> {
        let mut rest = self.clone();
        rest.sources.retain(|shard, source| {
            source.retain(|record| keep(*shard, record.position));
            !source.is_empty()
        });
        (!rest.sources.is_empty()).then_some(rest)
    }

    /// The same posting in parts of at most `limit` bucket shards each. Shards have watermarks of
    /// their own, so the parts can be written one by one.
    #[must_use]
    pub fn split(&self, limit: NonZeroUsize) -> Vec<Self> {
        let sources: Vec<_> = self.sources.iter().map(|(shard, source)| (*shard, source.clone())).collect();
        sources
            .chunks(limit.get())
            .map(|part| Self { snapshot: self.snapshot.clone(), sources: part.iter().cloned().collect() })
            .collect()
    }
}

/// The lowest and the highest position of one bucket shard in a posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The lowest.
    pub first: Position,
    /// The highest.
    pub last: Position,
}

/// Sums for one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally<'a> {
    /// Records with consumption, whatever the number of their limits.
    pub events: u64,
    /// Whole tokens by limit; negative where more was given back than taken.
    pub tokens: BTreeMap<Limit<'a>, Tokens>,
    /// By soft limit, the records that consumed and left it in debt.
    pub overdrawn: BTreeMap<Limit<'a>, u64>,
}

/// What one record adds to usage.
#[derive(Debug, PartialEq, Eq)]
struct Consumption<'a> {
    position: Position,
    limits: Vec<LimitConsumption<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct LimitConsumption<'a> {
    limit: Limit<'a>,
    tokens: Tokens,
    overdrawn: bool,
}

impl<'a> Consumption<'a> {
    /// The consumption in a change; `None` if no limit's net consumption moved, up or down.
    ///
    /// A removal takes its counters with it and consumes nothing. A bucket that was created counts
    /// from zero, so that the acquire which created it is in; so does a limit added to a bucket.
    fn of(change: &BucketChange<'a>) -> Option<Self> {
        if change.kind == ChangeKind::Removed {
            return None;
        }
        let mut limits = Vec::new();
        for (limit, new) in change.new.iter().filter(|(limit, _)| !limit.is_write_units()) {
            let before = change.old.get(limit).map(|old| old.consumed).unwrap_or_default();
            if new.consumed != before {
                limits.push(LimitConsumption {
                    limit: limit.clone(),
                    tokens: new.consumed.floor() - before.floor(),
                    overdrawn: new.overdrawn && new.consumed > before,
                });
            }
        }
        (!limits.is_empty()).then_some(Self { position: change.position(), limits })
    }
}

/// Adds without cloning the limit's name when the sum already exists.
fn add<'a, N: Default + std::ops::AddAssign>(sums: &mut BTreeMap<Limit<'a>, N>, limit: &Limit<'a>, amount: N) {
    match sums.get_mut(limit) {
        Some(sum) => *sum += amount,
        None => {
            sums.insert(limit.clone(), amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bucket::{BucketKey, Counter, Counters},
        sequence::StreamLabel,
        time::EpochMillis,
        tokens::Millitokens,
    };

    /// Limit, net consumption in millitokens, and whether it is a soft limit in debt.
    type Reading = (&'static str, i64, bool);

    fn counters(readings: &[Reading]) -> Counters<'static> {
        let counter = |consumed, overdrawn| Counter { consumed: Millitokens::new(consumed), overdrawn };
        readings
            .iter()
            .map(|(limit, consumed, soft)| (Limit::new(*limit).unwrap(), counter(*consumed, *soft)))
            .collect()
    }

    fn change(kind: ChangeKind, old: &[Reading], new: &[Reading]) -> BucketChange<'static> {
        BucketChange {
            bucket: BucketKey {
                namespace: Namespace::new("ns").unwrap(),
                entity: Entity::new("user-1").unwrap(),
                resource: Resource::new("api").unwrap(),
                shard: Shard::new(0),
            },
            stream: StreamLabel::parse("2026-01-01T00:00:00.000").unwrap(),
            sequence: SequenceNumber::parse("100000000000000000001").unwrap(),
            created: EpochMillis::new(1_767_225_600_000).unwrap(),
            kind,
            old: counters(old),
            new: counters(new),
        }
    }

    /// `expect` holds tokens and overdrafts by limit; `None` is no posting at all.
    fn check(change: BucketChange<'static>, expect: Option<&[(&str, i128, u64)]>) {
        let postings = fold(&[change], &[Window::Daily]);
        let tally = postings.first().map(Posting::tally);
        let found = tally.as_ref().map(|tally| {
            assert_eq!(tally.events, 1);
            let overdrawn = |limit| tally.overdrawn.get(limit).copied().unwrap_or_default();
            tally
                .tokens
                .iter()
                .map(|(limit, tokens)| (limit.as_str(), tokens.get(), overdrawn(limit)))
                .collect::<Vec<_>>()
        });
        assert_eq!(found.as_deref(), expect);
    }

    #[test]
    fn what_counts() {
        use ChangeKind::{Created, Removed, Updated};
        let rpm = |consumed| ("rpm", consumed, false);
        check(change(Created, &[], &[rpm(2_500)]), Some(&[("rpm", 2, 0)]));
        check(change(Updated, &[rpm(2_500)], &[rpm(3_000)]), Some(&[("rpm", 1, 0)]));
        check(change(Updated, &[rpm(3_000)], &[rpm(1_999)]), Some(&[("rpm", -2, 0)]));
        // Consumption below one token is an event all the same.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_001)]), Some(&[("rpm", 0, 0)]));
        // A limit that was added to a bucket counts from nothing, one that was dropped not at all.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_000), ("tpm", 7_000, false)]), Some(&[("tpm", 7, 0)]));
        check(change(Updated, &[rpm(1_000), ("tpm", 7_000, false)], &[rpm(1_000)]), None);
        // Refills, removals, clones, and the write units.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_000)]), None);
        check(change(Removed, &[rpm(1_000)], &[]), None);
        check(change(Created, &[], &[rpm(0)]), None);
        check(change(Updated, &[("wcu", 0, false)], &[("wcu", 1_000, false)]), None);
    }

    #[test]
    fn overdrafts_count_only_where_consumption_rose() {
        let soft = |consumed, debt| ("tpm", consumed, debt);
        check(change(ChangeKind::Updated, &[soft(0, false)], &[soft(5_000, true)]), Some(&[("tpm", 5, 1)]));
        check(change(ChangeKind::Updated, &[soft(5_000, true)], &[soft(4_000, true)]), Some(&[("tpm", -1, 0)]));
        check(change(ChangeKind::Updated, &[soft(4_000, true)], &[soft(5_000, false)]), Some(&[("tpm", 1, 0)]));
        check(change(ChangeKind::Updated, &[soft(4_000, true)], &[soft(4_000, true)]), None);
    }

    #[test]
    fn the_sequence_numbers_of_a_shard_span_from_the_lowest_to_the_highest() {
        let at = |sequence: &str| BucketChange {
            sequence: SequenceNumber::parse(sequence).unwrap(),
            ..change(ChangeKind::Created, &[], &[("rpm", 1_000, false)])
        };
        let numbers = ["100000000000000000007", "100000000000000000003", "100000000000000000005"];
        let postings = fold(&numbers.map(at), &[Window::Daily]);
        let spans: Vec<_> = postings[0]
            .sources()
            .map(|(_, span)| (span.first.sequence.to_string(), span.last.sequence.to_string()))
            .collect();
        assert_eq!(spans, [(numbers[1].to_owned(), numbers[0].to_owned())]);
    }

    #[test]
    fn a_record_that_is_in_a_batch_twice_counts_once() {
        let once = change(ChangeKind::Created, &[], &[("rpm", 1_000, false)]);
        let postings = fold(&[once.clone(), once], &[Window::Daily]);
        assert_eq!(postings[0].tally().events, 1);
    }
}
