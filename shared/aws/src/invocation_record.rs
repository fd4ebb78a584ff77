//! What an event source mapping stores in S3 of a batch that it discards: the invocation, with the whole batch.
//!
//! AWS: [the record](https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html#services-dynamodb-errors-s3).

use serde::Deserialize;
use serde_json::value::RawValue;

/// A batch that was discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationRecord {
    /// The function that did not succeed.
    pub function_arn: String,
    /// The records of the batch, as JSON text.
    pub records: Vec<String>,
}

/// Bytes that are not such a record.
#[derive(Debug, thiserror::Error)]
#[error("it is not an invocation record with a batch of a stream")]
pub struct NotAnInvocationRecord(#[from] serde_json::Error);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    request_context: RequestContext,
    payload: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    function_arn: String,
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow, rename = "Records")]
    records: Vec<&'a RawValue>,
}

impl InvocationRecord {
    /// Reads an object.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotAnInvocationRecord> {
        let Stored { request_context: RequestContext { function_arn }, payload } = serde_json::from_slice(bytes)?;
        let Batch { records } = serde_json::from_str(&payload)?;
        Ok(Self { function_arn, records: records.into_iter().map(|record| record.get().to_owned()).collect() })
    }

    /// Whether the name of the function contains a text, in any case and without `-`.
    pub fn is_of(&self, function: &str) -> bool {
        let plain = |name: &str| name.to_lowercase().replace('-', "");
        plain(&self.function_arn).contains(&plain(function))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stored() -> Value {
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
            },
            "payload": json!({"Records": [{"eventName": "INSERT"}, {"eventName": "MODIFY"}]}).to_string()
        })
    }

    #[test]
    fn a_record_holds_the_whole_batch() {
        let read = InvocationRecord::parse(stored().to_string().as_bytes()).unwrap();
        assert_eq!(read.records, [r#"{"eventName":"INSERT"}"#, r#"{"eventName":"MODIFY"}"#]);
        assert!(read.is_of("usage-rollup") && read.is_of("UsageRollup") && !read.is_of("bucket-keeper"));
    }

    #[test]
    fn other_objects_are_refused() {
        let mut without = stored();
        without["payload"] = Value::Null;
        for text in ["seven".to_owned(), "{}".to_owned(), without.to_string()] {
            assert!(InvocationRecord::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
