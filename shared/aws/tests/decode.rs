//! What each kind of stream record says, and what is wrong with each kind of malformed one.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use serde_json::{Value, json};
use tidegate_aws::{
    batch::Batch,
    error::causes,
    stream::{Record, StreamEvent, decode, sequence_number},
};
use tidegate_domain::bucket::{BucketChange, ChangeKind, Counters, Limit};

const SEQUENCE: &str = "100000000000000339564";

/// A change of a bucket that is in order; each test spoils or varies it.
fn modify() -> Value {
    let image = |rpm: &str, wcu: &str| {
        json!({
            "PK": {"S": "TQ5vSMvQTm4/BUCKET#user-1#bedrock/claude#3"}, "SK": {"S": "#STATE"},
            "rf": {"N": "1767223800123"}, "cascade": {"BOOL": false}, "shard_count": {"N": "4"},
            "b_rpm_tk": {"N": "598000"}, "b_rpm_cp": {"N": "600000"}, "b_rpm_tc": {"N": rpm},
            "b_wcu_tk": {"N": "998000"}, "b_wcu_tc": {"N": wcu}, "b_my_own_limit_tc": {"N": "-1500"},
        })
    };
    json!({
        "eventID": "b1", "eventName": "MODIFY", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1", "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_767_223_800,
            "Keys": {"PK": {"S": "TQ5vSMvQTm4/BUCKET#user-1#bedrock/claude#3"}, "SK": {"S": "#STATE"}},
            "NewImage": image("3500", "2000"), "OldImage": image("2500", "1000"),
            "SequenceNumber": SEQUENCE, "SizeBytes": 900, "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    })
}

/// The same with the value at `pointer` replaced, or removed.
fn with(pointer: &str, value: Option<Value>) -> Value {
    let mut record = modify();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = record.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => drop(parent.insert(name.to_owned(), value)),
        None => assert!(parent.remove(name).is_some(), "{pointer} is not there"),
    }
    record
}

fn check_change(record: &Value, expect: impl FnOnce(BucketChange<'_>)) {
    match decode::<Counters<'_>>(&record.to_string()) {
        Ok(Record::Change(change)) => expect(change),
        other => panic!("{other:?} for {record}"),
    }
}

fn check_not_ours(record: &Value) {
    assert_eq!(decode::<Counters<'_>>(&record.to_string()).unwrap(), Record::NotOurs, "{record}");
}

/// The error names the field and quotes the value.
fn check_error(record: &Value, field: &str, value: &str) {
    let error = decode::<Counters<'_>>(&record.to_string()).unwrap_err();
    assert_eq!(error.field(), field, "{error}");
    assert!(
        error.to_string().starts_with(field) && error.to_string().contains(value),
        "{error} does not quote {value}"
    );
}

fn consumed(change: &BucketChange<'_>, limit: &str) -> (Option<i64>, Option<i64>) {
    let limit = Limit::new(limit.to_owned()).unwrap();
    let of = |counters: &Counters<'_>| counters.get(&limit).map(|counter| counter.consumed.get());
    (of(&change.old), of(&change.new))
}

#[test]
fn an_update_has_both_sides() {
    check_change(&modify(), |change| {
        assert_eq!(change.bucket.namespace.as_str(), "TQ5vSMvQTm4");
        assert_eq!(change.bucket.entity.as_str(), "user-1");
        assert_eq!(change.bucket.resource.as_str(), "bedrock/claude");
        assert_eq!(change.bucket.shard.get(), 3);
        assert_eq!(change.kind, ChangeKind::Updated);
        assert_eq!((change.stream.as_str(), change.sequence.as_str()), ("2026-01-01T00:00:00.000", SEQUENCE));
        assert_eq!(change.created.get(), 1_767_223_800_000);
        assert_eq!(consumed(&change, "rpm"), (Some(2500), Some(3500)));
        assert_eq!(consumed(&change, "my_own_limit"), (Some(-1500), Some(-1500)));
        assert_eq!(consumed(&change, "tpm"), (None, None));
    });
}

#[test]
fn merged_acquires_are_read() {
    for (value, expect) in [(json!({"N": "7"}), 7), (json!({"N": "-7"}), 0), (json!({"S": "seven"}), 0)] {
        check_change(&with("/dynamodb/NewImage/#n", Some(value.clone())), |change| {
            assert_eq!((change.old.merged_acquires(), change.new.merged_acquires()), (0, expect), "{value}");
            assert_eq!(consumed(&change, "rpm"), (Some(2500), Some(3500)));
        });
    }
}

#[test]
fn creations_and_removals_have_one_side() {
    let mut insert = with("/eventName", Some(json!("INSERT")));
    insert["dynamodb"].as_object_mut().unwrap().remove("OldImage");
    check_change(&insert, |change| {
        assert_eq!(change.kind, ChangeKind::Created);
        assert_eq!(consumed(&change, "rpm"), (None, Some(3500)));
    });
    let mut remove = with("/eventName", Some(json!("REMOVE")));
    remove["dynamodb"].as_object_mut().unwrap().remove("NewImage");
    check_change(&remove, |change| {
        assert_eq!(change.kind, ChangeKind::Removed);
        assert_eq!(consumed(&change, "rpm"), (None, None));
    });
}

#[test]
fn creation_times_come_in_several_spellings() {
    for (seconds, millis) in [
        ("1767223800", 1_767_223_800_000),
        ("1767223800.0", 1_767_223_800_000),
        ("1.7672238E9", 1_767_223_800_000),
        ("1767223800.25", 1_767_223_800_250),
        ("0", 0),
    ] {
        let record = with("/dynamodb/ApproximateCreationDateTime", Some(serde_json::from_str(seconds).unwrap()));
        check_change(&record, |change| assert_eq!(change.created.get(), millis, "{seconds}"));
    }
}

#[test]
fn escaped_names_are_the_names() {
    let text = modify().to_string().replace("BUCKET#user-1#bedrock/claude#3", r"BUCKET#\u0075ser-1#bedrock\/claude#3");
    let text = text.replace("b_rpm_tc", r"b_r\u0070m_tc");
    let Ok(Record::Change(change)) = decode::<Counters<'_>>(&text) else { panic!("{text}") };
    assert_eq!((change.bucket.entity.as_str(), change.bucket.resource.as_str()), ("user-1", "bedrock/claude"));
    assert_eq!(consumed(&change, "rpm"), (Some(2500), Some(3500)));
}

#[test]
fn soft_limits_in_debt_are_overdrawn() {
    let overdrawn = |record: &Value| {
        let mut overdrawn = None;
        check_change(record, |change| {
            overdrawn = change.new.get(&Limit::new("rpm").unwrap()).map(|counter| counter.overdrawn);
        });
        overdrawn.unwrap()
    };
    let debt = with("/dynamodb/NewImage/b_rpm_tk", Some(json!({"N": "-1"})));
    assert!(!overdrawn(&debt), "a limit that is not soft");
    let mut soft = debt;
    soft["dynamodb"]["NewImage"]["b_rpm_soft"] = json!({"BOOL": true});
    assert!(overdrawn(&soft));
    soft["dynamodb"]["NewImage"]["b_rpm_tk"] = json!({"N": "0"});
    assert!(!overdrawn(&soft), "a soft limit with tokens left");
}

#[test]
fn other_items_are_not_ours() {
    check_not_ours(&with("/dynamodb/Keys/SK", Some(json!({"S": "#USAGE#api#2026-01-01T00:00:00Z"}))));
    check_not_ours(&with("/dynamodb/Keys/PK", Some(json!({"S": "TQ5vSMvQTm4/ENTITY#user-1"}))));
    check_not_ours(&with("/dynamodb/Keys/PK", Some(json!({"S": "BUCKET"}))));
    // Whatever else is wrong with them.
    let mut other = with("/dynamodb/Keys/SK", Some(json!({"S": "#CONFIG"})));
    other["dynamodb"].as_object_mut().unwrap().remove("ApproximateCreationDateTime");
    check_not_ours(&other);
    let mut other = with("/dynamodb/Keys/SK", Some(json!({"S": "#CONFIG"})));
    other["dynamodb"]["NewImage"] = json!({"b_rpm_tc": "not a bucket's counter"});
    check_not_ours(&other);
}

#[test]
fn malformed_records_say_which_field_and_value() {
    let missing = "is missing";
    check_error(&with("/dynamodb", None), "dynamodb", missing);
    check_error(&with("/dynamodb/Keys", None), "dynamodb.Keys", missing);
    check_error(&with("/eventName", None), "eventName", missing);
    check_error(&with("/eventName", Some(json!("UPSERT"))), "eventName", "\"UPSERT\"");
    check_error(&with("/eventSourceARN", None), "eventSourceARN", missing);
    for arn in ["arn:aws:dynamodb:us-east-1:123456789012:table/limits", "table/limits/stream/2026-01-01T00:00:00Z"] {
        check_error(&with("/eventSourceARN", Some(json!(arn))), "eventSourceARN", &format!("{arn:?}"));
    }
    check_error(&with("/dynamodb/SequenceNumber", None), "dynamodb.SequenceNumber", missing);
    check_error(&with("/dynamodb/SequenceNumber", Some(json!("12x"))), "dynamodb.SequenceNumber", "\"12x\"");
    check_error(&with("/dynamodb/NewImage", None), "dynamodb.NewImage", missing);
    check_error(&with("/dynamodb/OldImage", None), "dynamodb.OldImage", missing);
    check_error(&with("/dynamodb/NewImage", Some(json!("gone"))), "dynamodb.NewImage", "\"gone\"");
    check_error(&with("/dynamodb/Keys/PK", Some(json!({"N": "1"}))), "dynamodb.Keys.PK", "missing field `S`");
    for pk in [
        "ns/BUCKET#user-1",
        "ns/BUCKET#user-1#api",
        "ns/BUCKET#user-1#api#x",
        "ns/BUCKET#user-1#api#01",
        "ns/BUCKET##api#0",
        "ns/BUCKET#u#a#b#0",
    ] {
        check_error(&with("/dynamodb/Keys/PK", Some(json!({"S": pk}))), "dynamodb.Keys.PK", pk);
    }
}

#[test]
fn a_missing_time_is_malformed() {
    let field = "dynamodb.ApproximateCreationDateTime";
    let pointer = "/dynamodb/ApproximateCreationDateTime";
    check_error(&with(pointer, None), field, "is missing");
    check_error(&with(pointer, Some(Value::Null)), field, "is missing");
    for time in [json!("yesterday"), json!(-1), json!(1e300), json!(4e11), json!({})] {
        check_error(&with(pointer, Some(time.clone())), field, &time.to_string().replace('"', "\\\""));
    }
}

#[test]
fn counters_are_integers() {
    let field = "dynamodb.NewImage.b_rpm_tc";
    for (value, quoted) in [
        (json!({"N": "3500.5"}), "3500.5"),
        (json!({"N": "9223372036854775808"}), "9223372036854775808"),
        (json!({"N": ""}), "N"),
        (json!({"S": "3500"}), "3500"),
        (json!(3500), "3500"),
    ] {
        check_error(&with("/dynamodb/NewImage/b_rpm_tc", Some(value)), field, quoted);
    }
    check_error(
        &with("/dynamodb/OldImage/b_rpm_tc", Some(json!({"NULL": true}))),
        "dynamodb.OldImage.b_rpm_tc",
        "NULL",
    );
    check_error(&with("/dynamodb/NewImage/b_a#b_tc", Some(json!({"N": "1"}))), "dynamodb.NewImage.b_a#b_tc", "a#b");
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let long = "9".repeat(100_000);
    for record in [
        with("/dynamodb/NewImage/b_rpm_tc", Some(json!({"S": long}))),
        with("/dynamodb/NewImage/b_rpm_tc", Some(json!(long))),
        with("/dynamodb/SequenceNumber", Some(json!(long))),
        with("/dynamodb/Keys/PK", Some(json!({"S": format!("ns/BUCKET#user-1#api#{long}")}))),
        with("/eventName", Some(json!(long))),
    ] {
        let message = decode::<Counters<'_>>(&record.to_string()).unwrap_err().to_string();
        assert!(message.len() < 600 && message.contains("..."), "{message}");
    }
}

#[test]
fn a_sequence_number_is_found_in_poison() {
    let found = |record: &Value| sequence_number(&record.to_string()).map(|sequence| sequence.to_string());
    assert_eq!(found(&with("/dynamodb/NewImage", Some(json!(7)))).as_deref(), Some(SEQUENCE));
    assert_eq!(found(&json!({"dynamodb": {"SequenceNumber": SEQUENCE}})).as_deref(), Some(SEQUENCE));
    for none in [json!(null), json!({}), json!({"dynamodb": {"SequenceNumber": ""}}), json!({"dynamodb": 3})] {
        assert_eq!(found(&none), None);
    }
}

#[test]
fn a_stream_without_both_images_fails_the_batch() {
    for view in ["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE"] {
        let wrong = with("/dynamodb/StreamViewType", Some(json!(view)));
        check_error(&wrong, "dynamodb.StreamViewType", &format!("{view:?}"));
        let event: StreamEvent = serde_json::from_value(json!({"Records": ["poison", wrong]})).unwrap();
        let error = causes(&Batch::<'_, Counters<'_>>::decode(&event).unwrap_err());
        assert!(
            error.contains("misconfigured") && error.contains(view) && error.contains("NEW_AND_OLD_IMAGES"),
            "{error}"
        );
    }
    // Older events and tools do not name it.
    check_change(&with("/dynamodb/StreamViewType", None), |_| ());
}

#[test]
fn an_event_is_split_without_decoding() {
    let event: StreamEvent =
        serde_json::from_value(json!({"Records": [modify(), "poison", null, {"dynamodb": []}]})).unwrap();
    assert_eq!(event.records.len(), 4);
    assert_eq!(event.records[1].get(), "\"poison\"");
    assert!(serde_json::from_str::<StreamEvent>("{}").unwrap_err().to_string().contains("Records"));
}
