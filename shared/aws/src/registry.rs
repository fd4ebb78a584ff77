//! The registry of sharded buckets. The repair goes through it, because no stream record shows that a shard is missing or
//! has run dry.
//!
//! An entry is an item of our own in the bucket table. It also keeps the last check of how the bucket's writes
//! spread over its shards.

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    pressure::SpreadCheck,
    state::ShardCount,
    time::EpochMillis,
    tokens::Millitokens,
};

use crate::{
    dynamodb::{Item, WriteOutcome},
    error::StoreError,
    expression::{Expression, number, text},
    schema::{
        self, GSI4PK, GSI4SK, PK, SK,
        system::{
            self, AFTER, CHECKED, CLIENT_MIN_VERSION, LAMBDA_VERSION, NEWEST_WRITTEN, NO_NAMESPACE, PARTITION, REPAIR,
            SCHEMA_VERSION, SHARDED, SHARDS, UPDATED_BY, ZERO_WRITTEN,
        },
    },
};

/// The sharded buckets of a table.
#[derive(Clone, Debug)]
pub struct Registry {
    client: Client,
    table: String,
}

/// A sharded bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Shard 0's key.
    pub bucket: BucketKey<'static>,
    /// How many shards the bucket was given last.
    pub shards: ShardCount,
    /// The last check of how its writes spread.
    pub check: Option<SpreadCheck>,
}

/// Some entries, in the order of the registry.
#[derive(Debug)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Errors of items that are not valid entries.
    pub corrupt: Vec<StoreError>,
    /// Where to read on, if there are more.
    pub next: Option<String>,
}

/// How many entries are read at a time.
const PAGE: i32 = 100;

impl Registry {
    /// The registry in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Registers a bucket, or raises the shard count of its entry.
    pub async fn enter(&self, entry: &Entry) -> Result<(), StoreError> {
        let mut expression = Expression::default();
        let (name, value) = expression.set(SHARDS, number(&entry.shards.get()));
        expression.require(&format!("(attribute_not_exists({name}) OR {name} < {value})"));
        if let Some(check) = &entry.check {
            set_check(&mut expression, check);
        }
        self.update(&sort_key(&entry.bucket), expression).await.map(drop)
    }

    /// Replaces the check of an entry, unless its bucket has more shards by now.
    pub async fn replace_check(&self, entry: &Entry, check: &SpreadCheck) -> Result<(), StoreError> {
        let mut expression = Expression::default();
        expression.compare(SHARDS, "=", number(&entry.shards.get()));
        set_check(&mut expression, check);
        self.update(&sort_key(&entry.bucket), expression).await.map(drop)
    }

    /// A bucket's entry.
    pub async fn find(&self, bucket: &BucketKey<'_>) -> Result<Option<Entry>, StoreError> {
        let item = self.get(&sort_key(bucket)).await?;
        item.as_ref().map(entry).transpose()
    }

    /// The entries behind `after`, or the first ones.
    pub async fn page(&self, after: Option<&str>) -> Result<Page, StoreError> {
        let page = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("#pk = :pk AND begins_with(#sk, :prefix)")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#sk", SK)
            .expression_attribute_values(":pk", text(PARTITION))
            .expression_attribute_values(":prefix", text(schema::tidegate_sk(SHARDED)))
            .set_exclusive_start_key(after.map(key))
            .limit(PAGE);
        let page = page.send().await.map_err(|error| StoreError::from_sdk("Query", error))?;
        let next = page.last_evaluated_key.as_ref().and_then(|key| key.get(SK)?.as_s().ok()).cloned();
        let mut read = Page { entries: Vec::new(), corrupt: Vec::new(), next };
        for item in page.items.unwrap_or_default() {
            match entry(&item) {
                Ok(entry) => read.entries.push(entry),
                Err(error) => read.corrupt.push(error),
            }
        }
        Ok(read)
    }

    /// Removes an entry, unless its bucket has more shards by now.
    pub async fn remove(&self, entry: &Entry) -> Result<(), StoreError> {
        let delete = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(key(&sort_key(&entry.bucket))))
            .condition_expression("#shards = :shards")
            .expression_attribute_names("#shards", SHARDS)
            .expression_attribute_values(":shards", number(&entry.shards.get()));
        WriteOutcome::of("DeleteItem", delete.send().await).map(drop)
    }

    /// Where the last repair stopped, if it was not done.
    pub async fn stopped(&self) -> Result<Option<String>, StoreError> {
        let item = self.get(&schema::tidegate_sk(REPAIR)).await?;
        Ok(item.and_then(|item| item.get(AFTER)?.as_s().ok().cloned()))
    }

    /// Keeps where a repair stopped, or that it was done.
    pub async fn stop(&self, after: Option<&str>) -> Result<(), StoreError> {
        let key = key(&schema::tidegate_sk(REPAIR));
        let Some(after) = after else {
            let delete = self.client.delete_item().table_name(&self.table).set_key(Some(key));
            return delete.send().await.map(drop).map_err(|error| StoreError::from_sdk("DeleteItem", error));
        };
        let put = self.client.put_item().table_name(&self.table).set_item(Some(key)).item(AFTER, text(after));
        put.send().await.map(drop).map_err(|error| StoreError::from_sdk("PutItem", error))
    }

    /// Writes the version record that clients of zae-limiter look for when they open the table, unless there is one;
    /// returns whether it wrote.
    ///
    /// The record has no version of zae-limiter's own functions. With a version below its own, a client would deploy the
    /// functions, or refuse to open the table. If the table is `our_own`, which such functions never read, this also
    /// removes the version that a client of an earlier moment entered.
    pub async fn enter_version(&self, our_own: bool) -> Result<bool, StoreError> {
        if let Some(record) = self.get(system::VERSION).await? {
            let version = record.get(LAMBDA_VERSION).filter(|version| our_own && version.is_s());
            return match version {
                Some(version) => self.remove_lambda_version(version.clone()).await,
                None => Ok(false),
            };
        }
        let texts = [
            (SCHEMA_VERSION, "0.10.0"),
            (CLIENT_MIN_VERSION, "0.0.0"),
            (UPDATED_BY, "tidegate"),
            (GSI4PK, NO_NAMESPACE),
            (GSI4SK, PARTITION),
        ];
        let mut item = key(system::VERSION);
        item.extend(texts.map(|(name, value)| (name.to_owned(), text(value))));
        item.insert(LAMBDA_VERSION.to_owned(), AttributeValue::Null(true));
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        let put = put.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK);
        Ok(WriteOutcome::of("PutItem", put.send().await)? == WriteOutcome::Written)
    }

    async fn remove_lambda_version(&self, seen: AttributeValue) -> Result<bool, StoreError> {
        let mut expression = Expression::default();
        expression.compare(LAMBDA_VERSION, "=", seen);
        expression.set(LAMBDA_VERSION, AttributeValue::Null(true));
        Ok(self.update(system::VERSION, expression).await? == WriteOutcome::Written)
    }

    async fn update(&self, sk: &str, expression: Expression) -> Result<WriteOutcome, StoreError> {
        let update = expression.applied_to(self.client.update_item().table_name(&self.table));
        WriteOutcome::of("UpdateItem", update.set_key(Some(key(sk))).send().await)
    }

    async fn get(&self, sk: &str) -> Result<Option<Item>, StoreError> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key(sk))).consistent_read(true);
        Ok(get.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?.item)
    }
}

/// Where an entry is: also what [`Registry::page`] takes and gives.
pub fn sort_key(bucket: &BucketKey<'_>) -> String {
    schema::tidegate_sk(&format!("{SHARDED}{}", schema::bucket_pk(&bucket.at(Shard::ZERO))))
}

fn set_check(expression: &mut Expression, check: &SpreadCheck) {
    expression.set(CHECKED, number(&check.at));
    expression.set(ZERO_WRITTEN, number(&check.zero));
    expression.set(NEWEST_WRITTEN, number(&check.newest));
}

fn key(sk: &str) -> Item {
    [(PK.to_owned(), text(PARTITION)), (SK.to_owned(), text(sk))].into()
}

fn entry(item: &Item) -> Result<Entry, StoreError> {
    let sk = item.get(SK).and_then(|sk| sk.as_s().ok()).cloned().unwrap_or_default();
    let corrupt = |attribute: &str| StoreError::Corrupt {
        item: format!("{PARTITION} {sk}"),
        attribute: attribute.to_owned(),
        value: item.get(attribute).map(|value| format!("{value:?}")).unwrap_or_default(),
    };
    let integer = |name: &str| -> Option<i64> { item.get(name)?.as_n().ok()?.parse().ok() };
    let prefix = format!("{}{SHARDED}", system::TIDEGATE);
    let bucket = sk.strip_prefix(&prefix).and_then(schema::parse_bucket_pk).and_then(Result::ok);
    let shards = integer(SHARDS).and_then(|shards| ShardCount::new(u32::try_from(shards).ok()?));
    Ok(Entry {
        bucket: bucket.ok_or_else(|| corrupt(SK))?.into_owned(),
        shards: shards.ok_or_else(|| corrupt(SHARDS))?,
        check: check(integer),
    })
}

/// The check of an entry; `None` if it has none, or not a whole one.
fn check(integer: impl Fn(&str) -> Option<i64>) -> Option<SpreadCheck> {
    Some(SpreadCheck {
        at: EpochMillis::new(integer(CHECKED)?).ok()?,
        zero: Millitokens::new(integer(ZERO_WRITTEN)?),
        newest: Millitokens::new(integer(NEWEST_WRITTEN)?),
    })
}
