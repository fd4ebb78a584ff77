//! Jobs that are found under a prefix.

use std::time::Duration;

use rate_aggregator::job::Aggregated;
use serde_json::json;
use tidegate_sandbox::s3::{Call, Calls, Fault, workers::report};
use tidegate_tests::aggregator::{AggregatorScene, NOW, aggregate, aggregate_within, summary, time};

const DISCOVER: [(&str, &str); 1] = [("DISCOVER_JOBS", "true")];

fn write(scene: &AggregatorScene, job: &str, worker: &str, read_rate: f64) {
    let key = format!("fleet/{job}/worker-{worker}.json");
    scene.bucket().put(key, report(worker, time(NOW), read_rate, 1.0), time(NOW));
}

#[tokio::test]
async fn each_prefix_is_a_job_with_a_summary_of_its_own() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write(&scene, "a", "1", 1.0);
    write(&scene, "a", "2", 2.0);
    write(&scene, "b", "1", 4.0);
    write(&scene, "b/deeper", "1", 100.0);
    scene.bucket().put("fleet/worker-1.json", report("1", time(NOW), 100.0, 0.0), time(NOW));
    let run = aggregate(&scene.aggregator, NOW).await;
    assert_eq!((run.jobs.len(), run.error.is_none()), (2, true));
    for (prefix, expect) in [("fleet/a/", 3.0), ("fleet/b/", 4.0)] {
        let summary = summary(scene.bucket(), prefix)?;
        assert_eq!((&summary["aggregated_read_rate"], &summary["sequence"]), (&json!(expect), &json!(1)), "{prefix}");
    }
    assert_eq!(scene.bucket().get("fleet/summary.json"), None);
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 3, gets: 5, puts: 2 });
    // A job comes, one is gone, and what was known of it with it.
    write(&scene, "c", "1", 8.0);
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
        write(&scene, &format!("job-{job:04}"), "1", 1.0);
    }
    let run = aggregate(&scene.aggregator, NOW).await;
    assert_eq!(run.jobs.iter().filter(|job| job.outcome_name() == "published" && job.tally.active == 1).count(), 1_050);
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_does_not_touch_the_others() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    for job in ["a", "b", "c"] {
        write(&scene, job, "1", 1.0);
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

/// Two calls for each job, and one job's reports take all of their time.
async fn check_isolated(fault: Fault) -> anyhow::Result<()> {
    const WORKERS: usize = 50;
    let scene = AggregatorScene::with(&[DISCOVER[0], ("MAX_CONCURRENCY", "6")]).await?;
    for worker in 0..WORKERS {
        for job in ["a", "b", "c"] {
            write(&scene, job, &worker.to_string(), 1.0);
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
async fn a_job_whose_reports_cannot_be_read_holds_up_no_other() -> anyhow::Result<()> {
    check_isolated(Fault::Hang).await?;
    check_isolated(Fault::SlowDown).await
}

#[tokio::test]
async fn jobs_that_cannot_be_found_are_reported() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&DISCOVER).await?;
    write(&scene, "a", "1", 1.0);
    scene.bucket().on_call(|_, _| Some(Fault::AccessDenied));
    let run = aggregate(&scene.aggregator, NOW).await;
    assert!(run.jobs.is_empty() && run.error.is_some());
    Ok(())
}
