use tidegate_aws::schema;

use super::*;
use crate::services::Services;

fn name(entity: &str) -> SnapshotName {
    SnapshotName {
        entity: entity.to_owned(),
        resource: "api".to_owned(),
        window: "hourly".to_owned(),
        start: "2026-01-01T14:00:00Z".to_owned(),
    }
}

/// Two snapshots: 3 tokens in one event, and 5 and 7 tokens in two.
fn truth() -> UsageTotals {
    let mut books = UsageTotals::default();
    books.add_event(&name("alice"));
    books.add_tokens(&name("alice"), "rpm", 3);
    for (limit, tokens) in [("rpm", 5), ("tpm", 7)] {
        books.add_event(&name("bob"));
        books.add_tokens(&name("bob"), limit, tokens);
    }
    books
}

/// `expect` holds the snapshots that differ from the truth once the books are changed.
fn check(change: impl FnOnce(&mut UsageTotals), expect: &[&str]) {
    let mut books = truth();
    change(&mut books);
    let differences = books.differences(&truth());
    let named: Vec<_> = differences.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(named, expect, "{differences:?}");
    // What one side has too much, the other has too little.
    assert_eq!(truth().differences(&books).len(), expect.len());
}

#[test]
fn equal_books_do_not_differ() {
    check(|_| {}, &[]);
}

#[test]
fn one_token_is_a_difference() {
    check(|books| books.add_tokens(&name("bob"), "rpm", 1), &["bob"]);
    check(|books| books.add_tokens(&name("bob"), "rpm", -1), &["bob"]);
}

#[test]
fn a_token_of_another_limit_is_a_difference() {
    let change = |books: &mut UsageTotals| {
        books.add_tokens(&name("bob"), "rpm", -1);
        books.add_tokens(&name("bob"), "tpm", 1);
    };
    check(change, &["bob"]);
}

#[test]
fn one_event_is_a_difference() {
    check(|books| books.add_event(&name("alice")), &["alice"]);
}

#[test]
fn a_missing_snapshot_is_a_difference() {
    check(|books| drop(books.0.remove(&name("alice"))), &["alice"]);
    check(|books| books.0.clear(), &["alice", "bob"]);
}

#[test]
fn an_extra_snapshot_is_a_difference() {
    check(|books| books.add_tokens(&name("carol"), "rpm", 1), &["carol"]);
    check(|books| books.add_event(&name("carol")), &["carol"]);
}

#[test]
fn usage_of_another_hour_is_two_differences() {
    let change = |books: &mut UsageTotals| {
        let usage = books.0.remove(&name("alice")).unwrap();
        books.0.insert(SnapshotName { start: "2026-01-01T15:00:00Z".to_owned(), ..name("alice") }, usage);
    };
    check(change, &["alice", "alice"]);
}

#[test]
fn no_entry_and_zero_are_the_same() {
    check(|books| books.add_tokens(&name("alice"), "tpm", 0), &[]);
    check(|books| books.add_tokens(&name("carol"), "rpm", 0), &[]);
}

#[test]
fn a_difference_tells_both_sides() {
    let mut books = truth();
    books.add_tokens(&name("alice"), "rpm", 1);
    let differences = books.differences(&truth()).join("\n");
    for part in ["alice api hourly 2026-01-01T14:00:00Z", "holds", "\"rpm\": 4", "truth is", "\"rpm\": 3"] {
        assert!(differences.contains(part), "{differences:?} does not say {part:?}");
    }
}

type Item = Vec<(&'static str, AttributeValue)>;

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: &str) -> AttributeValue {
    AttributeValue::N(value.to_owned())
}

/// A snapshot of 3 tokens in one event, at this sort key.
fn snapshot(sk: &str) -> Item {
    vec![
        (schema::PK, text("ns/ENTITY#alice")),
        (schema::SK, text(sk)),
        ("entity_id", text("alice")),
        ("resource", text("api")),
        ("window", text("hourly")),
        ("window_start", text("2026-01-01T14:00:00Z")),
        ("rpm", number("3")),
        ("total_events", number("1")),
        ("ttl", number("1775000000")),
        ("#seq#0", text("0000000000000000000000000000000000000007")),
    ]
}

async fn read(items: impl IntoIterator<Item = Item>) -> anyhow::Result<UsageTotals> {
    let services = Services::embedded(None, "books").await?;
    for item in items {
        let item = item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        services.dynamodb.put_item().table_name(&services.table).set_item(Some(item)).send().await?;
    }
    UsageTotals::read(&services.dynamodb, &services.table).await
}

/// `expect` holds what the message must say.
async fn check_refused(items: impl IntoIterator<Item = Item>, expect: &[&str]) {
    let message = format!("{:#}", read(items).await.unwrap_err());
    for part in expect {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

const SK: &str = "#USAGE#api#2026-01-01T14:00:00Z";

#[tokio::test]
async fn snapshots_are_read_and_other_items_are_not() {
    let mut bucket = snapshot("#STATE");
    bucket.push(("b_rpm_tc", number("0.5")));
    let books = read([snapshot(SK), bucket]).await.unwrap();
    let usage = Usage { events: 1, tokens: BTreeMap::from([("rpm".to_owned(), 3)]) };
    assert_eq!(books, UsageTotals(BTreeMap::from([(name("alice"), usage)])));
}

#[tokio::test]
async fn a_fractional_counter_is_refused() {
    let mut item = snapshot(SK);
    item.push(("tpm", number("1.5")));
    check_refused([item], &["tpm", "alice", "1.5"]).await;
}

#[tokio::test]
async fn a_snapshot_of_nobody_is_refused() {
    let item = snapshot(SK).into_iter().filter(|(name, _)| *name != "entity_id").collect();
    check_refused([item], &["entity_id"]).await;
}

#[tokio::test]
async fn two_items_for_one_snapshot_are_refused() {
    check_refused([snapshot(SK), snapshot(&format!("{SK}#hourly"))], &["two items", "alice"]).await;
}
