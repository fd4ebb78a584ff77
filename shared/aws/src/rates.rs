//! Workers' reports in S3, and the summary beside them.
//!
//! A worker overwrites its one object every few seconds; the summary is written on the condition that the one that
//! was read is still there.
//!
//! AWS: [conditional writes](https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).

pub mod text;
pub mod worker;

use aws_sdk_s3::{
    Client,
    config::retry::RetryConfig,
    error::ProvideErrorMetadata,
    operation::get_object::{GetObjectError, GetObjectOutput},
    primitives::{ByteStream, DateTime},
    types::Object,
};
use tidegate_domain::{
    rates::{
        Reason,
        reading::{self, Content, Listed},
        summary,
    },
    time::EpochMillis,
};

use crate::{error::StoreError, schema::rates::SEPARATOR};

/// After this many failures, only this one report is missing.
const READ_ATTEMPTS: u32 = 3;

/// The reports and summaries in a bucket.
#[derive(Clone, Debug)]
pub struct RateFiles {
    client: Client,
    /// Reads reports, and gives up soon.
    reads: Client,
    bucket: String,
    summary: String,
}

/// Where the next page of a listing begins.
#[derive(Clone, Debug)]
pub struct Cursor(String);

/// A page of a listing: up to a thousand.
///
/// AWS: [ListObjectsV2](https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html).
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub entries: Vec<T>,
    /// Where it goes on, if it does.
    pub next: Option<Cursor>,
}

/// A report that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched {
    Found {
        tag: Option<String>,
        /// When the store received it.
        written: Option<EpochMillis>,
        content: Content,
    },
    /// It was deleted since it was listed.
    Vanished,
}

/// A summary that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub tag: String,
    /// When the store received it.
    pub written: Option<EpochMillis>,
    pub text: Vec<u8>,
}

/// What became of a summary that was to replace another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    Written {
        tag: Option<String>,
    },
    /// Another writer has changed or deleted the summary, or is writing it.
    Lost,
}

impl RateFiles {
    /// The reports and summaries in this bucket; `summary` is the summary's name under its prefix.
    pub fn new(client: Client, bucket: String, summary: String) -> Self {
        Self { reads: for_reads(&client), client, bucket, summary }
    }

    pub fn summary_key(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.summary)
    }

    /// A page of the objects right under a prefix: the reports and the summary, without the empty objects that stand
    /// for folders.
    pub async fn objects(&self, prefix: &str, after: Option<Cursor>) -> Result<Page<Listed>, StoreError> {
        let (objects, _, next) = self.list(prefix, after).await?;
        let is_file = |listed: &Listed| !listed.key.ends_with(SEPARATOR);
        Ok(Page { entries: objects.into_iter().filter_map(listed).filter(is_file).collect(), next })
    }

    /// A page of the prefixes right under this one.
    pub async fn prefixes(&self, prefix: &str, after: Option<Cursor>) -> Result<Page<String>, StoreError> {
        let (_, entries, next) = self.list(prefix, after).await?;
        Ok(Page { entries, next })
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<Cursor>,
    ) -> Result<(Vec<Object>, Vec<String>, Option<Cursor>), StoreError> {
        let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix).delimiter(SEPARATOR);
        let list = list.set_continuation_token(after.map(|Cursor(token)| token)).send();
        let page = list.await.map_err(|error| StoreError::from_sdk("ListObjectsV2", error))?;
        let prefixes = page.common_prefixes.unwrap_or_default().into_iter().filter_map(|common| common.prefix);
        Ok((page.contents.unwrap_or_default(), prefixes.collect(), page.next_continuation_token.map(Cursor)))
    }

    /// Reads a report, unless it has become too large. It is tried a few times only, since it is one of many.
    pub async fn report(&self, key: &str) -> Result<Fetched, StoreError> {
        let Some(mut found) = get(&self.reads, &self.bucket, key, GetObjectError::is_no_such_key).await? else {
            return Ok(Fetched::Vanished);
        };
        let (tag, written) = (found.e_tag.take(), found.last_modified.and_then(moment));
        if is_larger(&found, reading::MAX_SIZE) {
            return Ok(Fetched::Found { tag, written, content: Err(Reason::TooLarge) });
        }
        let content = text::report(&body(found).await?);
        Ok(Fetched::Found { tag, written, content })
    }

    /// Reads the summary of a prefix. Returns `None` if it is missing. Without the permission to list the
    /// bucket, S3 answers `AccessDenied` for a missing key. That counts as missing too: [`RateFiles::replace`] then replaces
    /// nothing.
    ///
    /// AWS: [GetObject permissions](https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html#API_GetObject_RequestSyntax).
    pub async fn summary(&self, prefix: &str) -> Result<Option<Stored>, StoreError> {
        let found = get(&self.client, &self.bucket, &self.summary_key(prefix), is_missing).await?;
        let Some(mut found) = found else { return Ok(None) };
        let Some(tag) = found.e_tag.take() else {
            return Err(StoreError::Unexplained { item: self.summary_key(prefix) });
        };
        let written = found.last_modified.and_then(moment);
        // No summary is that large.
        let text = if is_larger(&found, summary::MAX_SIZE) { Vec::new() } else { body(found).await? };
        Ok(Some(Stored { tag, written, text }))
    }

    /// Writes the summary of a prefix, if the stored one still has the tag `seen`, or if `seen` is `None` and none is stored.
    ///
    /// A call whose answer was lost is made again, and is then [`Replaced::Lost`] against itself.
    pub async fn replace(&self, prefix: &str, seen: Option<&str>, text: &str) -> Result<Replaced, StoreError> {
        let put = self
            .client
            .put_object()
            .bucket(&self.bucket)
            .key(self.summary_key(prefix))
            .content_type("application/json")
            .cache_control("no-cache")
            .body(ByteStream::from(text.as_bytes().to_vec()));
        let put = match seen {
            Some(tag) => put.if_match(tag),
            None => put.if_none_match("*"),
        };
        match put.send().await {
            Ok(written) => Ok(Replaced::Written { tag: written.e_tag }),
            Err(error) => match error.as_service_error().and_then(ProvideErrorMetadata::code) {
                // The last one: what was to be replaced is deleted.
                Some("PreconditionFailed" | "ConditionalRequestConflict" | "NoSuchKey") => Ok(Replaced::Lost),
                _ => Err(StoreError::from_sdk("PutObject", error)),
            },
        }
    }
}

/// Whether the summary is missing. Without the permission to list the bucket, S3 answers `AccessDenied`.
fn is_missing(error: &GetObjectError) -> bool {
    error.is_no_such_key() || error.code() == Some("AccessDenied")
}

/// An object; `None` if the error says that it is missing.
async fn get(
    client: &Client,
    bucket: &str,
    key: &str,
    is_missing: fn(&GetObjectError) -> bool,
) -> Result<Option<GetObjectOutput>, StoreError> {
    match client.get_object().bucket(bucket).key(key).send().await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.as_service_error().is_some_and(is_missing) => Ok(None),
        Err(error) => Err(StoreError::from_sdk("GetObject", error)),
    }
}

/// The same client, for many reads: it makes few attempts, because each read is only one of many.
fn for_reads(client: &Client) -> Client {
    let retries = client.config().retry_config().cloned().unwrap_or_else(RetryConfig::standard);
    let config = client.config().to_builder().retry_config(retries.with_max_attempts(READ_ATTEMPTS));
    Client::from_conf(config.build())
}

fn is_larger(found: &GetObjectOutput, most: u64) -> bool {
    found.content_length.is_none_or(|length| !u64::try_from(length).is_ok_and(|length| length <= most))
}

async fn body(found: GetObjectOutput) -> Result<Vec<u8>, StoreError> {
    let body = found.body.collect().await;
    let body = body.map_err(|error| StoreError::Unavailable { operation: "GetObject", source: error.into() })?;
    Ok(body.into_bytes().into())
}

fn listed(object: Object) -> Option<Listed> {
    Some(Listed {
        key: object.key?,
        tag: object.e_tag,
        size: object.size.and_then(|size| size.try_into().ok()).unwrap_or_default(),
        modified: object.last_modified.and_then(moment),
    })
}

fn moment(time: DateTime) -> Option<EpochMillis> {
    EpochMillis::new(time.to_millis().ok()?).ok()
}
