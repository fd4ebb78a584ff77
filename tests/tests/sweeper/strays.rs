//! Events and messages that are no valid end, and tokens that others change concurrently.

use std::slice;

use tidegate_aws::error::StoreError;
use tidegate_domain::sweep::{Reason, Removal};
use tidegate_tests::sweeper::prelude::*;

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
    let reason = handled.decided[1].decision.why();
    assert!(reason.contains(why), "{reason:?} does not say {why:?}");
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
async fn a_direct_stray_is_answered_with_its_error() {
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
async fn an_event_of_a_running_resource_is_done() -> anyhow::Result<()> {
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

/// SQS would treat a null or empty identifier as the failure of the whole batch, without a readable error.
#[tokio::test]
async fn a_failure_without_an_id_fails_the_batch() -> anyhow::Result<()> {
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
async fn a_dry_run_deletes_nothing() -> anyhow::Result<()> {
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

/// A call that will never succeed has a count of its own. The message is delivered again until the queue parks it.
#[tokio::test]
async fn a_table_that_refuses_is_counted_apart() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let elsewhere = scene.another_process(&[("NON_FUNGIBLE_RES_INDEX", "another-index")])?;
    let handled = elsewhere.handle(&batch(&[ended("j-1")])?, time(END), in_time()).await;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed"], vec!["m-0"]));
    assert_eq!((handled.report.refused, handled.report.failed), (1, 0));
    let Decision::Failed(Failure::Call { reason, .. }) = &handled.decided[0].decision else { panic!("{handled:?}") };
    assert!(reason.contains("Query") && reason.contains("another-index"), "{reason}");
    Ok(())
}

/// Handles an end of `j-1`. Another write happens before the deletions.
async fn swept_while(
    scene: &SweeperScene,
    meanwhile: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Handled> {
    scene.http.hold("DeleteItem");
    let events = [ended("j-1")];
    let (handled, done) = tokio::join!(
        Box::pin(scene.invoke(&events, END)),
        Box::pin(async {
            scene.http.held().await;
            let done = meanwhile.await;
            scene.http.release();
            done
        })
    );
    done?;
    handled
}

/// Deletes a token that was read as `seen`, when the table holds `current`.
async fn check_delete(seen: Token, current: Option<Token>, reason: Reason, expect: Removal) -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    if let Some(current) = &current {
        scene.put(current).await?;
    }
    let removal: Result<Removal, StoreError> = scene.sweeper.tokens.delete(&seen, reason, time(END + 999)).await;
    assert_eq!(removal?, expect, "{reason:?} of {seen:?}");
    assert_eq!(scene.left().await?.is_empty(), expect != Removal::Changed, "{reason:?} of {seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_reservation_of_another_resource_stays() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = swept_while(&scene, async { scene.put(&token("r-1", "j-2")).await }).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["already-gone"], vec![]));
    assert_eq!((handled.report.changed, handled.report.deleted), (1, 0));
    assert!(handled.decided[0].decision.why().contains("another resource"), "{handled:?}");
    assert_eq!(scene.held().await?, [("r-1".to_owned(), "j-2".to_owned())].into());
    Ok(())
}

#[tokio::test]
async fn a_concurrently_deleted_token_is_gone() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = swept_while(&scene, async { scene.delete(&token("r-1", "j-1")).await }).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["already-gone"], vec![]));
    assert_eq!((handled.report.already_gone, handled.report.gone), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a_race_for_one_token_keeps_no_other() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for reservation in ["r-1", "r-2", "r-3"] {
        scene.put(&token(reservation, "j-1")).await?;
    }
    let meanwhile = async {
        scene.put(&token("r-1", "j-2")).await?;
        scene.delete(&token("r-2", "j-1")).await
    };
    let handled = swept_while(&scene, meanwhile).await?;
    let [decided] = &handled.decided[..] else { panic!("{handled:?}") };
    assert!(matches!(decided.decision, Decision::Decided(_, removals)
        if (removals.deleted, removals.already_gone, removals.changed) == (1, 1, 1)));
    assert_eq!(decided.decision.deleted(), 1);
    assert_eq!(scene.left().await?, ["r-1"]);
    Ok(())
}

/// An extended token still belongs to the ended resource.
#[tokio::test]
async fn an_extended_token_goes_with_its_resource() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let extended = expiring("r-1", "j-1", END / 1000 + 99_999);
    let handled = swept_while(&scene, async { scene.put(&extended).await }).await?;
    assert_eq!((decisions(&handled), scene.left().await?), (vec!["deleted"], vec![]));
    Ok(())
}

#[tokio::test]
async fn a_changed_token_is_not_deleted() -> anyhow::Result<()> {
    let now = END / 1000;
    let seen = || expiring("r-1", "j-1", now);
    let check = check_delete;
    check(seen(), Some(seen()), Reason::Ended, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-2", now)), Reason::Ended, Removal::Changed).await?;
    check(seen(), None, Reason::Ended, Removal::AlreadyGone).await?;
    check(seen(), Some(seen()), Reason::Expired, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-2", now)), Reason::Expired, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-1", now + 1)), Reason::Expired, Removal::Changed).await?;
    check(seen(), Some(Token { expires: None, ..seen() }), Reason::Expired, Removal::Changed).await?;
    check(seen(), None, Reason::Expired, Removal::AlreadyGone).await
}
