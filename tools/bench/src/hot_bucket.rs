//! Stream records of one hot bucket: one record for each speculative acquire of a zae-limiter client.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use tidegate_aws::schema::{self, bucket};
use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Limit, Namespace, Resource, Shard},
    time::EpochMillis,
};

const NAMESPACE: &str = "TQ5vSMvQTm4";
const ENTITY: &str = "customer-7f3a";
const RESOURCE: &str = "openai/gpt-4o";
const SHARD: u32 = 0;
const STREAM: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/bench-buckets/stream/2026-01-01T00:00:00.000";

/// The bucket's limits, in the order in which the client writes them.
const LIMITS: [HotLimit; 3] = [
    HotLimit { name: Limit::WRITE_UNITS, capacity: 1_000_000, period: 1_000, taken: 1_000 },
    HotLimit { name: "rpm", capacity: 60_000_000, period: 60_000, taken: 1_000 },
    HotLimit { name: "tpm", capacity: 90_000_000_000, period: 60_000, taken: 742_000 },
];

/// An acquire takes one of the 1,000 write units that `wcu` gives a bucket each second, so after as many
/// the second is over and the bucket is refilled: the record in which that happens carries both.
const ACQUIRES_PER_SECOND: u64 = 1_000;

/// Sequence numbers have gaps: other items' records.
const SEQUENCE_STEP: u128 = 7_919;
/// The lowest of 21 digits, the fewest that AWS gives.
const FIRST_SEQUENCE: u128 = 100_000_000_000_000_000_000;

const HOUR_MS: u64 = 3_600_000;

/// How long before a dry batch the bucket was last refilled: by then, three quarters of its requests have accrued.
const DRY_MS: u64 = 45_000;

/// A limit of the hot bucket. Amounts are in millitokens, the period in milliseconds.
struct HotLimit {
    name: &'static str,
    capacity: u64,
    period: u64,
    taken: u64,
}

/// A bucket that is written over and over. Each batch goes on where the one before ended, and finds
/// the bucket refilled, or, if it is dry, with no more requests than the batch takes.
#[derive(Clone, Debug)]
pub(crate) struct HotBucket {
    records: u32,
    batches: u64,
    start_ms: u64,
    is_dry: bool,
    key: BucketKey<'static>,
}

impl HotBucket {
    /// Batches of `records` records each, in the last whole hour before `now`: so no batch is in the
    /// future, and 3,600 batches of up to 1,000 records fit before one spans two hours.
    pub(crate) fn new(records: u32, now: EpochMillis) -> Result<Self, InvalidName> {
        let key = BucketKey {
            namespace: Namespace::new(NAMESPACE)?,
            entity: Entity::new(ENTITY)?,
            resource: Resource::new(RESOURCE)?,
            shard: Shard::new(SHARD),
        };
        let now = now.get().unsigned_abs();
        Ok(Self { records, batches: 0, start_ms: (now - now % HOUR_MS).saturating_sub(HOUR_MS), is_dry: false, key })
    }

    /// The same bucket, dry.
    pub(crate) fn dry(self) -> Self {
        Self { is_dry: true, ..self }
    }

    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// The next batch: the JSON that Lambda gives to the function. The records of a dry bucket are about a second old
    /// at the moment `now`: a keeper ignores older ones.
    pub(crate) fn next_batch(&mut self, now: EpochMillis) -> serde_json::Result<Vec<u8>> {
        let records = u64::from(self.records);
        let first = self.batches * records;
        let seconds = records.div_ceil(ACQUIRES_PER_SECOND);
        let start_ms = if self.is_dry {
            (now.get().unsigned_abs() / 1_000).saturating_sub(seconds) * 1_000
        } else {
            self.start_ms + self.batches * seconds * 1_000
        };
        self.batches += 1;
        let records = (0..records).map(|acquires| self.record(first, acquires, start_ms)).collect();
        serde_json::to_vec(&Batch { records })
    }

    /// The record of one acquire, `acquires` of this batch and `first` of earlier batches after the
    /// bucket's creation.
    fn record(&self, first: u64, acquires: u64, start_ms: u64) -> Record<'_> {
        let number = u128::from(first + acquires + 1);
        let old_image = self.image(first, acquires, start_ms);
        let new_image = self.image(first, acquires + 1, start_ms);
        Record {
            event_id: format!("{:032x}", number * 0x9e37_79b9_7f4a_7c15),
            event_name: "MODIFY",
            event_version: "1.1",
            event_source: "aws:dynamodb",
            aws_region: "us-east-1",
            dynamodb: Change {
                approximate_creation_date_time: refilled_ms(start_ms, acquires + 1) / 1_000,
                keys: Image(vec![text(schema::PK, schema::bucket_pk(&self.key)), text(schema::SK, bucket::STATE)]),
                sequence_number: (FIRST_SEQUENCE + number * SEQUENCE_STEP).to_string(),
                size_bytes: 1_900,
                stream_view_type: "NEW_AND_OLD_IMAGES",
                new_image,
                old_image,
            },
            event_source_arn: STREAM,
        }
    }

    /// The bucket item after `acquires` acquires of a batch, in the client's order of attributes.
    fn image(&self, first: u64, acquires: u64, start_ms: u64) -> Image<'_> {
        let refilled_ms = if self.is_dry { start_ms - DRY_MS } else { refilled_ms(start_ms, acquires) };
        let BucketKey { namespace, entity, resource, .. } = &self.key;
        let mut attributes = vec![
            text(schema::PK, schema::bucket_pk(&self.key)),
            text(schema::SK, bucket::STATE),
            text(schema::ENTITY_ID, ENTITY),
            text(schema::RESOURCE, RESOURCE),
            number(bucket::LAST_REFILL, refilled_ms),
            text(schema::GSI2PK, schema::resource_pk(namespace, resource)),
            text(schema::GSI2SK, schema::bucket_gsi2_sk(&self.key)),
            boolean(bucket::CASCADE, false),
            text(schema::GSI3PK, schema::entity_pk(namespace, entity)),
            text(schema::GSI3SK, schema::bucket_gsi3_sk(&self.key)),
            text(schema::GSI4PK, NAMESPACE),
            text(schema::GSI4SK, schema::bucket_gsi4_sk(&self.key)),
            number(bucket::SHARD_COUNT, 1),
            number(bucket::PARENT_GENERATION, self.start_ms),
            text(bucket::INCARNATION, "c671b2cdb9bdb876"),
            // Renewed by a slow path now and then; not expired when the function is measured.
            number(schema::TTL, refilled_ms / 1_000 + 86_400),
        ];
        for HotLimit { name, capacity, period, taken } in LIMITS {
            let (since_refill, ever) = (acquires % ACQUIRES_PER_SECOND, first + acquires);
            let tokens = if self.is_dry && name != Limit::WRITE_UNITS {
                (u64::from(self.records) - acquires) * taken
            } else {
                capacity - since_refill * taken
            };
            attributes.extend([
                number(bucket::attribute(name, bucket::TOKENS), tokens),
                number(bucket::attribute(name, bucket::CAPACITY), capacity),
                number(bucket::attribute(name, bucket::REFILL_AMOUNT), capacity),
                number(bucket::attribute(name, bucket::REFILL_PERIOD), period),
                number(bucket::attribute(name, bucket::CONSUMED), ever * taken),
            ]);
        }
        Image(attributes)
    }
}

/// When the bucket was last refilled, `acquires` acquires after `start_ms`.
const fn refilled_ms(start_ms: u64, acquires: u64) -> u64 {
    start_ms + acquires / ACQUIRES_PER_SECOND * 1_000
}

// A DynamoDB stream record as Lambda delivers it. Fields and attributes keep their order, because a decoder may be faster
// with one order than with another.
//
// AWS: [the event's shape](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).

/// An invocation's event.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Batch<'a> {
    records: Vec<Record<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    #[serde(rename = "eventID")]
    event_id: String,
    event_name: &'static str,
    event_version: &'static str,
    event_source: &'static str,
    aws_region: &'static str,
    dynamodb: Change<'a>,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: &'static str,
}

/// What a record says of its item.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Change<'a> {
    /// Epoch seconds.
    approximate_creation_date_time: u64,
    keys: Image<'a>,
    sequence_number: String,
    size_bytes: u64,
    stream_view_type: &'static str,
    new_image: Image<'a>,
    old_image: Image<'a>,
}

/// An item, or its key: names and values.
struct Image<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// An attribute's value, in `DynamoDB`'s JSON.
#[derive(Serialize)]
enum Value<'a> {
    #[serde(rename = "S")]
    Text(Cow<'a, str>),
    #[serde(rename = "N")]
    Number(String),
    #[serde(rename = "BOOL")]
    Boolean(bool),
}

/// A string attribute.
fn text<'a>(name: &'a str, value: impl Into<Cow<'a, str>>) -> (Cow<'a, str>, Value<'a>) {
    (name.into(), Value::Text(value.into()))
}

fn number<'a>(name: impl Into<Cow<'a, str>>, value: u64) -> (Cow<'a, str>, Value<'a>) {
    (name.into(), Value::Number(value.to_string()))
}

fn boolean(name: &str, value: bool) -> (Cow<'_, str>, Value<'_>) {
    (name.into(), Value::Boolean(value))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;
    use tidegate_aws::{
        batch,
        stream::{self, StreamEvent},
    };
    use tidegate_domain::{
        activity,
        bucket::Counters,
        refill::{self, Decision},
        sequence::SequenceNumber,
        state::BucketImage,
    };

    use super::*;

    fn now() -> EpochMillis {
        EpochMillis::new(1_767_225_600_123).unwrap()
    }

    fn bucket(records: u32) -> HotBucket {
        HotBucket::new(records, now()).unwrap()
    }

    fn records(batch: &[u8]) -> Vec<Value> {
        let batch: Value = serde_json::from_slice(batch).unwrap();
        batch["Records"].as_array().unwrap().clone()
    }

    fn field(record: &Value, image: &str, limit: &str, field: &str) -> u64 {
        record["dynamodb"][image][bucket::attribute(limit, field)]["N"].as_str().unwrap().parse().unwrap()
    }

    #[test]
    fn records_are_as_large_as_real_ones() {
        let mut bucket = bucket(100);
        for batches in [0, 10_000] {
            bucket.batches = batches;
            let bytes = bucket.next_batch(now()).unwrap().len();
            assert!((240_000..256_000).contains(&bytes), "{bytes} bytes");
        }
    }

    #[test]
    fn the_largest_batch_can_be_generated() {
        let mut bucket = bucket(10_000);
        let records = records(&bucket.next_batch(now()).unwrap());
        assert_eq!(records.len(), 10_000);
        let seconds: HashSet<u64> =
            records.iter().map(|r| r["dynamodb"]["ApproximateCreationDateTime"].as_u64().unwrap()).collect();
        assert_eq!(seconds.len(), 11, "1,000 acquires a second, and the refill after the last one");
    }

    #[test]
    fn sequence_numbers_and_consumption_rise_and_tokens_fall() {
        let mut bucket = bucket(100);
        let batches =
            [bucket.next_batch(now()).unwrap(), bucket.next_batch(now()).unwrap(), bucket.next_batch(now()).unwrap()];
        let records: Vec<_> = batches.iter().flat_map(|batch| records(batch)).collect();
        let sequence = |record: &Value| {
            let sequence = record["dynamodb"]["SequenceNumber"].as_str().unwrap();
            assert_eq!(sequence.len(), SequenceNumber::MIN_DIGITS);
            SequenceNumber::parse(sequence).unwrap()
        };
        assert!(records.is_sorted_by(|a, b| sequence(a) < sequence(b)));
        for HotLimit { name, taken, .. } in LIMITS {
            for record in &records {
                let [new, old] = ["NewImage", "OldImage"];
                assert_eq!(
                    field(record, new, name, bucket::CONSUMED) - field(record, old, name, bucket::CONSUMED),
                    taken
                );
                assert_eq!(field(record, old, name, bucket::TOKENS) - field(record, new, name, bucket::TOKENS), taken);
            }
            let consumed = |record, image| field(record, image, name, bucket::CONSUMED);
            assert!(records.windows(2).all(|pair| consumed(&pair[0], "NewImage") == consumed(&pair[1], "OldImage")));
        }
    }

    #[test]
    fn a_dry_bucket_is_to_be_refilled() {
        let mut bucket = bucket(100).dry();
        for _ in 0..2 {
            let event: StreamEvent = serde_json::from_slice(&bucket.next_batch(now()).unwrap()).unwrap();
            let activities = activity::fold(batch::Batch::<BucketImage<'_>>::decode(&event).unwrap().changes);
            let decision = refill::decide(&activities[0], activities[0].image.plain().unwrap(), now());
            assert!(matches!(decision, Decision::Refill(_)), "{decision:?}");
        }
    }

    #[test]
    fn every_record_decodes_as_a_bucket_change() {
        for record in records(&bucket(10).next_batch(now()).unwrap()) {
            assert!(
                matches!(stream::decode::<Counters<'_>>(&record.to_string()), Ok(stream::Record::Change(_))),
                "{record}"
            );
        }
    }
}
