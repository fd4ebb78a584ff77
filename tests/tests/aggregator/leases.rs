//! Leasing workers: what the summary grants them, beside whom, and what a second process changes.

use std::time::Duration;

use tidegate_aws::rates::text::{self, leasing_report};
use tidegate_domain::{
    lease::{EQUAL_WEIGHT, LeaseKeys, LeaseReport, fleet::LeaseSummary, holder::LeaseHolder},
    rates::{Rate, Rates},
};
use tidegate_tests::aggregator::prelude::*;

const KEY: &str = "fleet/summary.json";
const SECOND: i64 = 1_000;

fn units(read: f64, write: f64) -> Rates {
    let rate = |units| Rate::new(units).expect("a rate");
    Rates { read: rate(read), write: rate(write) }
}

/// A leasing worker that wants 1,000 reads and 100 writes a second, with a cap of 500 and 50.
struct Worker {
    id: &'static str,
    holder: LeaseHolder,
    cap: Option<Rates>,
}

impl Worker {
    fn new(id: &'static str) -> Self {
        Self { id, holder: LeaseHolder::default(), cap: Some(units(500.0, 50.0)) }
    }

    fn since_start(now: i64) -> Duration {
        Duration::from_millis((now - NOW).unsigned_abs())
    }

    /// Adopts the grant of the summary, and then reports, at a moment. The report says that the worker used `used`.
    fn work(&mut self, scene: &AggregatorScene, now: i64, used: f64) -> LeaseReport {
        let at = Self::since_start(now);
        if let Some(LeaseSummary { terms, reports }) = leases(scene)
            && let Some(seen) = reports.get(self.id)
        {
            self.holder.adopt(&terms, *seen, at);
        }
        let report = self.holder.begin_report(units(1_000.0, 100.0), EQUAL_WEIGHT, at);
        self.put(scene, now, used, report);
        self.holder.confirm(report.number, at);
        report
    }

    /// Writes the worker's file. The store's clock moves with it.
    fn put(&self, scene: &AggregatorScene, now: i64, used: f64, report: LeaseReport) {
        let text = leasing_report(self.id, time(now), units(used, 0.0), &LeaseKeys { report, cap: self.cap });
        scene.bucket().set_time(time(now));
        scene.bucket().put(worker_key(PREFIX, self.id), text, time(now));
    }

    fn may_use(&self, now: i64) -> Rates {
        self.holder.allowance(Self::since_start(now)).rates
    }
}

/// The leases that the summary grants.
fn leases(scene: &AggregatorScene) -> Option<LeaseSummary> {
    text::lease::summary(&scene.bucket().get(KEY)?.content)
}

fn growth(scene: &AggregatorScene) -> anyhow::Result<Rates> {
    Ok(leases(scene).context("no leases")?.terms.growth)
}

#[tokio::test]
async fn leasing_workers_share_the_cap_after_two_rounds() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let mut workers = [Worker::new("a"), Worker::new("b")];
    for round in 0..2 {
        let now = NOW + round * 5 * SECOND;
        for worker in &mut workers {
            worker.work(&scene, now, 0.0);
        }
        assert_eq!(scene.aggregate(now).await.report.leasing, Some(2));
    }
    let now = NOW + 10 * SECOND;
    for worker in &mut workers {
        worker.work(&scene, now, 240.0);
    }
    // 98 % of each cap, in two parts.
    assert_eq!(workers.map(|worker| worker.may_use(now)), [units(245.0, 24.5); 2]);
    let summary = scene.summary()?;
    assert_eq!((&summary["lease_seconds"], &summary["active"]), (&json!(15), &json!(2)));
    assert_eq!(summary["reports"], json!({"a": 2, "b": 2}));
    assert_eq!(summary["read"]["cap"], json!(500.0));
    Ok(())
}

/// Each scenario has one Python worker, and the summary without leases.
#[tokio::test]
async fn without_leasing_workers_the_summary_stays_as_it_was() -> anyhow::Result<()> {
    let scene = AggregatorScene::with(&[("READ_CAP", "500"), ("WRITE_CAP", "50")]).await?;
    scene.write("python", NOW, 100.0, 10.0);
    // Neither a leasing worker that is long gone, nor an invalid report, nor another file.
    let mut gone = Worker::new("gone");
    gone.work(&scene, NOW - 62 * SECOND, 7.0);
    scene.bucket().put(worker_key(PREFIX, "bad"), r#"{"timestamp": 1767225600.0, "report": 1}"#, time(NOW));
    let report = gone.holder.begin_report(units(1.0, 1.0), EQUAL_WEIGHT, Duration::ZERO);
    let text = leasing_report("other", time(NOW), units(1.0, 1.0), &LeaseKeys { report, cap: None });
    scene.bucket().put("fleet/other", text, time(NOW));
    assert_eq!(scene.aggregate(NOW).await.report.leasing, Some(0));
    let summary = scene.summary()?;
    let keys: Vec<_> = summary.as_object().context("no object")?.keys().map(String::as_str).collect();
    let python =
        ["active_workers", "aggregated_read_rate", "aggregated_write_rate", "aggregation_time_utc", "timestamp"];
    let mut expect = [&python[..], &["interval_seconds", "rejected_workers", "sequence", "stale_workers"]].concat();
    expect.sort_unstable();
    assert_eq!(keys, expect);
    assert_eq!((&summary["aggregated_read_rate"], &summary["rejected_workers"]), (&json!(101.0), &json!(1)));
    Ok(())
}

#[tokio::test]
async fn the_lowest_cap_applies() -> anyhow::Result<()> {
    let check = async |variables: &[(&str, &str)], caps: [Option<Rates>; 2], expect: Option<Rates>| {
        let scene = AggregatorScene::with(variables).await?;
        for (id, cap) in ["a", "b"].into_iter().zip(caps) {
            Worker { cap, ..Worker::new(id) }.work(&scene, NOW, 0.0);
        }
        scene.aggregate(NOW).await;
        assert_eq!(leases(&scene).map(|lease| lease.terms.cap), expect, "{variables:?} {caps:?}");
        anyhow::Ok(())
    };
    let configured = &[("READ_CAP", "400"), ("WRITE_CAP", "60")];
    check(&[], [None, Some(units(500.0, 50.0))], Some(units(500.0, 50.0))).await?;
    check(&[], [Some(units(300.0, 70.0)), Some(units(500.0, 50.0))], Some(units(300.0, 50.0))).await?;
    check(configured, [None, None], Some(units(400.0, 60.0))).await?;
    check(configured, [None, Some(units(500.0, 50.0))], Some(units(400.0, 50.0))).await?;
    check(&[], [None, None], None).await
}

#[tokio::test]
async fn python_workers_share_what_is_not_due_to_leasing_workers() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let mut leasing = Worker::new("leasing");
    scene.write("python", NOW, 400.0, 0.0);
    leasing.work(&scene, NOW, 1.0);
    scene.aggregate(NOW).await;
    // Half of 98 % is due to one of two workers, so the Python worker uses 400 of the remaining 255.
    assert_eq!(scene.summary()?["aggregated_read_rate"], json!(784.313_725));
    assert_eq!(scene.summary()?["aggregated_write_rate"], json!(0.0));
    // The Python worker's rate and a fiftieth are reserved.
    leasing.work(&scene, NOW + 5 * SECOND, 1.0);
    assert_eq!(leasing.may_use(NOW + 5 * SECOND), units(82.0, 49.0));
    // The Python worker may use as much again, and more, whatever the leasing worker uses.
    scene.write("python", NOW + 10 * SECOND, 10.0, 0.0);
    leasing.work(&scene, NOW + 10 * SECOND, 300.0);
    scene.aggregate(NOW + 10 * SECOND).await;
    assert_eq!(scene.summary()?["aggregated_read_rate"], json!(19.607_843));
    Ok(())
}

/// By its own clock, the worker's report is an hour old.
#[tokio::test]
async fn a_leasing_worker_counts_with_any_clock() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let worker = &mut Worker::new("a");
    let report = worker.work(&scene, NOW, 0.0);
    for hours in [-1, 1] {
        let now = time(NOW + hours * 3_600 * SECOND);
        let text = leasing_report("a", now, units(7.0, 0.0), &LeaseKeys { report, cap: worker.cap });
        scene.bucket().put(worker_key(PREFIX, "a"), text, time(NOW));
        let run = scene.aggregate(NOW + hours).await;
        assert_eq!((run.tally.active, run.report.read_rate), (1, Some(7.0)));
    }
    Ok(())
}

#[tokio::test]
async fn a_new_process_grants_no_growth_for_the_time_of_a_lease() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let (mut first, mut second) = (Worker::new("first"), Worker::new("second"));
    first.work(&scene, NOW, 0.0);
    scene.aggregate(NOW).await;
    assert_eq!(growth(&scene)?, units(490.0, 49.0));

    // The first worker does not report that it holds the cap. So another process cannot know.
    let process = scene.another_process(&[])?;
    for seconds in [5, 10, 15] {
        second.work(&scene, NOW + seconds * SECOND, 0.0);
        assert_eq!(only(aggregate(&process, NOW + seconds * SECOND).await).outcome_name(), "published");
        assert_eq!(growth(&scene)?, Rates::default(), "{seconds}");
    }
    // The first process does not know what the other one has granted.
    second.work(&scene, NOW + 16 * SECOND, 0.0);
    scene.aggregate(NOW + 16 * SECOND).await;
    assert_eq!(growth(&scene)?, Rates::default());
    second.work(&scene, NOW + 32 * SECOND, 0.0);
    scene.aggregate(NOW + 32 * SECOND).await;
    assert_ne!(growth(&scene)?, Rates::default());
    Ok(())
}

/// The write of the second summary succeeds, or fails, and the process does not know.
#[tokio::test]
async fn an_unknown_outcome_keeps_the_grants() -> anyhow::Result<()> {
    for fault in [Fault::InternalAfter, Fault::SlowDown] {
        let scene = AggregatorScene::new().await?;
        let mut worker = Worker::new("a");
        worker.work(&scene, NOW, 0.0);
        scene.aggregate(NOW).await;
        scene.bucket().on_call(move |_, call| match call {
            Call::Put { key } if key == KEY => Some(fault),
            Call::Get { key } if key == KEY => Some(Fault::SlowDown),
            _ => None,
        });
        worker.work(&scene, NOW + 5 * SECOND, 0.0);
        let run = only(aggregate_within(&scene.aggregator, NOW + 5 * SECOND, Duration::from_millis(400)).await);
        assert_eq!(run.outcome_name(), "failed", "{fault:?}");
        scene.bucket().undisturbed();
        // The first worker holds the whole cap, until it adopts less.
        let mut other = Worker::new("b");
        other.work(&scene, NOW + 6 * SECOND, 0.0);
        scene.aggregate(NOW + 6 * SECOND).await;
        assert_eq!(growth(&scene)?, Rates::default(), "{fault:?}");
        worker.work(&scene, NOW + 7 * SECOND, 0.0);
        scene.aggregate(NOW + 7 * SECOND).await;
        worker.work(&scene, NOW + 8 * SECOND, 0.0);
        scene.aggregate(NOW + 8 * SECOND).await;
        assert_eq!(growth(&scene)?, units(245.0, 24.5), "{fault:?}");
    }
    Ok(())
}

/// Its first report says so, whatever it uses.
#[tokio::test]
async fn a_python_worker_that_reports_no_use_keeps_its_share() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let mut leasing = Worker::new("leasing");
    scene.write("first", NOW, 0.0, 0.0);
    scene.write("writes", NOW, 0.0, 10.0);
    leasing.work(&scene, NOW, 0.0);
    scene.aggregate(NOW).await;
    leasing.work(&scene, NOW + 5 * SECOND, 0.0);
    // Of 490 and 49: a third of the cap and a fiftieth of that, and of writes also 10.2.
    let may_use = leasing.may_use(NOW + 5 * SECOND);
    assert_eq!([may_use.read, may_use.write].map(|rate| format!("{:.2}", rate.units())), ["320.00", "21.80"]);

    // The second report says that the worker is idle. The first one still counts while it is the last.
    scene.write("writes", NOW + 5 * SECOND, 0.0, 10.0);
    scene.aggregate(NOW + 5 * SECOND).await;
    let level = || leases(&scene).map(|lease| format!("{:.2}", lease.terms.level.read.units()));
    assert_eq!(level().as_deref(), Some("320.00"));
    scene.write("first", NOW + 10 * SECOND, 0.0, 0.0);
    scene.write("writes", NOW + 10 * SECOND, 0.0, 10.0);
    leasing.work(&scene, NOW + 10 * SECOND, 0.0);
    scene.aggregate(NOW + 10 * SECOND).await;
    assert_eq!(level().as_deref(), Some("490.00"));
    Ok(())
}

/// The file is new, but what is known of it is old.
#[tokio::test]
async fn a_leasing_worker_that_cannot_be_read_is_unknown_after_the_cutoff() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let mut worker = Worker::new("a");
    worker.work(&scene, NOW, 7.0);
    scene.aggregate(NOW).await;
    scene.bucket().on_call(|_, call| matches!(call, Call::Get { .. }).then_some(Fault::AccessDenied));
    for (seconds, expect) in [(10, "published"), (16, "failed")] {
        worker.work(&scene, NOW + seconds * SECOND, 7.0);
        let run = scene.aggregate(NOW + seconds * SECOND).await;
        assert_eq!((run.outcome_name(), run.report.unknown), (expect, usize::from(expect == "failed")), "{seconds}");
    }
    Ok(())
}

/// The summary was deleted. A worker that follows a report holds a lease that a new process does not know.
#[tokio::test]
async fn without_the_summary_a_new_process_waits_for_the_leases_that_it_finds() -> anyhow::Result<()> {
    let scene = AggregatorScene::new().await?;
    let mut worker = Worker::new("a");
    worker.work(&scene, NOW, 0.0);
    scene.aggregate(NOW).await;
    worker.work(&scene, NOW + 5 * SECOND, 0.0);
    assert!(scene.bucket().delete(KEY));
    // The same process knows that the worker holds the cap.
    assert_eq!(scene.aggregate(NOW + 6 * SECOND).await.outcome_name(), "published");
    assert_eq!(growth(&scene)?, units(490.0, 49.0));
    assert!(scene.bucket().delete(KEY));
    let other = scene.another_process(&[])?;
    assert_eq!(only(aggregate(&other, NOW + 7 * SECOND).await).outcome_name(), "published");
    assert_eq!(growth(&scene)?, Rates::default());
    Ok(())
}
