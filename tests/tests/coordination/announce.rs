//! Announcements: what is raised, what is answered, and what is refused.

use tidegate_tests::coordinator::{invoke, prelude::*};

/// Checks that a request fails with this kind of error and a message that says this.
async fn check_error(scene: &CoordinatorScene, changes: Value, kind: &str, expect: &str) {
    let failure = scene.invoke(announce("refused", &changes), 0).await.expect_err("a refusal");
    let message = failure.to_string();
    assert_eq!(failure.error_type(), kind, "{message}");
    assert!(message.contains(expect), "{message:?} does not say {expect:?}");
}

#[tokio::test]
async fn an_announcement_raises_the_minimum_and_waits() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_update_polls(4);
    let answer = scene.announce("load-42", 0).await?;
    let target = json!({
        "resource": TABLE, "mode": "provisioned", "minimum": NEEDED, "provisioned": NEEDED, "needed": NEEDED,
        "maximum": 40_000,
    });
    // The time of the invocation moves on.
    let until = answer["until"].as_i64().context("until")?;
    assert!((1_767_226_200..1_767_226_260).contains(&until), "{answer}");
    let expect = json!({"id": "load-42", "ready": true, "provisioned": NEEDED, "until": until, "targets": [target]});
    assert_eq!(answer, expect);
    assert_eq!(scene.account().provisioned(TABLE, Write), Some(NEEDED));
    let list = scene.invoke(json!({"action": "list"}), 1).await?;
    assert_eq!(list["announcements"][0]["ready"], true, "{list}");
    Ok(())
}

#[tokio::test]
async fn the_same_id_is_announced_until_it_is_ready() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_update_polls(1_000_000);
    let soon = Instant::now() + Duration::from_secs(2);
    let answer = invoke(&scene.coordinator, announce("load-42", &json!({})), 0, soon).await?;
    assert_eq!(
        (&answer["ready"], &answer["provisioned"], &answer["retry_after_seconds"]),
        (&json!(false), &json!(8_000), &json!(20))
    );
    scene.account().settle();
    let answer = scene.announce("load-42", 20).await?;
    assert_eq!((&answer["ready"], &answer["provisioned"]), (&json!(true), &json!(NEEDED)), "{answer}");
    assert_eq!(scene.account().minimums(TABLE, Write), [OWNERS, NEEDED]);
    Ok(())
}

#[tokio::test]
async fn announcements_of_a_target_add_up() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.invoke(announce("a", &json!({"units": 1_000})), 0).await?;
    scene.invoke(announce("b", &json!({"units": 2_000})), 1).await?;
    assert_eq!(scene.minimum(), Some(10_000));
    scene.invoke(release("a"), 2).await?;
    assert_eq!(scene.minimum(), Some(8_572));
    Ok(())
}

/// The consumption holds the work of the first announcement, and that of the same one.
#[tokio::test]
async fn work_that_runs_is_not_counted_twice() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("a", 0).await?;
    scene.account().consumes(TABLE, Write, 18_000.0);
    scene.invoke(announce("b", &json!({"units": 1_000})), 300).await?;
    assert_eq!(scene.minimum(), Some(27_143));
    scene.announce("a", 301).await?;
    assert_eq!(scene.minimum(), Some(27_143));
    Ok(())
}

/// The metric still holds the work of the job before.
#[tokio::test]
async fn a_job_after_another_needs_no_more() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_maximum(TABLE, Write, 30_000)?;
    scene.announce("a", 0).await?;
    scene.account().consumes(TABLE, Write, 18_000.0);
    scene.invoke(release("a"), 300).await?;
    scene.announce("b", 310).await?;
    assert_eq!(scene.minimum(), Some(NEEDED));
    Ok(())
}

/// The owner lowers the capacity while work is announced.
#[tokio::test]
async fn a_shrinking_table_is_not_ready() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_provisioned(TABLE, Write, 30_000)?;
    scene.account().set_update_polls(6);
    scene.update_writes(9_000).await?;
    let answer = scene.announce("load-42", 0).await?;
    assert_eq!((&answer["ready"], &answer["provisioned"]), (&json!(true), &json!(NEEDED)), "{answer}");
    Ok(())
}

#[tokio::test]
async fn an_error_says_that_the_announcement_is_in_force() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().on_call(|_, call| {
        let is_register = matches!(call, Call::RegisterScalableTarget { .. });
        is_register.then_some(CallFault::AccessDenied)
    });
    check_error(&scene, json!({}), "CallFailed", "the announcement \"refused\" is in force until").await;
    scene.account().undisturbed();
    assert_eq!(scene.announce("refused", 20).await?["ready"], true);
    Ok(())
}

#[tokio::test]
async fn an_index_is_announced_alone_or_with_its_table() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let answer = scene.invoke(announce("a", &json!({"index": "by-date"})), 0).await?;
    assert_eq!(answer["targets"][0]["resource"], INDEX);
    assert_eq!((scene.account().minimum(INDEX, Write), scene.minimum()), (Some(NEEDED), Some(OWNERS)));
    scene.invoke(release("a"), 1).await?;
    let answer = scene.invoke(announce("b", &json!({"index": "by-date", "with_table": true})), 2).await?;
    assert_eq!(answer["targets"].as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!((scene.account().minimum(INDEX, Write), scene.minimum()), (Some(NEEDED), Some(NEEDED)));
    scene.invoke(release("b"), 3).await?;
    assert_eq!((scene.account().minimum(INDEX, Write), scene.minimum()), (Some(OWNERS), Some(OWNERS)));
    Ok(())
}

/// 18,000 units fit below a maximum of 20,000, but not at 70 %.
#[tokio::test]
async fn the_minimum_stops_at_the_maximum() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_maximum(TABLE, Write, 20_000)?;
    let answer = scene.announce("load-42", 0).await?;
    assert_eq!(answer["ready"], true);
    assert_eq!((&answer["provisioned"], &answer["targets"][0]["limited_by_maximum"]), (&json!(20_000), &json!(true)));
    Ok(())
}

#[tokio::test]
async fn a_request_that_cannot_be_met_says_what_to_do() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let account = scene.account();
    account.create_provisioned("customers", 100, 100);
    check_error(&scene, json!({"table": "other"}), "NotCoordinated", "\"other\" is not coordinated: add it").await;
    check_error(&scene, json!({"table": "gone"}), "UnknownTable", "\"gone\" does not exist").await;
    check_error(&scene, json!({"index": "by-name"}), "UnknownIndex", "\"by-name\"").await;
    check_error(&scene, json!({"dimension": "read"}), "NoScalableTarget", "table/orders#read is no scalable").await;
    account.register("table/customers", Write, 1, 100)?;
    check_error(&scene, json!({"table": "customers"}), "NoScalingPolicy", "table/customers#write").await;
    check_error(&scene, json!({"units": 36_001}), "MaximumTooLow", "is 40000, too low by 1").await;
    check_error(&scene, json!({"for_seconds": 86_401}), "LimitExceeded", "for_seconds is 86401").await;
    check_error(&scene, json!({"warm": true}), "LimitExceeded", "ALLOW_WARM").await;
    check_error(&scene, json!({"unit": 1}), "MalformedRequest", "unknown field `unit`").await;
    assert_eq!((scene.minimum(), scene.items().await?), (Some(OWNERS), 0));
    scene.announce("refused", 0).await?;
    check_error(&scene, json!({"caller": "etl"}), "IdTaken", "\"refused\" is in force").await;
    Ok(())
}

#[tokio::test]
async fn limits_hold_for_announcements_at_the_same_time() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let process = scene.process(&[("MAX_UNITS", "5000")])?;
    let ids: Vec<_> = (0..20).map(|number| format!("load-{number}")).collect();
    let announced = ids.iter().map(|id| invoke(&process, announce(id, &json!({"units": 1_000})), 0, in_time()));
    let accepted = futures::future::join_all(announced).await.into_iter().flatten().count();
    assert_eq!((accepted, scene.minimum()), (5, Some(12_858)));
    Ok(())
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let process = scene.process(&[("DRY_RUN", "true")])?;
    let answer = invoke(&process, announce("load-42", &json!({})), 0, in_time()).await?;
    assert_eq!((&answer["dry_run"], &answer["ready"]), (&json!(true), &json!(false)), "{answer}");
    assert_eq!(answer["targets"][0]["minimum"], NEEDED);
    assert_eq!((scene.minimum(), scene.items().await?), (Some(OWNERS), 0));
    scene.announce("load-42", 0).await?;
    assert_eq!(invoke(&process, release("load-42"), 1, in_time()).await?["released"], false);
    invoke(&process, restore(), 700, in_time()).await?;
    assert_eq!((scene.minimum(), scene.items().await?), (Some(NEEDED), 2));
    Ok(())
}

/// While a table is updating, a new minimum does not change its capacity.
#[tokio::test]
async fn a_table_that_was_updating_gets_its_capacity() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_update_polls(10);
    scene.update_writes(9_000).await?;
    let answer = scene.announce("load-42", 0).await?;
    assert_eq!((&answer["ready"], &answer["provisioned"]), (&json!(true), &json!(NEEDED)), "{answer}");
    Ok(())
}

#[tokio::test]
async fn an_announcement_makes_few_calls() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    let calls = scene.account().take_calls();
    let registered = calls.iter().filter(|call| matches!(call, Call::RegisterScalableTarget { .. })).count();
    assert_eq!((registered, calls.len()), (1, 8), "{calls:#?}");
    assert_eq!(scene.http.calls().values().sum::<usize>(), 8, "{:?}", scene.http.calls());
    // A renewal does not measure.
    scene.announce("load-42", 0).await?;
    let calls = scene.account().take_calls();
    let measured = calls.iter().any(|call| matches!(call, Call::GetMetricData { .. }));
    assert!(!measured && calls.len() == 6, "{calls:#?}");
    // An idle schedule reads its own table only.
    scene.invoke(release("load-42"), 1).await?;
    scene.restore(700).await?;
    scene.restore(701).await?;
    scene.account().take_calls();
    scene.http.calls();
    scene.restore(760).await?;
    assert_eq!(scene.account().take_calls(), []);
    assert_eq!(scene.http.calls(), [("Query".to_owned(), 1)].into());
    Ok(())
}

#[tokio::test]
async fn a_status_shows_both_minimums() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    let status = json!({"action": "status", "table": "orders", "dimension": "write"});
    let expect = json!({
        "resource": TABLE, "dimension": "write", "mode": "provisioned", "minimum": NEEDED, "owner_minimum": OWNERS,
        "maximum": 40_000, "target_utilization": 70.0, "provisioned": NEEDED, "consumption": 4_000,
        "announced": 14_000, "needed": NEEDED, "announcements": ["load-42"],
    });
    assert_eq!(scene.invoke(status, 1).await?, expect);
    Ok(())
}

/// Nothing would lower it again.
#[tokio::test]
async fn capacity_that_would_stay_raised_is_refused() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    for (is_disabled, is_suspended) in [(true, false), (false, true)] {
        scene.account().disable_scale_in(TABLE, Write, is_disabled, is_suspended)?;
        let refused = scene.invoke(announce("load-42", &json!({})), 0).await.unwrap_err();
        assert_eq!((refused.error_type(), scene.minimum()), ("ScaleInDisabled", Some(OWNERS)), "{refused}");
        assert!(refused.to_string().contains("may not scale in table/orders#write"), "{refused}");
    }
    scene.account().disable_scale_in(TABLE, Write, false, false)?;
    scene.announce("load-42", 0).await?;
    // What is raised already goes on, is shown, and is restored.
    scene.account().disable_scale_in(TABLE, Write, true, true)?;
    assert_eq!(scene.announce("load-42", 60).await?["ready"], true);
    let status = json!({"action": "status", "table": "orders", "dimension": "write"});
    assert_eq!(scene.invoke(status, 60).await?["owner_minimum"], OWNERS);
    scene.restore(720).await?;
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

#[tokio::test]
async fn a_renewal_needs_no_metrics() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().on_call(|_, call| matches!(call, Call::GetMetricData { .. }).then_some(CallFault::AccessDenied));
    assert_eq!(scene.announce("load-42", 300).await?["ready"], true);
    let failed = scene.invoke(announce("more", &json!({})), 300).await.unwrap_err();
    assert_eq!(failed.error_type(), "CallFailed");
    Ok(())
}

/// The job could not announce again in time, and works on.
#[tokio::test]
async fn a_lapsed_announcement_goes_on() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    assert!(scene.report("load-42", 0).await?.seconds_to_ready.is_some());
    scene.account().consumes(TABLE, Write, 18_000.0);
    scene.restore(660).await?;
    assert_eq!(scene.minimum(), Some(OWNERS));
    // Its work has begun long ago, so it has waited for nothing.
    assert_eq!(scene.report("load-42", 720).await?.seconds_to_ready, None);
    assert_eq!(scene.minimum(), Some(NEEDED));
    Ok(())
}

/// The users' traffic grows after a job was accepted, and another job takes what is left.
#[tokio::test]
async fn an_accepted_announcement_is_not_refused_later() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_maximum(TABLE, Write, 20_000)?;
    scene.account().consumes(TABLE, Write, 10_000.0);
    scene.invoke(announce("a", &json!({"units": 6_000})), 0).await?;
    scene.account().consumes(TABLE, Write, 9_000.0);
    scene.invoke(announce("b", &json!({"units": 5_000})), 30).await?;
    assert_eq!(scene.invoke(announce("a", &json!({"units": 6_000})), 50).await?["ready"], true);
    let refused = scene.invoke(announce("a", &json!({"units": 6_001})), 50).await.unwrap_err();
    assert_eq!(refused.error_type(), "MaximumTooLow");
    Ok(())
}
