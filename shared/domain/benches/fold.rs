//! What folding costs: `cargo bench -p tidegate-domain`. Divide by the records for the cost of one.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, Entity, Limit, Namespace, Resource, Shard},
    sequence::{SequenceNumber, StreamLabel},
    time::EpochMillis,
    tokens::Millitokens,
    usage,
    window::Window,
};

/// `records` changes in turn of so many entities' buckets, each with two limits and the write units.
fn changes(records: u32, entities: u32) -> Result<Vec<BucketChange<'static>>, Box<dyn std::error::Error>> {
    let counters = |consumed: u32| -> Result<Counters<'static>, Box<dyn std::error::Error>> {
        let counter = Counter { consumed: Millitokens::new(i64::from(consumed) * 1000), overdrawn: false };
        let limit = |name: &'static str| Limit::new(name).map(|limit| (limit, counter));
        Ok([limit("rpm")?, limit("tpm")?, limit("wcu")?].into_iter().collect())
    };
    (0..records)
        .map(|record| {
            Ok(BucketChange {
                bucket: BucketKey {
                    namespace: Namespace::new("TQ5vSMvQTm4")?,
                    entity: Entity::new(format!("tenant-{}", record % entities))?,
                    resource: Resource::new("bedrock/claude")?,
                    shard: Shard::new(record % 4),
                },
                stream: StreamLabel::parse("2026-01-01T00:00:00.000")?,
                sequence: SequenceNumber::parse(&format!("1{record:024}"))?,
                created: EpochMillis::new(1_767_223_800_000)?,
                kind: ChangeKind::Updated,
                old: counters(record)?,
                new: counters(record + 1)?,
            })
        })
        .collect()
}

fn fold(criterion: &mut Criterion) {
    for (name, records, entities) in [("one hot bucket", 100, 1), ("many buckets", 10_000, 1_000)] {
        let Ok(changes) = changes(records, entities) else { panic!("the benchmark's own changes are valid") };
        let mut group = criterion.benchmark_group(format!("fold, {name}"));
        group.throughput(Throughput::Elements(u64::from(records)));
        group.bench_function(format!("{records} records, two windows"), |bencher| {
            bencher.iter(|| {
                let postings = usage::fold(black_box(&changes), &[Window::Hourly, Window::Daily]);
                postings.iter().map(|posting| posting.tally().events).sum::<u64>()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, fold);
criterion_main!(benches);
