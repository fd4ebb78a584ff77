//! A dry bucket is refilled once, with what has accrued up to its last record. Any process may handle any batch.

use futures::future::join;
use tidegate_aws::schema::system;
use tidegate_tests::keeper::prelude::*;

use super::created;

/// When the bucket runs dry, and when the function learns of it.
const DRY: i64 = START + 40_000;
const NOW: i64 = DRY + 1_000;

/// A bucket that holds so much of its requests since [`START`].
fn bucket(left: i64) -> BucketState<'static> {
    let mut state = full(1);
    set_tokens(&mut state, "rpm", left);
    state
}

/// The batch that shows a client taking a request from the bucket.
async fn draw(scene: &mut KeeperScene, bucket: &BucketState<'static>) -> anyhow::Result<StreamEvent> {
    scene.put(&key("user"), bucket).await?;
    scene.writes().await?;
    scene.change(&key("user"), draw_from).await?;
    scene.event(DRY).await
}

fn draw_from(state: &mut BucketState<'static>) {
    take(state, "rpm", 1_000);
    take(state, "wcu", 1_000);
}

/// The same of a bucket that holds 3 of 100 requests.
async fn run_dry(scene: &mut KeeperScene) -> anyhow::Result<StreamEvent> {
    draw(scene, &bucket(3_000)).await
}

/// The bucket after the refill, up to the creation time of its last record.
fn refilled() -> BucketState<'static> {
    let mut state = bucket(3_000);
    draw_from(&mut state);
    set_tokens(&mut state, "rpm", 2_000 + (created(DRY) - START) * 100_000 / 60_000);
    set_tokens(&mut state, "wcu", 1_000_000);
    BucketState { last_refill: time(created(DRY)), ..state }
}

/// What the function reports of a batch with one record.
fn one(report: &KeeperReport) -> KeeperReport {
    KeeperReport { records: 1, changes: 1, shards: 1, ..report.clone() }
}

#[tokio::test]
async fn one_write_refills_a_dry_bucket() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!(handled.report, one(&KeeperReport { refilled: 1, ..KeeperReport::default() }));
    assert_eq!(scene.state(&key("user")).await?, refilled());

    let echo = scene.event(NOW).await?;
    assert_eq!(echo.records.len(), 1, "one write");
    for later in [0, 500, 1_000, 60_000] {
        scene.invoke(&echo, NOW + later).await;
        assert_eq!(scene.writes().await?, 0, "{later} ms later");
    }
    Ok(())
}

#[tokio::test]
async fn a_redelivered_batch_credits_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene).await?;
    scene.invoke(&batch, NOW).await;
    for process in [&scene.keeper, &scene.another_process()?] {
        for later in [0, 500, 1_500] {
            let report = process.handle(&batch, time(NOW + later), in_time()).await.report;
            assert_eq!(report, one(&KeeperReport { lost: 1, ..KeeperReport::default() }), "{later} ms later");
            assert_eq!(scene.state(&key("user")).await?, refilled(), "{later} ms later");
        }
    }
    Ok(())
}

#[tokio::test]
async fn two_processes_at_once_credit_once() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let other = scene.another_process()?;
    let batch = run_dry(&mut scene).await?;
    let (one, two) =
        join(scene.keeper.handle(&batch, time(NOW), in_time()), other.handle(&batch, time(NOW), in_time())).await;
    assert_eq!((one.report.refilled + two.report.refilled, one.report.lost + two.report.lost), (1, 1));
    assert_eq!(scene.state(&key("user")).await?, refilled());
    Ok(())
}

#[tokio::test]
async fn a_concurrent_debit_stays_counted() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene).await?;
    scene.change(&key("user"), |state| take(state, "rpm", 3_000)).await?;
    scene.invoke(&batch, NOW).await;
    let mut expect = refilled();
    take(&mut expect, "rpm", 3_000);
    assert_eq!(scene.state(&key("user")).await?, expect);
    Ok(())
}

#[tokio::test]
async fn a_client_that_refills_first_wins() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene).await?;
    let theirs = BucketState { last_refill: time(NOW - 1), ..full(1) };
    scene.put(&key("user"), &theirs).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!(handled.report, one(&KeeperReport { lost: 1, ..KeeperReport::default() }));
    assert_eq!(scene.state(&key("user")).await?, theirs);
    Ok(())
}

#[tokio::test]
async fn an_item_with_vu_awaits_its_client() -> anyhow::Result<()> {
    for valid_until in [-1, 0, 1, NOW + 60_000] {
        let mut scene = KeeperScene::new().await?;
        let mut marked = item(&key("user"), &bucket(3_000));
        marked.insert("vu".to_owned(), number(valid_until));
        scene.put_item(marked).await?;
        scene.writes().await?;
        scene.change_item(&key("user"), |item| add(item, "b_rpm_tk", -1_000)).await?;
        let batch = scene.event(DRY).await?;
        let handled = scene.invoke(&batch, NOW).await;
        assert_eq!(handled.report, one(&KeeperReport { awaits_client: 1, ..KeeperReport::default() }), "{valid_until}");
        assert_eq!(scene.writes().await?, 0);
    }
    Ok(())
}

/// A client draws from the bucket, and the function learns of it at `now`: its report, and at most one write.
async fn check(bucket: &BucketState<'static>, now: i64, expect: KeeperReport) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = draw(&mut scene, bucket).await?;
    let expect = one(&expect);
    assert_eq!(scene.invoke(&batch, now).await.report, expect, "{bucket:?} at {now}");
    assert_eq!(scene.writes().await?, expect.refilled);
    Ok(())
}

#[tokio::test]
async fn records_of_three_seconds_are_stale() -> anyhow::Result<()> {
    let last = created(DRY) + 3_000;
    check(&bucket(3_000), last, KeeperReport { refilled: 1, ..KeeperReport::default() }).await?;
    check(&bucket(3_000), last + 1, KeeperReport { stale: 1, ..KeeperReport::default() }).await?;
    check(&bucket(3_000), last + 300_000, KeeperReport { stale: 1, ..KeeperReport::default() }).await
}

#[tokio::test]
async fn a_refill_must_pay() -> anyhow::Result<()> {
    // In twice the lag of 1,250 ms, 2.5 requests are taken.
    check(&bucket(3_500), NOW, KeeperReport { enough: 1, ..KeeperReport::default() }).await?;
    check(&bucket(3_499), NOW, KeeperReport { refilled: 1, ..KeeperReport::default() }).await?;
    // Half of the limit accrues in 30 seconds.
    let since = |millis| BucketState { last_refill: time(created(DRY) - millis), ..bucket(3_000) };
    check(&since(30_000), NOW, KeeperReport { refilled: 1, ..KeeperReport::default() }).await?;
    check(&since(29_999), NOW, KeeperReport { unprofitable: 1, ..KeeperReport::default() }).await
}

#[tokio::test]
async fn an_expired_bucket_is_left_to_its_clients() -> anyhow::Result<()> {
    let expiring = |second| BucketState { expires: Some(second), ..bucket(3_000) };
    check(&expiring(NOW / 1_000), NOW, KeeperReport { expired: 1, ..KeeperReport::default() }).await?;
    check(&expiring(NOW / 1_000 + 1), NOW, KeeperReport { refilled: 1, ..KeeperReport::default() }).await
}

#[tokio::test]
async fn a_removed_bucket_is_gone() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let dry = run_dry(&mut scene).await?;
    scene.delete(&key("user")).await?;
    let removal = scene.event(DRY).await?;
    let batch = StreamEvent { records: dry.records.into_iter().chain(removal.records).collect() };
    let report = scene.invoke(&batch, NOW).await.report;
    assert_eq!(report, KeeperReport { records: 2, changes: 2, shards: 1, gone: 1, ..KeeperReport::default() });
    assert!(scene.table().await?.is_empty());
    Ok(())
}

const WAVES: i64 = 24;

/// Which process handles a batch.
#[derive(Clone, Copy, Debug)]
enum Processes {
    One,
    TwoInTurn,
    NewForEachBatch,
}

/// What the function reports of each batch, and the table in the end.
type Outcome = (Vec<KeeperReport>, BTreeMap<String, Item>);

/// Clients draw from a bucket that runs dry, one that doubles, and one whose client has doubled it.
async fn run(processes: Processes) -> anyhow::Result<Outcome> {
    let mut scene = KeeperScene::new().await?;
    let mut other = scene.another_process()?;
    for entity in ["dry", "hot", "sharded"] {
        let mut state = full(1);
        set_tokens(&mut state, "rpm", 30_000);
        scene.put(&key(entity), &state).await?;
    }
    let mut reports = Vec::new();
    for wave in 0..WAVES {
        let now = START + wave * 1_500;
        for _ in 0..3 {
            scene.change(&key("dry"), |state| take(state, "rpm", 1_250)).await?;
        }
        scene.change(&key("hot"), |state| take(state, "wcu", 850_000)).await?;
        if wave == 3 {
            scene.change(&key("sharded"), |state| state.shards = count(2)).await?;
        }
        if wave > 3 {
            scene.change(&shard(&key("sharded"), 1), |state| take(state, "tpm", 450_000)).await?;
        }
        let batch = scene.event(now).await?;
        match processes {
            Processes::One => {}
            Processes::TwoInTurn => std::mem::swap(&mut scene.keeper, &mut other),
            Processes::NewForEachBatch => scene.keeper = scene.another_process()?,
        }
        reports.push(scene.keeper.handle(&batch, time(now + 1_000), in_time()).await.report);
    }
    Ok((reports, scene.table().await?))
}

#[tokio::test]
async fn any_process_handles_any_batch_alike() -> anyhow::Result<()> {
    let (reports, table) = run(Processes::One).await?;
    let mut sum = KeeperReport::default();
    for report in &reports {
        sum += report;
    }
    assert!(sum.refilled > 5 && sum.doubled > 0 && sum.split > 1 && sum.lost == 0, "{sum:?}");
    assert!(table.keys().any(|key| key.contains(system::SHARDED)));
    for processes in [Processes::TwoInTurn, Processes::NewForEachBatch] {
        assert_eq!(run(processes).await?, (reports.clone(), table.clone()), "{processes:?}");
    }
    Ok(())
}
