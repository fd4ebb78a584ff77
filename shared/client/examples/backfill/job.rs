//! The job: it scans segments of a table, and rewrites their items.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::bail;
use aws_sdk_dynamodb::{
    Client, error::ProvideErrorMetadata as _, operation::update_item::UpdateItemError, primitives::Blob,
    types::AttributeValue,
};
use aws_sdk_s3::primitives::ByteStream;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use tidegate::fleet::{Cost, Throttle};

/// The version that each item gets.
const VERSION: &str = "2";
const ATTRIBUTE: &str = "schema_version";

/// The items that a request scans at most. So little is repeated after a restart.
const PAGE: i32 = 200;

/// The writes that are under way at the same time in a segment.
const WRITES: usize = 16;

type Item = HashMap<String, AttributeValue>;

pub struct Job {
    /// A client of the throttle.
    pub dynamodb: Client,
    pub throttle: Throttle,
    pub s3: aws_sdk_s3::Client,
    pub bucket: String,
    pub prefix: String,
    pub table: String,
    pub segments: i32,
}

/// What has been done since the process was started.
#[derive(Debug, Default)]
pub struct Progress {
    pub pages: AtomicU64,
    pub written: AtomicU64,
    pub segments: AtomicU64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [pages, written, segments] =
            [&self.pages, &self.written, &self.segments].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{pages} pages read, {written} items written, {segments} segments done")
    }
}

/// How far a segment is.
#[derive(Debug, Default, Serialize, Deserialize)]
enum Place {
    #[default]
    Start,
    /// The key of the last item of a page.
    After(HashMap<String, KeyValue>),
    End,
}

/// The value of a key attribute, as DynamoDB's JSON has it. Binary values are lists of numbers.
#[derive(Debug, Serialize, Deserialize)]
enum KeyValue {
    S(String),
    N(String),
    B(Vec<u8>),
}

impl Job {
    /// Rewrites the items of some segments, all at the same time.
    pub async fn run(&self, mine: Range<i32>, progress: &Progress) -> anyhow::Result<()> {
        let table = self.dynamodb.describe_table().table_name(&self.table).send().await?;
        let key = table.table.and_then(|table| table.key_schema).unwrap_or_default();
        let key: Vec<_> = key.into_iter().map(|element| element.attribute_name).collect();
        let segments = stream::iter(mine.map(|segment| self.segment(segment, &key, progress)));
        segments.buffer_unordered(usize::MAX).try_collect().await
    }

    async fn segment(&self, segment: i32, key: &[String], progress: &Progress) -> anyhow::Result<()> {
        let mut place = self.stored_place(segment).await?;
        loop {
            let after = match place {
                Place::Start => None,
                Place::After(key) => Some(key.into_iter().map(|(name, value)| (name, value.into())).collect()),
                Place::End => break,
            };
            let (items, next) = self.page(segment, key, after).await?;
            progress.pages.fetch_add(1, Ordering::Relaxed);
            stream::iter(items)
                .map(|item| self.rewrite(item, progress))
                .buffer_unordered(WRITES)
                .try_collect::<()>()
                .await?;
            place = match next {
                Some(next) => Place::After(next.into_iter().map(key_value).collect::<Result<_, _>>()?),
                None => Place::End,
            };
            self.store_place(segment, &place).await?;
        }
        progress.segments.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the keys of the items of a page that have a lower version.
    async fn page(
        &self,
        segment: i32,
        key: &[String],
        after: Option<Item>,
    ) -> anyhow::Result<(Vec<Item>, Option<Item>)> {
        let names = key.iter().enumerate().map(|(place, name)| (format!("#k{place}"), name.clone()));
        let names: HashMap<_, _> = names.chain([("#v".to_owned(), ATTRIBUTE.to_owned())]).collect();
        let keys: Vec<_> = (0..key.len()).map(|place| format!("#k{place}")).collect();
        // It waits for as long as it takes. The throttle learns what the page has really cost.
        let admission = self.throttle.admit(Cost::read(25.0)?).await;
        let scan = self
            .dynamodb
            .scan()
            .table_name(&self.table)
            .segment(segment)
            .total_segments(self.segments)
            .limit(PAGE)
            .set_exclusive_start_key(after)
            .projection_expression(keys.join(", "))
            .filter_expression("attribute_not_exists(#v) OR #v < :version")
            .set_expression_attribute_names(Some(names))
            .expression_attribute_values(":version", AttributeValue::N(VERSION.to_owned()));
        let page = scan.customize().interceptor(admission).send().await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Writes an item, unless another process has done it, or has deleted the item.
    async fn rewrite(&self, key: Item, progress: &Progress) -> anyhow::Result<()> {
        let Some(name) = key.keys().next().cloned() else { return Ok(()) };
        let admission = self.throttle.admit(Cost::write(1.0)?).await;
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key))
            .update_expression("SET #v = :version")
            .condition_expression("attribute_exists(#k) AND (attribute_not_exists(#v) OR #v < :version)")
            .expression_attribute_names("#k", name)
            .expression_attribute_names("#v", ATTRIBUTE)
            .expression_attribute_values(":version", AttributeValue::N(VERSION.to_owned()));
        match update.customize().interceptor(admission).send().await {
            Ok(_) => progress.written.fetch_add(1, Ordering::Relaxed),
            Err(error)
                if error.as_service_error().is_some_and(UpdateItemError::is_conditional_check_failed_exception) =>
            {
                0
            }
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    async fn stored_place(&self, segment: i32) -> anyhow::Result<Place> {
        let get = self.s3.get_object().bucket(&self.bucket).key(self.place_key(segment));
        match get.send().await {
            Ok(found) => Ok(serde_json::from_slice(&found.body.collect().await?.into_bytes())?),
            // Without the permission to list the bucket, a missing object is denied.
            Err(error) if matches!(error.code(), Some("NoSuchKey" | "AccessDenied")) => Ok(Place::Start),
            Err(error) => Err(error.into()),
        }
    }

    async fn store_place(&self, segment: i32, place: &Place) -> anyhow::Result<()> {
        let put = self.s3.put_object().bucket(&self.bucket).key(self.place_key(segment));
        put.body(ByteStream::from(serde_json::to_vec(place)?)).send().await?;
        Ok(())
    }

    /// rate-aggregator ignores objects in deeper folders.
    fn place_key(&self, segment: i32) -> String {
        format!("{}places/{}/{segment}-of-{}.json", self.prefix, self.table, self.segments)
    }
}

fn key_value((name, value): (String, AttributeValue)) -> anyhow::Result<(String, KeyValue)> {
    let value = match value {
        AttributeValue::S(text) => KeyValue::S(text),
        AttributeValue::N(number) => KeyValue::N(number),
        AttributeValue::B(bytes) => KeyValue::B(bytes.into_inner()),
        other => bail!("the key attribute {name} is {other:?}"),
    };
    Ok((name, value))
}

impl From<KeyValue> for AttributeValue {
    fn from(value: KeyValue) -> Self {
        match value {
            KeyValue::S(text) => Self::S(text),
            KeyValue::N(number) => Self::N(number),
            KeyValue::B(bytes) => Self::B(Blob::new(bytes)),
        }
    }
}
