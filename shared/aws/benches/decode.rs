//! What decoding costs, beside a bare scan of the same JSON: `cargo bench -p tidegate-aws`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tidegate_aws::{
    batch::Batch,
    stream::{StreamEvent, StreamImage},
};
use tidegate_domain::{bucket::Counters, state::BucketImage};

/// A batch of one hot bucket, each record as large as a real client's.
fn event(records: u32) -> String {
    let key = "TQ5vSMvQTm4/BUCKET#tenant-1#bedrock/claude#0";
    let image = |at: u32| {
        let mut image = json!({
            "PK": {"S": key}, "SK": {"S": "#STATE"}, "entity_id": {"S": "tenant-1"}, "resource": {"S": "bedrock/claude"},
            "cascade": {"BOOL": false}, "rf": {"N": "1767223800123"}, "shard_count": {"N": "1"}, "ttl": {"N": "1767828600"},
            "GSI2PK": {"S": "TQ5vSMvQTm4/RESOURCE#bedrock/claude"}, "GSI2SK": {"S": "BUCKET#tenant-1#0"},
            "GSI3PK": {"S": "TQ5vSMvQTm4/ENTITY#tenant-1"}, "GSI3SK": {"S": "BUCKET#bedrock/claude#0"},
            "GSI4PK": {"S": "TQ5vSMvQTm4"}, "GSI4SK": {"S": "BUCKET#tenant-1#bedrock/claude#0"},
        });
        for limit in ["rpm", "tpm", "wcu"] {
            for (field, value) in
                [("tk", 600_000 - at), ("cp", 600_000), ("ra", 600_000), ("rp", 60_000), ("tc", at * 1000)]
            {
                image[format!("b_{limit}_{field}")] = json!({"N": value.to_string()});
            }
        }
        image
    };
    let record = |at: u32| -> Value {
        json!({
            "eventID": format!("{at:032x}"), "eventName": "MODIFY", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_767_223_800,
                "Keys": {"PK": {"S": key}, "SK": {"S": "#STATE"}},
                "NewImage": image(at + 1), "OldImage": image(at), "SequenceNumber": format!("1{at:024}"),
                "SizeBytes": 900, "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
            "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000",
        })
    };
    json!({"Records": (0..records).map(record).collect::<Vec<_>>()}).to_string()
}

fn decode_all<'a, I: StreamImage<'a>>(event: &'a StreamEvent) -> usize {
    Batch::<'a, I>::decode(event).map_or(0, |batch| batch.changes.len())
}

fn benches(criterion: &mut Criterion) {
    let text = event(100);
    let Ok(split) = serde_json::from_str::<StreamEvent>(&text) else { panic!("the benchmark's own event is one") };
    assert_eq!(decode_all::<Counters<'_>>(&split), 100, "the benchmark's own records decode");
    let Ok(whole) = Batch::<'_, BucketImage<'_>>::decode(&split) else { panic!("the benchmark's own stream is one") };
    assert!(whole.changes.iter().all(|change| change.new.plain().is_some()), "the benchmark's own buckets are plain");
    let mut group = criterion.benchmark_group("100 records of one hot bucket");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("bare JSON scan", |bencher| {
        bencher.iter(|| serde_json::from_str::<IgnoredAny>(black_box(&text)).is_ok());
    });
    group.bench_function("split into records", |bencher| {
        bencher.iter(|| serde_json::from_str::<StreamEvent>(black_box(&text)).is_ok());
    });
    group.bench_function("decode the counters", |bencher| {
        bencher.iter(|| decode_all::<Counters<'_>>(black_box(&split)));
    });
    group.bench_function("decode the buckets", |bencher| {
        bencher.iter(|| decode_all::<BucketImage<'_>>(black_box(&split)));
    });
    group.bench_function("parse to Value", |bencher| {
        bencher.iter(|| serde_json::from_str::<Value>(black_box(&text)).is_ok());
    });
    group.finish();
}

criterion_group!(decode_benches, benches);
criterion_main!(decode_benches);
