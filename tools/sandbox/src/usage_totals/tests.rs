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
    let mut totals = UsageTotals::default();
    totals.add_event(&name("alice"));
    totals.add_tokens(&name("alice"), "rpm", 3);
    for (limit, tokens) in [("rpm", 5), ("tpm", 7)] {
        totals.add_event(&name("bob"));
        totals.add_tokens(&name("bob"), limit, tokens);
    }
    totals
}

/// After a change, exactly the snapshots of `expect` differ from the truth.
fn check(change: impl FnOnce(&mut UsageTotals), expect: &[&str]) {
    let mut totals = truth();
    change(&mut totals);
    let differences = totals.differences(&truth());
    let named: Vec<_> = differences.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(named, expect, "{differences:?}");
    // The comparison is symmetric.
    assert_eq!(truth().differences(&totals).len(), expect.len());
}

#[test]
fn every_difference_is_found() {
    let (alice, bob, carol) = (name("alice"), name("bob"), name("carol"));
    check(|_| {}, &[]);
    check(|totals| totals.add_tokens(&bob, "rpm", 1), &["bob"]);
    check(|totals| totals.add_tokens(&bob, "rpm", -1), &["bob"]);
    let moves_a_token = |totals: &mut UsageTotals| {
        totals.add_tokens(&bob, "rpm", -1);
        totals.add_tokens(&bob, "tpm", 1);
    };
    check(moves_a_token, &["bob"]);
    check(|totals| totals.add_event(&alice), &["alice"]);
    check(|totals| drop(totals.0.remove(&alice)), &["alice"]);
    check(|totals| totals.0.clear(), &["alice", "bob"]);
    check(|totals| totals.add_tokens(&carol, "rpm", 1), &["carol"]);
    check(|totals| totals.add_event(&carol), &["carol"]);
    let moves_an_hour = |totals: &mut UsageTotals| {
        let usage = totals.0.remove(&alice).unwrap();
        totals.0.insert(SnapshotName { start: "2026-01-01T15:00:00Z".to_owned(), ..alice.clone() }, usage);
    };
    check(moves_an_hour, &["alice", "alice"]);
    // No entry and zero are the same.
    check(|totals| totals.add_tokens(&alice, "tpm", 0), &[]);
    check(|totals| totals.add_tokens(&carol, "rpm", 0), &[]);
}

#[test]
fn a_difference_shows_both_sides() {
    let mut totals = truth();
    totals.add_tokens(&name("alice"), "rpm", 1);
    let differences = totals.differences(&truth()).join("\n");
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
    let services = Services::embedded(None, "usage-totals").await?;
    for item in items {
        let item = item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        services.dynamodb.put_item().table_name(&services.table).set_item(Some(item)).send().await?;
    }
    UsageTotals::read(&services.dynamodb, &services.table).await
}

/// The error message must contain the parts in `expect`.
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
    let totals = read([snapshot(SK), bucket]).await.unwrap();
    let usage = Usage { events: 1, tokens: BTreeMap::from([("rpm".to_owned(), 3)]) };
    assert_eq!(totals, UsageTotals(BTreeMap::from([(name("alice"), usage)])));
}

#[tokio::test]
async fn a_fractional_counter_is_refused() {
    let mut item = snapshot(SK);
    item.push(("tpm", number("1.5")));
    check_refused([item], &["tpm", "alice", "1.5"]).await;
}

#[tokio::test]
async fn a_snapshot_without_an_entity_is_refused() {
    let item = snapshot(SK).into_iter().filter(|(name, _)| *name != "entity_id").collect();
    check_refused([item], &["entity_id"]).await;
}

#[tokio::test]
async fn two_items_for_one_snapshot_are_refused() {
    check_refused([snapshot(SK), snapshot(&format!("{SK}#hourly"))], &["two items", "alice"]).await;
}
