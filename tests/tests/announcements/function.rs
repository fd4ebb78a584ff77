//! The client and the function itself, on an embedded control plane of tables.

use tidegate_aws::error::causes;
use tidegate_sandbox::lambda::FunctionError;
use tidegate_tests::{
    announcements::prelude::*,
    coordinator::{self, CoordinatorScene, NEEDED, OWNERS},
};

const REAL: &str = "real-coordinator";

/// A client of the function. Each invocation is at the same moment, so nothing expires.
async fn scenes() -> anyhow::Result<(CoordinatorScene, AnnouncementScene, Coordinator)> {
    let (tables, scene) = (CoordinatorScene::new().await?, AnnouncementScene::new().await?);
    let function = tables.coordinator.clone();
    scene.lambda.functions().add(REAL, move |event| {
        let function = function.clone();
        async move {
            let done = coordinator::invoke(&function, event, 0, in_time()).await;
            done.map_err(|failure| FunctionError::new(failure.error_type(), causes(&failure)))
        }
    });
    let client = scene.of(REAL);
    Ok((tables, scene, client))
}

#[tokio::test]
async fn an_announcement_raises_the_minimum_until_it_is_dropped() -> anyhow::Result<()> {
    let (tables, _scene, client) = scenes().await?;
    let announcement = client.announce("orders", CapacityKind::Write, 14_000).id(ID).caller("etl").await?;
    assert_eq!((announcement.provisioned(), tables.minimum()), (Some(NEEDED), Some(NEEDED)));
    let TargetCapacity::Provisioned { maximum, .. } = announcement.targets()[0].capacity else {
        anyhow::bail!("another mode")
    };
    assert_eq!((maximum, announcement.targets()[0].needed), (40_000, NEEDED));

    let listed = client.list().await?;
    assert_eq!((listed[0].id.as_str(), listed[0].caller.as_str(), listed[0].ready), (ID, "etl", true));
    assert_eq!((listed[0].kind, listed[0].until), (CapacityKind::Write, announcement.until()));
    let status = client.status("orders", None, CapacityKind::Write).await?;
    assert_eq!(
        (status.announced, status.consumption, status.announcements.as_slice()),
        (14_000, 4_000, [ID.to_owned()].as_slice())
    );
    let StatusCapacity::Provisioned { minimum, owner_minimum, .. } = status.capacity else {
        anyhow::bail!("another mode")
    };
    assert_eq!((minimum, owner_minimum), (NEEDED, OWNERS));

    drop(announcement);
    client.flush().await;
    assert!(client.list().await?.is_empty());
    tables.restore(60).await?;
    assert_eq!(tables.minimum(), Some(OWNERS));
    Ok(())
}

#[tokio::test]
async fn the_function_says_why_it_refuses() -> anyhow::Result<()> {
    let (tables, _scene, client) = scenes().await?;
    let request = |table: &str, units| client.announce(table, CapacityKind::Write, units);
    client.announce("orders", CapacityKind::Write, 5).id("taken").await?.keep();
    for (request, reason) in [
        (request("others", 5), RefusalReason::NotCoordinated),
        (request("gone", 5), RefusalReason::UnknownTable),
        (request("orders", 5).index("by-name"), RefusalReason::UnknownIndex),
        (request("orders", 5).with_table(), RefusalReason::MalformedRequest),
        (request("orders", 50_000), RefusalReason::MaximumTooLow),
        (request("orders", 5).lasting(Duration::from_hours(48)), RefusalReason::LimitExceeded),
        (request("orders", 5).id("taken").caller("etl"), RefusalReason::IdTaken),
        (client.announce("orders", CapacityKind::Read, 5), RefusalReason::NoScalableTarget),
    ] {
        let CapacityError::Refused(refused) = request.await.unwrap_err() else { anyhow::bail!("{reason:?}") };
        assert_eq!(refused.reason, reason, "{refused}");
    }
    client.flush().await;
    assert_eq!(client.list().await?.len(), 1);
    assert!(client.release("taken").await?);
    tables.restore(60).await?;
    assert_eq!(tables.minimum(), Some(OWNERS));
    Ok(())
}

#[tokio::test]
async fn an_on_demand_table_is_warm_or_has_a_price() -> anyhow::Result<()> {
    let (tables, _scene, client) = scenes().await?;
    tables.account().create_on_demand("customers", 12_000, 4_000);
    tables.account().consumes("table/customers", CapacityKind::Write, 1_000.0);
    let announcement = client.announce("customers", CapacityKind::Write, 3_000).await?;
    assert_eq!(announcement.provisioned(), None);
    announcement.release().await?;
    let error = client.announce("customers", CapacityKind::Write, 17_000).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, CapacityError::NotReady(_)) && message.contains("14000 more cost 9.10 USD"), "{message}");
    assert!(client.list().await?.is_empty());
    Ok(())
}
