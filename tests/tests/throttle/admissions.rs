//! Callers that wait before a call.

use aws_sdk_dynamodb::Config;
use tidegate_tests::throttle::prelude::*;

/// A scene whose buckets hold a unit each.
async fn scene() -> anyhow::Result<ThrottleScene> {
    ThrottleScene::new(10.0, 10.0).await
}

async fn admit_write(scene: &ThrottleScene, units: f64) -> anyhow::Result<Admission> {
    Ok(scene.throttle.admit(Cost::write(units)?).await)
}

/// Checks that a write waits, and that it is sent a tenth of a second later.
async fn check_wait(
    scene: &ThrottleScene,
    put: impl Future<Output: Send + 'static> + Send + 'static,
) -> anyhow::Result<()> {
    let put = tokio::spawn(put);
    scene.waiting(1).await?;
    scene.clock.advance(Duration::from_millis(100));
    put.await?;
    Ok(())
}

#[tokio::test]
async fn an_admitted_call_does_not_wait() -> anyhow::Result<()> {
    let scene = scene().await?;
    let admission = admit_write(&scene, 1.0).await?;
    let another = tokio::spawn(scene.put("another", 0).send());
    scene.waiting(1).await?;
    scene.put("item", 3_500).customize().interceptor(admission).send().await?;
    // It has cost three units more than it was admitted for, and the other one waits for them.
    assert_eq!(scene.usage(), Account { read: 0.0, written: 4.0, waiting: 1, delayed: 1 });
    scene.clock.advance(Duration::from_millis(399));
    tokio::task::yield_now().await;
    assert_eq!(scene.usage().waiting, 1);
    scene.clock.advance(Duration::from_millis(1));
    another.await??;
    Ok(())
}

#[tokio::test]
async fn an_admission_that_is_dropped_gives_everything_back() -> anyhow::Result<()> {
    let scene = scene().await?;
    drop(admit_write(&scene, 1.0).await?);
    // An interceptor of a call that fails before it is sent is dropped too.
    let admission = admit_write(&scene, 1.0).await?;
    assert!(scene.client.put_item().customize().interceptor(admission).send().await.is_err());
    assert_eq!(scene.usage().written, 0.0);
    scene.put("item", 0).send().await?;
    assert_eq!(scene.usage(), Account { read: 0.0, written: 1.0, waiting: 0, delayed: 0 });
    Ok(())
}

#[tokio::test]
async fn only_the_first_attempt_is_admitted() -> anyhow::Result<()> {
    let scene = scene().await?;
    let first = AtomicUsize::new(0);
    scene.http.on_call(move |_, _| (first.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::InternalBefore));
    let admission = admit_write(&scene, 1.0).await?;
    check_wait(&scene, scene.put("item", 0).customize().interceptor(admission).send()).await?;
    assert_eq!((scene.http.calls()["PutItem"], scene.usage().written), (2, 2.0));
    Ok(())
}

#[tokio::test]
async fn an_admission_is_for_its_throttle_and_kind() -> anyhow::Result<()> {
    let scene = scene().await?;
    let kept = admit_write(&scene, 1.0).await?;
    let read = scene.throttle.admit(Cost::read(1.0)?).await;
    check_wait(&scene, scene.put("item", 0).customize().interceptor(read).send()).await?;
    let another = Throttle::fixed(10.0, 10.0)?.admit(Cost::write(1.0)?).await;
    check_wait(&scene, scene.put("item", 0).customize().interceptor(another).send()).await?;
    // The call does not use the admission, but its throttle cannot know.
    assert_eq!(scene.usage(), Account { read: 1.0, written: 2.0, waiting: 0, delayed: 2 });
    drop(kept);
    Ok(())
}

#[tokio::test]
async fn a_call_of_another_client_is_settled() -> anyhow::Result<()> {
    let scene = scene().await?;
    admit_write(&scene, 1.0).await?.settle(2.5)?;
    assert_eq!(scene.usage().written, 2.5);
    scene.clock.advance(Duration::from_secs(1));
    let error = admit_write(&scene, 1.0).await?.settle(f64::NAN).expect_err("no number");
    assert_eq!(error.to_string(), "invalid consumed capacity NaN: expected 0 to 10000000 capacity units");
    assert_eq!(scene.usage().written, 3.5);
    Ok(())
}

#[tokio::test]
async fn a_call_with_its_own_http_client_is_charged_afterwards() -> anyhow::Result<()> {
    let scene = scene().await?;
    let own = || Config::builder().http_client(scene.http.clone());
    for _ in 0..2 {
        scene.put("item", 0).customize().config_override(own()).send().await?;
    }
    assert_eq!(scene.usage(), Account { read: 0.0, written: 2.0, waiting: 0, delayed: 0 });
    let next = tokio::spawn(scene.put("item", 0).send());
    scene.waiting(1).await?;
    scene.clock.advance(Duration::from_millis(200));
    next.await??;
    Ok(())
}

/// A call with an HTTP client of its own that fails after it was sent.
#[tokio::test]
async fn a_failed_call_with_its_own_http_client_is_charged_its_estimate() -> anyhow::Result<()> {
    let scene = scene().await?;
    scene.put("item", 2_500).send().await?;
    scene.clock.advance(Duration::from_secs(1));
    let own = || Config::builder().http_client(scene.http.clone());
    let put = scene.put("item", 0).condition_expression("attribute_exists(missing)");
    put.clone().customize().config_override(own()).send().await.expect_err("the condition does not hold");
    assert_eq!(scene.usage().written, 6.0);
    scene.clock.advance(Duration::from_secs(1));
    let admission = admit_write(&scene, 2.0).await?;
    put.customize()
        .config_override(own())
        .interceptor(admission)
        .send()
        .await
        .expect_err("the condition does not hold");
    assert_eq!(scene.usage().written, 8.0);
    Ok(())
}

#[tokio::test]
async fn a_client_keeps_its_last_throttle() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    let last = Throttle::fixed(1e6, 1e6)?.clock(scene.clock.clone());
    scene.client = last.client(scene.client.config().clone());
    scene.put("item", 2_500).send().await?;
    assert_eq!((scene.usage().written, last.usage().writes.consumed), (0.0, 3.0));
    // The same one twice counts once.
    scene.client = last.client(scene.client.config().clone());
    scene.put("item", 2_500).send().await?;
    assert_eq!((scene.usage().written, last.usage().writes.consumed), (0.0, 6.0));
    Ok(())
}

#[tokio::test]
async fn an_admitted_call_of_a_client_with_its_throttle_twice_does_not_wait() -> anyhow::Result<()> {
    let mut scene = scene().await?;
    scene.client = scene.throttle.client(scene.client.config().clone());
    let admission = admit_write(&scene, 1.0).await?;
    let another = tokio::spawn(scene.put("another", 0).send());
    scene.waiting(1).await?;
    scene.put("item", 0).customize().interceptor(admission).send().await?;
    assert_eq!(scene.usage(), Account { read: 0.0, written: 1.0, waiting: 1, delayed: 1 });
    scene.clock.advance(Duration::from_millis(100));
    another.await??;
    Ok(())
}
