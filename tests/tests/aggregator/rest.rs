//! What finished jobs cost, and how soon a resumed job has its summary again.

use std::sync::Arc;

use tidegate_tests::aggregator::prelude::*;

const DISCOVER: [(&str, &str); 1] = [("DISCOVER_JOBS", "true")];
const JOB: &str = "fleet/job/";
const SECOND: i64 = 1_000;
const INTERVAL: i64 = 5 * SECOND;
const HOUR: i64 = 3_600 * SECOND;

/// A job with one worker that reports at [`NOW`] and never again.
async fn job() -> anyhow::Result<AggregatorScene> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write(&scene, NOW);
    Ok(scene)
}

fn write(scene: &AggregatorScene, at: i64) {
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
    let scene = job().await?;
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
    let scene = job().await?;
    let back = NOW + silence + SECOND;
    aggregate_from(&scene, NOW, back).await;
    let mut now = NOW + silence;
    while summary(scene.bucket(), JOB)?["active_workers"] != 1 {
        now += INTERVAL;
        write(&scene, back.max(now - SECOND));
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
    let scene = job().await?;
    aggregate_from(&scene, NOW, NOW + HOUR).await;
    let process = scene.another_process(&DISCOVER)?;
    let _ = scene.bucket().take_calls();
    let finished = only(aggregate(&process, NOW + HOUR).await);
    assert_eq!((finished.outcome_name(), finished.tally.stale), ("idle", 1));
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 2, gets: 0, puts: 0 });
    assert_eq!(aggregate(&process, NOW + HOUR + 59 * SECOND).await.resting, 1);
    write(&scene, NOW + HOUR + 60 * SECOND);
    let process = scene.another_process(&DISCOVER)?;
    assert_eq!(only(aggregate(&process, NOW + HOUR + 60 * SECOND).await).tally.active, 1);
    Ok(())
}

#[tokio::test]
async fn only_changes_and_failures_are_news() -> anyhow::Result<()> {
    let scene = job().await?;
    let is_news = async |now| aggregate_job(&scene, now).await.map(|job| job.is_news);
    assert_eq!(is_news(NOW).await, Some(true));
    write(&scene, NOW + 5 * SECOND);
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
