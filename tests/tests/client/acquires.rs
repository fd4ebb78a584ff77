//! Acquires: which calls they make, and what they are answered.

use std::time::Duration;

use tidegate_domain::bucket::Limit;
use tidegate_tests::client::{calls, flag, prelude::*};

/// The text of the error; `None` if the tokens are granted.
fn refusal(acquired: Result<tidegate::Lease, AcquireError>) -> Option<String> {
    acquired.err().map(|error| error.to_string())
}

#[tokio::test]
async fn the_first_acquire_creates_the_bucket() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let lease = scene.acquire(500).await?;
    assert!(!lease.is_degraded());
    assert_eq!(scene.calls(), calls([("UpdateItem", 1), ("BatchGetItem", 1), ("PutItem", 1)]));
    assert_eq!(scene.totals("tokens", 1).await?, (59_500_000, 500_000));
    assert_eq!(scene.totals("requests", 1).await?, (599_000, 1_000));
    assert_eq!(scene.totals(Limit::WRITE_UNITS, 1).await?, (999_000, 1_000));
    Ok(())
}

#[tokio::test]
async fn an_acquire_is_one_write() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.calls();
    let (units, read) = (scene.http.write_units(), scene.http.half_read_units());
    for _ in 0..10 {
        let _lease = scene.acquire(100).await?;
    }
    assert_eq!(scene.calls(), calls([("UpdateItem", 10)]));
    assert_eq!((scene.http.write_units() - units, scene.http.half_read_units() - read), (10, 0));
    assert_eq!(scene.totals("tokens", 1).await?, (58_999_000, 1_001_000));
    Ok(())
}

/// What accrued is credited by the write that takes it: one call if the last image shows that it is needed, two if another
/// client has taken the stored tokens.
#[tokio::test]
async fn a_refill_needs_no_read() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _all = scene.acquire(60_000).await?;
    scene.calls();
    let read = scene.http.half_read_units();
    scene.clock.advance(Duration::from_millis(1_500));
    let _projected = scene.acquire(1_500).await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));
    assert_eq!(scene.totals("tokens", 1).await?, (0, 61_500_000));

    scene.clock.advance(Duration::from_secs(2));
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    let _others = other.acquire(ENTITY, RESOURCE).take("tokens", 1_000).await?;
    let _own = scene.acquire(1_000).await?;
    assert_eq!(scene.totals("tokens", 1).await?, (0, 63_500_000));
    assert_eq!(scene.calls(), calls([("UpdateItem", 2)]));
    assert_eq!(scene.http.half_read_units(), read);
    Ok(())
}

/// The table is asked once. Then the limiter denies by itself, until the tokens are back.
#[tokio::test]
async fn a_denial_is_projected() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _all = scene.acquire(60_000).await?;
    scene.calls();
    let denied = |acquired| match acquired {
        Err(AcquireError::Denied(denied)) => denied,
        other => panic!("{other:?} is no denial"),
    };
    let first = denied(scene.acquire(100).await);
    assert_eq!((first.retry_after(), first.decided_by()), (Duration::from_millis(100), DecidedBy::Cache));
    assert_eq!(first.to_string(), r#"denied, retry after 100ms; limit "tokens" of entity "key-1" has 0 of 100 tokens"#);
    scene.clock.advance(Duration::from_millis(99));
    let second = denied(scene.acquire(100).await);
    assert_eq!((second.retry_after(), second.decided_by()), (Duration::from_millis(1), DecidedBy::Cache));
    assert_eq!(scene.calls(), calls([]));
    scene.clock.advance(Duration::from_millis(1));
    let _granted = scene.acquire(100).await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));

    // An image that is older than a second denies nothing.
    let denied_later = |tokens| scene.acquire(tokens);
    scene.clock.advance(Duration::from_millis(1_001));
    let later = denied(denied_later(2_000).await);
    assert_eq!((later.decided_by(), scene.calls()), (DecidedBy::Store, calls([("UpdateItem", 1)])));
    Ok(())
}

#[tokio::test]
async fn more_than_the_capacity_is_never_granted() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let refused = refusal(scene.acquire(60_001).await);
    let expect = r#"more than the bucket can hold: limit "tokens" of entity "key-1" has 59999 of 60001 tokens"#;
    assert_eq!(refused.as_deref(), Some(expect));
    Ok(())
}

/// Bad input takes nothing, and the error quotes it.
#[tokio::test]
async fn bad_input_takes_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limiter = &scene.limiter;
    let check = async |request: tidegate::AcquireBuilder, expect: &[&str]| {
        let message = request.await.expect_err("bad input").to_string();
        for part in expect {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    };
    check(limiter.acquire("a#b", RESOURCE).take("tokens", 1), &["entity", r#""a#b""#]).await;
    check(limiter.acquire(ENTITY, "4").take("tokens", 1), &["resource", r#""4""#]).await;
    check(limiter.acquire(ENTITY, RESOURCE).take("a:b", 1), &["limit", r#""a:b""#]).await;
    check(limiter.acquire(ENTITY, RESOURCE).take("wcu", 1), &["wcu", "reserved"]).await;
    check(limiter.acquire(ENTITY, RESOURCE), &["takes nothing", ENTITY]).await;
    check(limiter.acquire(ENTITY, RESOURCE).take("tokens", u64::MAX), &["tokens", &u64::MAX.to_string()]).await;
    assert_eq!(scene.calls(), calls([]));
    check(scene.acquire(1).take("misspelt", 1), &["misspelt", "not configured", ENTITY, RESOURCE]).await;
    check(limiter.acquire(ENTITY, "other").take("tokens", 1), &["no limits are configured", r#""other""#]).await;
    let _created = scene.acquire(1).await?;
    check(scene.acquire(1).take("misspelt", 1), &["misspelt", "not configured"]).await;
    assert_eq!(scene.totals("tokens", 1).await?, (59_999_000, 1_000));
    Ok(())
}

/// A bucket that its clients have marked, or that follows other rules.
#[tokio::test]
async fn marked_buckets_are_honoured() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let check = async |attribute: &str, value, expect: Option<&str>| -> anyhow::Result<()> {
        // What the limiter has seen is too old to deny by.
        scene.clock.advance(Duration::from_secs(2));
        scene
            .change(0, |item| {
                item.insert("b_tokens_tk".to_owned(), number(0));
                item.insert(attribute.to_owned(), value);
            })
            .await?;
        let refused = refusal(scene.acquire(30_000).await);
        scene.change(0, |item| drop(item.remove(attribute))).await?;
        match (&refused, expect) {
            (Some(message), Some(expect)) => assert!(message.contains(expect), "{attribute}: {message}"),
            (refused, expect) => assert_eq!(refused.as_deref(), expect, "{attribute}"),
        }
        Ok(())
    };
    check("disabled", flag(), Some("disabled")).await?;
    check("b_tokens_soft", number(START), Some("soft")).await?;
    check("bypass", number(START), Some("bypass")).await?;
    check("sched", text("1"), Some("sched")).await?;
    check("vu", number(START + 1), Some("vu")).await?;
    // A bypass and a soft limit admit more than there is.
    check("bypass", number(START + 600_000), None).await?;
    check("b_tokens_soft", number(START + 600_000), None).await?;
    Ok(())
}

/// `vu = 0` asks for one write that clamps the tokens and removes it.
#[tokio::test]
async fn a_marked_plain_bucket_is_clamped_once() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene
        .change(0, |item| {
            item.insert("vu".to_owned(), number(0));
            item.insert("b_tokens_tk".to_owned(), number(70_000_000));
        })
        .await?;
    let _second = scene.acquire(1_000).await?;
    assert_eq!(scene.totals("tokens", 1).await?.0, 59_000_000);
    assert!(!scene.item(0).await?.context("the bucket")?.contains_key("vu"));
    scene.calls();
    let _third = scene.acquire(1_000).await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));
    Ok(())
}

/// Lowered and raised limits reach a bucket with its next refill, whatever the cache says.
#[tokio::test]
async fn changed_limits_reach_a_hot_bucket() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _all = scene.acquire(60_000).await?;
    scene.configure(&[("requests", [600, 600, 60]), ("tokens", [600, 600, 60]), ("images", [10, 10, 60])]).await?;
    // Another client has written the new terms of `requests`; so the terms differ from what the limiter remembers.
    scene.change(0, |item| drop(item.insert("b_requests_cp".to_owned(), number(1_200_000)))).await?;
    scene.clock.advance(Duration::from_secs(3));
    let _refilled = scene.acquire(30).await?;
    let item = scene.item(0).await?.context("the bucket")?;
    for (attribute, expect) in [("b_tokens_cp", 600_000), ("b_tokens_ra", 600_000), ("b_requests_cp", 600_000)] {
        assert_eq!(item.get(attribute), Some(&number(expect)), "{attribute}");
    }
    // A limit that is new is added when somebody asks for it.
    let _image = scene.acquire(0).take("images", 4).await?;
    assert_eq!(scene.totals("images", 1).await?, (6_000, 4_000));
    Ok(())
}

/// An expired bucket is renewed, also if DynamoDB has not deleted it yet.
#[tokio::test]
async fn an_expired_bucket_is_renewed() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(60_000).await?;
    let expires = START / 1_000 + 7 * 60;
    assert_eq!(scene.item(0).await?.context("the bucket")?.get("ttl"), Some(&number(expires)));
    scene.clock.advance(Duration::from_mins(7));
    let _second = scene.acquire(1).await?;
    assert_eq!(scene.item(0).await?.context("the bucket")?.get("ttl"), Some(&number(expires + 420)));
    assert_eq!(scene.totals("tokens", 1).await?.0, 59_999_000);
    Ok(())
}

/// Acquires that arrive while a write is under way share the next one.
#[tokio::test]
async fn concurrent_acquires_share_writes() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.calls();
    scene.http.hold("UpdateItem");
    let acquires = futures::future::join_all((0..100).map(|_| async { scene.acquire(10).await }));
    let release = async {
        scene.http.held().await;
        scene.http.release();
    };
    let (leases, ()) = futures::join!(acquires, release);
    assert_eq!(leases.iter().filter(|lease| lease.is_ok()).count(), 100);
    // The first write begins when all of them wait.
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));
    assert_eq!(scene.totals("requests", 1).await?, (499_000, 101_000));
    assert_eq!(scene.item(0).await?.context("the bucket")?.get("#n"), Some(&number(100)));
    Ok(())
}

/// The rest of a merged write that does not fit is denied; what fits is granted in the order of arrival.
#[tokio::test]
async fn a_merged_write_grants_what_fits() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.http.hold("UpdateItem");
    let acquire = async |tokens| scene.acquire(tokens).await;
    let (one, rest, ()) =
        futures::join!(acquire(9_999), futures::future::join_all([30_000, 30_000, 20_000, 1].map(acquire)), async {
            scene.http.held().await;
            scene.http.release();
        },);
    assert!(one.is_ok());
    let granted: Vec<_> = rest.iter().map(Result::is_ok).collect();
    assert_eq!(granted, [true, false, true, false], "{rest:?}");
    assert_eq!(scene.totals("tokens", 1).await?.0, 0);
    Ok(())
}

/// Callers that wait are served in turn, when tokens are back.
#[tokio::test]
async fn waiting_callers_are_served_in_turn() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _all = scene.acquire(60_000).await?;
    let (deadline, served) = (in_time(), std::sync::Mutex::new(Vec::new()));
    let wait = async |number: usize, tokens| {
        let lease = scene.acquire(tokens).until(deadline).await;
        served.lock().expect("no panic").push(number);
        lease
    };
    let advance = async {
        for _ in 0..40 {
            scene.clock.advance(Duration::from_millis(100));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            if served.lock().expect("no panic").len() == 3 {
                break;
            }
            tokio::time::timeout(Duration::from_millis(20), std::future::pending::<()>()).await.unwrap_or_default();
        }
    };
    let (one, two, three, ()) = futures::join!(wait(1, 1_000), wait(2, 10), wait(3, 500), advance);
    assert!(one.is_ok() && two.is_ok() && three.is_ok(), "{one:?} {two:?} {three:?}");
    assert_eq!(*served.lock().expect("no panic"), [1, 2, 3]);
    // A deadline that comes before the tokens is not waited for.
    let soon = scene.acquire(60_000).until(Instant::now() + Duration::from_secs(1)).await;
    assert!(matches!(soon, Err(AcquireError::Denied(_))), "{soon:?}");
    Ok(())
}
