//! What an event source mapping says of a batch that it gave up: where the batch was, but not what was in it.
//!
//! AWS: [the message](https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html#services-dynamodb-errors-sqs).

use serde::Deserialize;
use serde_json::Value;
use tidegate_domain::{sequence::SequenceNumber, time::EpochMillis};

/// A batch of a stream that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureMessage {
    /// The function that did not succeed.
    pub function_arn: String,
    /// When the mapping gave up.
    pub time: EpochMillis,
    /// The stream.
    pub stream_arn: String,
    /// The shard of the stream.
    pub shard_id: String,
    /// The batch's first record.
    pub start: SequenceNumber,
    /// The batch's last record.
    pub end: SequenceNumber,
}

/// A text that is no such message.
#[derive(Debug, thiserror::Error)]
pub enum NoFailureMessage {
    /// It is something else.
    #[error("it is no failure message of a stream")]
    Other,
    /// A part of it is missing, or cannot be.
    #[error("the failure message's {0} is missing or wrong")]
    Part(&'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    stream_arn: String,
    shard_id: String,
    start_sequence_number: String,
    end_sequence_number: String,
}

impl FailureMessage {
    /// Reads a message's text.
    ///
    /// # Errors
    /// [`NoFailureMessage`], which names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, NoFailureMessage> {
        use NoFailureMessage::{Other, Part};
        let mut message: Value = serde_json::from_str(text).map_err(|_| Other)?;
        let batch = message.get_mut("DDBStreamBatchInfo").map(Value::take).ok_or(Other)?;
        let batch: Batch = serde_json::from_value(batch).map_err(|_| Part("DDBStreamBatchInfo"))?;
        let text = |path: &str| message.pointer(path).and_then(Value::as_str);
        Ok(Self {
            function_arn: text("/requestContext/functionArn").ok_or(Part("functionArn"))?.to_owned(),
            time: text("/timestamp").and_then(EpochMillis::parse).ok_or(Part("timestamp"))?,
            start: SequenceNumber::parse(&batch.start_sequence_number).map_err(|_| Part("startSequenceNumber"))?,
            end: SequenceNumber::parse(&batch.end_sequence_number).map_err(|_| Part("endSequenceNumber"))?,
            stream_arn: batch.stream_arn,
            shard_id: batch.shard_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message() -> Value {
        json!({
            "requestContext": {
                "requestId": "316aa6d0-8154-4e6d-8b1e-6b2f0a0e0001",
                "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:usage-rollup:$LATEST",
                "condition": "RetryAttemptsExhausted",
                "approximateInvokeCount": 3
            },
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
            "version": "1.0",
            "timestamp": "2026-01-01T00:13:19.717Z",
            "DDBStreamBatchInfo": {
                "shardId": "shardId-00000001573689847184-864758bb",
                "startSequenceNumber": "800000000003126276362",
                "endSequenceNumber": "800000000003126276372",
                "approximateArrivalOfFirstRecord": "2026-01-01T00:13:19Z",
                "approximateArrivalOfLastRecord": "2026-01-01T00:13:19Z",
                "batchSize": 2,
                "streamArn": "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000"
            }
        })
    }

    #[test]
    fn a_message_says_where_the_batch_was() {
        let read = FailureMessage::parse(&message().to_string()).unwrap();
        assert_eq!((read.start.as_str(), read.end.as_str()), ("800000000003126276362", "800000000003126276372"));
        assert_eq!(read.shard_id, "shardId-00000001573689847184-864758bb");
        assert!(read.stream_arn.ends_with("/stream/2026-01-01T00:00:00.000"), "{}", read.stream_arn);
        assert_eq!(read.time.get(), 1_767_226_399_717);
    }

    #[test]
    fn what_is_none_is_told_why() {
        let check = |text: &str, expect: &str| {
            let error = FailureMessage::parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("seven", "no failure message");
        check(r#"{"dynamodb": {}}"#, "no failure message");
        let without = |path: &str| {
            let mut message = message();
            *message.pointer_mut(path).unwrap() = Value::Null;
            message.to_string()
        };
        check(&without("/requestContext/functionArn"), "functionArn");
        check(&without("/timestamp"), "timestamp");
        check(&without("/DDBStreamBatchInfo/shardId"), "DDBStreamBatchInfo");
        let mut short = message();
        short["DDBStreamBatchInfo"]["endSequenceNumber"] = json!("7");
        check(&short.to_string(), "endSequenceNumber");
    }
}
