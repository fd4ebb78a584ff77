//! Events of ends: all tokens of the resource go, and no others. The end and the token come in either order, and others
//! change tokens concurrently.

use std::slice;

use aws_sdk_dynamodb::primitives::Blob;
use tidegate_aws::schema::tokens::{ACCOUNT_ID, RESOURCE_NAME};
use tidegate_tests::sweeper::prelude::*;

fn calls(queries: usize, deletes: usize) -> BTreeMap<String, usize> {
    let calls = [("Query", queries), ("DeleteItem", deletes)].into_iter();
    calls.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[tokio::test]
async fn an_end_deletes_the_tokens_of_its_resource() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for (reservation, resource) in [("r-1", "j-1"), ("r-2", "j-1"), ("r-3", "j-1"), ("r-4", "j-2"), ("r-5", "r-5")] {
        scene.put(&token(reservation, resource)).await?;
    }
    let handled = scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted"], vec![]));
    assert_eq!((handled.report.ended, handled.report.deleted), (1, 3));
    assert_eq!(scene.left().await?, ["r-4", "r-5"]);
    Ok(())
}

/// A client writes such a token if its reservation was deleted meanwhile.
#[tokio::test]
async fn a_token_with_four_attributes_is_deleted() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let mut bare = item(&token("r-1", "j-1"));
    bare.retain(|name, _| ![RESOURCE_NAME, ACCOUNT_ID].contains(&name.as_str()));
    scene.put_item(bare).await?;
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END).await?), ["deleted"]);
    assert_eq!(scene.left().await?, [""; 0]);
    Ok(())
}

/// DynamoDB answers with a megabyte at a time, of items as they are before their attributes are chosen.
#[tokio::test]
async fn tokens_on_several_pages_go() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for number in 0..10 {
        let mut padded = item(&token(&format!("r-{number}"), "j-1"));
        padded.insert("padding".to_owned(), AttributeValue::B(Blob::new(vec![0; 300_000])));
        scene.put_item(padded).await?;
    }
    scene.put(&token("r-live", "j-2")).await?;
    let handled = scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), handled.report.deleted), (vec!["deleted"], 10));
    assert_eq!(scene.left().await?, ["r-live"]);
    let calls = scene.http.calls();
    assert!(calls["Query"] >= 3 && calls["DeleteItem"] >= 10, "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn each_event_and_each_token_cost_one_call() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let resources: Vec<_> = (0..100).map(|number| format!("j-{number}")).collect();
    for (number, resource) in resources.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        scene.put(&token(&format!("r-{number}"), resource)).await?;
    }
    let events: Vec<_> = resources.iter().map(|resource| ended(resource)).collect();
    let handled = scene.invoke(&events, END).await?;
    assert_eq!((handled.report.ended, handled.report.early), (50, 50));
    assert_eq!(scene.http.calls(), calls(100, 50));
    // A repeated end, or an event that is no end, causes no query.
    let running = changed(ended("j-1"), "/detail/state", json!("RUNNING"));
    scene.put(&token("r", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1"), ended("j-1"), running, json!("not JSON")], END).await?;
    assert_eq!((handled.report.ended, handled.report.repeated), (2, 1));
    assert_eq!(scene.http.calls(), calls(1, 1));
    Ok(())
}

#[tokio::test]
async fn repeated_and_belated_events_change_nothing() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let running = changed(ended("j-1"), "/detail/state", json!("RUNNING"));
    for resource in ["j-1", "j-2"] {
        scene.put(&token(&format!("of-{resource}"), resource)).await?;
    }
    let handled = scene.invoke(&[ended("j-1"), running.clone(), ended("j-1")], END).await?;
    assert_eq!(decisions(&handled), ["deleted", "no-end", "deleted"]);
    // A repeated event in another batch looks like an end without a token, so its message fails until the grace is over.
    let handled = scene.invoke(&[running, ended("j-1")], END + 1_000).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["no-end", "early"], vec!["m-1"]));
    let handled = scene.invoke(&[ended("j-1")], END + 120_000).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["untracked"], vec![]));
    assert_eq!(scene.left().await?, ["of-j-2"]);
    Ok(())
}

/// Events of failed attempts come in any order, and repeatedly.
#[tokio::test]
async fn a_retried_glue_job_run_keeps_its_token() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "jr_1")).await?;
    scene.put(&token("r-2", "jr_2")).await?;
    let event = |job_run: &str, state: &str| {
        json!({"source": "aws.glue", "detail-type": "Glue Job State Change", "time": "2026-01-01T00:00:00Z",
            "detail": {"jobName": "load", "severity": "INFO", "jobRunId": job_run, "state": state}})
    };
    let failed = ["jr_1", "jr_1_attempt_1", "jr_1"].map(|attempt| event(attempt, "FAILED"));
    let handled = scene.invoke(&failed, END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["no-end"; 3], vec![]));
    assert_eq!(scene.left().await?, ["r-1", "r-2"]);
    let handled = scene.invoke(&[event("jr_1_attempt_2", "SUCCEEDED")], END).await?;
    assert_eq!((decisions(&handled), handled.decided[0].about.resource.as_deref()), (vec!["deleted"], Some("jr_1")));
    assert_eq!(scene.left().await?, ["r-2"]);
    Ok(())
}

#[tokio::test]
async fn events_of_one_batch_each_take_their_own() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let events: [(&str, Value); 3] = [
        ("j-1", ended("j-1")),
        (
            "jr_1",
            json!({"source": "aws.glue", "detail-type": "Glue Job State Change", "time": "2026-01-01T00:00:00Z",
                "detail": {"jobRunId": "jr_1", "state": "TIMEOUT"}}),
        ),
        (
            "i-1",
            json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
                "detail": {"instance-id": "i-1", "state": "terminated"}}),
        ),
    ];
    for (resource, _) in &events {
        scene.put(&token(&format!("of-{resource}"), resource)).await?;
        scene.put(&token(&format!("of-{resource}-too"), &format!("{resource}0"))).await?;
    }
    let handled = scene.invoke(&events.map(|(_, event)| event), END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted"; 3], vec![]));
    assert_eq!(scene.left().await?, ["of-i-1-too", "of-j-1-too", "of-jr_1-too"]);
    Ok(())
}

#[tokio::test]
async fn a_token_before_its_end_goes_at_once() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted"], vec![]));
    Ok(())
}

#[tokio::test]
async fn an_early_end_comes_again_for_its_token() -> anyhow::Result<()> {
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
async fn an_end_without_a_token_waits_for_grace() -> anyhow::Result<()> {
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
async fn a_future_end_is_early() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END - 5_000).await?), ["early"]);
    Ok(())
}

/// Without a time, nothing shows when the grace ends.
#[tokio::test]
async fn an_end_without_a_time_needs_a_token() -> anyhow::Result<()> {
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
async fn a_direct_event_is_answered_with_its_decision() -> anyhow::Result<()> {
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
        assert_eq!(serde_json::to_value(Answer::Direct(decided))?, expect);
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
