//! Usage: what was consumed, by entity, resource and period, counted exactly once.
//!
//! A stream delivers at least once: it may repeat a batch, as a whole, cut differently, or twice at the same time. So each
//! snapshot stores a watermark for each bucket shard: the position of the last record that it counts. The records of
//! one bucket item arrive in order, so the snapshot counts exactly the records at or below the watermark. One conditional
//! write changes the counters and the watermarks, so a crash leaves both or neither. A position names its stream,
//! because a new stream of the same table may restart the sequence numbers.
//!
//! [`fold`] makes the postings of a batch. [`Posting::beyond`] drops the records that a snapshot already counts.

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

/// Folds a batch of changes into one posting for each snapshot, in the order in which the snapshots first appear. Changes
/// without consumption add to no snapshot. A record that the batch contains twice counts once.
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
    /// The period of the consumption.
    pub period: Period,
}

/// What a batch adds to one snapshot. It contains at least one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting<'a> {
    snapshot: SnapshotKey<'a>,
    /// By bucket shard, ascending by position, never empty.
    sources: BTreeMap<Shard, Vec<Arc<Consumption<'a>>>>,
}

impl<'a> Posting<'a> {
    /// Returns the snapshot to add to.
    #[must_use]
    pub const fn snapshot(&self) -> &SnapshotKey<'a> {
        &self.snapshot
    }

    /// Returns the bucket shards of the records, each with its lowest and highest position. The write requires that each
    /// shard's watermark is below the lowest position, and raises it to the highest one.
    pub fn sources(&self) -> impl Iterator<Item = (Shard, Span)> {
        self.sources.iter().filter_map(|(shard, source)| {
            let (first, last) = (source.first()?.position, source.last()?.position);
            Some((*shard, Span { first, last }))
        })
    }

    /// Returns the sequence numbers of all records of the posting.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceNumber> {
        self.sources.values().flatten().map(|consumption| consumption.position.sequence)
    }

    /// Returns the sums to add to the snapshot's counters.
    #[must_use]
    pub fn tally(&self) -> UsageSums<'a> {
        let mut tally = UsageSums::default();
        for consumption in self.sources.values().flatten() {
            tally.events += consumption.acquires;
            for used in &consumption.limits {
                add(&mut tally.tokens, &used.limit, used.tokens);
                if used.overdrawn {
                    add(&mut tally.overdrawn, &used.limit, 1);
                }
            }
        }
        tally
    }

    /// Returns the bucket shard and the position of each record of the posting.
    pub fn records(&self) -> impl Iterator<Item = (Shard, Position)> {
        self.sources.iter().flat_map(|(shard, source)| source.iter().map(|record| (*shard, record.position)))
    }

    /// Returns the part of the posting above these watermarks. `None` if the snapshot counts all of it.
    #[must_use]
    pub fn beyond(&self, watermarks: &Watermarks) -> Option<Self> {
        self.only(|shard, record| watermarks.get(&shard).is_none_or(|watermark| record > *watermark))
    }

    /// Returns the part of the posting with the records for which `keep` is true. `None` if there are none.
    #[must_use]
    pub fn only(&self, keep: impl Fn(Shard, Position) -> bool) -> Option<Self> {
        let mut rest = self.clone();
        rest.sources.retain(|shard, source| {
            source.retain(|record| keep(*shard, record.position));
            !source.is_empty()
        });
        (!rest.sources.is_empty()).then_some(rest)
    }

    /// Splits the posting into parts of at most `limit` bucket shards each. Each shard has its own watermark, so the parts
    /// can be written one by one.
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
    /// The lowest position.
    pub first: Position,
    /// The highest position.
    pub last: Position,
}

/// The sums that a posting adds to its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSums<'a> {
    /// The number of acquires: one for each record with consumption, or as many as its write merged.
    pub events: u64,
    /// Whole tokens by limit. Negative if clients gave back more than they took.
    pub tokens: BTreeMap<Limit<'a>, Tokens>,
    /// By soft limit, the number of records that consumed and left it in debt.
    pub overdrawn: BTreeMap<Limit<'a>, u64>,
}

/// What one record adds to usage.
#[derive(Debug, PartialEq, Eq)]
struct Consumption<'a> {
    position: Position,
    acquires: u64,
    limits: Vec<LimitConsumption<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct LimitConsumption<'a> {
    limit: Limit<'a>,
    tokens: Tokens,
    overdrawn: bool,
}

impl<'a> Consumption<'a> {
    /// Returns the consumption in a change. `None` if no limit's net consumption changed.
    ///
    /// A removal consumes nothing. A created bucket counts from zero, which includes the acquire that created it. So does a
    /// limit that is added to a bucket.
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
        // A write that merges acquires adds their number. Another write adds none, and is one acquire.
        let acquires = change.new.merged_acquires().saturating_sub(change.old.merged_acquires()).max(1);
        (!limits.is_empty()).then_some(Self { position: change.position(), acquires, limits })
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
    fn only_consumption_counts() {
        use ChangeKind::{Created, Removed, Updated};
        let rpm = |consumed| ("rpm", consumed, false);
        check(change(Created, &[], &[rpm(2_500)]), Some(&[("rpm", 2, 0)]));
        check(change(Updated, &[rpm(2_500)], &[rpm(3_000)]), Some(&[("rpm", 1, 0)]));
        check(change(Updated, &[rpm(3_000)], &[rpm(1_999)]), Some(&[("rpm", -2, 0)]));
        // Consumption below one token is an event, too.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_001)]), Some(&[("rpm", 0, 0)]));
        // An added limit counts from zero. A dropped limit does not count.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_000), ("tpm", 7_000, false)]), Some(&[("tpm", 7, 0)]));
        check(change(Updated, &[rpm(1_000), ("tpm", 7_000, false)], &[rpm(1_000)]), None);
        // Refills, removals, clones, and the write units.
        check(change(Updated, &[rpm(1_000)], &[rpm(1_000)]), None);
        check(change(Removed, &[rpm(1_000)], &[]), None);
        check(change(Created, &[], &[rpm(0)]), None);
        check(change(Updated, &[("wcu", 0, false)], &[("wcu", 1_000, false)]), None);
    }

    #[test]
    fn merged_acquires_count_each() {
        let check = |kind, before, after, expect| {
            let mut change = change(kind, &[("rpm", 1_000, false)], &[("rpm", 5_000, false)]);
            change.old = change.old.with_merged_acquires(before);
            change.new = change.new.with_merged_acquires(after);
            assert_eq!(fold(&[change], &[Window::Daily])[0].tally().events, expect, "{before} {after}");
        };
        check(ChangeKind::Created, 0, 0, 1);
        check(ChangeKind::Created, 0, 3, 3);
        check(ChangeKind::Updated, 7, 7, 1);
        check(ChangeKind::Updated, 7, 11, 4);
        // No client lowers the number.
        check(ChangeKind::Updated, 7, 2, 1);
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
    fn a_span_covers_all_sequence_numbers() {
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
    fn a_repeated_record_counts_once() {
        let once = change(ChangeKind::Created, &[], &[("rpm", 1_000, false)]);
        let postings = fold(&[once.clone(), once], &[Window::Daily]);
        assert_eq!(postings[0].tally().events, 1);
    }
}
