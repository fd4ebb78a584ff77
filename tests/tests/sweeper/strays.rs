//! What nobody can deal with is that message's failure only; what is no end is none.

use std::slice;

use serde_json::{Value, json};
use tidegate_tests::sweeper::{
    END, SweeperScene, batch, changed, decisions, ended, failures, in_time, messages, time, token, without,
};
use token_sweeper::decision::{Decision, Failure};

/// A stray among good events must fail alone, for a reason that holds `why`.
async fn check_stray(stray: Value, why: &str) -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    scene.put(&token("r-2", "j-2")).await?;
    scene.put(&token("r-3", "j-3")).await?;
    let handled = scene.invoke(&[ended("j-1"), stray.clone(), ended("j-2")], END).await?;
    assert_eq!(decisions(&handled), ["deleted", "failed", "deleted"], "{stray}");
    assert_eq!(failures(&handled), ["m-1"], "{stray}");
    assert_eq!(handled.report.malformed + handled.report.unprocessable, 1, "{stray}");
    let response = handled.decided[1].response();
    assert!(response.why.contains(why), "{:?} does not say {why:?}", response.why);
    assert_eq!(scene.left().await?, ["r-3"], "{stray}");
    Ok(())
}

/// An event that is no end must be done with.
async fn check_no_end(variables: &[(&str, &str)], event: Value) -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(variables)?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = scene.invoke(slice::from_ref(&event), END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["no-end"], vec![]), "{event}");
    assert_eq!((handled.report.no_end, scene.left().await?), (1, vec!["r-1".to_owned()]), "{event}");
    Ok(())
}

#[tokio::test]
async fn a_stray_fails_alone() -> anyhow::Result<()> {
    check_stray(json!("not JSON"), "not JSON").await?;
    check_stray(json!("[]"), "expected an object").await?;
    check_stray(json!({}), "no source").await?;
    check_stray(without(ended("j-3"), "source"), "no source").await?;
    check_stray(changed(ended("j-3"), "/source", json!("")), "no source").await?;
    check_stray(changed(ended("j-3"), "/source", json!("my.jobs")), "no processor for the source \"my.jobs\"").await?;
    check_stray(without(ended("j-3"), "detail-type"), "no processor").await?;
    check_stray(changed(ended("j-3"), "/detail/clusterId", json!(null)), "no id at detail.clusterId: null").await?;
    check_stray(changed(ended("j-3"), "/detail/clusterId", json!("")), "no id at detail.clusterId: \"\"").await?;
    check_stray(changed(ended("j-3"), "/detail/clusterId", json!(["j-3"])), "no id at detail.clusterId").await?;
    check_stray(changed(ended("j-3"), "/time", json!("yesterday")), "time is \"yesterday\"").await
}

#[tokio::test]
async fn a_direct_stray_is_told_why() {
    let scene = SweeperScene::new().await.expect("services");
    for (stray, why) in [
        (json!(7), "expected an object"),
        (json!({"detail": {}}), "no source"),
        (json!({"source": "my.jobs"}), "no processor"),
    ] {
        let (decided, report) = scene.invoke_directly(stray, END).await;
        assert!(decided.decision.why().contains(why), "{decided:?}");
        assert_eq!((decided.decision.is_done(), report.malformed + report.unprocessable), (false, 1));
    }
}

#[tokio::test]
async fn an_event_that_is_no_end_is_no_error() -> anyhow::Result<()> {
    for state in ["STARTING", "RUNNING", "TERMINATING"] {
        check_no_end(&[], changed(ended("j-1"), "/detail/state", json!(state))).await?;
    }
    // Where nothing has ended, no id is looked for.
    let nameless = changed(ended("j-1"), "/detail", json!({"state": "RUNNING"}));
    check_no_end(&[], nameless).await
}

#[tokio::test]
async fn a_declared_pattern_keeps_what_it_excludes() -> anyhow::Result<()> {
    let declared = json!([{
        "name": "not-debugging", "source": "aws.emr", "detail-type": "EMR Cluster State Change",
        "id-path": "detail.clusterId",
        "pattern": {"detail": {"state": ["TERMINATED"], "name": [{"anything-but": {"wildcard": "*debugging*"}}]}},
    }]);
    let declared = declared.to_string();
    let variables = [("EVENT_PROCESSORS", declared.as_str())];
    check_no_end(&variables, changed(ended("j-1"), "/detail/name", json!("a debugging cluster"))).await?;
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(&variables)?;
    scene.put(&token("r-1", "j-1")).await?;
    assert_eq!(decisions(&scene.invoke(&[ended("j-1")], END).await?), ["deleted"]);
    Ok(())
}

#[tokio::test]
async fn a_message_from_elsewhere_fails_alone() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let message = |id, source, body| json!({"messageId": id, "eventSource": source, "body": body});
    let end = ended("j-1").to_string();
    let records = json!([
        message("a", "aws:sns", json!(end)),
        message("b", "aws:sqs", json!(null)),
        message("c", "aws:sqs", json!(end)),
    ]);
    let handled = scene.sweeper.handle(&messages(&records)?, time(END), in_time()).await;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed", "failed", "deleted"], vec!["a", "b"]));
    assert_eq!(handled.report.malformed, 2);
    Ok(())
}

/// SQS would take a null or empty identifier for the failure of the whole batch, in silence.
#[tokio::test]
async fn a_failure_without_an_id_is_the_batchs_but_what_is_done_is_done() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let records = json!([{"eventSource": "aws:sqs", "body": "not JSON"},
        {"eventSource": "aws:sqs", "body": ended("j-1").to_string()}]);
    let handled = scene.sweeper.handle(&messages(&records)?, time(END), in_time()).await;
    assert_eq!(decisions(&handled), ["failed", "deleted"]);
    assert!(handled.answer.is_err() && scene.left().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_dry_run_tells_what_it_would_delete_and_deletes_nothing() -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(&[("DRY_RUN", "true")])?;
    scene.put(&token("r-1", "j-1")).await?;
    scene.put(&token("r-2", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1"), ended("j-2")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["would-delete", "early"], vec!["m-1"]));
    assert_eq!((handled.report.dry_run, handled.report.would_delete, handled.report.deleted), (1, 2, 0));
    assert_eq!(scene.left().await?, ["r-1", "r-2"]);
    assert!(!scene.http.calls().contains_key("DeleteItem"));
    Ok(())
}

/// What will never succeed is counted apart, and comes again all the same: the queue parks it.
#[tokio::test]
async fn a_table_that_refuses_is_a_failure_of_its_own() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let elsewhere = scene.another_process(&[("NON_FUNGIBLE_RES_INDEX", "another-index")])?;
    let handled = elsewhere.handle(&batch(&[ended("j-1")])?, time(END), in_time()).await;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed"], vec!["m-0"]));
    assert_eq!((handled.report.refused, handled.report.failed), (1, 0));
    let Decision::Failed(Failure::Call { reason, .. }) = &handled.decided[0].decision else { panic!("{handled:?}") };
    assert!(reason.contains("Query") && reason.contains("another-index"), "{reason}");
    Ok(())
}
