//! The real client, rate-limiter-py 0.3.0, and ours on the same row.
//!
//! They are skipped where Python does not have that library: see `tidegate_tests::python`.

use tidegate_tests::fungible::prelude::*;

/// The tables, a client of rate-limiter-py, and ours with the option.
struct Both {
    scene: FungibleScene,
    python: PythonLimiter,
    exact: Fungible,
}

impl Both {
    /// `None` where there is no such client.
    async fn new() -> anyhow::Result<Option<Self>> {
        let scene = FungibleScene::new().await?;
        let Some(python) = PythonLimiter::start(&scene).await? else { return Ok(None) };
        let exact = scene.another_with(FungibleBuilder::exact_beside_python);
        Ok(Some(Self { scene, python, exact }))
    }

    async fn python(&mut self, times: usize) -> anyhow::Result<usize> {
        self.python.count(times, &self.scene.clock).await
    }

    fn advance(&self, millis: u64) {
        self.scene.clock.advance(Duration::from_millis(millis));
    }
}

/// The defect that the option removes: 200 of 200 at a limit of ten a minute.
#[tokio::test]
async fn python_alone_limits_nothing() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    let mut granted = 0;
    for _ in 0..200 {
        granted += both.python(1).await?;
        both.advance(1);
    }
    assert_eq!(granted, 200);
    Ok(())
}

#[tokio::test]
async fn python_takes_only_what_is_stored() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    both.exact.take(RESOURCE, ACCOUNT, 5).await?;
    assert_eq!(both.python(200).await?, 5);
    assert_eq!(both.python(200).await? + count(&both.exact, 5).await?, 0);
    // Its fail-safe takes one in six seconds, and what accrues pays for it.
    both.advance(6_001);
    assert_eq!(both.python(200).await?, 1);
    assert_eq!(both.scene.tokens().await?, -1);
    assert_eq!(count(&both.exact, 1).await?, 0);
    both.advance(5_999);
    assert_eq!(count(&both.exact, 5).await?, 1);
    assert_eq!(both.scene.number(LAST_REFILL).await?, Some(SEALED));
    Ok(())
}

/// In real time, by the clocks of both.
#[tokio::test]
async fn python_takes_only_what_is_stored_in_real_time() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    both.scene.limit(10, Some(3_600)).await?;
    let exact = both.scene.in_real_time(FungibleBuilder::exact_beside_python);
    exact.take(RESOURCE, ACCOUNT, 5).await?;
    assert_eq!(both.python.count_now(200).await?, 5);
    assert_eq!(count(&exact, 5).await?, 0);
    Ok(())
}

/// Both take as much as they get for two minutes. A schedule refills the row every ten seconds.
#[tokio::test]
async fn both_together_keep_to_the_limit() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    both.exact.refill(RESOURCE, ACCOUNT).await?;
    let (mut theirs, mut ours) = (0, 0);
    for second in 0..=120 {
        if second % 2 == 0 {
            theirs += both.python(3).await?;
            ours += count(&both.exact, 1).await?;
        } else {
            ours += count(&both.exact, 2).await?;
            theirs += both.python(1).await?;
        }
        if second % 10 == 0 {
            both.exact.refill(RESOURCE, ACCOUNT).await?;
        }
        both.advance(1_000);
    }
    // Ten at first, and twenty that accrue.
    assert_eq!(theirs + ours, 30, "{theirs} and {ours}");
    assert!(theirs >= 5 && ours >= 5, "{theirs} and {ours}");
    Ok(())
}

/// A bucket that is full for long and is then emptied by Python is not full again.
#[tokio::test]
async fn an_idle_bucket_grants_its_limit_once() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    both.exact.refill(RESOURCE, ACCOUNT).await?;
    both.advance(3_600_000);
    assert_eq!(both.python(200).await?, 10);
    assert_eq!(count(&both.exact, 20).await?, 0);
    both.advance(12_000);
    assert_eq!(count(&both.exact, 20).await?, 2);
    Ok(())
}

#[tokio::test]
async fn python_refills_again_after_a_release() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    assert_eq!(count(&both.exact, 10).await?, 10);
    assert_eq!(both.python(20).await?, 0);
    both.exact.release_refill(RESOURCE, ACCOUNT).await?;
    // Its fail-safe takes the first one, and then it sets the tokens to nine.
    both.advance(6_001);
    assert_eq!(both.python(1).await?, 1);
    assert_eq!(both.scene.tokens().await?, 9);
    assert_eq!(both.python(200).await?, 9);
    both.advance(6_001);
    assert_eq!(both.python(200).await?, 10);
    // Our next take takes the refill over again.
    both.advance(60_000);
    assert_eq!(count(&both.exact, 20).await?, 10);
    assert_eq!(both.python(200).await?, 0);
    Ok(())
}

/// Without the option, clients of both kinds use the row, and each finds what it expects.
#[tokio::test]
async fn rows_are_shared_without_the_option() -> anyhow::Result<()> {
    let Some(mut both) = Both::new().await? else { return Ok(()) };
    assert_eq!(both.python(1).await?, 1);
    assert_eq!(both.scene.tokens().await?, 9);
    assert_eq!(both.scene.take(4).await?.remaining(), 5);
    assert_eq!(both.scene.number(LAST_REFILL).await?, Some(START));
    assert_eq!(both.python(2).await?, 2);
    assert_eq!(both.scene.take(3).await?.remaining(), 0);
    // Python refills, because nothing keeps it from that. Ours finds the tokens.
    both.advance(6_001);
    assert_eq!(both.python(1).await?, 1);
    assert_eq!(both.scene.tokens().await?, 9);
    both.advance(60_000);
    assert_eq!(count(&both.scene.fungible, 20).await?, 10);
    Ok(())
}
