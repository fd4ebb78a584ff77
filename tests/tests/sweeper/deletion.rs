//! All tokens of a resource that has ended go, and no others, in as few calls as can be.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use serde_json::{Value, json};
use tidegate_aws::schema::tokens::{ACCOUNT_ID, RESOURCE_NAME};
use tidegate_tests::sweeper::{END, SweeperScene, changed, decisions, ended, failures, item, token};

fn calls(queries: usize, deletes: usize) -> BTreeMap<String, usize> {
    let calls = [("Query", queries), ("DeleteItem", deletes)].into_iter();
    calls.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[tokio::test]
async fn an_end_takes_all_tokens_of_its_resource_and_no_others() -> anyhow::Result<()> {
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

/// A token that is written behind its reservation, which was deleted, has four attributes.
#[tokio::test]
async fn a_token_without_a_name_and_an_account_goes_too() -> anyhow::Result<()> {
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
async fn an_event_costs_a_call_and_each_token_one_more() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let resources: Vec<_> = (0..100).map(|number| format!("j-{number}")).collect();
    for (number, resource) in resources.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        scene.put(&token(&format!("r-{number}"), resource)).await?;
    }
    let events: Vec<_> = resources.iter().map(|resource| ended(resource)).collect();
    let handled = scene.invoke(&events, END).await?;
    assert_eq!((handled.report.ended, handled.report.early), (50, 50));
    assert_eq!(scene.http.calls(), calls(100, 50));
    // Of a resource that the batch has told of already, and of what is no end, nobody is asked.
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
    // A repetition in another batch cannot be told from an end without a token, so it comes again for a while.
    let handled = scene.invoke(&[running, ended("j-1")], END + 1_000).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["no-end", "early"], vec!["m-1"]));
    let handled = scene.invoke(&[ended("j-1")], END + 120_000).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["untracked"], vec![]));
    assert_eq!(scene.left().await?, ["of-j-2"]);
    Ok(())
}

/// Failed attempts are told in any order, and again.
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
    assert_eq!((decisions(&handled), handled.decided[0].resource.as_deref()), (vec!["deleted"], Some("jr_1")));
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
