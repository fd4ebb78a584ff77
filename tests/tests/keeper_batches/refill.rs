//! A bucket that runs dry is refilled: once, and with what has accrued.

use bucket_keeper::report::Report;
use futures::future::join;
use tidegate_aws::stream::StreamEvent;
use tidegate_domain::state::BucketState;
use tidegate_tests::keeper::{KeeperScene, START, full, in_time, key, set_tokens, take, time};

use crate::create;

/// When the bucket runs dry, and when the function learns of it.
const DRY: i64 = START + 40_000;
const NOW: i64 = DRY + 1_000;

/// A bucket is emptied, and asked for more half a minute later: the batch that shows the latter.
async fn run_dry(scene: &mut KeeperScene, bucket: BucketState<'static>) -> anyhow::Result<StreamEvent> {
    create(scene, "user", &[bucket]).await?;
    for (at, taken) in [(START + 10_000, 95_000), (DRY, 2_000)] {
        scene
            .change(&key("user"), |state| {
                take(state, "rpm", taken);
                take(state, "wcu", 1_000);
            })
            .await?;
        let event = scene.event(at).await?;
        if at == DRY {
            return Ok(event);
        }
        let report = scene.invoke(&event, at + 1_000).await.report;
        assert_eq!(report, Report { records: 1, changes: 1, shards: 1, enough: 1, ..Report::default() });
    }
    anyhow::bail!("it has not run dry")
}

/// The bucket after the refill. It was full until 10 seconds after [`START`], or until the end of that
/// second; since then, 100 a minute have accrued.
fn refilled() -> BucketState<'static> {
    let mut state = full(1);
    take(&mut state, "rpm", 97_000);
    take(&mut state, "wcu", 2_000);
    let full_until = (START + 10_000) / 1_000 * 1_000 + 999;
    set_tokens(&mut state, "rpm", 3_000 + (NOW - full_until) * 100_000 / 60_000);
    set_tokens(&mut state, "wcu", 1_000_000);
    BucketState { last_refill: time(NOW), ..state }
}

#[tokio::test]
async fn a_dry_bucket_is_refilled_in_one_write_that_causes_no_other() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, full(1)).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!(handled.report, Report { records: 1, changes: 1, shards: 1, refilled: 1, ..Report::default() });
    assert_eq!(scene.state(&key("user")).await?, refilled());

    let echo = scene.event(NOW).await?;
    assert_eq!(echo.records.len(), 1, "one write");
    for later in [0, 500, 1_000, 60_000] {
        let handled = scene.invoke(&echo, NOW + later).await;
        assert_eq!((handled.report.refilled, scene.writes().await?), (0, 0), "{later} ms later");
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_that_comes_again_credits_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, full(1)).await?;
    scene.invoke(&batch, NOW).await;
    for process in [&scene.keeper, &scene.another_process()?] {
        for later in [0, 1_000, 20_000] {
            process.handle(&batch, time(NOW + later), in_time()).await;
            assert_eq!(scene.state(&key("user")).await?, refilled(), "{later} ms later");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_that_two_have_at_once_credits_once() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let other = scene.another_process()?;
    scene.put(&key("user"), &full(1)).await?;
    scene.change(&key("user"), |state| take(state, "rpm", 95_000)).await?;
    let first = scene.event(START + 10_000).await?;
    scene.change(&key("user"), |state| take(state, "rpm", 2_000)).await?;
    let second = scene.event(DRY).await?;
    for process in [&scene.keeper, &other] {
        process.handle(&first, time(START + 11_000), in_time()).await;
    }
    let (one, two) =
        join(scene.keeper.handle(&second, time(NOW), in_time()), other.handle(&second, time(NOW), in_time())).await;
    assert_eq!((one.report.refilled + two.report.refilled, one.report.lost + two.report.lost), (1, 1));
    assert_eq!(scene.writes().await?, 1);

    // In one process, the second invocation finds no memory of the bucket.
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, full(1)).await?;
    join(scene.invoke(&batch, NOW), scene.invoke(&batch, NOW)).await;
    assert_eq!(scene.writes().await?, 1);
    assert_eq!(scene.state(&key("user")).await?, refilled());
    Ok(())
}

#[tokio::test]
async fn a_client_that_draws_meanwhile_loses_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, full(1)).await?;
    scene.change(&key("user"), |state| take(state, "rpm", 3_000)).await?;
    scene.invoke(&batch, NOW).await;
    let mut expect = refilled();
    take(&mut expect, "rpm", 3_000);
    assert_eq!(scene.state(&key("user")).await?, expect);
    Ok(())
}

#[tokio::test]
async fn a_client_that_refills_meanwhile_wins() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, full(1)).await?;
    let theirs = BucketState { last_refill: time(NOW - 1), ..full(1) };
    scene.put(&key("user"), &theirs).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!((handled.report.lost, handled.report.refilled), (1, 0));
    assert_eq!(scene.state(&key("user")).await?, theirs);
    Ok(())
}

/// The dry bucket expires in this second after 1970.
async fn check_expiry(expires: i64, expect: &Report) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let batch = run_dry(&mut scene, BucketState { expires: Some(expires), ..full(1) }).await?;
    let report = scene.invoke(&batch, NOW).await.report;
    assert_eq!(&report, expect);
    assert_eq!(scene.writes().await?, expect.refilled);
    Ok(())
}

#[tokio::test]
async fn an_expired_bucket_is_left_to_its_clients() -> anyhow::Result<()> {
    let report = Report { records: 1, changes: 1, shards: 1, ..Report::default() };
    check_expiry(NOW / 1_000, &Report { expired: 1, ..report.clone() }).await?;
    check_expiry(NOW / 1_000 + 1, &Report { refilled: 1, ..report }).await
}

#[tokio::test]
async fn a_bucket_that_is_removed_is_gone() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let dry = run_dry(&mut scene, full(1)).await?;
    scene.delete(&key("user")).await?;
    let removal = scene.event(DRY).await?;
    let batch = StreamEvent { records: dry.records.into_iter().chain(removal.records).collect() };
    let report = scene.invoke(&batch, NOW).await.report;
    assert_eq!(report, Report { records: 2, changes: 2, shards: 1, gone: 1, ..Report::default() });
    assert!(scene.table().await?.is_empty());
    Ok(())
}
