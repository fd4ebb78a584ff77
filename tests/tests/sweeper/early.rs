//! The end and the token, in either order.

use std::slice;

use serde_json::json;
use tidegate_tests::sweeper::{
    END, GRACE_OVER, SweeperScene, batch, changed, decisions, ended, failures, time, token, without,
};
use token_sweeper::{
    decision::{Decision, Failure},
    event::Answer,
};
use tokio::time::Instant;

#[tokio::test]
async fn a_token_before_its_end_goes_at_once() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted"], vec![]));
    Ok(())
}

#[tokio::test]
async fn an_end_before_its_token_comes_again_and_takes_it() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    // A reservation is not yet the resource's.
    scene.put(&token("r-1", "r-1")).await?;
    for later in [0, 30_000, 119_999] {
        let handled = scene.invoke(&[ended("j-1")], END + later).await?;
        assert_eq!((decisions(&handled), failures(&handled)), (vec!["early"], vec!["m-0"]), "after {later} ms");
    }
    scene.put(&token("r-1", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1")], END + 119_999).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted"], vec![]));
    assert_eq!(scene.left().await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn an_end_without_a_token_is_done_with_when_the_grace_is_over() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let handled = scene.invoke(&[ended("j-1")], GRACE_OVER).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["untracked"], vec![]));
    assert_eq!((handled.report.untracked, handled.report.early), (1, 0));
    // A token is taken however old the end is.
    scene.put(&token("r-1", "j-1")).await?;
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END + 86_400_000).await?), ["deleted"]);
    Ok(())
}

#[tokio::test]
async fn the_grace_is_the_one_that_is_configured() -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    for (seconds, now, expect) in
        [("30", END + 29_999, "early"), ("30", END + 30_000, "untracked"), ("0", END, "untracked")]
    {
        scene.sweeper = scene.another_process(&[("MISSING_TOKEN_GRACE_SECONDS", seconds)])?;
        assert_eq!(decisions(&scene.invoke(&[ended("j-1")], now).await?), [expect], "{seconds} s, {now}");
    }
    Ok(())
}

/// EventBridge's clock may be ahead of ours.
#[tokio::test]
async fn an_end_that_is_yet_to_come_is_early() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END - 5_000).await?), ["early"]);
    Ok(())
}

/// Without a time, nothing shows when to stop waiting, and it is neither safe to wait for ever nor to stop.
#[tokio::test]
async fn an_end_without_a_time_takes_a_token_and_fails_without_one() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let timeless = without(ended("j-1"), "time");
    let handled = scene.invoke(slice::from_ref(&timeless), GRACE_OVER).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed"], vec!["m-0"]));
    assert_eq!(handled.report.malformed, 1);
    assert!(matches!(handled.decided[0].decision, Decision::Failed(Failure::Timeless)));
    scene.put(&token("r-1", "j-1")).await?;
    assert_eq!(decisions(&scene.invoke(&[timeless], GRACE_OVER).await?), ["deleted"]);
    Ok(())
}

#[tokio::test]
async fn early_ends_keep_no_other_waiting() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-2", "j-2")).await?;
    let old = changed(ended("j-3"), "/time", json!("2025-12-31T23:00:00Z"));
    let handled = scene.invoke(&[ended("j-1"), ended("j-2"), old, ended("j-1")], END).await?;
    assert_eq!(decisions(&handled), ["early", "deleted", "untracked", "early"]);
    assert_eq!(failures(&handled), ["m-0", "m-3"]);
    Ok(())
}

#[tokio::test]
async fn a_direct_event_is_answered_with_what_was_decided_and_why() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    scene.put(&token("r-2", "j-1")).await?;
    let running = changed(ended("j-1"), "/detail/state", json!("RUNNING"));
    for (event, now, decision, why, deleted) in [
        (running, END, "no-end", "the event does not match the processor's pattern", 0),
        (ended("j-1"), END, "deleted", "the resource has ended", 2),
        (ended("j-1"), END, "early", "no token yet: one may still be written", 0),
        (ended("j-1"), GRACE_OVER, "untracked", "no token, and none is to be expected", 0),
    ] {
        let (decided, report) = scene.invoke_directly(event, now).await;
        let mut expect = json!({
            "event": "end-of-j-1", "processor": "emr-cluster", "resource": "j-1",
            "decision": decision, "why": why, "deleted": deleted,
        });
        if decision == "no-end" {
            expect.as_object_mut().and_then(|expect| expect.remove("resource"));
        }
        assert_eq!(serde_json::to_value(Answer::Direct(decided.response()))?, expect);
        assert_eq!((report.events, report.deleted), (1, deleted));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_done_in_time_comes_again() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    scene.http.hold("DeleteItem");
    let messages = batch(&[ended("j-1"), json!("not JSON"), ended("j-1")])?;
    let handled = scene.sweeper.handle(&messages, time(END), Instant::now()).await;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed"; 3], vec!["m-0", "m-1", "m-2"]));
    assert_eq!((handled.report.failed, handled.report.malformed), (2, 1));
    scene.http.release();
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END).await?), ["deleted"]);
    Ok(())
}
