//! Which summary is there in the end, what finished jobs cost, and how soon a resumed job has its summary again.

use std::sync::Arc;

use rate_aggregator::{
    outcome::{AggregationError, SummaryOutcome},
    publication::Times,
};
use tidegate_aws::error::CallError;
use tidegate_tests::aggregator::prelude::*;

const KEY: &str = "fleet/summary.json";

/// A job with the report of a dead worker only.
async fn job() -> anyhow::Result<AggregatorScene> {
    let scene = AggregatorScene::new().await?;
    scene.write("dead", NOW - 3_600_000, 1.0, 1.0);
    Ok(scene)
}

/// Without the permission to list, S3 reports a missing object as access denied.
#[tokio::test]
async fn the_first_summary_needs_no_list_permission() -> anyhow::Result<()> {
    let scene = job().await?;
    scene.bucket().on_call(|_, call| match call {
        Call::Get { key } if key == KEY => Some(Fault::AccessDenied),
        _ => None,
    });
    assert_eq!(scene.aggregate(NOW).await.outcome_name(), "published");
    // An existing summary that may not be read is not replaced.
    scene.bucket().put(KEY, "{}", time(NOW));
    assert_ne!(scene.aggregate(NOW + 5_000).await.outcome_name(), "published");
    assert_eq!(scene.bucket().get(KEY).map(|object| object.content).as_deref(), Some(&b"{}"[..]));
    scene.bucket().undisturbed();
    assert_eq!(scene.aggregate(NOW + 10_000).await.outcome_name(), "published");
    Ok(())
}

/// With the summary `there`, the next one is published with this number, or superseded.
async fn check(there: &str, expect: Option<u64>) -> anyhow::Result<()> {
    let scene = job().await?;
    scene.bucket().put(KEY, there, time(NOW));
    let run = scene.aggregate(NOW).await;
    if let Some(sequence) = expect {
        assert_eq!((run.outcome_name(), &scene.summary()?["sequence"]), ("published", &json!(sequence)), "{there}");
    } else {
        let stays = scene.bucket().get(KEY).map(|object| object.content);
        assert_eq!((run.outcome_name(), stays.as_deref()), ("superseded", Some(there.as_bytes())));
    }
    Ok(())
}

#[tokio::test]
async fn only_an_older_summary_is_replaced() -> anyhow::Result<()> {
    check(r#"{"timestamp": 1767225599.9, "sequence": 41}"#, Some(42)).await?;
    check(r#"{"timestamp": 1767225600.0, "sequence": 41}"#, None).await?;
    check(r#"{"timestamp": 1767225600.1, "sequence": 41}"#, None).await?;
    // The Python aggregator's.
    check(r#"{"timestamp": 1767225595, "aggregated_read_rate": 7.0}"#, Some(1)).await?;
    check(r#"{"timestamp": 1767225605.0, "aggregated_read_rate": 7.0}"#, None).await?;
    // Too far in the future, or unreadable.
    check(r#"{"timestamp": 1767225700.0, "sequence": 41}"#, Some(42)).await?;
    check("garbage", Some(1)).await?;
    check("", Some(1)).await?;
    check(&"x".repeat(100_000), Some(1)).await
}

#[tokio::test]
async fn summaries_have_headers_and_successive_numbers() -> anyhow::Result<()> {
    let scene = job().await?;
    for number in 1..=3 {
        scene.aggregate(NOW + 5_000 * number).await;
        assert_eq!(scene.summary()?["sequence"], json!(number));
    }
    let object = scene.bucket().get(KEY).ok_or_else(|| anyhow::anyhow!("no summary"))?;
    assert_eq!(object.content_type.as_deref(), Some("application/json"));
    assert_eq!(object.cache_control.as_deref(), Some("no-cache"));
    // The process remembers what it wrote, so it reads the summary only once.
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 3, gets: 1, puts: 3, deletes: 0 });
    Ok(())
}

/// The one that began earlier is done later.
#[tokio::test]
async fn the_aggregator_that_began_later_wins() -> anyhow::Result<()> {
    let scene = job().await?;
    let other = scene.another_process(&[])?;
    scene.aggregate(NOW).await;
    aggregate(&other, NOW + 1_000).await;
    // This one knows only the summary that it wrote itself.
    let run = scene.aggregate(NOW + 500).await;
    assert_eq!((run.outcome_name(), &scene.summary()?["sequence"]), ("superseded", &json!(2)));
    let run = scene.aggregate(NOW + 1_500).await;
    assert_eq!((run.outcome_name(), &scene.summary()?["sequence"]), ("published", &json!(3)));
    // A summary that was deleted is written anew.
    assert!(scene.bucket().delete(KEY));
    let run = only(aggregate(&other, NOW + 2_000).await);
    assert_eq!((run.outcome_name(), &scene.summary()?["sequence"]), ("published", &json!(1)));
    Ok(())
}

/// The comparison must use the current time. By its start time, the other summary lies too far in the future.
#[tokio::test]
async fn a_slow_aggregation_replaces_no_later_one() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&[("STALENESS_CUTOFF_SECONDS", "1")]).await?;
    scene.write("w", NOW, 1.0, 1.0);
    let there = r#"{"timestamp": 1767225601.001, "sequence": 7}"#;
    let run = async |started: Instant| {
        scene.bucket().put(KEY, there, time(NOW));
        let minute = Duration::from_mins(1);
        let times = Times::new(started, minute, started + minute);
        only(Box::pin(scene.another_process(&[("STALENESS_CUTOFF_SECONDS", "1")])?.aggregate(time(NOW), times)).await)
            .outcome
            .map_err(anyhow::Error::from)
    };
    let now = Instant::now();
    let seconds = Duration::from_secs(2);
    assert_eq!(run(now.checked_sub(seconds).unwrap_or(now)).await?, SummaryOutcome::Superseded);
    // A summary an hour ahead is ignored.
    scene.bucket().put(KEY, r#"{"timestamp": 1767229200.0, "sequence": 7}"#, time(NOW));
    assert_eq!(scene.aggregate(NOW).await.outcome?, SummaryOutcome::Published { sequence: 8 });
    Ok(())
}

#[tokio::test]
async fn an_overtaken_summary_is_compared_again() -> anyhow::Result<()> {
    let check = async |theirs: f64, expect: &str, sequence: u64| -> anyhow::Result<()> {
        let scene = job().await?;
        scene.bucket().put(KEY, r#"{"timestamp": 1767225500.0, "sequence": 1}"#, time(NOW));
        let puts = AtomicUsize::new(0);
        scene.bucket().on_call(move |bucket, call| {
            if matches!(call, Call::Put { .. }) && puts.fetch_add(1, Ordering::Relaxed) == 0 {
                bucket.put(KEY, format!(r#"{{"timestamp": {theirs}, "sequence": 7}}"#), time(NOW));
            }
            None
        });
        assert_eq!(scene.aggregate(NOW).await.outcome_name(), expect);
        assert_eq!(scene.summary()?["sequence"], json!(sequence));
        Ok(())
    };
    check(1_767_225_599.0, "published", 8).await?;
    check(1_767_225_601.0, "superseded", 7).await
}

/// No aggregator does so, but the loop must end.
#[tokio::test]
async fn a_summary_that_is_always_overtaken_is_lost() -> anyhow::Result<()> {
    let scene = job().await?;
    let puts = AtomicUsize::new(0);
    scene.bucket().on_call(move |bucket, call| {
        if matches!(call, Call::Put { .. }) {
            let number = puts.fetch_add(1, Ordering::Relaxed);
            bucket.put(KEY, format!(r#"{{"timestamp": 7.0, "sequence": {number}}}"#), time(NOW));
        }
        None
    });
    assert_eq!(scene.aggregate(NOW).await.outcome_name(), "lost");
    Ok(())
}

/// The SDK writes again, and finds its own summary.
#[tokio::test]
async fn an_unacknowledged_summary_is_published() -> anyhow::Result<()> {
    let scene = job().await?;
    let puts = AtomicUsize::new(0);
    scene.bucket().on_call(move |_, call| {
        let is_first = matches!(call, Call::Put { .. }) && puts.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then_some(Fault::InternalAfter)
    });
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.outcome_name(), &scene.summary()?["sequence"]), ("published", &json!(1)));
    scene.aggregate(NOW + 5_000).await;
    assert_eq!(scene.summary()?["sequence"], json!(2));
    Ok(())
}

#[tokio::test]
async fn a_listing_that_fails_leaves_the_last_summary() -> anyhow::Result<()> {
    let scene = job().await?;
    for worker in 0..1_500 {
        scene.write(&format!("{worker:04}"), NOW, 1.0, 1.0);
    }
    scene.aggregate(NOW).await;
    let before = scene.summary()?;
    // The second page fails, so the reports are incomplete.
    scene.bucket().on_call(|_, call| match call {
        Call::List { is_first: false, .. } => Some(Fault::AccessDenied),
        _ => None,
    });
    let run = scene.aggregate(NOW + 5_000).await;
    let error = run.outcome.expect_err("a failure");
    assert!(causes(&error).contains("ListObjectsV2 failed"), "{}", causes(&error));
    assert!(matches!(error, AggregationError::Call(CallError::Store(_))) && error.is_retryable());
    assert_eq!((run.report.read_rate, run.report.active, run.report.stale), (None, None, None));
    assert_eq!(summary(scene.bucket(), PREFIX)?, before);
    scene.bucket().undisturbed();
    let _ = scene.bucket().take_calls();
    // The process forgets no report.
    let run = scene.aggregate(NOW + 10_000).await;
    assert_eq!((run.outcome_name(), run.tally.active, run.report.gets), ("published", 1_500, 0));
    Ok(())
}

const DISCOVER: [(&str, &str); 1] = [("DISCOVER_JOBS", "true")];
const JOB: &str = "fleet/job/";
const SECOND: i64 = 1_000;
const INTERVAL: i64 = 5 * SECOND;
const HOUR: i64 = 3_600 * SECOND;

/// A job with one worker that reports at [`NOW`] and never again.
async fn silent_job() -> anyhow::Result<AggregatorScene> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write_report(&scene, NOW);
    Ok(scene)
}

fn write_report(scene: &AggregatorScene, at: i64) {
    scene.bucket().put(worker_key(JOB, "1"), report("1", time(at), 1.0, 1.0), time(at));
}

/// The job's part in an aggregation at this moment, if it is listed.
async fn aggregate_job(scene: &AggregatorScene, now: i64) -> Option<Aggregated> {
    scene.bucket().set_time(time(now));
    let run = aggregate(&scene.aggregator, now).await;
    assert_eq!((run.jobs.len() + run.resting, run.error.is_none()), (1, true));
    run.jobs.into_iter().next()
}

/// Aggregates every five seconds from one moment up to another; returns how often the job was published.
async fn aggregate_from(scene: &AggregatorScene, start: i64, end: i64) -> usize {
    let mut published = 0;
    for now in (start..end).step_by(usize::try_from(INTERVAL).unwrap_or(1)) {
        let job = aggregate_job(scene, now).await;
        published += usize::from(job.is_some_and(|job| job.outcome_name() == "published"));
    }
    published
}

#[tokio::test]
async fn a_finished_job_is_listed_once_a_minute() -> anyhow::Result<()> {
    let scene = silent_job().await?;
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    scene.bucket().on_call(move |_, call| {
        if matches!(call, Call::List { prefix, .. } if prefix == JOB) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    // Up to 36 seconds after the last report, so that no clock matters.
    assert_eq!(aggregate_from(&scene, NOW, NOW + HOUR).await, 9);
    assert_eq!(summary(scene.bucket(), JOB)?["active_workers"], 0);
    assert!(lists.swap(0, Ordering::Relaxed) < 100);
    assert_eq!(aggregate_from(&scene, NOW + HOUR, NOW + 2 * HOUR).await, 0);
    assert_eq!(lists.load(Ordering::Relaxed), 60);
    Ok(())
}

/// The worker is silent for so long, and then has a summary again within `expect` milliseconds.
async fn check_wakes(silence: i64, expect: i64) -> anyhow::Result<()> {
    let scene = silent_job().await?;
    let back = NOW + silence + SECOND;
    aggregate_from(&scene, NOW, back).await;
    let mut now = NOW + silence;
    while summary(scene.bucket(), JOB)?["active_workers"] != 1 {
        now += INTERVAL;
        write_report(&scene, back.max(now - SECOND));
        aggregate_job(&scene, now).await;
    }
    assert!(now - back <= expect, "after {silence} ms: {} ms", now - back);
    Ok(())
}

#[tokio::test]
async fn a_resumed_job_is_found_soon() -> anyhow::Result<()> {
    check_wakes(50 * SECOND, INTERVAL + 5 * SECOND).await?;
    check_wakes(100 * SECOND, INTERVAL + 10 * SECOND).await?;
    check_wakes(300 * SECOND, INTERVAL + 30 * SECOND).await?;
    check_wakes(HOUR, INTERVAL + 60 * SECOND).await
}

#[tokio::test]
async fn a_new_process_writes_no_finished_job() -> anyhow::Result<()> {
    let scene = silent_job().await?;
    aggregate_from(&scene, NOW, NOW + HOUR).await;
    let process = scene.another_process(&DISCOVER)?;
    let _ = scene.bucket().take_calls();
    let finished = only(aggregate(&process, NOW + HOUR).await);
    assert_eq!((finished.outcome_name(), finished.tally.stale), ("idle", 1));
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 2, gets: 0, puts: 0, deletes: 0 });
    assert_eq!(aggregate(&process, NOW + HOUR + 59 * SECOND).await.resting, 1);
    write_report(&scene, NOW + HOUR + 60 * SECOND);
    let process = scene.another_process(&DISCOVER)?;
    assert_eq!(only(aggregate(&process, NOW + HOUR + 60 * SECOND).await).tally.active, 1);
    Ok(())
}

#[tokio::test]
async fn only_changes_and_failures_are_news() -> anyhow::Result<()> {
    let scene = silent_job().await?;
    let is_news = async |now| aggregate_job(&scene, now).await.map(|job| job.is_news);
    assert_eq!(is_news(NOW).await, Some(true));
    write_report(&scene, NOW + 5 * SECOND);
    assert_eq!(is_news(NOW + 5 * SECOND).await, Some(false));
    scene.bucket().put(worker_key(JOB, "2"), "{", time(NOW + 10 * SECOND));
    assert_eq!(is_news(NOW + 10 * SECOND).await, Some(true));
    assert_eq!(is_news(NOW + 15 * SECOND).await, Some(false));
    scene.bucket().on_call(|_, call| match call {
        Call::List { prefix, .. } if prefix == JOB => Some(Fault::AccessDenied),
        _ => None,
    });
    assert_eq!(is_news(NOW + 20 * SECOND).await, Some(true));
    assert_eq!(is_news(NOW + 25 * SECOND).await, Some(true));
    Ok(())
}
