//! A fleet that does not hold still: writers overwrite and workers vanish while it is listed and read, calls fail, and
//! two aggregators overlap.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use tidegate_aws::schema::rates::worker_key;
use tidegate_sandbox::s3::{Bucket, Call, Fault, workers::report};
use tidegate_tests::aggregator::{AggregatorScene, NOW, PREFIX, aggregate, only, summary, time, write};

const WORKERS: usize = 2_500;
/// Each worker reads this much at all times, and writes a number of its own.
const READ_RATE: f64 = 0.1;

fn worker(number: usize) -> String {
    format!("{number:04}")
}

#[expect(clippy::cast_precision_loss, reason = "four digits")]
fn fleet(bucket: &Bucket, at: i64) {
    for number in 0..WORKERS {
        write(bucket, &worker(number), at, READ_RATE, number as f64);
    }
}

fn rate(summary: &Value, key: &str) -> f64 {
    summary[key].as_f64().unwrap_or(f64::NAN)
}

/// Three pages; one in twenty GETs fails, half of these after they were done, and no report's three times.
#[tokio::test]
async fn gets_that_fail_are_made_again() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    fleet(scene.bucket(), NOW);
    let (random, faults) = (Mutex::new(StdRng::seed_from_u64(7)), AtomicUsize::new(0));
    let met = Mutex::new(HashMap::<String, u8>::new());
    scene.bucket().on_call(move |_, call| {
        let Call::Get { key } = call else { return None };
        let mut met = met.lock().unwrap_or_else(PoisonError::into_inner);
        let met = met.entry(key.clone()).or_default();
        let drawn: f64 = random.lock().unwrap_or_else(PoisonError::into_inner).random();
        let is_hit = key.contains("worker") && drawn < 0.05 && *met < 2;
        let fault = is_hit.then(|| faults.fetch_add(1, Ordering::Relaxed))?;
        *met += 1;
        Some(if fault.is_multiple_of(2) { Fault::SlowDown } else { Fault::InternalAfter })
    });
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.outcome_name(), run.report.pages, run.report.gets_failed), ("published", 3, 0));
    let summary = scene.summary()?;
    // 2,500 tenths, to the last digit, and 0 + 1 + ... + 2,499.
    assert_eq!(rate(&summary, "aggregated_read_rate").to_string(), "250");
    assert_eq!(rate(&summary, "aggregated_write_rate").to_string(), "3123750");
    let calls = scene.bucket().take_calls();
    assert!(calls.gets > WORKERS + 50, "{calls:?}");
    Ok(())
}

/// Three pages, and on each a report that hangs. As long as what they said before is fresh, it counts.
#[tokio::test]
async fn a_report_that_hangs_costs_only_itself() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let hanging = [0, 1_200, 2_400].map(worker);
    write(scene.bucket(), &hanging[0], NOW, READ_RATE, 7.0);
    assert_eq!(scene.aggregate(NOW).await.tally.active, 1);
    fleet(scene.bucket(), NOW + 5_000);
    let keys = hanging.map(|worker| worker_key(PREFIX, &worker));
    scene.bucket().on_call(move |_, call| match call {
        Call::Get { key } if keys.contains(key) => Some(Fault::Hang),
        _ => None,
    });
    let run = scene.aggregate(NOW + 5_000).await;
    assert_eq!((run.outcome_name(), run.report.pages, run.report.gets), ("published", 3, WORKERS));
    assert_eq!((run.report.gets_failed, run.report.unknown, run.tally.active), (3, 2, WORKERS - 2));
    assert_eq!(rate(&scene.summary()?, "aggregated_read_rate").to_string(), "249.8");
    Ok(())
}

/// Between any two pages, all workers write again with the same rates, and every tenth of those listed already or
/// still to be listed is deleted.
#[tokio::test]
async fn writers_and_deletes_in_mid_list_change_no_other_worker() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    fleet(scene.bucket(), NOW - 10_000);
    scene.bucket().on_call(|bucket, call| {
        if matches!(call, Call::List { is_first: false, .. }) {
            fleet(bucket, NOW);
            for number in (0..WORKERS).step_by(10) {
                assert!(bucket.delete(&worker_key(PREFIX, &worker(number))));
            }
        }
        None
    });
    let run = scene.aggregate(NOW).await;
    let summary = scene.summary()?;
    // Some of those that are deleted were read before.
    let gone = WORKERS / 10;
    assert!((WORKERS - gone..=WORKERS).contains(&run.tally.active), "{run:?}");
    assert_eq!((run.tally.stale, run.tally.rejected(), run.report.unknown), (0, 0, 0));
    let reads = rate(&summary, "aggregated_read_rate");
    assert!((225.0..=250.0).contains(&reads), "{reads}");
    // Once it is quiet, the sum is exact again.
    scene.bucket().undisturbed();
    let run = scene.aggregate(NOW + 1_000).await;
    assert_eq!(run.tally.active, WORKERS - gone);
    assert_eq!(rate(&scene.summary()?, "aggregated_read_rate").to_string(), "225");
    Ok(())
}

/// Whichever call of which one comes first: a summary is never followed by an older one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_overlapping_aggregators_no_older_summary_replaces_a_newer_one() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    for number in 0..50 {
        scene.bucket().put(worker_key(PREFIX, &worker(number)), report("w", time(NOW), 1.0, 1.0), time(NOW));
    }
    // What is there when somebody is about to write is what was written last.
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let summaries = std::sync::Arc::clone(&seen);
    scene.bucket().on_call(move |bucket, call| {
        if matches!(call, Call::Put { .. }) {
            summaries.lock().unwrap_or_else(PoisonError::into_inner).push(summary(bucket, PREFIX).unwrap_or_default());
        }
        None
    });
    let others = [scene.another_process(&[])?, scene.another_process(&[])?];
    let run = async |aggregator, offset: i64| {
        let mut published = 0;
        for round in 0..20_i64 {
            // They know nothing of each other, and are ahead of each other by turns.
            let began = NOW + round * 100 + (round + offset) % 2 * 70;
            published += usize::from(only(aggregate(aggregator, began).await).outcome_name() == "published");
        }
        published
    };
    let (first, second) = tokio::join!(run(&others[0], 0), run(&others[1], 1));
    let mut summaries = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    summaries.push(scene.summary()?);
    summaries.retain(Value::is_object);
    let order: Vec<_> =
        summaries.iter().map(|summary| (rate(summary, "timestamp"), rate(summary, "sequence"))).collect();
    assert!(order.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{order:?}");
    let last = &summaries[summaries.len() - 1];
    assert_eq!(rate(last, "sequence").to_string(), (first + second).to_string());
    // The last round's later beginning: 1.97 s after the first.
    assert_eq!(rate(last, "timestamp").to_string(), "1767225601.97");
    Ok(())
}
