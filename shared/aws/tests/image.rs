//! What a whole bucket item says, from the stream and from a read, and which items are left alone.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::{
    batch::Batch,
    error::StoreError,
    image::image_of,
    stream::{Record, StreamEvent, decode},
};
use tidegate_domain::{
    bucket::{BucketChange, ChangeKind, Limit},
    state::{
        BucketImage,
        Unfamiliar::{self, AwaitsClient, Incomplete, NoRefill, OutOfRange, Quota, Schedule, SwitchedOff},
    },
};

const STREAM: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000";
const PK: &str = "TQ5vSMvQTm4/BUCKET#user-1#bedrock/claude#3";

/// A plain bucket, as a client writes it; each test spoils or varies it.
fn item() -> Value {
    json!({
        "PK": {"S": PK}, "SK": {"S": "#STATE"}, "entity_id": {"S": "user-1"}, "resource": {"S": "bedrock/claude"},
        "rf": {"N": "1767223800123"}, "cascade": {"BOOL": false}, "shard_count": {"N": "4"},
        "ttl": {"N": "1767234435"}, "sched_tz": {"S": "UTC"}, "pgen": {"N": "1.5"},
        "b_my_rpm_tk": {"N": "-598000"}, "b_my_rpm_tc": {"N": "3500"}, "b_my_rpm_cp": {"N": "600000"},
        "b_my_rpm_ra": {"N": "300000"}, "b_my_rpm_rp": {"N": "60000"}, "b_my_rpm_soft": {"N": "soon"},
        "b_wcu_tk": {"N": "998000"}, "b_wcu_tc": {"N": "2000"}, "b_wcu_cp": {"N": "1000000"},
        "b_wcu_ra": {"N": "1000000"}, "b_wcu_rp": {"N": "1000"},
    })
}

/// The same with attributes replaced, or removed where the value is null.
fn with(attributes: &[(&str, Value)]) -> Value {
    let mut item = item();
    for (name, value) in attributes {
        match value {
            Value::Null => assert!(item.as_object_mut().unwrap().remove(*name).is_some(), "{name} is not there"),
            value => item[*name] = value.clone(),
        }
    }
    item
}

fn number(digits: &str) -> Value {
    json!({"N": digits})
}

fn created(item: &Value) -> Value {
    json!({
        "eventName": "INSERT",
        "eventSourceARN": STREAM,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_767_223_800, "Keys": {"PK": {"S": PK}, "SK": {"S": "#STATE"}},
            "NewImage": item, "SequenceNumber": "100000000000000339564",
        },
    })
}

fn sdk_item(item: &Value) -> HashMap<String, AttributeValue> {
    let value = |value: &Value| match value.as_object().unwrap().iter().next().unwrap() {
        (kind, Value::String(text)) if kind == "N" => AttributeValue::N(text.clone()),
        (_, Value::String(text)) => AttributeValue::S(text.clone()),
        (_, Value::Bool(is_set)) => AttributeValue::Bool(*is_set),
        other => panic!("{other:?}"),
    };
    item.as_object().unwrap().iter().map(|(name, it)| (name.clone(), value(it))).collect()
}

fn check_change(record: &Value, expect: impl FnOnce(BucketChange<'_, BucketImage<'_>>)) {
    match decode(&record.to_string()) {
        Ok(Record::Change(change)) => expect(change),
        other => panic!("{other:?} for {record}"),
    }
}

/// The image is the same from the stream and from a read.
fn check(item: &Value, expect: impl FnOnce(BucketImage<'_>)) {
    let read = image_of(&sdk_item(item)).unwrap();
    check_change(&created(item), |change| {
        assert_eq!(change.new, read, "{item}");
        expect(change.new);
    });
}

fn check_unfamiliar(attributes: &[(&str, Value)], expect: Unfamiliar) {
    check(&with(attributes), |image| assert_eq!(image, BucketImage::Unfamiliar(expect), "{attributes:?}"));
}

fn check_plain(attributes: &[(&str, Value)]) {
    check(&with(attributes), |image| assert!(image.plain().is_some(), "{attributes:?}: {image:?}"));
}

/// The errors name the attribute and quote the value, from the stream and from a read.
fn check_poison(attribute: &str, value: &Value, quoted: &str) {
    let item = with(&[(attribute, value.clone())]);
    let error = decode::<BucketImage<'_>>(&created(&item).to_string()).unwrap_err();
    assert_eq!(error.field(), format!("dynamodb.NewImage.{attribute}"), "{error}");
    assert!(error.to_string().contains(quoted), "{error} does not quote {quoted}");
    if value.is_object() {
        let error = image_of(&sdk_item(&item)).unwrap_err();
        let StoreError::Corrupt { item, attribute: named, value } = error else { panic!("{error:?}") };
        assert_eq!((item, named.as_str()), (format!("{PK} #STATE"), attribute));
        assert!(value.contains(quoted), "{value} does not quote {quoted}");
    }
}

#[test]
fn a_plain_bucket_is_its_state() {
    check(&item(), |image| {
        let state = image.plain().unwrap();
        assert_eq!(state.last_refill.get(), 1_767_223_800_123);
        assert_eq!(state.shards.get(), 4);
        assert_eq!(state.expires, Some(1_767_234_435));
        let limits: Vec<_> = state.limits.keys().map(Limit::as_str).collect();
        assert_eq!(limits, ["my_rpm", "wcu"]);
        let limit = &state.limits[&Limit::new("my_rpm").unwrap()];
        assert_eq!((limit.tokens.get(), limit.consumed.get()), (-598_000, 3_500));
        let terms = limit.terms;
        assert_eq!((terms.capacity.get(), terms.refill.get(), terms.period), (600_000, 300_000, 60_000));
    });
    check(&with(&[("ttl", Value::Null)]), |image| assert_eq!(image.plain().unwrap().expires, None));
    check_plain(&[("b_my_rpm_cp", number("0"))]);
    check_plain(&[("b_a#b_new", number("what a later client adds"))]);
}

#[test]
fn created_and_removed_items_lack_an_image() {
    check_change(&created(&item()), |change| {
        assert_eq!((change.kind, change.old), (ChangeKind::Created, BucketImage::Absent));
    });
    let mut removed = created(&item());
    removed["eventName"] = json!("REMOVE");
    removed["dynamodb"]["OldImage"] = removed["dynamodb"]["NewImage"].take();
    check_change(&removed, |change| {
        assert_eq!(
            (change.kind, change.old, change.new),
            (ChangeKind::Removed, BucketImage::Absent, BucketImage::Absent)
        );
    });
    let mut updated = created(&with(&[("b_my_rpm_tc", number("4500"))]));
    updated["eventName"] = json!("MODIFY");
    updated["dynamodb"]["OldImage"] = item();
    check_change(&updated, |change| {
        let consumed = |image: &BucketImage<'_>| image.plain().unwrap().limits[&Limit::new("my_rpm").unwrap()].consumed;
        assert_eq!((consumed(&change.old).get(), consumed(&change.new).get()), (3_500, 4_500));
    });
}

#[test]
fn schedules_and_quotas_are_unfamiliar() {
    for attribute in ["sched", "rsched", "b_my_rpm_sched", "b_wcu_rsched"] {
        check_unfamiliar(&[(attribute, json!({"S": "-"}))], Schedule);
    }
    for field in ["ws", "rsa", "wa", "wtc", "gc", "tu", "rn"] {
        check_unfamiliar(&[(&format!("b_my_rpm_{field}"), number("not looked at"))], Quota);
    }
    check_unfamiliar(&[("disabled", json!({"BOOL": true}))], SwitchedOff);
    check_unfamiliar(&[("disabled", json!({"S": "maintenance"}))], SwitchedOff);
    check_unfamiliar(&[("bypass", number("1767223860000"))], SwitchedOff);
    check_plain(&[("disabled", json!({"BOOL": false})), ("bypass", json!({"BOOL": false}))]);
}

#[test]
fn a_bucket_that_is_not_whole_is_unfamiliar() {
    for attribute in
        ["rf", "shard_count", "b_my_rpm_tk", "b_my_rpm_tc", "b_my_rpm_cp", "b_my_rpm_ra", "b_my_rpm_rp", "b_wcu_tk"]
    {
        check_unfamiliar(&[(attribute, Value::Null)], Incomplete);
    }
    check_unfamiliar(&[("b_tpm_tc", number("1000"))], Incomplete);
    let without_wcu = ["tk", "tc", "cp", "ra", "rp"].map(|field| format!("b_wcu_{field}"));
    check_unfamiliar(&without_wcu.each_ref().map(|name| (name.as_str(), Value::Null)), Incomplete);
}

/// Clients write the terms of a new limit before its tokens.
#[test]
fn a_limit_without_tokens_is_left_out() {
    let terms = ["cp", "ra", "rp"].map(|field| format!("b_tpm_{field}"));
    check_plain(&terms.each_ref().map(|name| (name.as_str(), number("1000"))));
    check(&with(&[("b_tpm_cp", number("1000"))]), |image| {
        let limits: Vec<_> = image.plain().unwrap().limits.keys().map(|limit| limit.as_str().to_owned()).collect();
        assert_eq!(limits, ["my_rpm", "wcu"]);
    });
}

#[test]
fn numbers_that_cannot_be_are_unfamiliar() {
    check_unfamiliar(&[("b_my_rpm_ra", number("0"))], NoRefill);
    check_unfamiliar(&[("b_my_rpm_rp", number("0"))], NoRefill);
    check_unfamiliar(&[("b_wcu_rp", number("-1"))], NoRefill);
    check_unfamiliar(&[("b_my_rpm_ra", number("-1"))], OutOfRange);
    check_unfamiliar(&[("b_my_rpm_cp", number("-1"))], OutOfRange);
    for shards in ["0", "-1", "4294967296"] {
        check_unfamiliar(&[("shard_count", number(shards))], OutOfRange);
    }
    for refilled in ["-1", "9223372036854775807"] {
        check_unfamiliar(&[("rf", number(refilled))], OutOfRange);
    }
}

#[test]
fn any_vu_awaits_a_client() {
    for valid_until in ["-1", "0", "1767223860000"] {
        check_unfamiliar(&[("vu", number(valid_until))], AwaitsClient);
    }
}

#[test]
fn stream_and_read_give_equal_sizes() {
    let size = |item: &Value| {
        let mut bytes = 0;
        check(item, |image| bytes = image.plain().unwrap().bytes);
        bytes
    };
    let bytes = size(&item());
    assert!((250..350).contains(&bytes), "{bytes}");
    for (attribute, value, added) in [
        ("note", json!({"S": "x".repeat(1_024)}), 4 + 1_024),
        ("note", number("-123456"), 4 + 4),
        ("note", json!({"BOOL": true}), 4 + 1),
    ] {
        assert_eq!(size(&with(&[(attribute, value)])), bytes + added, "{attribute}");
    }
}

#[test]
fn of_several_reasons_the_first_is_told() {
    let mut attributes = vec![("shard_count", number("0"))];
    for (attribute, value, expect) in [
        ("b_my_rpm_ra", number("0"), NoRefill),
        ("b_wcu_tk", Value::Null, Incomplete),
        ("vu", number("0"), AwaitsClient),
        ("bypass", number("1"), SwitchedOff),
        ("b_my_rpm_ws", number("1"), Quota),
        ("sched", json!({"S": "-"}), Schedule),
    ] {
        attributes.push((attribute, value));
        check_unfamiliar(&attributes, expect);
    }
}

#[test]
fn malformed_numbers_are_poison() {
    for attribute in [
        "rf",
        "shard_count",
        "ttl",
        "vu",
        "b_my_rpm_tk",
        "b_my_rpm_tc",
        "b_my_rpm_cp",
        "b_my_rpm_ra",
        "b_my_rpm_rp",
        "b_wcu_tk",
    ] {
        check_poison(attribute, &number("3500.5"), "3500.5");
        check_poison(attribute, &number("9223372036854775808"), "9223372036854775808");
        check_poison(attribute, &json!({"S": "3500"}), "3500");
        check_poison(attribute, &json!(3500), "3500");
    }
    check_poison("b_a#b_cp", &number("1"), "");
    check_poison("b__rp", &number("1"), "");
}

/// No attribute of a real client's is one on which we fail, and its next request takes a `vu` away.
#[test]
fn the_buckets_of_a_real_client_are_plain() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/zae-limiter-0.17/records.ndjson");
    let records: Vec<_> =
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = StreamEvent { records };
    let batch: Batch<'_, BucketImage<'_>> = Batch::decode(&event).unwrap();
    assert!(batch.poison.is_empty() && batch.changes.len() > 100, "{:?}", batch.poison);
    let mut awaiting = BTreeSet::new();
    for change in batch.changes {
        let image = if change.kind == ChangeKind::Removed { continue } else { change.new };
        if image == BucketImage::Unfamiliar(AwaitsClient) {
            awaiting.insert(change.bucket);
        } else {
            assert!(image.plain().is_some(), "{image:?} of {:?}", change.bucket);
            awaiting.remove(&change.bucket);
        }
    }
    assert!(awaiting.is_empty(), "{awaiting:?}");
}
