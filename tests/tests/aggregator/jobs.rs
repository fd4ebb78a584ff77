//! Several jobs under a prefix, and a fleet that changes while it is read.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_tests::aggregator::prelude::*;

const DISCOVER: [(&str, &str); 1] = [("DISCOVER_JOBS", "true")];

fn write_job(scene: &AggregatorScene, job: &str, worker: &str, read_rate: f64) {
    let key = format!("fleet/{job}/worker-{worker}.json");
    scene.bucket().put(key, report(worker, time(NOW), read_rate, 1.0), time(NOW));
}

#[tokio::test]
async fn each_prefix_is_a_job() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write_job(&scene, "a", "1", 1.0);
    write_job(&scene, "a", "2", 2.0);
    write_job(&scene, "b", "1", 4.0);
    write_job(&scene, "b/deeper", "1", 100.0);
    scene.bucket().put("fleet/worker-1.json", report("1", time(NOW), 100.0, 0.0), time(NOW));
    let run = aggregate(&scene.aggregator, NOW).await;
    assert_eq!((run.jobs.len(), run.error.is_none()), (2, true));
    for (prefix, expect) in [("fleet/a/", 3.0), ("fleet/b/", 4.0)] {
        let summary = summary(scene.bucket(), prefix)?;
        assert_eq!((&summary["aggregated_read_rate"], &summary["sequence"]), (&json!(expect), &json!(1)), "{prefix}");
    }
    assert_eq!(scene.bucket().get("fleet/summary.json"), None);
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 3, gets: 5, puts: 2, deletes: 0 });
    // A job starts and another one ends. The process forgets the ended one.
    write_job(&scene, "c", "1", 8.0);
    for key in ["a/worker-1.json", "a/worker-2.json", "a/summary.json"] {
        assert!(scene.bucket().delete(&format!("fleet/{key}")));
    }
    let run = aggregate(&scene.aggregator, NOW + 1_000).await;
    let mut prefixes: Vec<_> = run.jobs.iter().map(|job| job.prefix.as_str()).collect();
    prefixes.sort_unstable();
    assert_eq!((prefixes, scene.aggregator.remembered()), (vec!["fleet/b/", "fleet/c/"], 2));
    Ok(())
}

#[tokio::test]
async fn more_jobs_than_a_page_holds_are_found() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    for job in 0..1_050 {
        write_job(&scene, &format!("job-{job:04}"), "1", 1.0);
    }
    let run = aggregate(&scene.aggregator, NOW).await;
    assert_eq!(run.jobs.iter().filter(|job| job.outcome_name() == "published" && job.tally.active == 1).count(), 1_050);
    Ok(())
}

#[tokio::test]
async fn a_failed_job_stops_no_other() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    for job in ["a", "b", "c"] {
        write_job(&scene, job, "1", 1.0);
    }
    scene.bucket().on_call(|_, call| match call {
        Call::List { prefix, .. } if prefix == "fleet/b/" => Some(Fault::AccessDenied),
        _ => None,
    });
    let run = aggregate(&scene.aggregator, NOW).await;
    let outcome = |prefix: &str| run.jobs.iter().find(|job| job.prefix == prefix).map(Aggregated::outcome_name);
    assert_eq!(
        ["fleet/a/", "fleet/b/", "fleet/c/"].map(outcome),
        [Some("published"), Some("failed"), Some("published")]
    );
    assert_eq!(scene.bucket().get("fleet/b/summary.json"), None);
    Ok(())
}

/// Each job may make two calls at a time. The calls of one job take all of its time.
async fn check_isolated(fault: Fault) -> anyhow::Result<()> {
    const WORKERS: usize = 50;
    let scene = AggregatorScene::with(&[DISCOVER[0], ("MAX_CONCURRENCY", "6")]).await?;
    for worker in 0..WORKERS {
        for job in ["a", "b", "c"] {
            write_job(&scene, job, &worker.to_string(), 1.0);
        }
    }
    scene.bucket().on_call(move |_, call| match call {
        Call::Get { key } if key.starts_with("fleet/b/worker") => Some(fault),
        _ => None,
    });
    let run = aggregate_within(&scene.aggregator, NOW, Duration::from_secs(8)).await;
    for job in run.jobs {
        let failed = if job.prefix == "fleet/b/" { WORKERS } else { 0 };
        assert_eq!((job.report.gets, job.report.gets_failed), (WORKERS, failed), "{fault:?}: {}", job.prefix);
        assert_eq!((job.tally.active, job.report.unknown), (WORKERS - failed, failed), "{fault:?}: {}", job.prefix);
    }
    assert_eq!(scene.bucket().get("fleet/b/summary.json"), None);
    for prefix in ["fleet/a/", "fleet/c/"] {
        assert_eq!(summary(scene.bucket(), prefix)?["active_workers"], json!(WORKERS), "{fault:?}: {prefix}");
    }
    Ok(())
}

#[tokio::test]
async fn a_job_with_unreadable_reports_delays_no_other() -> anyhow::Result<()> {
    check_isolated(Fault::Hang).await?;
    check_isolated(Fault::SlowDown).await
}

#[tokio::test]
async fn jobs_that_cannot_be_found_are_reported() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write_job(&scene, "a", "1", 1.0);
    scene.bucket().on_call(|_, _| Some(Fault::AccessDenied));
    let run = aggregate(&scene.aggregator, NOW).await;
    assert!(run.jobs.is_empty() && run.error.is_some());
    Ok(())
}

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

/// Three pages. One in twenty GETs fails, half of these after they were done, and each report's at most twice.
#[tokio::test]
async fn gets_that_fail_are_made_again() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    fleet(scene.bucket(), NOW);
    let (random, faults) = (Mutex::new(StdRng::seed_from_u64(7)), AtomicUsize::new(0));
    let faults_by_key = Mutex::new(HashMap::<String, u8>::new());
    scene.bucket().on_call(move |_, call| {
        let Call::Get { key } = call else { return None };
        let mut faults_by_key = faults_by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = faults_by_key.entry(key.clone()).or_default();
        let drawn: f64 = random.lock().unwrap_or_else(PoisonError::into_inner).random();
        let is_hit = key.contains("worker") && drawn < 0.05 && *earlier < 2;
        let fault = is_hit.then(|| faults.fetch_add(1, Ordering::Relaxed))?;
        *earlier += 1;
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

/// Three pages, and on each a report that hangs. An earlier report counts while it is fresh.
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

/// Between any two pages, all workers write again with the same rates, and every tenth of all reports is deleted.
#[tokio::test]
async fn changes_during_a_listing_affect_no_other_worker() -> anyhow::Result<()> {
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

/// In any order of their calls, an older summary never follows a newer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_aggregators_never_replace_a_newer_summary() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    for number in 0..50 {
        scene.bucket().put(worker_key(PREFIX, &worker(number)), report("w", time(NOW), 1.0, 1.0), time(NOW));
    }
    // Each write records the summary before it.
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let summaries = Arc::clone(&replaced);
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
            // The aggregators share no state, and alternate in which one begins later.
            let began = NOW + round * 100 + (round + offset) % 2 * 70;
            published += usize::from(only(aggregate(aggregator, began).await).outcome_name() == "published");
        }
        published
    };
    let (first, second) = tokio::join!(run(&others[0], 0), run(&others[1], 1));
    let mut summaries = replaced.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
