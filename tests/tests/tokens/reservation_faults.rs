//! Lost responses, throttling, late writes and missing tables.

use std::sync::Arc;

use aws_sdk_dynamodb::{
    Client,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
};
use futures::StreamExt as _;
use tidegate_tests::reservations::prelude::*;

/// Callers reserve, bind and release at these fault rates. What the callers hold is never more than the limit.
#[tokio::test]
async fn no_fault_exceeds_the_limit() -> anyhow::Result<()> {
    for is_counting in [true, false] {
        let rates = FaultRates { dropped_after: 0.05, internal_after: 0.05, ..FaultRates::spread(0.2) };
        let scene = ReservationScene::with_faults(7, rates, 3).await?;
        let processes = [scene.another(|builder| builder), scene.another(|builder| builder)];
        let processes = if is_counting { processes } else { [scene.only_rust(), scene.only_rust()] };
        let holding = AtomicUsize::new(0);
        let granted = AtomicUsize::new(0);
        let one = async |number: usize| {
            let Ok(mut reservation) = processes[number % 2].reserve(CLUSTER, ACCOUNT).await else { return };
            let now = holding.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= 7, "{now} are held");
            granted.fetch_add(1, Ordering::SeqCst);
            if number.is_multiple_of(2) {
                let _token = reservation.bind(format!("j-{number}"), LIFETIME).await;
            }
            holding.fetch_sub(1, Ordering::SeqCst);
            // A release whose response is lost may have happened.
            drop(reservation.release().await);
        };
        futures::stream::iter((0..300).map(one)).buffer_unordered(20).collect::<Vec<_>>().await;
        assert!(scene.http.counts().unacknowledged() > 20, "{:?}", scene.http.counts());
        let granted = granted.into_inner();
        assert!(granted > 30, "{granted}");
        assert!(scene.live().await? <= 7);
    }
    Ok(())
}

/// A write whose response is lost is sent again, and finds that it has happened.
#[tokio::test]
async fn a_lost_response_takes_one_slot() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    for fault in [Fault::DroppedAfter, Fault::InternalAfter] {
        let writes = AtomicUsize::new(0);
        scene.http.on_call(move |operation, _| {
            (operation == "UpdateItem" && writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)).then_some(fault)
        });
        let mut reservation = scene.reserve().await?;
        assert_eq!(scene.live().await?, 1, "{fault:?}");
        let mut token = reservation.bind("j-1", LIFETIME).await?;
        token.renew(LIFETIME * 2).await?;
        assert_eq!(scene.live().await?, 1, "{fault:?}");
        token.release().await?;
        assert_eq!(scene.live().await?, 0, "{fault:?}");
    }
    Ok(())
}

/// A take that may have happened is undone.
#[tokio::test]
async fn an_unknown_take_is_freed() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    scene.http.on_call(move |operation, _| match operation {
        "UpdateItem" => match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Fault::DroppedAfter),
            1..3 => Some(Fault::InternalBefore),
            _ => None,
        },
        _ => None,
    });
    let config = sdk_config(&scene.services.endpoint, scene.http.clone()).into_builder();
    let config = config.retry_config(RetryConfig::standard().with_max_attempts(3)).build();
    let impatient =
        Reservations::builder(Client::new(&config), TokenTables::of(BASE)).clock(scene.clock.clone()).build();
    let error = impatient.reserve(CLUSTER, ACCOUNT).await.unwrap_err();
    assert!(matches!(error, ReserveError::Table(_)), "{error}");
    impatient.flush().await;
    assert_eq!((writes.load(Ordering::Relaxed), scene.live().await?), (4, 0));
    Ok(())
}

/// Callers that wait for the takes of others get their error.
#[tokio::test]
async fn failing_takes_fail_all_callers_together() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    scene.http.on_call(|operation, _| (operation == "UpdateItem").then_some(Fault::InternalBefore));
    let config = sdk_config(&scene.services.endpoint, scene.http.clone()).into_builder();
    let config = config.retry_config(RetryConfig::disabled()).build();
    let reservations = Reservations::builder(Client::new(&config), TokenTables::of(BASE)).build();
    let callers = (0..50).map(|_| reservations.reserve(CLUSTER, ACCOUNT).into_future());
    let reserved = futures::future::join_all(callers).await;
    assert!(reserved.iter().all(|reserved| matches!(reserved, Err(ReserveError::Table(_)))));
    Ok(())
}

#[tokio::test]
async fn a_denied_permission_is_named() -> anyhow::Result<()> {
    for (denied, table) in
        [("GetItem", "prod-limits"), ("Query", "prod-non-fungible"), ("UpdateItem", "prod-non-fungible")]
    {
        let scene = ReservationScene::new(5).await?;
        scene.http.on_call(move |operation, _| (operation == denied).then_some(Fault::AccessDenied));
        let message = scene.reserve().await.unwrap_err().to_string();
        for part in [table, denied, "permission is missing", "AccessDeniedException"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
    Ok(())
}

/// Callers that wait for one call share its error.
#[tokio::test]
async fn a_hanging_table_fails_all_callers_together() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    let _known = scene.reserve().await?;
    let queries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&queries);
    scene.http.on_call(move |operation, _| {
        (operation == "Query").then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            Fault::Hang
        })
    });
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(20));
    let timeouts = timeouts.operation_timeout(Duration::from_millis(100)).build();
    let config = sdk_config(&scene.services.endpoint, scene.http.clone()).into_builder().timeout_config(timeouts);
    let config = config.retry_config(RetryConfig::disabled()).build();
    let reservations = Reservations::builder(Client::new(&config), TokenTables::of(BASE)).build();
    let callers = (0..100).map(|_| reservations.reserve(CLUSTER, ACCOUNT).into_future());
    let reserved = futures::future::join_all(callers).await;
    assert!(reserved.iter().all(|reserved| matches!(reserved, Err(ReserveError::Table(_)))));
    assert!(queries.load(Ordering::Relaxed) <= 2, "{queries:?}");
    Ok(())
}

/// A process that crashes holds its slot until the reservation expires.
#[tokio::test]
async fn a_crash_holds_a_slot_for_five_minutes() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    std::mem::forget(scene.only_rust().reserve(CLUSTER, ACCOUNT).await?);
    assert!(matches!(scene.reserve().await, Err(ReserveError::Denied(_))));
    scene.clock.advance(Duration::from_mins(5));
    assert!(scene.reserve().await.is_ok());
    Ok(())
}

/// The clock of one client is ahead, so its fencing number is, too.
#[tokio::test]
async fn fencing_numbers_rise_across_clocks() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let ahead = scene.another(|builder| builder.clock(ManualClock::new(START + 5_000)));
    let mut first = ahead.reserve(CLUSTER, ACCOUNT).await?;
    let fence = first.fence();
    first.release().await?;
    let second = scene.reserve().await?;
    assert_eq!(second.fence(), fence + 1);
    Ok(())
}

#[tokio::test]
async fn missing_tables_are_named() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let dynamodb = scene.services.dynamodb.clone();
    let tables = TokenTables { limits: "no-limits".to_owned(), ..TokenTables::of(BASE) };
    let error = Reservations::builder(dynamodb.clone(), tables).build().reserve(CLUSTER, ACCOUNT).await.unwrap_err();
    assert!(error.to_string().contains("\"no-limits\"") && error.to_string().contains("is missing"), "{error}");
    let tables = TokenTables { non_fungible: "no-tokens".to_owned(), ..TokenTables::of(BASE) };
    let error = Reservations::builder(dynamodb, tables).build().reserve(CLUSTER, ACCOUNT).await.unwrap_err();
    assert!(error.to_string().contains("\"no-tokens\"") && error.to_string().contains("is missing"), "{error}");
    assert!(matches!(error, ReserveError::Table(error) if error.is_retryable()));
    Ok(())
}
