//! Ends of announcements, and owners that change their targets meanwhile.

use tidegate_tests::coordinator::{invoke, prelude::*};

#[tokio::test]
async fn the_minimum_returns_when_the_announcement_ends() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    let answer = scene.restore(599).await?;
    let expect = json!({
        "announcements": 1, "expired": 0, "targets": 1, "raised": 0, "restored": 0, "owner_changes": [],
    });
    assert_eq!((answer, scene.minimum()), (expect, Some(NEEDED)));
    let answer = scene.restore(660).await?;
    let expect = json!({
        "announcements": 0, "expired": 1, "targets": 1, "raised": 0, "restored": 1, "owner_changes": [],
    });
    assert_eq!((answer, scene.minimum()), (expect, Some(OWNERS)));
    // The capacity stays until auto scaling lowers it.
    assert_eq!(scene.account().provisioned(TABLE, Write), Some(NEEDED));
    scene.restore(1_300).await?;
    scene.restore(1_360).await?;
    assert_eq!(scene.items().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_release_restores_at_once() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    assert_eq!(scene.invoke(release("load-42"), 10).await?, json!({"id": "load-42", "released": true}));
    assert_eq!(scene.minimum(), Some(OWNERS));
    assert_eq!(scene.invoke(release("load-42"), 11).await?["released"], false);
    Ok(())
}

#[tokio::test]
async fn what_the_owner_sets_meanwhile_is_kept() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().set_minimum(TABLE, Write, 50)?;
    let answer = scene.restore(60).await?;
    let change = json!({"resource": TABLE, "dimension": "write", "from": OWNERS, "to": 50});
    assert_eq!((&answer["owner_changes"], scene.minimum()), (&json!([change]), Some(NEEDED)));
    scene.restore(660).await?;
    assert_eq!(scene.minimum(), Some(50));
    Ok(())
}

#[tokio::test]
async fn what_the_owner_sets_after_the_end_is_kept() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().set_minimum(TABLE, Write, 30_000)?;
    let answer = scene.restore(660).await?;
    assert_eq!((&answer["owner_changes"][0]["to"], scene.minimum()), (&json!(30_000), Some(30_000)));
    Ok(())
}

/// The owner's deployment sets the minimum that it always sets.
#[tokio::test]
async fn the_owners_own_value_is_raised_again() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().set_minimum(TABLE, Write, OWNERS)?;
    let answer = scene.restore(60).await?;
    assert_eq!((&answer["raised"], scene.minimum()), (&json!(1), Some(NEEDED)));
    Ok(())
}

#[tokio::test]
async fn a_target_that_was_removed_is_forgotten() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().deregister(TABLE, Write);
    for second in [60, 660, 1_300, 1_360] {
        scene.restore(second).await?;
    }
    assert_eq!((scene.minimum(), scene.items().await?), (None, 0));
    Ok(())
}

/// Without a policy, the announced units are still kept, and the owner's minimum returns.
#[tokio::test]
async fn a_target_without_its_policy_is_restored() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().delete_policy(TABLE, Write)?;
    scene.restore(60).await?;
    assert_eq!(scene.minimum(), Some(18_000));
    scene.restore(660).await?;
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

#[tokio::test]
async fn one_target_does_not_hold_up_others() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.invoke(announce("a", &json!({"index": "by-date", "with_table": true})), 0).await?;
    scene.account().on_call(|_, call| {
        let is_index = matches!(call, Call::RegisterScalableTarget { resource, .. } if resource == INDEX);
        is_index.then_some(CallFault::AccessDenied)
    });
    let failure = scene.invoke(restore(), 660).await.unwrap_err();
    assert_eq!(failure.error_type(), "CallFailed");
    assert!(failure.to_string().contains("1 of 2 targets are not settled"), "{failure}");
    assert_eq!((scene.minimum(), scene.account().minimum(INDEX, Write)), (Some(OWNERS), Some(NEEDED)));
    scene.account().undisturbed();
    scene.restore(720).await?;
    assert_eq!(scene.account().minimum(INDEX, Write), Some(OWNERS));
    Ok(())
}

/// The work of the last run has ended, and its id is announced again. The release comes between the reads and the write.
#[tokio::test]
async fn a_release_between_reads_and_write_counts() -> anyhow::Result<()> {
    for second in [5, 700] {
        let scene = CoordinatorScene::new().await?;
        scene.announce("load-42", 0).await?;
        scene.invoke(release("load-42"), 3).await?;
        let other = scene.process(&[])?;
        scene.http.hold("TransactWriteItems");
        let announced = scene.announce("load-42", second);
        let released = async {
            scene.http.held().await;
            let answer = invoke(&other, release("load-42"), second + 10, in_time()).await;
            scene.http.release();
            answer
        };
        let (announced, released) = tokio::join!(announced, released);
        assert_eq!(released?["released"], false);
        assert!(announced.expect_err("a refusal").to_string().contains("was released"), "{second}");
        assert_eq!(scene.minimum(), Some(OWNERS));
    }
    Ok(())
}

/// A request that began before the release, such as one whose client has gone, announces nothing any more.
#[tokio::test]
async fn a_release_overtakes_its_announcement() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    assert_eq!(scene.invoke(release("load-42"), 10).await?["released"], false);
    let failure = scene.invoke(announce("load-42", &json!({})), 9).await.expect_err("a refusal");
    assert_eq!(failure.error_type(), "Released");
    assert_eq!(scene.minimum(), Some(OWNERS));
    assert_eq!(scene.announce("load-42", 12).await?["ready"], true);
    Ok(())
}

/// Nothing announces again. The table was updating when the minimum was set.
#[tokio::test]
async fn the_schedule_gives_an_updated_table_its_capacity() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.account().set_update_polls(1_000_000);
    scene.update_writes(9_000).await?;
    let soon = Instant::now() + Duration::from_secs(2);
    let answer = invoke(&scene.coordinator, announce("load-42", &json!({})), 0, soon).await?;
    assert_eq!((&answer["ready"], scene.minimum()), (&json!(false), Some(NEEDED)));
    scene.account().settle();
    assert_eq!(scene.account().provisioned(TABLE, Write), Some(9_000));
    scene.account().set_update_polls(0);
    scene.restore(60).await?;
    assert_eq!(scene.account().provisioned(TABLE, Write), Some(NEEDED));
    Ok(())
}

#[tokio::test]
async fn a_deleted_table_is_forgotten() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().delete_table("orders");
    assert_eq!(scene.restore(660).await?["targets"], 1);
    assert_eq!(scene.restore(720).await?["targets"], 0);
    Ok(())
}

/// Only the calls that a restore depends on can hold it up.
#[tokio::test]
async fn a_minimum_is_restored_without_other_calls() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().on_call(|_, call| {
        let is_needed = matches!(call, Call::DescribeScalableTargets { .. } | Call::RegisterScalableTarget { .. });
        (!is_needed).then_some(CallFault::AccessDenied)
    });
    scene.restore(660).await?;
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

/// A table that cannot be described still gets the minimum that announcements need.
#[tokio::test]
async fn a_minimum_is_raised_without_a_look_at_the_table() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().set_minimum(TABLE, Write, 7)?;
    scene.account().on_call(|_, call| matches!(call, Call::DescribeTable { .. }).then_some(CallFault::AccessDenied));
    scene.restore(300).await?;
    assert_eq!(scene.minimum(), Some(NEEDED));
    Ok(())
}
