//! Items from S3: batches that the event source mapping discarded. Each object is an invocation record with the whole
//! batch.

use anyhow::Context as _;
use aws_sdk_s3::{Client, error::SdkError, operation::get_object::GetObjectError, types::Object};
use futures::{StreamExt as _, future, stream};
use tidegate_aws::invocation_record::InvocationRecord;
use tidegate_domain::redrive::Origin;

use super::{ItemReasons, RedriveItem, Source, summary::Summary};

/// The most objects in a round.
const ROUND: i32 = 1000;
/// The most bytes of objects in a round, unless a single one has more: a batch has up to 6 MB, and all records of a round
/// are in memory at the same time.
const ROUND_BYTES: i64 = 64_000_000;
/// How many objects are read or deleted at the same time.
const CONCURRENCY: usize = 64;

/// Objects under a prefix of a bucket.
#[derive(Debug)]
pub struct StoredFailures {
    s3: Client,
    bucket: String,
    prefix: String,
    function: String,
    after: Option<String>,
}

impl StoredFailures {
    /// The invocation records of `function` under a prefix.
    pub fn new(s3: Client, bucket: String, prefix: String, function: String) -> Self {
        Self { s3, bucket, prefix, function, after: None }
    }

    /// Reads `s3://bucket/prefix`.
    pub fn parse_location(text: &str) -> Result<(String, String), String> {
        let location = text.strip_prefix("s3://").filter(|location| !location.is_empty());
        let location = location.ok_or_else(|| format!("{text:?} is not a location like s3://bucket/prefix"))?;
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        Ok((bucket.to_owned(), prefix.to_owned()))
    }

    /// The item of an object; `None` if another redrive has deleted it.
    async fn item(&self, key: String) -> Option<RedriveItem> {
        let records = match self.read(&key).await {
            Ok(record) if record.is_of(&self.function) => Ok(record.records),
            Ok(record) => Err(format!("it is a failure of {}", record.function_arn)),
            Err(error) if is_gone(&error) => return None,
            Err(error) => Err(format!("{error:#}")),
        };
        Some(RedriveItem { name: key, records, origin: Origin::FailedBatch, snapshot: None })
    }

    async fn read(&self, key: &str) -> anyhow::Result<InvocationRecord> {
        let object = self.s3.get_object().bucket(&self.bucket).key(key).send().await?;
        Ok(InvocationRecord::parse(&object.body.collect().await?.into_bytes())?)
    }

    /// Deletes an object; why it stays, if it does.
    async fn delete(&self, key: String) -> Result<(), (String, String)> {
        let deleted = self.s3.delete_object().bucket(&self.bucket).key(&key).send().await;
        let reason = |error| format!("all is settled, but it could not be deleted: {:#}", anyhow::Error::new(error));
        deleted.map(drop).map_err(|error| (key, reason(error)))
    }
}

impl Source for StoredFailures {
    async fn take(&mut self) -> anyhow::Result<Vec<RedriveItem>> {
        loop {
            let request = self.s3.list_objects_v2().bucket(&self.bucket).prefix(&self.prefix).max_keys(ROUND);
            let page = request.set_start_after(self.after.clone()).send().await.context("listing the failures")?;
            let mut bytes = 0;
            let fits = |object: &Object| {
                bytes += object.size.unwrap_or_default();
                bytes <= ROUND_BYTES || bytes == object.size.unwrap_or_default()
            };
            let objects = page.contents.unwrap_or_default().into_iter().take_while(fits);
            let keys: Vec<_> = objects.filter_map(|object| object.key).collect();
            let Some(last) = keys.last() else { return Ok(Vec::new()) };
            self.after = Some(last.clone());
            let items = stream::iter(keys).map(|key| self.item(key)).buffered(CONCURRENCY);
            let items: Vec<_> = items.filter_map(future::ready).collect().await;
            if !items.is_empty() {
                return Ok(items);
            }
        }
    }

    async fn finish(&mut self, items: ItemReasons, dry_run: bool, summary: &mut Summary) {
        let mut done = Vec::new();
        for (key, reasons) in items {
            if !reasons.is_empty() {
                summary.left.push((key, reasons.join("; ")));
            } else if !dry_run {
                done.push(key);
            }
        }
        let mut deleted = stream::iter(done).map(|key| self.delete(key)).buffer_unordered(CONCURRENCY);
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(()) => summary.deleted += 1,
                Err(left) => summary.left.push(left),
            }
        }
    }

    async fn make_visible(&mut self, _: &mut Summary) {}
}

fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<SdkError<GetObjectError>>().and_then(SdkError::as_service_error);
    error.is_some_and(GetObjectError::is_no_such_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_and_a_prefix() {
        let check = |text: &str, bucket: &str, prefix: &str| {
            assert_eq!(StoredFailures::parse_location(text), Ok((bucket.to_owned(), prefix.to_owned())));
        };
        check("s3://failures/aws/lambda/", "failures", "aws/lambda/");
        check("s3://failures", "failures", "");
        for text in ["failures/prefix", "s3://", "https://failures"] {
            assert!(StoredFailures::parse_location(text).unwrap_err().contains(text));
        }
    }
}
