//! Redrive: counts records that their stream does not deliver any more, once, however often it is run.
//!
//! One transaction counts many records of a snapshot. It changes the counters if the watermarks are still those that were
//! read, and adds a marker for each record that has no marker yet.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join;
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    redrive::{Decision, Evidence, Origin, decide},
    sequence::Position,
    time::EpochMillis,
    usage::{Posting, SnapshotKey, Watermarks},
};

use crate::{
    dynamodb::{Item, WriteOutcome, batch_get},
    error::StoreError,
    expression::{number, text},
    schema::{self, PK, SK, TTL},
    snapshots::{self, SECONDS_PER_DAY, Snapshots},
    transaction::Transaction,
};

/// Counts records that the stream no longer delivers.
#[derive(Clone, Debug)]
pub struct Redrive {
    /// Where they are counted.
    pub snapshots: Snapshots,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// Also counts undecided records of snapshots whose key, `PK SK`, starts with this text. Set it only after a person has
    /// found that they are missing.
    pub count_undecided: Option<String>,
}

/// A record of one bucket item, by shard and position.
pub type RecordId = (Shard, Position);

/// What is known of a record before its snapshot is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Where the record was found.
    pub origin: Origin,
    /// Whether its stream may still deliver it.
    pub is_deliverable: bool,
}

/// The number of attempts to decide on records. Each attempt follows a change of their snapshot.
const ATTEMPTS: usize = 20;

/// The most records in one transaction, beside their snapshot.
///
/// AWS: [TransactWriteItems](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html).
const RECORDS: usize = 99;

/// How long a marker is kept: longer than any message or object that asks for it.
///
/// AWS: [message retention](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html), 14 days at most.
const MARKER_DAYS: i64 = 30;

impl Redrive {
    /// Decides on each record of a posting, and counts those that are to be counted. `candidates` says what is known of
    /// each record; a record that it does not name is left out.
    pub async fn settle(
        &self,
        posting: &Posting<'_>,
        candidates: &BTreeMap<RecordId, Candidate>,
        now: EpochMillis,
    ) -> Result<BTreeMap<RecordId, Decision>, StoreError> {
        let mut decisions = BTreeMap::new();
        let records: Vec<_> = posting.records().filter(|record| candidates.contains_key(record)).collect();
        for chunk in records.chunks(RECORDS) {
            let chunk: BTreeSet<_> = chunk.iter().copied().collect();
            if let Some(part) = posting.only(|shard, position| chunk.contains(&(shard, position))) {
                decisions.extend(self.settle_part(&part, candidates, now).await?);
            }
        }
        Ok(decisions)
    }

    async fn settle_part(
        &self,
        posting: &Posting<'_>,
        candidates: &BTreeMap<RecordId, Candidate>,
        now: EpochMillis,
    ) -> Result<BTreeMap<RecordId, Decision>, StoreError> {
        for _ in 0..ATTEMPTS {
            // In any order: the conditions of the transaction cover both.
            let reads = try_join(self.snapshots.read(posting.snapshot()), self.redriven(posting));
            let (item, redriven) = reads.await?;
            let watermarks = snapshots::watermarks(posting, item.as_ref())?;
            let decision = |(shard, position): RecordId| {
                let Candidate { origin, is_deliverable } = candidates.get(&(shard, position))?;
                let is_redriven = redriven.contains(&marker_key(posting.snapshot(), shard, position));
                let evidence = Evidence { watermark: watermarks.get(&shard).copied(), is_redriven };
                Some(((shard, position), decide(position, *is_deliverable, *origin, &evidence)))
            };
            let mut decisions: BTreeMap<_, _> = posting.records().filter_map(decision).collect();
            let key = snapshots::describe(posting.snapshot());
            if self.count_undecided.as_ref().is_some_and(|prefix| key.starts_with(prefix)) {
                let undecided = decisions.values_mut().filter(|decision| **decision == Decision::Undecided);
                undecided.for_each(|decision| *decision = Decision::Count);
            }
            let is_counted =
                |shard, position| decisions.get(&(shard, position)).is_some_and(|it| *it == Decision::Count);
            let Some(counted) = posting.only(is_counted).filter(|_| !self.dry_run) else { return Ok(decisions) };
            if self.count(&counted, &watermarks, now).await? == WriteOutcome::Written {
                return Ok(decisions);
            }
        }
        Err(StoreError::Unexplained { item: snapshots::describe(posting.snapshot()) })
    }

    /// The keys of those markers of a posting's records that exist.
    async fn redriven(&self, posting: &Posting<'_>) -> Result<BTreeSet<MarkerKey>, StoreError> {
        let keys = posting.records().map(|(shard, position)| marker_key(posting.snapshot(), shard, position));
        let items =
            batch_get(self.snapshots.client(), self.snapshots.table(), keys.map(marker).collect(), true).await?;
        let key = |item: Item| Some((item.get(PK)?.as_s().ok()?.clone(), item.get(SK)?.as_s().ok()?.clone()));
        Ok(items.into_iter().filter_map(key).collect())
    }

    /// Counts a posting and leaves a marker for each record; lost if a watermark or a marker is not what was seen.
    async fn count(
        &self,
        posting: &Posting<'_>,
        watermarks: &Watermarks,
        now: EpochMillis,
    ) -> Result<WriteOutcome, StoreError> {
        let expression = self.snapshots.expression(posting, |expression, posting| {
            for (shard, span) in posting.sources() {
                let attribute = schema::snapshot_watermark(shard);
                match watermarks.get(&shard) {
                    // It only rises, so the decisions stand.
                    Some(seen) if *seen >= span.last => {}
                    Some(seen) => expression.compare(attribute, "=", text(seen.stored())),
                    None => {
                        let name = expression.name(attribute);
                        expression.require(&format!("attribute_not_exists({name})"));
                    }
                }
            }
        });
        let mut transaction = Transaction::new(self.snapshots.table());
        transaction.update(snapshots::key(posting.snapshot()), expression)?;
        let expires = now.get() / 1000 + MARKER_DAYS * SECONDS_PER_DAY;
        for (shard, position) in posting.records() {
            let mut marker = marker(marker_key(posting.snapshot(), shard, position));
            marker.insert(TTL.to_owned(), number(&expires));
            transaction.put_new(marker)?;
        }
        transaction.send(self.snapshots.client()).await
    }
}

/// Partition key and sort key.
type MarkerKey = (String, String);

fn marker_key(snapshot: &SnapshotKey<'_>, shard: Shard, position: Position) -> MarkerKey {
    let SnapshotKey { namespace, entity, resource, period } = snapshot.clone();
    let bucket = BucketKey { namespace, entity, resource, shard };
    (schema::redriven_pk(&bucket), schema::redriven_sk(period, &position))
}

fn marker((pk, sk): MarkerKey) -> Item {
    [(PK.to_owned(), text(pk)), (SK.to_owned(), text(sk))].into()
}
