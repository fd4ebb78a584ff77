//! The texts of keys and attributes, as the table's clients write and read them.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use proptest::prelude::*;
use tidegate_aws::schema::{self, InvalidBucketKey, bucket};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard},
    sequence::{Position, SequenceNumber, StreamLabel},
    time::EpochMillis,
    usage::SnapshotKey,
    window::Window,
};

/// 2026-01-01T14:30:00Z
const HALF_PAST_TWO: i64 = 1_767_277_800_000;

fn key<'a>(namespace: &'a str, entity: &'a str, resource: &'a str, shard: u32) -> BucketKey<'a> {
    BucketKey {
        namespace: Namespace::new(namespace).unwrap(),
        entity: Entity::new(entity).unwrap(),
        resource: Resource::new(resource).unwrap(),
        shard: Shard::new(shard),
    }
}

fn check_bucket_is_found_again(key: &BucketKey<'_>) {
    let pk = schema::bucket_pk(key);
    assert_eq!(schema::parse_bucket_pk(&pk).unwrap().as_ref(), Ok(key), "{pk}");
}

fn check_field_is_found_again(limit: &str, field: &str) {
    let attribute = bucket::attribute(limit, field);
    assert_eq!(bucket::limit_and_field(&attribute), Some((limit, field)), "{attribute}");
}

proptest! {
    #[test]
    fn a_bucket_is_found_again_in_its_key(
        namespace in "[A-Za-z0-9_-]{11}",
        entity in "[A-Za-z0-9_.:@-]{1,40}",
        resource in "[A-Za-z][A-Za-z0-9_.:/-]{0,40}",
        shard: u32,
    ) {
        check_bucket_is_found_again(&key(&namespace, &entity, &resource, shard));
    }

    #[test]
    fn a_limit_and_its_field_are_found_again(limit in "[A-Za-z][A-Za-z0-9_.-]{0,20}", field in "[a-z]{2,6}") {
        check_field_is_found_again(&limit, &field);
    }
}

#[test]
fn a_bucket_is_written_under_these_keys() {
    let key = key("TQ5vSMvQTm4", "user:1@example.com", "bedrock/claude", 3);
    let check = |text: String, expect: &str| assert_eq!(text, expect);
    check(schema::bucket_pk(&key), "TQ5vSMvQTm4/BUCKET#user:1@example.com#bedrock/claude#3");
    check(schema::resource_pk(&key.namespace, &key.resource), "TQ5vSMvQTm4/RESOURCE#bedrock/claude");
    check(schema::bucket_gsi2_sk(&key), "BUCKET#user:1@example.com#3");
    check(schema::entity_pk(&key.namespace, &key.entity), "TQ5vSMvQTm4/ENTITY#user:1@example.com");
    check(schema::bucket_gsi3_sk(&key), "BUCKET#bedrock/claude#3");
    check(schema::bucket_gsi4_sk(&key), "BUCKET#user:1@example.com#bedrock/claude#3");
}

#[test]
fn other_keys_are_no_buckets() {
    let check = |pk| assert_eq!(schema::parse_bucket_pk(pk), None, "{pk}");
    check("");
    check("TQ5vSMvQTm4");
    check("TQ5vSMvQTm4/ENTITY#user-1");
    check("BUCKET#user-1#api#0");
    check("TQ5vSMvQTm4/x/BUCKET#user-1#api#0");
}

#[test]
fn a_malformed_bucket_key_is_an_error() {
    let check = |pk: &str, expect: fn(&InvalidBucketKey) -> bool| {
        let error = schema::parse_bucket_pk(pk).unwrap().unwrap_err();
        assert!(expect(&error), "{pk}: {error:?}");
    };
    check("ns/BUCKET#user-1", |error| *error == InvalidBucketKey::Shape);
    check("ns/BUCKET#user-1#0", |error| *error == InvalidBucketKey::Shape);
    check("ns/BUCKET#user-1#api#", |error| *error == InvalidBucketKey::Shard(String::new()));
    check("ns/BUCKET#user-1#api#-1", |error| *error == InvalidBucketKey::Shard("-1".to_owned()));
    check("ns/BUCKET#user-1#api#4294967296", |error| *error == InvalidBucketKey::Shard("4294967296".to_owned()));
    check("/BUCKET#user-1#api#0", |error| matches!(error, InvalidBucketKey::Name(_)));
    check("ns/BUCKET##api#0", |error| matches!(error, InvalidBucketKey::Name(_)));
    check("ns/BUCKET#user-1##0", |error| matches!(error, InvalidBucketKey::Name(_)));
    check("ns/BUCKET#user-1#a#b#0", |error| matches!(error, InvalidBucketKey::Name(_)));
}

#[test]
fn each_window_has_its_own_snapshot() {
    let check = |window: Window, expect_sk: &str, expect_gsi2_sk: &str| {
        let snapshot = SnapshotKey {
            namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
            entity: Entity::new("user-1").unwrap(),
            resource: Resource::new("bedrock/claude").unwrap(),
            period: window.containing(EpochMillis::new(HALF_PAST_TWO).unwrap()),
        };
        assert_eq!(schema::snapshot_sk(&snapshot), expect_sk);
        assert_eq!(schema::snapshot_gsi2_sk(&snapshot), expect_gsi2_sk);
    };
    check(Window::Hourly, "#USAGE#bedrock/claude#2026-01-01T14:00:00Z", "USAGE#2026-01-01T14:00:00Z#user-1");
    check(Window::Daily, "#USAGE#bedrock/claude#2026-01-01T00:00:00Z#daily", "USAGE#2026-01-01T00:00:00Z#user-1");
    check(Window::Monthly, "#USAGE#bedrock/claude#2026-01-01T00:00:00Z#monthly", "USAGE#2026-01-01T00:00:00Z#user-1");
}

#[test]
fn counters_have_names_of_their_own() {
    let check = |limit: &'static str, expect: &str| {
        assert_eq!(schema::snapshot_counter(&Limit::new(limit).unwrap()), expect);
    };
    check("rpm", "rpm");
    check("my_own_limit", "my_own_limit");
    check("TTL", "TTL");
    check("ttl", "ttl#");
    check("PK", "PK#");
    check("SK", "SK#");
    check("entity_id", "entity_id#");
    check("resource", "resource#");
    check("window", "window#");
    check("window_start", "window_start#");
    check("total_events", "total_events#");
    for index in 1..=4 {
        for key in ["PK", "SK"] {
            let name = format!("GSI{index}{key}");
            assert_eq!(schema::snapshot_counter(&Limit::new(name.as_str()).unwrap()), format!("{name}#"));
        }
    }
    check("LSI1SK", "LSI1SK#");
    check("LSI5SK", "LSI5SK#");
}

#[test]
fn an_attribute_is_split_at_its_last_underscore() {
    let check = |attribute, expect| assert_eq!(bucket::limit_and_field(attribute), expect, "{attribute}");
    check("b_rpm_tk", Some(("rpm", bucket::TOKENS)));
    check("b_my_own_limit_tc", Some(("my_own_limit", bucket::CONSUMED)));
    check("b_a_tk_tk", Some(("a_tk", bucket::TOKENS)));
    check("b_b_rsched", Some(("b", bucket::RESET_SCHEDULE)));
    check("b_rpm", None);
    check("rpm_tk", None);
    check("shard_count", None);
    check("l_rpm_cp", None);
}

#[test]
fn the_other_items_are_under_these_keys() {
    let check = |text: String, expect: &str| assert_eq!(text, expect);
    check(schema::entity_config_sk(&Resource::new("api").unwrap()), "#CONFIG#api");
    check(schema::tidegate_sk("keeper"), "#TIDEGATE#keeper");
    let (bucket, record) = (key("TQ5vSMvQTm4", "user-1", "api", 3), "100000000000000000001");
    let hour = Window::Hourly.containing(EpochMillis::new(HALF_PAST_TWO).unwrap());
    let stream = StreamLabel::parse("2026-01-01T00:00:00.000").unwrap();
    let position = Position { stream, sequence: SequenceNumber::parse(record).unwrap() };
    check(schema::redriven_pk(&bucket), "_/SYSTEM#REDRIVEN#TQ5vSMvQTm4/BUCKET#user-1#api#3");
    check(
        schema::redriven_sk(hour, &position),
        &format!("#TIDEGATE#REDRIVEN#hourly#2026-01-01T14:00:00Z#2026-01-01T00:00:00.000#0000000000000000000{record}"),
    );
    assert_eq!(schema::parse_bucket_pk(&schema::redriven_pk(&bucket)), None, "it is no bucket");
}

#[test]
fn token_tables_have_their_clients_names() {
    let check = |base, suffix, expect| assert_eq!(schema::tokens::name(base, suffix), expect);
    check("prod", schema::tokens::NON_FUNGIBLE, "prod-non-fungible-tokens");
    check("prod-", schema::tokens::NON_FUNGIBLE, "prod-non-fungible-tokens");
    check("prod", schema::tokens::RESOURCE_INDEX, "prod-resource-index");
    check("prod--", schema::tokens::LIMITS, "prod--limits");
}
