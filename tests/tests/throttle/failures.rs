//! Attempts that fail, and calls that wait for too long.

use std::{error::Error as _, sync::Mutex};

use aws_sdk_dynamodb::{
    config::{
        Builder, StalledStreamProtectionConfig,
        retry::{ClassifyRetry, RetryAction, RetryConfig},
        timeout::TimeoutConfig,
    },
    error::SdkError,
};
use aws_smithy_runtime_api::client::{
    interceptors::context::InterceptorContext, retries::classifiers::RetryClassifierPriority,
};
use tidegate_tests::throttle::prelude::*;
use tokio::time::timeout;

/// Lets the first calls of `PutItem` fail.
fn fail_first(scene: &ThrottleScene, calls: usize, fault: Fault) {
    let left = AtomicUsize::new(calls);
    scene.http.on_call(move |operation, _| {
        let is_due = operation == "PutItem"
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        is_due.then_some(fault)
    });
}

/// A configuration whose attempts end after half a second.
fn hasty(scene: &ThrottleScene, attempts: u32) -> Builder {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(500)).build();
    let retries = RetryConfig::standard().with_max_attempts(attempts).with_initial_backoff(Duration::from_millis(1));
    scene.config().to_builder().timeout_config(timeouts).retry_config(retries)
}

#[tokio::test]
async fn throttling_errors_cost_nothing() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(10.0, 10.0).await?;
    fail_first(&scene, 5, Fault::Throttled);
    // The bucket holds one unit, so each attempt but the first would wait.
    scene.put("item", 0).send().await?;
    assert_eq!(scene.http.calls()["PutItem"], 6);
    assert_eq!(scene.usage(), Account { read: 0.0, written: 1.0, waiting: 0, delayed: 0 });
    Ok(())
}

#[tokio::test]
async fn an_attempt_without_a_response_is_charged_its_estimate() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(1e6, 1e6).await?;
    fail_first(&scene, 2, Fault::DroppedAfter);
    scene.put("item", 4_500).send().await?;
    assert_eq!(scene.usage().written, 1.0 + 1.0 + 5.0);
    fail_first(&scene, 1, Fault::InternalBefore);
    scene.put("item", 4_500).send().await?;
    assert_eq!(scene.usage().written, 7.0 + 5.0 + 5.0);
    Ok(())
}

#[tokio::test]
async fn an_attempt_that_times_out_is_charged_its_estimate() -> anyhow::Result<()> {
    let mut scene = ThrottleScene::new(1e6, 1e6).await?;
    scene.client = scene.throttle.client(hasty(&scene, 1_000).build());
    fail_first(&scene, 1, Fault::Hang);
    scene.put("item", 0).send().await?;
    // On a busy machine, more attempts may time out.
    let attempts = scene.http.calls()["PutItem"];
    assert!(attempts >= 2);
    assert_eq!(scene.usage().written, f64::from(u32::try_from(attempts)?));
    Ok(())
}

#[tokio::test]
async fn a_failed_condition_is_charged_its_estimate() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(1e6, 1e6).await?;
    scene.put("item", 2_500).send().await?;
    let failed = scene.put("item", 0).condition_expression("attribute_not_exists(PK)").send().await;
    assert!(failed.is_err_and(|error| error.into_service_error().is_conditional_check_failed_exception()));
    assert_eq!(scene.usage().written, 3.0 + 3.0);
    Ok(())
}

#[tokio::test]
async fn estimates_follow_the_operation_and_the_table() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(1e6, 1e6).await?;
    scene.put("item", 7_500).send().await?;
    let before = scene.usage();
    // The next write is expected to cost the same, and a read is not.
    scene.http.hold("PutItem");
    let put = tokio::spawn(scene.put("item", 0).send());
    scene.http.held().await;
    put.abort();
    assert!(put.await.is_err());
    scene.http.release();
    scene.http.hold("GetItem");
    let get = tokio::spawn(scene.get("item").send());
    scene.http.held().await;
    get.abort();
    assert!(get.await.is_err());
    let after = scene.usage();
    assert_eq!((after.written - before.written, after.read - before.read), (8.0, 1.0));
    Ok(())
}

#[tokio::test]
async fn a_call_that_never_gets_its_turn_fails() -> anyhow::Result<()> {
    let mut scene = ThrottleScene::new(0.0, 0.0).await?;
    scene.client = scene.throttle.client(hasty(&scene, 3).build());
    let error = scene.put("item", 0).send().await.expect_err("nothing passes");
    let SdkError::DispatchFailure(failure) = &error else { anyhow::bail!("{error:?}") };
    let throttled = failure.as_connector_error().and_then(|error| error.source()?.downcast_ref::<Throttled>());
    let throttled = throttled.context("another error")?;
    assert_eq!(throttled.waited(), Duration::from_millis(250));
    assert_eq!(throttled.to_string(), "the throttle admitted no write of 1 capacity units within 250ms");
    assert_eq!(scene.usage(), Account { read: 0.0, written: 0.0, waiting: 0, delayed: 3 });
    assert!(scene.http.calls().is_empty());
    Ok(())
}

/// Records how the SDK's own classifiers judge an attempt.
#[derive(Debug, Default)]
struct Observer(Mutex<Vec<RetryAction>>);

impl ClassifyRetry for &'static Observer {
    fn classify_retry(&self, _context: &InterceptorContext) -> RetryAction {
        RetryAction::NoActionIndicated
    }

    fn classify_retry_v2(&self, _context: &InterceptorContext, previous: &RetryAction) -> RetryAction {
        self.0.lock().expect("no panic").push(previous.clone());
        RetryAction::NoActionIndicated
    }

    fn name(&self) -> &'static str {
        "Observer"
    }

    fn priority(&self) -> RetryClassifierPriority {
        RetryClassifierPriority::run_after(RetryClassifierPriority::transient_error_classifier())
    }
}

#[tokio::test]
async fn the_sdk_retries_it_like_a_throttling_error() -> anyhow::Result<()> {
    let mut scene = ThrottleScene::new(10.0, 10.0).await?;
    scene.put("item", 0).send().await?;
    let observer: &Observer = Box::leak(Box::default());
    scene.client = scene.throttle.client(hasty(&scene, 1_000).retry_classifier(observer).build());
    let put = tokio::spawn(scene.put("item", 0).send());
    // It has left the line and come back.
    until(|| scene.usage().delayed >= 3).await?;
    scene.clock.advance(Duration::from_millis(100));
    put.await??;
    assert_eq!(scene.usage().written, 2.0);
    let actions = observer.0.lock().expect("no panic");
    assert_eq!(actions[..2], [RetryAction::throttling_error(), RetryAction::throttling_error()]);
    Ok(())
}

/// By default, the SDK ends a call that sends nothing for five seconds. This one would end after a tenth of a second.
#[tokio::test]
async fn a_call_may_wait_longer_than_the_sdk_lets_an_upload_stall() -> anyhow::Result<()> {
    let mut scene = ThrottleScene::new(10.0, 10.0).await?;
    let stalled =
        StalledStreamProtectionConfig::enabled().upload_enabled(true).grace_period(Duration::from_millis(100));
    let config = scene.config().to_builder().stalled_stream_protection(stalled.build());
    scene.client = scene.throttle.client(config.retry_config(RetryConfig::disabled()).build());
    scene.put("item", 0).send().await?;
    let mut put = Box::pin(scene.put("item", 0).send());
    assert!(timeout(Duration::from_secs(1), &mut put).await.is_err(), "it does not wait");
    scene.clock.advance(Duration::from_millis(100));
    put.await?;
    Ok(())
}
