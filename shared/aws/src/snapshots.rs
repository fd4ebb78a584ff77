//! The usage snapshots: one conditional write for each posting.

use std::num::NonZeroUsize;

use aws_sdk_dynamodb::{Client, operation::update_item::UpdateItemError, types::ReturnValuesOnConditionCheckFailure};
use tidegate_domain::{
    bucket::Shard,
    sequence::Position,
    usage::{Posting, SnapshotKey, Watermarks},
};

use crate::{
    dynamodb::{Backoff, Item, is_transaction_conflict},
    error::{CallError, StoreError},
    expression::{Expression, number, text},
    schema::{self, ENTITY_ID, GSI2PK, GSI2SK, GSI4PK, GSI4SK, PK, RESOURCE, SK, TTL, snapshot},
};

/// The usage snapshots of a bucket table.
#[derive(Clone, Debug)]
pub struct Snapshots {
    client: Client,
    table: String,
    retention_days: u16,
}

/// How a posting went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    Posted,
    /// A part was written before, by another delivery or a write whose response was lost. The rest is written now.
    RemainderPosted,
    /// Written before, by another delivery or a write whose response was lost.
    AlreadyPosted,
}

/// How a posting went, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub outcome: PostOutcome,
    /// The writes that were made, those whose condition failed among them.
    pub writes: u32,
}

/// A posting that failed, wholly or in part.
#[derive(Debug, thiserror::Error)]
#[error("a snapshot was not updated, or only partly")]
pub struct PostError<'a> {
    pub source: CallError,
    /// What is not written, or not known to be.
    pub unposted: Vec<Posting<'a>>,
}

/// What became of one write.
enum Written {
    Done,
    /// The snapshot holds some of the posting already.
    Conflict(Watermarks),
}

/// The most bucket shards in one write: each takes 4 operators of the condition's 300, and about 60 of
/// the 4,096 bytes that an expression may have. Limits are not bounded here: a client's own write names
/// each of its limits three times, and so meets the same end before ours does.
///
/// AWS: [expression limits](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters).
const SHARDS_PER_WRITE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

pub(crate) const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

impl Snapshots {
    /// The snapshots in `table`, each kept for `retention_days` days after its period has ended.
    pub fn new(client: Client, table: impl Into<String>, retention_days: u16) -> Self {
        Self { client, table: table.into(), retention_days }
    }

    /// Adds a posting to its snapshot, once, however often and in whatever parts it is delivered.
    ///
    /// One write, unless a part of the posting is in already or it comes from more than 64 shards. The
    /// call may be dropped at any moment; what was written stays consistent, and to post again is right.
    pub async fn post<'a>(&self, posting: &Posting<'a>) -> Result<Receipt, PostError<'a>> {
        let mut receipts = Vec::new();
        let mut parts = posting.split(SHARDS_PER_WRITE).into_iter();
        while let Some(part) = parts.next() {
            match self.post_part(part).await {
                Ok(receipt) => receipts.push(receipt),
                Err((source, part)) => {
                    let unposted = [part].into_iter().chain(parts).collect();
                    return Err(PostError { source: source.into(), unposted });
                }
            }
        }
        let all = |outcome| receipts.iter().all(|receipt: &Receipt| receipt.outcome == outcome);
        let outcome = if all(PostOutcome::Posted) {
            PostOutcome::Posted
        } else if all(PostOutcome::AlreadyPosted) {
            PostOutcome::AlreadyPosted
        } else {
            PostOutcome::RemainderPosted
        };
        Ok(Receipt { outcome, writes: receipts.iter().map(|receipt| receipt.writes).sum() })
    }

    async fn post_part<'a>(&self, mut posting: Posting<'a>) -> Result<Receipt, (StoreError, Posting<'a>)> {
        let mut outcome = PostOutcome::Posted;
        let mut writes = 0;
        loop {
            writes += 1;
            let watermarks = match self.write(&posting).await {
                Ok(Written::Done) => return Ok(Receipt { outcome, writes }),
                Ok(Written::Conflict(watermarks)) => watermarks,
                Err(error) => return Err((error, posting)),
            };
            match posting.beyond(&watermarks) {
                None => return Ok(Receipt { outcome: PostOutcome::AlreadyPosted, writes }),
                // Without progress this would go on for ever.
                Some(rest) if rest == posting => {
                    return Err((StoreError::Unexplained { item: describe(posting.snapshot()) }, posting));
                }
                Some(rest) => {
                    outcome = PostOutcome::RemainderPosted;
                    posting = rest;
                }
            }
        }
    }

    /// Writes on the condition that the snapshot holds nothing of the posting. While another transaction holds the snapshot,
    /// it retries with backoff, because the SDK does not.
    async fn write(&self, posting: &Posting<'_>) -> Result<Written, StoreError> {
        let mut backoff = Backoff::default();
        loop {
            let update = self.expression(posting, Expression::above_watermarks).applied_to(self.client.update_item());
            let update = update
                .table_name(&self.table)
                .set_key(Some(key(posting.snapshot())))
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
            let Err(error) = update.send().await else { return Ok(Written::Done) };
            if is_transaction_conflict(&error) {
                backoff.wait().await;
                continue;
            }
            return match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failure)) => {
                    watermarks(posting, failure.item.as_ref()).map(Written::Conflict)
                }
                _ => Err(StoreError::from_sdk("UpdateItem", error)),
            };
        }
    }

    /// The part of a posting that its snapshot does not hold; `None` if it holds all.
    pub async fn missing<'a>(&self, posting: &Posting<'a>) -> Result<Option<Posting<'a>>, StoreError> {
        let item = self.read(posting.snapshot()).await?;
        Ok(posting.beyond(&watermarks(posting, item.as_ref())?))
    }

    /// A snapshot, as it is after all writes that were done before.
    pub(crate) async fn read(&self, snapshot: &SnapshotKey<'_>) -> Result<Option<Item>, StoreError> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key(snapshot))).consistent_read(true);
        Ok(get.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?.item)
    }

    /// What counts a posting: in a snapshot that may not exist yet, on conditions on its watermarks.
    pub(crate) fn expression(
        &self,
        posting: &Posting<'_>,
        watermarks: impl FnOnce(&mut Expression, &Posting<'_>),
    ) -> Expression {
        let key = posting.snapshot();
        let pk = schema::entity_pk(&key.namespace, &key.entity);
        let expires = key.period.end_seconds() + i64::from(self.retention_days) * SECONDS_PER_DAY;

        let mut expression = Expression::default();
        for (name, value) in [
            (ENTITY_ID, text(key.entity.as_str())),
            (RESOURCE, text(key.resource.as_str())),
            (snapshot::WINDOW, text(key.period.window().as_str())),
            (snapshot::WINDOW_START, text(key.period.to_string())),
            (GSI2PK, text(schema::resource_pk(&key.namespace, &key.resource))),
            (GSI2SK, text(schema::snapshot_gsi2_sk(key))),
            (GSI4PK, text(key.namespace.as_str())),
            (GSI4SK, text(pk.as_str())),
            (TTL, number(&expires)),
        ] {
            expression.set_once(name, value);
        }
        let tally = posting.tally();
        expression.add(snapshot::TOTAL_EVENTS.to_owned(), number(&tally.events));
        for (limit, tokens) in tally.tokens.iter().filter(|(_, tokens)| tokens.get() != 0) {
            expression.add(schema::snapshot_counter(limit), number(tokens));
        }
        for (limit, records) in &tally.overdrawn {
            expression.add(schema::snapshot_overdrawn(limit), number(records));
        }
        watermarks(&mut expression, posting);
        expression
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }
}

impl Expression {
    /// Raises the watermarks to the last records of a posting, on condition that they are below its first ones.
    fn above_watermarks(&mut self, posting: &Posting<'_>) {
        for (shard, span) in posting.sources() {
            let above = self.value(text(span.first.stored()));
            let (watermark, _) = self.set(schema::snapshot_watermark(shard), text(span.last.stored()));
            self.require(&format!("(attribute_not_exists({watermark}) OR {watermark} < {above})"));
        }
    }
}

/// A snapshot's key.
pub(crate) fn key(snapshot: &SnapshotKey<'_>) -> Item {
    let pk = schema::entity_pk(&snapshot.namespace, &snapshot.entity);
    [(PK.to_owned(), text(pk)), (SK.to_owned(), text(schema::snapshot_sk(snapshot)))].into()
}

/// The watermarks of the posting's shards in the item that a failed condition gave back.
pub(crate) fn watermarks(posting: &Posting<'_>, item: Option<&Item>) -> Result<Watermarks, StoreError> {
    let Some(item) = item else { return Ok(Watermarks::new()) };
    let read = |shard: Shard| {
        let attribute = schema::snapshot_watermark(shard);
        let value = item.get(&attribute)?;
        let watermark = value.as_s().ok().and_then(|text| Position::from_stored(text));
        Some(watermark.map(|watermark| (shard, watermark)).ok_or_else(|| StoreError::Corrupt {
            item: describe(posting.snapshot()),
            value: format!("{value:?}"),
            attribute,
        }))
    };
    posting.sources().filter_map(|(shard, _)| read(shard)).collect()
}

/// A snapshot's key, as logs and dead letters name it.
pub fn describe(key: &SnapshotKey<'_>) -> String {
    format!("{} {}", schema::entity_pk(&key.namespace, &key.entity), schema::snapshot_sk(key))
}
