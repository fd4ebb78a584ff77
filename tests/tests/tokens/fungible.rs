//! Takes of fungible tokens: what they admit, what they deny, and why they fail.

use futures::{StreamExt as _, stream};
use tidegate_tests::fungible::prelude::*;

const MINUTE: Duration = Duration::from_mins(1);

/// The denial of a take: what there is, and the wait in milliseconds.
async fn denial(fungible: &Fungible, tokens: u64) -> anyhow::Result<(i64, u128)> {
    match fungible.take(RESOURCE, ACCOUNT, tokens).await {
        Err(TakeError::Denied(denied)) => Ok((denied.available(), denied.retry_after().as_millis())),
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test]
async fn a_bucket_starts_full_and_accrues() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    assert_eq!(scene.take(3).await?.remaining(), 7);
    assert_eq!(scene.take(7).await?.remaining(), 0);
    assert_eq!(denial(&scene.fungible, 1).await?, (0, 6_000));
    scene.clock.advance(Duration::from_millis(5_999));
    assert_eq!(denial(&scene.fungible, 1).await?, (0, 1));
    assert_eq!(denial(&scene.fungible, 2).await?, (0, 6_001));
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.take(1).await?.remaining(), 0);
    // It holds ten at most.
    scene.clock.advance(60 * MINUTE);
    assert_eq!(count(&scene.fungible, 20).await?, 10);
    assert_eq!(scene.number(LAST_TOKEN).await?, Some(scene.clock.epoch_millis()));
    assert_eq!(scene.number(LAST_REFILL).await?, None);
    Ok(())
}

#[tokio::test]
async fn concurrent_callers_take_exactly_the_limit() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let clients = [scene.fungible.clone(), scene.another()];
    for round in 0..3 {
        let take = |number: usize| {
            let client = &clients[number % 2];
            async move {
                match client.take(RESOURCE, ACCOUNT, 1).await {
                    Ok(_) => 1,
                    Err(TakeError::Denied(_)) => 0,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let granted: Vec<_> = stream::iter((0..200).map(take)).buffer_unordered(50).collect().await;
        assert_eq!(granted.into_iter().sum::<i32>(), 10, "round {round}");
        assert_eq!(scene.tokens().await?, 0);
        // First the row is missing, then it is empty, then it would hold more than the limit.
        scene.clock.advance(MINUTE * (round + 1));
    }
    Ok(())
}

/// Another process refills the row, so what this one has seen of it is outdated.
#[tokio::test]
async fn processes_share_the_limit() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let other = scene.another();
    assert_eq!(count(&scene.fungible, 4).await? + count(&other, 20).await?, 10);
    scene.clock.advance(10 * MINUTE);
    assert_eq!(count(&other, 1).await? + count(&scene.fungible, 20).await? + count(&other, 20).await?, 10);
    scene.clock.advance(Duration::from_secs(12));
    assert_eq!(count(&scene.fungible, 1).await? + count(&other, 20).await? + count(&scene.fungible, 1).await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_caller_waits_for_tokens() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(10).await?;
    let mut waiting = scene.take(2).until(in_time()).into_future();
    assert!(futures::poll!(&mut waiting).is_pending());
    let in_line = tokio::spawn(scene.take(1).until(in_time()).into_future());
    scene.clock.advance(Duration::from_millis(11_999));
    // A token has accrued. The caller that is in line leaves it, although it could take it meanwhile.
    for _ in 0..10 {
        assert_eq!(scene.tokens().await?, 0);
        assert!(futures::poll!(&mut waiting).is_pending());
    }
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(waiting.await?.remaining(), 0);
    assert!(!in_line.is_finished());
    scene.clock.advance(Duration::from_secs(6));
    assert_eq!(in_line.await??.remaining(), 0);
    // Tokens that accrue after the deadline are not waited for.
    let late = scene.take(10).until(Instant::now() + Duration::from_secs(30)).into_future();
    let late = tokio::time::timeout(Duration::from_secs(10), late).await?;
    assert!(matches!(&late, Err(TakeError::Denied(denied)) if denied.retry_after() == MINUTE), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_changed_limit_applies_after_five_seconds() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(1).await?;
    scene.limit(4, Some(60)).await?;
    scene.clock.advance(Duration::from_millis(4_999));
    assert_eq!(scene.take(1).await?.remaining(), 8);
    scene.clock.advance(Duration::from_millis(1));
    // What is above the new limit is gone.
    assert_eq!(scene.take(1).await?.remaining(), 3);
    scene.limit(100, Some(100)).await?;
    scene.clock.advance(Duration::from_secs(5));
    // Three are stored, and five have accrued at the new rate.
    assert_eq!(scene.take(8).await?.remaining(), 0);
    scene.limit(0, Some(60)).await?;
    scene.clock.advance(Duration::from_secs(5));
    let error = scene.take(1).await.expect_err("the limit is 0");
    assert_eq!(error.to_string(), "account \"123456789012\" is blocked for resource \"emr-api\": its limit is 0");
    scene.fungible.refill(RESOURCE, ACCOUNT).await?;
    assert_eq!(scene.tokens().await?, 0);
    Ok(())
}

#[tokio::test]
async fn limits_have_defaults() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.limit(10, None).await?;
    let message = async |fungible: &Fungible, account| {
        fungible.take(RESOURCE, account, 1).await.expect_err("no limit").to_string()
    };
    let none = scene.another();
    let unknown = "resource \"emr-api\" has no limit for account \"1\": the limits table has no row, and there is no default limit";
    assert_eq!(message(&none, "1").await, unknown);
    let windowless = "the limit of resource \"emr-api\" for account \"123456789012\" has no window: set windowSec in the limits table, or a default limit";
    assert_eq!(message(&none, ACCOUNT).await, windowless);
    scene.limit(10, Some(0)).await?;
    assert_eq!(message(&scene.another(), ACCOUNT).await, windowless);

    let with_default = scene.another_with(|builder| builder.default_limit(RESOURCE, 5, Duration::from_secs(10)));
    assert_eq!(with_default.take(RESOURCE, "1", 1).await?.remaining(), 4);
    assert_eq!(with_default.take(RESOURCE, ACCOUNT, 10).await?.remaining(), 0);
    assert_eq!(denial(&with_default, 1).await?, (0, 1_000));
    let zero = scene.another_with(|builder| builder.default_limit(RESOURCE, 5, Duration::ZERO));
    assert!(message(&zero, "1").await.contains("has no window"));
    Ok(())
}

#[tokio::test]
async fn bad_requests_are_named() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let check = async |resource: &str, account: &str, tokens, expect: &str| {
        let error = scene.fungible.take(resource, account, tokens).await.expect_err("a bad request");
        assert_eq!(error.to_string(), expect);
    };
    check("", ACCOUNT, 1, "invalid resource \"\": expected a name, at most 1000 characters").await;
    check(RESOURCE, "", 1, "invalid account \"\": expected a name, at most 1000 characters").await;
    let none = "the take of resource \"emr-api\" for account \"123456789012\" asks for 0 tokens, expected at least 1";
    check(RESOURCE, ACCOUNT, 0, none).await;
    assert!(scene.http.calls().is_empty());
    let never = "11 tokens of resource \"emr-api\" for account \"123456789012\" are more than the limit of 10";
    check(RESOURCE, ACCOUNT, 11, never).await;
    check(RESOURCE, ACCOUNT, u64::MAX, &never.replace("11 ", &format!("{} ", u64::MAX))).await;
    scene.take(9).await?;
    let denied = "denied, retry after 6s; resource \"emr-api\" has 1 of 2 tokens for account \"123456789012\"";
    check(RESOURCE, ACCOUNT, 2, denied).await;
    Ok(())
}

#[tokio::test]
async fn a_cache_denies_for_a_second() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.take(10).await?;
    scene.http.calls();
    assert_eq!(count(&scene.fungible, 5).await?, 0);
    assert_eq!(scene.http.calls(), calls([]));
    // An operator fills the row.
    scene.put_stored(10, START).await?;
    scene.clock.advance(Duration::from_millis(999));
    assert_eq!(count(&scene.fungible, 1).await?, 0);
    assert_eq!(scene.http.calls(), calls([]));
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(count(&scene.fungible, 1).await?, 1);
    assert_eq!(scene.http.calls(), calls([("GetItem", 1), ("UpdateItem", 1)]));
    Ok(())
}

#[tokio::test]
async fn a_refill_credits_what_has_accrued() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let refill = async || scene.fungible.refill(RESOURCE, ACCOUNT).await;
    refill().await?;
    assert_eq!((scene.tokens().await?, scene.number(LAST_TOKEN).await?), (10, None));
    scene.take(10).await?;
    scene.http.calls();
    scene.clock.advance(Duration::from_millis(5_999));
    refill().await?;
    assert_eq!(scene.tokens().await?, 0);
    assert_eq!(scene.http.calls(), calls([("GetItem", 2)]));
    scene.clock.advance(Duration::from_millis(7_001));
    refill().await?;
    assert_eq!(scene.tokens().await?, 2);
    assert_eq!(scene.number(REFILLED).await?, Some((START + 12_000) * 1_000_000));
    scene.clock.advance(MINUTE);
    refill().await?;
    assert_eq!(scene.tokens().await?, 10);
    Ok(())
}

#[tokio::test]
async fn a_release_removes_our_attributes() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let exact = scene.another_with(FungibleBuilder::exact_beside_python);
    let release = async || exact.release_refill(RESOURCE, ACCOUNT).await;
    release().await?;
    assert_eq!(scene.row().await?, None);
    exact.take(RESOURCE, ACCOUNT, 3).await?;
    assert_eq!(scene.number(LAST_REFILL).await?, Some(SEALED));
    scene.clock.advance(Duration::from_secs(1));
    release().await?;
    let released = scene.row().await?.context("the row")?;
    assert_eq!(scene.number(LAST_REFILL).await?, Some(START + 1_000));
    assert!([REFILLED, LEFT, OPERATION].iter().all(|ours| !released.contains_key(*ours)), "{released:?}");
    scene.clock.advance(Duration::from_secs(1));
    release().await?;
    assert_eq!(scene.row().await?, Some(released));
    // A take adopts it from there: one token accrues in six seconds.
    scene.clock.advance(Duration::from_secs(5));
    assert_eq!(exact.take(RESOURCE, ACCOUNT, 1).await?.remaining(), 7);
    Ok(())
}

/// Clients with and without the option share a row.
#[tokio::test]
async fn a_client_without_the_option_leaves_the_seal() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let exact = scene.another_with(FungibleBuilder::exact_beside_python);
    assert_eq!(count(&scene.fungible, 2).await?, 2);
    assert_eq!(scene.number(LAST_REFILL).await?, None);
    assert_eq!(count(&exact, 2).await?, 2);
    assert_eq!(scene.number(LAST_REFILL).await?, Some(SEALED));
    scene.clock.advance(MINUTE);
    assert_eq!(count(&scene.fungible, 20).await?, 10);
    assert_eq!(count(&exact, 20).await?, 0);
    assert_eq!(scene.number(LAST_REFILL).await?, Some(SEALED));
    Ok(())
}

/// A Python client created the row and did not refill it. Our denied take adopts it, so that tokens accrue.
#[tokio::test]
async fn a_denied_row_of_python_is_adopted() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    scene.put_row(&[(TOKENS, number(-1)), (LAST_TOKEN, number(START))]).await?;
    assert!(matches!(scene.take(1).await, Err(TakeError::Denied(_))));
    scene.clock.advance(Duration::from_mins(1));
    assert_eq!(scene.take(9).await?.remaining(), 0);
    // A busy Python client keeps its row below the limit. A request for all tokens seals it, and so they accrue.
    let exact = scene.another_with(FungibleBuilder::exact_beside_python);
    scene.put_row(&[(TOKENS, number(9)), (LAST_REFILL, number(scene.clock.epoch_millis()))]).await?;
    assert!(matches!(exact.take(RESOURCE, ACCOUNT, 10).await, Err(TakeError::Denied(_))));
    assert_eq!(scene.number(LAST_REFILL).await?, Some(SEALED));
    Ok(())
}
