//! Each operation pays what the table says it has consumed.

use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ConditionCheck, ConsumedCapacity, Delete, DeleteRequest, Get,
    KeysAndAttributes, ParameterizedStatement, Put, PutRequest, ReturnConsumedCapacity, TransactGetItem,
    TransactWriteItem, Update, WriteRequest,
};
use tidegate_sandbox::item::Item;
use tidegate_tests::throttle::prelude::*;

/// A scene with a wide limit, with what the throttle has counted before.
struct Ledger {
    scene: ThrottleScene,
    before: Account,
}

impl Ledger {
    async fn new() -> anyhow::Result<Self> {
        let mut scene = ThrottleScene::new(1e6, 1e6).await?;
        // Without the gateway, which asks for the consumed capacity by itself.
        scene.client = scene.throttle.client(&sdk_config(&scene.services.endpoint, scene.http.clone()));
        for number in 0..10 {
            scene.put(&format!("item-{number}"), 3_000).send().await?;
        }
        let before = scene.usage();
        Ok(Self { scene, before })
    }

    fn table(&self) -> &str {
        &self.scene.services.table
    }

    /// Returns what was read and written since the last time.
    fn counted(&mut self) -> (f64, f64) {
        let before = std::mem::replace(&mut self.before, self.scene.usage());
        (self.before.read - before.read, self.before.written - before.written)
    }

    /// A call has consumed reads.
    #[track_caller]
    fn check_read<'a>(&mut self, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>, expect: f64) {
        assert_eq!(total(consumed), expect);
        assert_eq!(self.counted(), (expect, 0.0));
    }

    /// A call has consumed writes.
    #[track_caller]
    fn check_written<'a>(&mut self, consumed: impl IntoIterator<Item = &'a ConsumedCapacity>, expect: f64) {
        assert_eq!(total(consumed), expect);
        assert_eq!(self.counted(), (0.0, expect));
    }
}

fn total<'a>(consumed: impl IntoIterator<Item = &'a ConsumedCapacity>) -> f64 {
    consumed.into_iter().filter_map(ConsumedCapacity::capacity_units).sum()
}

fn key(key: &str) -> Item {
    item(key, 0)
}

fn keys(keys: &[&str]) -> KeysAndAttributes {
    let keys = keys.iter().map(|key| item(key, 0)).collect();
    KeysAndAttributes::builder().set_keys(Some(keys)).build().expect("keys")
}

fn parameters(key: &str) -> Vec<AttributeValue> {
    vec![text(key), text(key)]
}

#[tokio::test]
async fn single_items() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let got = ledger.scene.get("item-1").send().await?;
    ledger.check_read(&got.consumed_capacity, 0.5);
    let got = ledger.scene.get("item-1").consistent_read(true).send().await?;
    ledger.check_read(&got.consumed_capacity, 1.0);
    let put = ledger.scene.put("item-1", 5_000).send().await?;
    ledger.check_written(&put.consumed_capacity, 5.0);
    let update = ledger.scene.client.update_item().table_name(ledger.table()).set_key(Some(key("item-1")));
    let update = update.update_expression("SET a = :a").expression_attribute_values(":a", text("b")).send().await?;
    ledger.check_written(&update.consumed_capacity, 5.0);
    let delete =
        ledger.scene.client.delete_item().table_name(ledger.table()).set_key(Some(key("item-1"))).send().await?;
    ledger.check_written(&delete.consumed_capacity, 5.0);
    Ok(())
}

#[tokio::test]
async fn batches() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let batch = ledger.scene.client.batch_get_item().request_items(ledger.table(), keys(&["item-1", "item-2"]));
    let batch = batch.send().await?;
    ledger.check_read(batch.consumed_capacity(), 1.0);
    let put = PutRequest::builder().set_item(Some(item("item-1", 1_500))).build()?;
    let delete = DeleteRequest::builder().set_key(Some(key("item-2"))).build()?;
    let requests =
        vec![WriteRequest::builder().put_request(put).build(), WriteRequest::builder().delete_request(delete).build()];
    let batch = ledger.scene.client.batch_write_item().request_items(ledger.table(), requests).send().await?;
    ledger.check_written(batch.consumed_capacity(), 6.0);
    Ok(())
}

#[tokio::test]
async fn transactions() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let table = ledger.table().to_owned();
    let get = |name| Get::builder().table_name(&table).set_key(Some(key(name))).build();
    let read = ledger.scene.client.transact_get_items();
    let read = read.transact_items(TransactGetItem::builder().get(get("item-1")?).build());
    let read = read.transact_items(TransactGetItem::builder().get(get("item-2")?).build()).send().await?;
    ledger.check_read(read.consumed_capacity(), 4.0);

    let exists = "attribute_exists(PK)";
    let put = Put::builder().table_name(&table).set_item(Some(item("item-1", 10))).build()?;
    let check = ConditionCheck::builder().table_name(&table).set_key(Some(key("item-2"))).condition_expression(exists);
    let failing = check.clone().set_key(Some(key("missing"))).build()?;
    let update = Update::builder().table_name(&table).set_key(Some(key("item-8"))).update_expression("SET a = :a");
    let update = update.expression_attribute_values(":a", text("b")).build()?;
    let delete = Delete::builder().table_name(&table).set_key(Some(key("item-9"))).build()?;
    let items = [
        TransactWriteItem::builder().put(put).build(),
        TransactWriteItem::builder().condition_check(check.build()?).build(),
        TransactWriteItem::builder().update(update).build(),
        TransactWriteItem::builder().delete(delete).build(),
    ];
    let write = ledger.scene.client.transact_write_items().set_transact_items(Some(items.into()));
    let first = write.clone().client_request_token("token").send().await?;
    let written = total(first.consumed_capacity());
    assert!(written >= 8.0, "{written}");
    ledger.check_written(first.consumed_capacity(), written);

    // The same transaction again is not done again. It consumes reads.
    let again = write.clone().client_request_token("token").send().await?;
    let units = total(again.consumed_capacity());
    assert!(again.consumed_capacity().iter().all(|table| table.write_capacity_units.is_none()), "{again:?}");
    ledger.check_read(again.consumed_capacity(), units);

    // So it says nothing about what the next one writes. One that fails is charged the average.
    let before = ledger.scene.usage().written;
    write
        .transact_items(TransactWriteItem::builder().condition_check(failing).build())
        .send()
        .await
        .expect_err("no such item");
    assert_eq!(ledger.scene.usage().written - before, written / 4.0 * 5.0);
    Ok(())
}

#[tokio::test]
async fn pages() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let scan = ledger.scene.client.scan().table_name(ledger.table()).limit(3);
    let mut pages = scan.into_paginator().send();
    let mut count = 0;
    while let Some(page) = pages.next().await {
        let page = page?;
        count += page.count();
        // Three items of 3 KB.
        let expect = if page.count() == 3 { 1.5 } else { 0.5 };
        ledger.check_read(&page.consumed_capacity, expect);
    }
    assert_eq!(count, 10);
    let query = ledger.scene.client.query().table_name(ledger.table()).key_condition_expression("PK = :pk");
    let query = query.expression_attribute_values(":pk", text("item-1")).consistent_read(true);
    let mut pages = query.into_paginator().send();
    while let Some(page) = pages.next().await {
        ledger.check_read(&page?.consumed_capacity, 1.0);
    }
    Ok(())
}

#[tokio::test]
async fn statements() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let client = ledger.scene.client.clone();
    let table = ledger.table().to_owned();
    let select = format!("SELECT * FROM \"{table}\" WHERE PK = ? AND SK = ?");
    let read = client.execute_statement().statement(&select).set_parameters(Some(parameters("item-1")));
    ledger.check_read(&read.clone().send().await?.consumed_capacity, 0.5);
    ledger.check_read(&read.consistent_read(true).send().await?.consumed_capacity, 1.0);
    let insert = format!("  insert INTO \"{table}\" VALUE {{'PK': ?, 'SK': ?}}");
    let insert = client.execute_statement().statement(insert).set_parameters(Some(parameters("new")));
    ledger.check_written(&insert.send().await?.consumed_capacity, 1.0);
    let update = format!("UPDATE \"{table}\" SET a = 'b' WHERE PK = ? AND SK = ?");
    let write = client.execute_statement().statement(&update).set_parameters(Some(parameters("new")));
    ledger.check_written(&write.send().await?.consumed_capacity, 1.0);

    let batched = |statement: &str, key| {
        BatchStatementRequest::builder().statement(statement).set_parameters(Some(parameters(key))).build()
    };
    let batch = client.batch_execute_statement();
    let batch = batch.statements(batched(&select, "item-1")?).statements(batched(&select, "item-2")?).send().await?;
    ledger.check_read(batch.consumed_capacity(), 1.0);
    let batch = client.batch_execute_statement().statements(batched(&update, "new")?).send().await?;
    ledger.check_written(batch.consumed_capacity(), 1.0);

    let statement = |statement: &str, key| {
        ParameterizedStatement::builder().statement(statement).set_parameters(Some(parameters(key))).build()
    };
    let read = client.execute_transaction().transact_statements(statement(&select, "item-1")?).send().await?;
    ledger.check_read(read.consumed_capacity(), 2.0);
    let delete = format!("DELETE FROM \"{table}\" WHERE PK = ? AND SK = ?");
    let write = client.execute_transaction().transact_statements(statement(&delete, "new")?).send().await?;
    ledger.check_written(write.consumed_capacity(), 2.0);
    Ok(())
}

#[tokio::test]
async fn other_operations_are_free() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(0.0, 0.0).await?;
    scene.client.list_tables().send().await?;
    scene.client.describe_table().table_name(&scene.services.table).send().await?;
    assert_eq!(scene.usage(), Account { read: 0.0, written: 0.0, waiting: 0, delayed: 0 });
    Ok(())
}

#[tokio::test]
async fn details_that_were_asked_for_stay() -> anyhow::Result<()> {
    let mut ledger = Ledger::new().await?;
    let detailed = ledger.scene.put("item-1", 0).return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    let consumed = detailed.send().await?.consumed_capacity.context("no capacity")?;
    assert!(consumed.table().is_some(), "{consumed:?}");
    ledger.check_written([&consumed], 3.0);
    // Without the consumed capacity, the throttle is blind.
    let silent = ledger.scene.put("item-1", 0).return_consumed_capacity(ReturnConsumedCapacity::None).send().await?;
    assert!(silent.consumed_capacity().is_some_and(|consumed| consumed.table().is_none()), "{silent:?}");
    ledger.check_written(&silent.consumed_capacity, 1.0);
    Ok(())
}
