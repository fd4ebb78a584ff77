//! A leasing worker's calls: it reads the summary, and writes and deletes its own file.

use aws_sdk_s3::{Client, primitives::ByteStream};
use tidegate_domain::{
    lease::{LeaseKeys, fleet::LeaseSummary},
    rates::{Rates, summary},
    time::EpochMillis,
};

use super::{body, is_larger, is_missing, text};
use crate::{
    error::StoreError,
    schema::rates::{SUMMARY, worker_key},
};

/// The files of one worker: its own, and the summary of its fleet.
#[derive(Clone, Debug)]
pub struct WorkerFiles {
    client: Client,
    bucket: String,
    summary_key: String,
    key: String,
    worker: String,
}

/// What reading the summary has shown.
#[derive(Clone, Debug, PartialEq)]
pub enum SeenSummary {
    /// It has not changed since the read that returned the tag.
    Unchanged,
    Missing,
    Found {
        tag: Option<String>,
        /// `None` if the summary grants no leases.
        lease: Option<LeaseSummary>,
    },
}

impl WorkerFiles {
    pub fn new(client: Client, bucket: String, prefix: &str, worker: String) -> Self {
        let (summary_key, key) = (format!("{prefix}{SUMMARY}"), worker_key(prefix, &worker));
        Self { client, bucket, summary_key, key, worker }
    }

    pub fn worker(&self) -> &str {
        &self.worker
    }

    pub fn summary_key(&self) -> &str {
        &self.summary_key
    }

    /// Reads the summary, unless it still has the tag `known`.
    ///
    /// AWS: [conditional reads](https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-reads.html).
    pub async fn summary(&self, known: Option<&str>) -> Result<SeenSummary, StoreError> {
        let get = self.client.get_object().bucket(&self.bucket).key(&self.summary_key);
        let found = match get.set_if_none_match(known.map(str::to_owned)).send().await {
            Ok(found) => found,
            Err(error) if error.raw_response().is_some_and(|response| response.status().as_u16() == 304) => {
                return Ok(SeenSummary::Unchanged);
            }
            Err(error) if error.as_service_error().is_some_and(is_missing) => return Ok(SeenSummary::Missing),
            Err(error) => return Err(StoreError::from_sdk("GetObject", error)),
        };
        let tag = found.e_tag.clone();
        // No summary is that large.
        let text = if is_larger(&found, summary::MAX_SIZE) { Vec::new() } else { body(found).await? };
        Ok(SeenSummary::Found { tag, lease: text::lease::summary(&text) })
    }

    /// Writes the worker's file.
    pub async fn report(&self, at: EpochMillis, used: Rates, keys: &LeaseKeys) -> Result<(), StoreError> {
        let text = text::leasing_report(&self.worker, at, used, keys);
        let put = self.client.put_object().bucket(&self.bucket).key(&self.key).content_type("application/json");
        put.body(ByteStream::from(text.into_bytes()))
            .send()
            .await
            .map(drop)
            .map_err(|error| StoreError::from_sdk("PutObject", error))
    }

    /// Deletes the worker's file. Its absence is no error.
    pub async fn delete(&self) -> Result<(), StoreError> {
        let delete = self.client.delete_object().bucket(&self.bucket).key(&self.key);
        delete.send().await.map(drop).map_err(|error| StoreError::from_sdk("DeleteObject", error))
    }
}
