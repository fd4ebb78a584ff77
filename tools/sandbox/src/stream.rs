//! Reads the table's stream and converts its records to Lambda's JSON.

use std::collections::BTreeMap;

use anyhow::Context as _;
use aws_sdk_dynamodbstreams::{
    Client,
    types::{AttributeValue, Record, ShardIteratorType},
};
use aws_smithy_types::{DateTime, base64, date_time::Format};
use serde_json::{Map, Value, json};
use tidegate_domain::time::EpochMillis;

use crate::mapping::StreamRecord;

/// A reader of all shards of a table's stream, from the trim horizon on.
#[derive(Debug)]
pub struct StreamReader {
    client: Client,
    arn: String,
    /// The ARN that records name on Lambda.
    source: String,
    /// By shard id, where to read on; `None` once a closed shard was read to its end.
    iterators: BTreeMap<String, Option<String>>,
}

impl StreamReader {
    /// A reader of the stream with this ARN.
    pub fn new(client: Client, arn: impl Into<String>) -> Self {
        let arn = arn.into();
        Self { client, source: with_label_of_aws(&arn), arn, iterators: BTreeMap::new() }
    }

    /// Everything that the stream holds and that was not read before, in stream order, by stream
    /// shard. Each record is given `created` as its creation time: simulated time passes faster.
    pub async fn drain(&mut self, created: EpochMillis) -> anyhow::Result<BTreeMap<String, Vec<StreamRecord>>> {
        self.find_shards().await?;
        let mut drained = BTreeMap::new();
        for (shard, iterator) in &mut self.iterators {
            let mut records = Vec::new();
            while let Some(at) = iterator.take() {
                let page = self.client.get_records().shard_iterator(at).send().await.context("reading the stream")?;
                *iterator = page.next_shard_iterator;
                let found = page.records.unwrap_or_default();
                let empty = found.is_empty();
                for record in found {
                    records.push(lambda_record(record, created.get() / 1000, &self.source)?);
                }
                if empty {
                    break;
                }
            }
            drained.insert(shard.clone(), records);
        }
        Ok(drained)
    }

    async fn find_shards(&mut self) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            let page = self.client.describe_stream().stream_arn(&self.arn).set_exclusive_start_shard_id(last);
            let described = page.send().await.context("describing the stream")?.stream_description;
            let described = described.context("the stream has no description")?;
            for shard in described.shards.unwrap_or_default() {
                let id = shard.shard_id.context("a stream shard has no id")?;
                if self.iterators.contains_key(&id) {
                    continue;
                }
                let start = self.client.get_shard_iterator().stream_arn(&self.arn).shard_id(&id);
                let start = start.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
                self.iterators.insert(id, start.context("finding the trim horizon")?.shard_iterator);
            }
            last = described.last_evaluated_shard_id;
            if last.is_none() {
                return Ok(());
            }
        }
    }
}

/// The ARN of a stream whose label has the form that AWS gives it: the embedded DynamoDB writes epoch seconds.
fn with_label_of_aws(arn: &str) -> String {
    let label = |arn: &str| {
        let (table, label) = arn.split_once("/stream/")?;
        let (seconds, fraction) = label.split_once('.')?;
        let date = DateTime::from_secs(seconds.parse().ok()?).fmt(Format::DateTime).ok()?;
        Some(format!("{table}/stream/{}.{}", date.trim_end_matches('Z'), fraction.get(..3)?))
    };
    label(arn).unwrap_or_else(|| arn.to_owned())
}

/// `created` is in epoch seconds.
fn lambda_record(record: Record, created: i64, arn: &str) -> anyhow::Result<StreamRecord> {
    let change = record.dynamodb.context("a stream record has no change")?;
    let sequence = change.sequence_number.context("a stream record has no sequence number")?;
    let mut dynamodb = json!({
        "ApproximateCreationDateTime": created,
        "Keys": item(change.keys.unwrap_or_default()),
        "SequenceNumber": sequence,
        "SizeBytes": change.size_bytes,
        "StreamViewType": change.stream_view_type.map(|view| view.as_str().to_owned()),
    });
    for (name, image) in [("NewImage", change.new_image), ("OldImage", change.old_image)] {
        if let Some(image) = image {
            dynamodb[name] = item(image);
        }
    }
    let record = json!({
        "eventID": record.event_id,
        "eventName": record.event_name.map(|name| name.as_str().to_owned()),
        "eventVersion": record.event_version,
        "eventSource": record.event_source,
        "awsRegion": record.aws_region,
        "dynamodb": dynamodb,
        "eventSourceARN": arn,
    });
    Ok(StreamRecord { sequence, json: record.to_string().into() })
}

fn item(item: impl IntoIterator<Item = (String, AttributeValue)>) -> Value {
    item.into_iter().map(|(name, value)| (name, attribute(value))).collect::<Map<_, _>>().into()
}

fn attribute(value: AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::Bool(truth) => json!({"BOOL": truth}),
        AttributeValue::B(bytes) => json!({"B": base64::encode(bytes)}),
        AttributeValue::Ss(texts) => json!({"SS": texts}),
        AttributeValue::Ns(numbers) => json!({"NS": numbers}),
        AttributeValue::Bs(all) => json!({"BS": all.into_iter().map(base64::encode).collect::<Vec<_>>()}),
        AttributeValue::L(values) => json!({"L": values.into_iter().map(attribute).collect::<Vec<_>>()}),
        AttributeValue::M(values) => json!({"M": item(values)}),
        // `NULL`, and whatever type DynamoDB may come to know, which no bucket holds.
        _ => json!({"NULL": true}),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::sequence::StreamLabel;

    use super::*;

    #[test]
    fn a_label_has_the_form_of_aws() {
        let arn = with_label_of_aws("arn:aws:dynamodb:us-east-1:1:table/limits/stream/1767225600.031838893");
        assert_eq!(arn, "arn:aws:dynamodb:us-east-1:1:table/limits/stream/2026-01-01T00:00:00.031");
        assert_eq!(with_label_of_aws(&arn), arn);
        StreamLabel::parse("2026-01-01T00:00:00.031").unwrap();
    }
}
