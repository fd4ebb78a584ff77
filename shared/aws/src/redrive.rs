//! Redrive: what was parked or given up is counted, once, however often it is asked for.
//!
//! A record and a snapshot are counted by one transaction: the snapshot's counters, on condition that its
//! watermark is still the one that was seen where that matters, and a marker, on condition that there is none.

use aws_sdk_dynamodb::{operation::transact_write_items::TransactWriteItemsError, types::AttributeValue};
use tidegate_domain::{
    bucket::BucketKey,
    redrive::{Decision, Evidence, Origin, decide},
    sequence::SequenceNumber,
    time::EpochMillis,
    usage::Posting,
    window::Period,
};

use crate::{
    buckets::Item,
    error::StoreError,
    expression::text,
    schema::{
        self, PK, SK,
        system::{LAST, PARTITION},
    },
    snapshots::{self, Snapshots, evidence, own_key},
    transaction,
};

/// Counts records behind the stream's back.
#[derive(Clone, Debug)]
pub struct Redrive {
    /// Where they are counted.
    pub snapshots: Snapshots,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// Whether what is undecided is counted, too: a person has found that it was not.
    pub count_undecided: bool,
}

/// How often a record is decided on anew because its snapshot changed meanwhile, before that is an error.
const ATTEMPTS: usize = 20;

impl Redrive {
    /// Decides on a posting of one record, and counts it if that is the decision.
    ///
    /// # Errors
    /// [`StoreError`] if the table does not answer, or what it answers cannot be. Whether the record was counted is then
    /// not known; to ask again is right.
    pub async fn settle(
        &self,
        bucket: &BucketKey<'_>,
        record: SequenceNumber,
        posting: &Posting<'_>,
        origin: Origin,
        now: EpochMillis,
    ) -> Result<Decision, StoreError> {
        for _ in 0..ATTEMPTS {
            let seen = self.evidence(bucket, record, posting).await?;
            let decision = decide(record, origin, &seen);
            let counts = decision == Decision::Count || decision == Decision::Undecided && self.count_undecided;
            if !counts || self.dry_run {
                return Ok(decision);
            }
            if self.count(bucket, record, posting, &seen, now).await? {
                return Ok(Decision::Count);
            }
        }
        Err(StoreError::Unexplained { item: snapshots::describe(posting.snapshot()) })
    }

    /// What is known. The watermark is read first: a late span that was written with it is then found.
    async fn evidence(
        &self,
        bucket: &BucketKey<'_>,
        record: SequenceNumber,
        posting: &Posting<'_>,
    ) -> Result<Evidence, StoreError> {
        let period = posting.snapshot().period;
        let item = self.snapshots.read(posting.snapshot()).await?;
        let watermark = snapshots::watermarks(posting, item.as_ref())?.remove(&bucket.shard);
        let marker = own_key(&schema::redriven_sk(bucket, period, &record));
        let redriven = self.snapshots.get(marker).await?.is_some();
        Ok(Evidence { watermark, redriven, late: self.is_late(bucket, period, record).await? })
    }

    /// Whether a late span holds the record: if one does, it is the last that begins at or before it.
    async fn is_late(
        &self,
        bucket: &BucketKey<'_>,
        period: Period,
        record: SequenceNumber,
    ) -> Result<bool, StoreError> {
        let query = self.snapshots.client().query().table_name(self.snapshots.table());
        let query = query
            .key_condition_expression("#pk = :pk AND #sk BETWEEN :from AND :to")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#sk", SK)
            .expression_attribute_values(":pk", text(PARTITION))
            .expression_attribute_values(":from", text(schema::late_prefix(bucket, period)))
            .expression_attribute_values(":to", text(schema::late_sk(bucket, period, &record)))
            .consistent_read(true)
            .scan_index_forward(false)
            .limit(1);
        let page = query.send().await.map_err(|error| StoreError::from_sdk("Query", error))?;
        let Some(span) = page.items().first() else { return Ok(false) };
        Ok(sequence(span, LAST)?.is_some_and(|last| last >= record))
    }

    /// Counts the record and leaves a marker; `false` if the snapshot or the marker is no longer what was seen.
    async fn count(
        &self,
        bucket: &BucketKey<'_>,
        record: SequenceNumber,
        posting: &Posting<'_>,
        seen: &Evidence,
        now: EpochMillis,
    ) -> Result<bool, StoreError> {
        let watermark = schema::snapshot_watermark(bucket.shard);
        let expression = self.snapshots.expression(posting, |expression, _| match seen.watermark {
            // It only rises, so the decision stands.
            Some(known) if known >= record => {}
            Some(known) => expression.compare(watermark, "=", text(known.padded())),
            None => {
                let name = expression.name(watermark);
                expression.require(&format!("attribute_not_exists({name})"));
            }
        });
        let marker = schema::redriven_sk(bucket, posting.snapshot().period, &record);
        let marker = evidence(&marker, now, None);
        let (client, table) = (self.snapshots.client(), self.snapshots.table());
        let items = transaction::count(table, snapshots::key(posting.snapshot()), expression, vec![marker], true)?;
        match client.transact_write_items().set_transact_items(Some(items)).send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled))
                    if transaction::is_refused(canceled) =>
                {
                    Err(StoreError::Refused { operation: "TransactWriteItems", source: Box::new(error) })
                }
                Some(TransactWriteItemsError::TransactionCanceledException(canceled))
                    if transaction::is_lost(canceled) =>
                {
                    Ok(false)
                }
                _ => Err(StoreError::from_sdk("TransactWriteItems", error)),
            },
        }
    }
}

/// A sequence number that an item of our own keeps.
fn sequence(item: &Item, attribute: &str) -> Result<Option<SequenceNumber>, StoreError> {
    let Some(value) = item.get(attribute) else { return Ok(None) };
    let read = value.as_s().ok().and_then(|text| SequenceNumber::parse(text).ok());
    read.map(Some).ok_or_else(|| StoreError::Corrupt {
        item: format!("{PARTITION} {}", item.get(SK).and_then(|sk| AttributeValue::as_s(sk).ok()).map_or("?", |sk| sk)),
        attribute: attribute.to_owned(),
        value: format!("{value:?}"),
    })
}
