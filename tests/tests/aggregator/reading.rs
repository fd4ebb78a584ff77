//! Which files are read, and what is made of them.

use tidegate_domain::rates::{Reason, reading::MAX_SIZE};
use tidegate_tests::aggregator::prelude::*;

const SECOND: i64 = 1_000;

#[tokio::test]
async fn fresh_workers_are_summed_and_others_counted() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("a", NOW - SECOND, 12.5, 0.1);
    scene.write("b", NOW - 14 * SECOND, 0.25, 0.2);
    // The file's modification time is fresh, but its timestamp is stale.
    let late = report("c", time(NOW - 20 * SECOND), 7.0, 7.0);
    scene.bucket().put("fleet/worker-c.json", late, time(NOW - 10 * SECOND));
    scene.write("d", NOW - 3_600 * SECOND, 7.0, 7.0);
    scene.bucket().put("fleet/worker-e.json", "{", time(NOW));
    scene.bucket().put("fleet/worker-f.json", r#"{"timestamp": NaN}"#, time(NOW));
    let run = scene.aggregate(NOW).await;
    let rejected = [Reason::NotJson, Reason::NotANumber].map(|reason| run.tally.rejected_for(reason));
    assert_eq!((run.outcome_name(), rejected), ("published", [1, 1]));
    assert_eq!(run.report.oldest_age.map(|age| age.as_secs()), Some(14));
    let expect = json!({
        "timestamp": 1_767_225_600.0, "aggregated_read_rate": 12.75, "aggregated_write_rate": 0.3,
        "active_workers": 2, "aggregation_time_utc": "2026-01-01T00:00:00",
        "stale_workers": 2, "rejected_workers": 2, "interval_seconds": 5, "sequence": 1,
    });
    assert_eq!(scene.summary()?, expect);
    Ok(())
}

#[tokio::test]
async fn only_the_summary_itself_is_no_worker() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("x-summary", NOW, 1.0, 0.0);
    let put = |key: &str, read_rate| scene.bucket().put(key, report("w", time(NOW), read_rate, 0.0), time(NOW));
    put("fleet/x-summary.json", 2.0);
    put("fleet/summary.json.json", 4.0);
    // Other jobs' files, and a folder's placeholder.
    put("fleet/deeper/worker-w.json", 100.0);
    put("fleet-2/worker-w.json", 100.0);
    put("worker-w.json", 100.0);
    put("fleet/", 100.0);
    assert_eq!(scene.aggregate(NOW).await.tally.read().units().to_string(), "7");
    // The summary is there now.
    let again = scene.aggregate(NOW + 5 * SECOND).await;
    assert_eq!((again.tally.active, again.tally.rejected()), (3, 0));
    Ok(())
}

#[tokio::test]
async fn known_and_stale_files_are_not_read() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    for worker in 0..20 {
        scene.write(&format!("fresh-{worker}"), NOW, 1.0, 1.0);
        scene.write(&format!("left-{worker}"), NOW - 62 * SECOND, 1.0, 1.0);
    }
    let first = scene.aggregate(NOW).await;
    assert_eq!((first.report.gets, first.report.gets_saved, first.tally.active), (20, 20, 20));
    // Beside the reports, the summary was looked for.
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 1, gets: 21, puts: 1, deletes: 0 });

    scene.write("fresh-7", NOW + 5 * SECOND, 3.0, 1.0);
    let second = scene.aggregate(NOW + 5 * SECOND).await;
    assert_eq!((second.report.gets, second.report.gets_saved, second.tally.active), (1, 39, 20));
    assert_eq!(second.report.read_rate.map(|rate| rate.to_string()).as_deref(), Some("22"));
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 1, gets: 1, puts: 1, deletes: 0 });

    // An unchanged report has become stale by its own time, which needs no GET.
    let third = scene.aggregate(NOW + 15 * SECOND + 1).await;
    assert_eq!((third.report.gets, third.tally.active, third.tally.stale), (0, 1, 39));
    assert_eq!(scene.aggregator.remembered(), 20);
    // Then it is stale by the listing, too, and is not even remembered.
    scene.aggregate(NOW + 61 * SECOND + 1).await;
    assert_eq!(scene.aggregator.remembered(), 1);
    Ok(())
}

#[tokio::test]
async fn an_oversized_file_is_not_read() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let padded = |size: u64| {
        let text = report("w", time(NOW), 1.0, 1.0);
        let spaces = usize::try_from(size).map_or(0, |size| size - text.len());
        text + &" ".repeat(spaces)
    };
    scene.bucket().put("fleet/worker-a.json", padded(MAX_SIZE), time(NOW));
    scene.bucket().put("fleet/worker-b.json", padded(MAX_SIZE + 1), time(NOW));
    // This one grows after it was listed.
    scene.write("c", NOW, 1.0, 1.0);
    let large = padded(MAX_SIZE + 1);
    scene.bucket().on_call(move |bucket, call| {
        if *call == (Call::Get { key: "fleet/worker-c.json".to_owned() }) {
            bucket.put("fleet/worker-c.json", large.clone(), time(NOW));
        }
        None
    });
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.tally.active, run.tally.rejected_for(Reason::TooLarge), run.report.gets), (1, 2, 2));
    Ok(())
}

#[tokio::test]
async fn a_file_that_vanishes_is_no_error() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("a", NOW, 1.0, 1.0);
    scene.write("b", NOW, 1.0, 1.0);
    scene.bucket().on_call(|bucket, call| {
        if *call == (Call::Get { key: "fleet/worker-b.json".to_owned() }) {
            assert!(bucket.delete("fleet/worker-b.json"));
        }
        None
    });
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.outcome_name(), run.tally.active, run.report.vanished), ("published", 1, 1));
    Ok(())
}

/// A worker's last known report still counts while it is fresh.
#[tokio::test]
async fn an_unreadable_file_does_not_stop_the_summary() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("known", NOW, 1.0, 1.0);
    assert_eq!(scene.aggregate(NOW).await.tally.active, 1);
    scene.write("known", NOW + 5 * SECOND, 2.0, 1.0);
    scene.write("new", NOW + 5 * SECOND, 4.0, 1.0);
    for good in 0..8 {
        scene.write(&format!("good-{good}"), NOW + 5 * SECOND, 8.0, 1.0);
    }
    scene.bucket().on_call(|_, call| match call {
        Call::Get { key } if !key.contains("good") => Some(Fault::AccessDenied),
        _ => None,
    });
    let run = scene.aggregate(NOW + 5 * SECOND).await;
    assert_eq!((run.outcome_name(), run.report.gets_failed, run.report.unknown), ("published", 2, 1));
    assert_eq!((run.tally.read().units().to_string().as_str(), run.tally.active), ("65", 9));
    // The file is fetched once it can be read again, because its tag has changed.
    scene.bucket().undisturbed();
    assert_eq!(scene.aggregate(NOW + 10 * SECOND).await.tally.read().units().to_string(), "70");
    Ok(())
}

/// `unread` of the reports of `workers` workers cannot be read.
async fn check_unread(workers: usize, unread: usize, expect: &str) -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("0", NOW - SECOND, 1.0, 1.0);
    scene.aggregate(NOW - SECOND).await;
    let before = scene.summary()?;
    for worker in 0..workers {
        scene.write(&format!("new-{worker}"), NOW, 1.0, 1.0);
    }
    assert!(scene.bucket().delete("fleet/worker-0.json"));
    let keys: Vec<_> = (0..unread).map(|worker| format!("fleet/worker-new-{worker}.json")).collect();
    scene.bucket().on_call(move |_, call| match call {
        Call::Get { key } if keys.contains(key) => Some(Fault::AccessDenied),
        _ => None,
    });
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.outcome_name(), run.report.unknown), (expect, unread), "{unread} of {workers}");
    if expect == "published" {
        assert_eq!((run.report.active, run.report.stale), (Some(workers - unread), Some(0)));
        return Ok(());
    }
    // Workers would read the sums as free capacity. The previous summary stays, and the sums are not reported.
    assert_eq!((scene.summary()?, run.report.read_rate, run.report.active), (before, None, None));
    let error = run.outcome.expect_err("a failure");
    let expect = format!("{unread} of {workers} workers' reports could not be read");
    assert!(causes(&error).starts_with(&expect) && causes(&error).contains("GetObject failed"), "{}", causes(&error));
    assert!(error.is_retryable());
    Ok(())
}

#[tokio::test]
async fn a_sum_without_a_tenth_is_not_published() -> anyhow::Result<()> {
    check_unread(10, 1, "published").await?;
    check_unread(9, 1, "failed").await?;
    check_unread(19, 2, "failed").await?;
    check_unread(20, 2, "published").await?;
    check_unread(1, 1, "failed").await
}

/// Their last known reports become stale, but they still report.
#[tokio::test]
async fn workers_with_unreadable_reports_are_not_stale() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    scene.write("a", NOW, 1.0, 1.0);
    scene.aggregate(NOW).await;
    let before = scene.summary()?;
    scene.bucket().on_call(|_, call| matches!(call, Call::Get { .. }).then_some(Fault::AccessDenied));
    scene.write("a", NOW + 16 * SECOND, 1.0, 1.0);
    let run = scene.aggregate(NOW + 16 * SECOND).await;
    assert_eq!((run.outcome_name(), run.report.unknown, run.report.stale), ("failed", 1, Some(0)));
    assert_eq!(scene.summary()?, before);
    Ok(())
}

#[tokio::test]
async fn a_job_without_reports_is_idle() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&[("DISCOVER_JOBS", "true")]).await?;
    let key = "fleet/ended/summary.json";
    scene.bucket().put(key, "old", time(NOW - 3_600 * SECOND));
    let before = scene.bucket().get(key);
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.outcome_name(), run.prefix.as_str(), run.report.active), ("idle", "fleet/ended/", Some(0)));
    assert_eq!(scene.bucket().get(key), before);
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 2, gets: 0, puts: 0, deletes: 0 });
    Ok(())
}

#[tokio::test]
async fn each_page_costs_one_listing() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    for worker in 0..1_001 {
        write(scene.bucket(), &format!("{worker:04}"), NOW, 1.0, 0.5);
    }
    scene.bucket().put(format!("{PREFIX}zz-no-worker"), "", time(NOW));
    let run = scene.aggregate(NOW).await;
    assert_eq!((run.report.pages, run.tally.active, run.tally.rejected()), (2, 1_001, 1));
    assert_eq!([run.tally.read(), run.tally.write()].map(|sum| sum.units().to_string()), ["1001", "500.5"]);
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 2, gets: 1_003, puts: 1, deletes: 0 });
    scene.aggregate(NOW + SECOND).await;
    assert_eq!(scene.bucket().take_calls(), Calls { lists: 2, gets: 0, puts: 1, deletes: 0 });
    Ok(())
}
