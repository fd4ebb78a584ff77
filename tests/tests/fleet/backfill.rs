//! The example `backfill` of the client crate: it rewrites a table, and resumes.

use std::{collections::HashMap, ops::Range, sync::Arc};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use futures::future::try_join_all;
use job::{Job, Progress};
use tidegate::fleet::Throttle;
use tidegate_aws::client;
use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    s3::{BUCKET, EmbeddedS3},
};
use tidegate_tests::prelude::*;
use tokio::time::timeout_at;

#[path = "../../../shared/client/examples/backfill/job.rs"]
mod job;

const TABLE: &str = "orders";
const ITEMS: usize = 600;
const SEGMENTS: i32 = 2;

struct Scene {
    dynamodb: EmbeddedDynamoDb,
    s3: EmbeddedS3,
    /// A client without a throttle.
    direct: aws_sdk_dynamodb::Client,
}

impl Scene {
    /// A table whose key has a text and bytes. One item has a newer version.
    async fn new() -> anyhow::Result<Self> {
        let (dynamodb, s3) = (EmbeddedDynamoDb::start(None).await?, EmbeddedS3::start(None).await?);
        let direct = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::undisturbed()));
        let attribute =
            |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build();
        let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
        let create = direct.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
        let create = create.attribute_definitions(attribute("customer", ScalarAttributeType::S)?);
        let create = create.attribute_definitions(attribute("order", ScalarAttributeType::B)?);
        let create = create.key_schema(key("customer", KeyType::Hash)?).key_schema(key("order", KeyType::Range)?);
        create.send().await?;
        let items = (0..ITEMS).map(|number| {
            let put = direct.put_item().table_name(TABLE).set_item(Some(item(number)));
            let put = if number == 7 { put.item("schema_version", AttributeValue::N("3".to_owned())) } else { put };
            put.send()
        });
        try_join_all(items).await?;
        Ok(Self { dynamodb, s3, direct })
    }

    fn job(&self) -> anyhow::Result<Job> {
        let throttle = Throttle::fixed(100_000.0, 100_000.0)?;
        let config = sdk_config(self.dynamodb.endpoint(), FaultyHttp::undisturbed());
        Ok(Job {
            dynamodb: throttle.client(&config),
            throttle,
            s3: client::s3(&sdk_config(&self.s3.endpoint(), FaultyHttp::undisturbed()), true),
            bucket: BUCKET.to_owned(),
            prefix: "rates/".to_owned(),
            table: TABLE.to_owned(),
            segments: SEGMENTS,
        })
    }

    /// How many items have each version.
    async fn versions(&self) -> anyhow::Result<HashMap<String, usize>> {
        let mut versions = HashMap::new();
        let mut items = self.direct.scan().table_name(TABLE).into_paginator().items().send();
        while let Some(item) = items.next().await.transpose()? {
            let version = item.get("schema_version").and_then(|version| version.as_n().ok());
            *versions.entry(version.cloned().unwrap_or_default()).or_default() += 1;
        }
        Ok(versions)
    }
}

fn item(number: usize) -> HashMap<String, AttributeValue> {
    let order = AttributeValue::B(vec![u8::MAX, u8::try_from(number % 251).unwrap_or_default()].into());
    let customer = AttributeValue::S(format!("customer \"{}\"", number / 251));
    [("customer".to_owned(), customer), ("order".to_owned(), order)].into()
}

async fn run(job: &Job, segments: Range<i32>) -> anyhow::Result<(u64, u64)> {
    let progress = Progress::default();
    timeout_at(in_time(), job.run(segments, &progress)).await??;
    Ok((progress.written.into_inner(), progress.segments.into_inner()))
}

#[tokio::test]
async fn two_processes_rewrite_all_items_once() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let (one, two) = (scene.job()?, scene.job()?);
    let (one, two) = tokio::try_join!(run(&one, 0..1), run(&two, 1..2))?;
    assert_eq!((one.0 + two.0, one.1 + two.1), (599, 2));
    let expect = HashMap::from([("2".to_owned(), ITEMS - 1), ("3".to_owned(), 1)]);
    assert_eq!(scene.versions().await?, expect);
    // Everything is done: nothing is scanned any more.
    let again = scene.job()?;
    assert_eq!(run(&again, 0..2).await?, (0, 2));
    assert!(again.throttle.usage().reads.consumed < 1.0);
    Ok(())
}

#[tokio::test]
async fn a_process_that_ends_is_resumed_where_it_was() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let job = Arc::new(scene.job()?);
    let progress = Arc::new(Progress::default());
    let running = tokio::spawn({
        let (job, progress) = (Arc::clone(&job), Arc::clone(&progress));
        async move { job.run(0..2, &progress).await }
    });
    while progress.written.load(Ordering::Relaxed) < 300 {
        tokio::task::yield_now().await;
    }
    running.abort();
    let _ = running.await;
    let before = progress.written.load(Ordering::Relaxed);
    assert!(before < 599, "the first process has ended before it was stopped");

    let next = scene.job()?;
    let (written, segments) = run(&next, 0..2).await?;
    assert_eq!(segments, 2);
    // At most the writes that were under way were done without being counted.
    assert!((599 - before - 32..=599 - before).contains(&written), "{before} and {written}");
    assert_eq!(scene.versions().await?[&"2".to_owned()], ITEMS - 1);
    Ok(())
}
