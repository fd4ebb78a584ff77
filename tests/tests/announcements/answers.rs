//! What the function answers, and what the client makes of it.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_tests::announcements::prelude::*;

fn until() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(UNTIL)
}

#[tokio::test]
async fn capacity_that_is_ready_takes_one_invocation() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let request = scene.announce().index("by-date").with_table().caller("etl").warm();
    let announcement = request.lasting(Duration::from_millis(1_200_500)).await?;
    assert_eq!((announcement.id(), announcement.provisioned()), (ID, Some(PROVISIONED)));
    assert!(announcement.is_ready() && !announcement.is_dry_run() && announcement.until() == until());
    assert_eq!(announcement.targets()[0].resource, "table/orders");
    let expect = json!({
        "action": "announce", "id": ID, "table": "orders", "index": "by-date", "with_table": true,
        "dimension": "write", "units": 4_000, "for_seconds": 1_201, "caller": "etl", "warm": true,
    });
    let requests = scene.function.requests();
    let run = &requests[0]["run"];
    assert_eq!((run.is_string(), &requests[..]), (true, &[with(expect, "run", run.clone())][..]));

    announcement.release().await?;
    assert_eq!(scene.function.requests(), [json!({"action": "release", "id": ID, "run": run})]);
    assert!(!scene.coordinator.release(ID).await?);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

#[tokio::test]
async fn ids_are_unique_by_default() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let request = scene.coordinator.announce("orders", CapacityKind::Read, 5);
    let (one, two) = (request.clone().await?, request.await?);
    assert!(one.id() != two.id() && one.id().len() == 32, "{one:?} {two:?}");
    assert_eq!(scene.function.in_force().len(), 2);
    Ok(())
}

#[tokio::test]
async fn an_announcement_that_is_kept_stays() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.announce().await?.keep();
    scene.coordinator.flush().await;
    assert_eq!(scene.function.in_force(), [ID]);
    assert!(scene.coordinator.release(ID).await?);
    Ok(())
}

#[tokio::test]
async fn a_renewal_is_the_same_announcement() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let mut announcement = scene.announce().await?;
    scene.function.requests();
    let later = json!({"ready": false, "provisioned": 8_000, "until": UNTIL + 60, "retry_after_seconds": 20});
    scene.function.answers([Scripted::Answer(later)]);
    announcement.renew(Duration::from_mins(1)).await?;
    let requests = scene.function.requests();
    assert_eq!((requests.len(), &requests[0]["id"], &requests[0]["for_seconds"]), (1, &json!(ID), &json!(60)));
    assert_eq!(announcement.until(), until() + Duration::from_mins(1));
    assert!(!announcement.is_ready() && announcement.provisioned() == Some(8_000), "{announcement:?}");

    scene.function.answers([Scripted::Error("LimitExceeded")]);
    let error = announcement.renew(Duration::from_hours(48)).await.unwrap_err();
    assert!(matches!(error, CapacityError::Refused(refused) if refused.reason == RefusalReason::LimitExceeded));
    assert_eq!(scene.function.in_force(), [ID]);
    drop(announcement);
    scene.coordinator.flush().await;
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_on_demand_table_says_what_is_missing() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let target = json!({
        "resource": "table/orders", "mode": "on-demand", "warm": 4_000, "needed": 18_000, "missing": 14_000,
        "price_usd": 9.1,
    });
    let answer = json!({"ready": false, "provisioned": null, "until": UNTIL, "targets": [target]});
    scene.function.answers([Scripted::Answer(answer)]);
    let CapacityError::NotReady(not_ready) = scene.announce().await.unwrap_err() else {
        anyhow::bail!("another error")
    };
    assert_eq!((not_ready.retry_after, not_ready.id.as_str()), (None, ID));
    let expect = TargetCapacity::OnDemand { warm: 4_000, missing: 14_000, price_usd: 9.1 };
    assert_eq!(not_ready.targets[0].capacity, expect);
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

/// A dry run raises nothing, so waiting does not help.
#[tokio::test]
async fn a_dry_run_is_not_awaited() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let answer = json!({
        "ready": false, "provisioned": 8_000, "until": UNTIL, "retry_after_seconds": 20, "targets": [target(8_000)],
        "dry_run": true,
    });
    scene.function.answers([Scripted::Answer(answer)]);
    let error = scene.announce().await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("8000 of 18000 units") && message.contains("dry run"), "{message}");
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    Ok(())
}

#[tokio::test]
async fn lists_and_states_are_typed() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let listed = json!({
        "id": ID, "caller": "etl", "resources": ["table/orders"], "dimension": "write", "units": 4_000,
        "until": UNTIL, "ready": true,
    });
    scene.function.sets("list", json!({"announcements": [listed]}));
    let listed = scene.coordinator.list().await?;
    assert_eq!((listed[0].id.as_str(), listed[0].kind, listed[0].until), (ID, CapacityKind::Write, until()));

    let status = json!({
        "resource": "table/orders/index/by-date", "dimension": "read", "mode": "provisioned", "minimum": 18_000,
        "owner_minimum": 5, "maximum": 40_000, "target_utilization": 70.0, "provisioned": 18_000,
        "consumption": 8_600, "announced": 4_000, "needed": 18_000, "announcements": [ID],
    });
    scene.function.sets("status", status);
    scene.function.requests();
    let status = scene.coordinator.status("orders", Some("by-date"), CapacityKind::Read).await?;
    let StatusCapacity::Provisioned { minimum, owner_minimum, target_utilization, .. } = status.capacity else {
        anyhow::bail!("another mode")
    };
    assert_eq!((minimum, owner_minimum, target_utilization), (18_000, 5, 70.0));
    let expect = json!({"action": "status", "table": "orders", "index": "by-date", "dimension": "read"});
    assert_eq!(scene.function.requests(), [expect]);
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_not_sent() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let request = |units| scene.coordinator.announce("orders", CapacityKind::Write, units);
    let long = request(5).id("x".repeat(129));
    for request in [request(0), request(5).lasting(Duration::ZERO), request(5).caller("a\n"), request(5).id(""), long] {
        let error = request.await.unwrap_err();
        assert!(matches!(error, CapacityError::Invalid(_)), "{error}");
    }
    assert!(matches!(scene.coordinator.release("a b").await, Err(CapacityError::Invalid(_))));
    let mut announcement = scene.announce().await?;
    assert!(matches!(announcement.renew(Duration::ZERO).await, Err(CapacityError::Invalid(_))));
    announcement.keep();
    assert_eq!(scene.function.actions(), ["announce"]);
    Ok(())
}
