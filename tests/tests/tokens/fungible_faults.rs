//! Faults while fungible tokens are taken: a charge happens at most once, and tokens are never created.

use futures::{StreamExt as _, stream};
use tidegate_tests::fungible::prelude::*;

/// The first so many writes meet this fault.
fn disturb(scene: &FungibleScene, fault: Fault, writes: usize) {
    let hits = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        (operation == "UpdateItem" && hits.fetch_add(1, Ordering::Relaxed) < writes).then_some(fault)
    });
}

/// What the row was charged is what the callers took, except for those that were told that it is not known.
#[tokio::test]
async fn no_fault_charges_twice() -> anyhow::Result<()> {
    let rates = FaultRates { dropped_after: 0.05, internal_after: 0.05, ..FaultRates::spread(0.2) };
    let scene = FungibleScene::with_faults(rates, 7).await?;
    // A token accrues each millisecond. The bucket starts empty and does not fill up.
    scene.limit(100_000, Some(100)).await?;
    scene.put_stored(0, START).await?;
    let take = |number: u64| {
        let scene = &scene;
        async move {
            if number.is_multiple_of(5) {
                scene.clock.advance(Duration::from_millis(10));
            }
            match scene.take(2).await {
                Ok(_) => (2, 0),
                Err(TakeError::Lost { .. }) => (0, 2),
                // Nothing was taken.
                Err(TakeError::Denied(_) | TakeError::Table(_)) => (0, 0),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let taken: Vec<_> = stream::iter((0..600).map(take)).buffer_unordered(20).collect().await;
    let (granted, unknown) =
        taken.into_iter().fold((0, 0), |(granted, unknown), (one, other)| (granted + one, unknown + other));
    let counts = scene.http.counts();
    assert!(counts.unacknowledged() > 20 && counts.throttled > 10, "{counts:?}");
    assert!(unknown > 0 && unknown < granted / 2, "{granted} granted, {unknown} unknown");
    let refilled = scene.number(REFILLED).await?.context("our attribute")?;
    let charged = refilled / 1_000_000 - START - scene.tokens().await?;
    assert!((granted..=granted + unknown).contains(&charged), "{charged}: {granted} granted, {unknown} unknown");
    Ok(())
}

/// A response that is lost after the write is found by the id that the write left.
#[tokio::test]
async fn a_lost_response_is_found() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(1).await?;
    for (fault, remaining) in [(Fault::DroppedAfter, 6), (Fault::InternalAfter, 3)] {
        disturb(&scene, fault, 1);
        scene.http.calls();
        let before = scene.http.half_read_units();
        assert_eq!(scene.take(3).await?.remaining(), remaining);
        assert_eq!(scene.http.calls(), calls([("GetItem", 1), ("UpdateItem", 1)]), "{fault:?}");
        // It is read consistently.
        assert_eq!(scene.http.half_read_units() - before, 2);
    }
    assert_eq!(scene.tokens().await?, 3);
    Ok(())
}

/// A request that never arrived is not made again, because it could still arrive.
#[tokio::test]
async fn a_lost_request_counts_as_taken() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(1).await?;
    disturb(&scene, Fault::DroppedBefore, 1);
    let error = scene.take(3).await.expect_err("it cannot be known");
    assert!(matches!(error, TakeError::Lost { .. }), "{error:?}");
    let expect = "tokens of resource \"emr-api\" for account \"123456789012\" may have been taken: the response was lost: table \"prod-fungible-tokens\": ";
    assert!(error.to_string().starts_with(expect), "{error}");
    assert_eq!(scene.take(3).await?.remaining(), 6);
    Ok(())
}

/// Another write has left its id since, so the lost response cannot be resolved.
#[tokio::test]
async fn a_lost_response_may_stay_unknown() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(1).await?;
    disturb(&scene, Fault::DroppedAfter, 1);
    scene.http.hold("GetItem");
    let mut lost = scene.take(3).into_future();
    let held = scene.http.held();
    tokio::select! {
        biased;
        taken = &mut lost => panic!("the read is held: {taken:?}"),
        () = held => {}
    }
    assert_eq!(scene.another().take(RESOURCE, ACCOUNT, 1).await?.remaining(), 5);
    scene.http.release();
    let error = lost.await.expect_err("it cannot be known");
    assert!(matches!(error, TakeError::Lost { .. }), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_busy_table_is_asked_again() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    for fault in [Fault::Throttled, Fault::HotPartition, Fault::Conflict] {
        disturb(&scene, fault, 3);
        scene.http.calls();
        scene.take(1).await?;
        assert_eq!(scene.http.calls()["UpdateItem"], 4, "{fault:?}");
    }
    disturb(&scene, Fault::Throttled, usize::MAX);
    let error = scene.take(1).await.expect_err("the table is busy");
    assert!(matches!(&error, TakeError::Table(error) if error.is_retryable()), "{error}");
    assert_eq!(scene.tokens().await?, 7);
    Ok(())
}

/// A refill is found if its response is lost. Otherwise it can be repeated. It credits once.
#[tokio::test]
async fn a_lost_refill_credits_once() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(10).await?;
    for (fault, tokens) in [(Fault::DroppedAfter, 1), (Fault::DroppedBefore, 2), (Fault::InternalAfter, 3)] {
        scene.clock.advance(Duration::from_secs(6));
        disturb(&scene, fault, 1);
        let refilled = scene.fungible.refill(RESOURCE, ACCOUNT).await;
        assert_eq!(refilled.is_err(), fault == Fault::DroppedBefore, "{refilled:?}");
        scene.fungible.refill(RESOURCE, ACCOUNT).await?;
        assert_eq!(scene.tokens().await?, tokens, "{fault:?}");
    }
    Ok(())
}

/// The write of a caller that goes away is completed.
#[tokio::test]
async fn a_cancelled_charge_stays() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(1).await?;
    scene.http.hold("UpdateItem");
    {
        let mut cancelled = scene.take(3).into_future();
        let held = scene.http.held();
        tokio::select! {
            biased;
            taken = &mut cancelled => panic!("the write is held: {taken:?}"),
            () = held => {}
        }
    }
    scene.http.release();
    let charged = async {
        while scene.tokens().await? != 6 {
            tokio::task::yield_now().await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout_at(in_time(), charged).await??;
    assert_eq!(scene.take(1).await?.remaining(), 5);
    Ok(())
}

#[tokio::test]
async fn what_an_operator_must_correct_is_named() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let check = async |fungible: &Fungible, expect: &str| {
        let error = fungible.take(RESOURCE, ACCOUNT, 1).await.expect_err("an operator must act").to_string();
        assert!(error.starts_with(expect), "{error}");
    };
    let missing = |tables| scene.another_at(tables, |builder| builder);
    let no_limits = missing(TokenTables { limits: "none-limits".to_owned(), ..TokenTables::of("prod") });
    let impossible = "GetItem is not possible: the table or a permission is missing: ";
    check(&no_limits, &format!("table \"none-limits\": {impossible}")).await;
    let no_rows = missing(TokenTables { fungible: "none-tokens".to_owned(), ..TokenTables::of("prod") });
    check(&no_rows, &format!("table \"none-tokens\": {impossible}")).await;

    disturb(&scene, Fault::AccessDenied, usize::MAX);
    let denied = "table \"prod-fungible-tokens\": UpdateItem is not possible: the table or a permission is missing: ";
    check(&scene.fungible, denied).await;
    assert_eq!(scene.row().await?, None);

    scene.put_row(&[(TOKENS, text("ten"))]).await?;
    let malformed =
        "table \"prod-fungible-tokens\": attribute tokens of emr-api 123456789012 has the invalid value S(\"ten\")";
    check(&scene.another(), malformed).await;
    Ok(())
}
