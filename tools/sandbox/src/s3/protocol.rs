//! The calls. A condition and its write happen under one lock.

use std::time::{Duration, UNIX_EPOCH};

use futures::TryStreamExt as _;
use s3s::{
    Body, S3, S3Request, S3Response, S3Result,
    dto::{
        CommonPrefix, DeleteObjectInput, DeleteObjectOutput, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
        ListObjectsV2Input, ListObjectsV2Output, Object as Listed, PutObjectInput, PutObjectOutput, Timestamp,
    },
    s3_error,
};
use tidegate_domain::time::EpochMillis;

use super::{BUCKET, Bucket, Call, Fault, Object, Query};

/// AWS: [ListObjectsV2](https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html).
const LARGEST_PAGE: usize = 1_000;

/// The bucket behind the protocol.
pub(super) struct Protocol {
    bucket: Bucket,
}

impl Protocol {
    pub(super) const fn new(bucket: Bucket) -> Self {
        Self { bucket }
    }

    /// Applies the fault of a request. Returns whether an error must replace the response.
    async fn apply_fault(&self, bucket: &str, call: &Call) -> S3Result<bool> {
        if bucket != BUCKET {
            return Err(s3_error!(NoSuchBucket));
        }
        match self.bucket.fault_of(call) {
            None => Ok(false),
            Some(Fault::InternalAfter) => Ok(true),
            Some(Fault::SlowDown) => Err(s3_error!(SlowDown)),
            Some(Fault::AccessDenied) => Err(s3_error!(AccessDenied)),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Late(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(false)
            }
        }
    }
}

/// The response to a successful call, or an error if the response is lost.
fn answer<T>(output: T, is_lost: bool) -> S3Result<S3Response<T>> {
    if is_lost { Err(s3_error!(InternalError)) } else { Ok(S3Response::new(output)) }
}

#[async_trait::async_trait]
impl S3 for Protocol {
    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let prefix = input.prefix.unwrap_or_default();
        let call = Call::List { prefix: prefix.clone(), is_first: input.continuation_token.is_none() };
        let is_lost = self.apply_fault(&input.bucket, &call).await?;
        let limit = input.max_keys.and_then(|keys| usize::try_from(keys).ok()).unwrap_or(LARGEST_PAGE);
        let query = Query {
            prefix: prefix.clone(),
            delimiter: input.delimiter.clone(),
            after: input.continuation_token.clone().or(input.start_after.map(|key| format!("k{key}"))),
            limit: limit.min(LARGEST_PAGE),
        };
        let page = self.bucket.state().objects.list(&query);
        let entries = page.objects.len() + page.prefixes.len();
        let common = |prefix| CommonPrefix { prefix: Some(prefix) };
        let output = ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(prefix),
            delimiter: input.delimiter,
            max_keys: i32::try_from(query.limit).ok(),
            key_count: i32::try_from(entries).ok(),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next,
            contents: Some(page.objects.into_iter().map(listed).collect()),
            common_prefixes: Some(page.prefixes.into_iter().map(common).collect()),
            ..ListObjectsV2Output::default()
        };
        answer(output, is_lost)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { bucket, key, if_none_match, .. } = request.input;
        let is_lost = self.apply_fault(&bucket, &Call::Get { key: key.clone() }).await?;
        let object = self.bucket.get(&key).ok_or_else(|| s3_error!(NoSuchKey))?;
        if if_none_match.is_some_and(|known| known.as_etag().is_some_and(|tag| tag.value() == object.tag)) {
            return Err(s3_error!(NotModified));
        }
        let output = GetObjectOutput {
            content_length: i64::try_from(object.content.len()).ok(),
            body: Some(Body::from(object.content).into()),
            e_tag: Some(ETag::Strong(object.tag)),
            last_modified: Some(whole_seconds(object.modified)),
            content_type: object.content_type,
            cache_control: object.cache_control,
            ..GetObjectOutput::default()
        };
        answer(output, is_lost)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let PutObjectInput { bucket, key, body, if_match, if_none_match, content_type, cache_control, .. } =
            request.input;
        let is_lost = self.apply_fault(&bucket, &Call::Put { key: key.clone() }).await?;
        let mut content = Vec::new();
        if let Some(mut body) = body {
            while let Some(chunk) = body.try_next().await.map_err(|_| s3_error!(IncompleteBody))? {
                content.extend_from_slice(&chunk);
            }
        }
        let mut state = self.bucket.state();
        let existing = state.objects.get(&key);
        match (&if_match, existing) {
            (Some(_), None) => return Err(s3_error!(NoSuchKey)),
            (Some(ETagCondition::ETag(tag)), Some(existing)) if tag.value() != existing.tag => {
                return Err(s3_error!(PreconditionFailed));
            }
            _ => {}
        }
        match (&if_none_match, existing) {
            (Some(ETagCondition::Any), Some(_)) => return Err(s3_error!(PreconditionFailed)),
            // S3 supports no other.
            (Some(ETagCondition::ETag(_)), _) => return Err(s3_error!(NotImplemented)),
            _ => {}
        }
        let now = state.now().ok_or_else(|| s3_error!(InternalError))?;
        let object = Object { content_type, cache_control, ..Object::new(content.into(), now) };
        let output = PutObjectOutput { e_tag: Some(ETag::Strong(object.tag.clone())), ..PutObjectOutput::default() };
        state.objects.insert(key, object);
        answer(output, is_lost)
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let DeleteObjectInput { bucket, key, .. } = request.input;
        let is_lost = self.apply_fault(&bucket, &Call::Delete { key: key.clone() }).await?;
        // Deleting a missing object is not an error.
        let _ = self.bucket.delete(&key);
        answer(DeleteObjectOutput::default(), is_lost)
    }
}

fn listed((key, object): (String, Object)) -> Listed {
    Listed {
        key: Some(key),
        e_tag: Some(ETag::Strong(object.tag)),
        size: i64::try_from(object.content.len()).ok(),
        last_modified: Some(whole_seconds(object.modified)),
        ..Listed::default()
    }
}

fn whole_seconds(time: EpochMillis) -> Timestamp {
    let seconds = time.get().unsigned_abs() / 1000;
    Timestamp::from(UNIX_EPOCH + Duration::from_secs(seconds))
}
