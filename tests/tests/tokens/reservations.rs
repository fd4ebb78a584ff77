//! Reservations of the client crate: never more tokens than the limit. Each holder changes only its own slot.

use std::{collections::BTreeSet, time::UNIX_EPOCH};

use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use futures::future::join_all;
use tidegate_aws::schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, slot_key};
use tidegate_tests::reservations::prelude::*;

fn calls<const N: usize>(calls: [(&str, usize); N]) -> std::collections::BTreeMap<String, usize> {
    calls.map(|(operation, count)| (operation.to_owned(), count)).into()
}

fn denied(reserved: Result<Reservation, ReserveError>) -> (u64, u64) {
    match reserved {
        Err(ReserveError::Denied(denied)) => (denied.held, denied.limit),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reservation_among_rust_clients_is_one_write() -> anyhow::Result<()> {
    let scene = ReservationScene::new(100).await?;
    let reservations = scene.only_rust();
    let _first = reservations.reserve(CLUSTER, ACCOUNT).await?;
    assert_eq!(scene.http.calls(), calls([("GetItem", 1), ("Query", 1), ("UpdateItem", 1)]));
    let units = scene.http.write_units();
    let mut second = reservations.reserve(CLUSTER, ACCOUNT).await?;
    assert_eq!(scene.http.calls(), calls([("UpdateItem", 1)]));
    let token = second.bind("j-2", LIFETIME).await?;
    token.release().await?;
    assert_eq!(scene.http.calls(), calls([("UpdateItem", 2)]));
    assert_eq!(scene.http.write_units() - units, 3);
    Ok(())
}

#[tokio::test]
async fn tokens_of_python_clients_are_counted_before_and_after() -> anyhow::Result<()> {
    let scene = ReservationScene::new(3).await?;
    let _first = scene.reserve().await?;
    assert_eq!(scene.http.calls(), calls([("GetItem", 1), ("Query", 2), ("UpdateItem", 1)]));
    scene.put_python_token("a", 300).await?;
    let mut second = scene.reserve().await?;
    assert_eq!(denied(scene.reserve().await), (3, 3));
    second.release().await?;
    scene.put_python_token("b", 300).await?;
    assert_eq!(denied(scene.reserve().await), (3, 3));
    scene.clock.advance(Duration::from_secs(301));
    assert_eq!(scene.live().await?, 0);
    Ok(())
}

/// A Python client adds a token between the count and the write.
#[tokio::test]
async fn a_token_beyond_the_limit_is_given_back() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    scene.http.hold("UpdateItem");
    let reservations = scene.reservations.clone();
    let reserving = tokio::spawn(async move { reservations.reserve(CLUSTER, ACCOUNT).await });
    scene.http.held().await;
    scene.put_python_token("a", 300).await?;
    scene.http.release();
    assert_eq!(denied(reserving.await?), (1, 1));
    assert_eq!(scene.live().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_margin_stays_free() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    let careful = scene.another(|builder| builder.margin(2));
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(careful.reserve(CLUSTER, ACCOUNT).await?);
    }
    assert_eq!(denied(careful.reserve(CLUSTER, ACCOUNT).await), (3, 5));
    held.push(scene.reserve().await?);
    assert_eq!(scene.live().await?, 4);
    // A margin leaves one token of each limit.
    let timid = scene.another(|builder| builder.margin(9).default_limit("glue-job", 5));
    let _only = timid.reserve("glue-job", ACCOUNT).await?;
    assert_eq!(denied(timid.reserve("glue-job", ACCOUNT).await), (1, 5));
    Ok(())
}

#[tokio::test]
async fn concurrent_callers_never_exceed_the_limit() -> anyhow::Result<()> {
    for (limit, callers) in [(5, 100), (100, 130)] {
        let scene = ReservationScene::new(limit).await?;
        for is_counting in [true, false] {
            let processes: Vec<_> = (0..4)
                .map(|_| if is_counting { scene.another(|builder| builder) } else { scene.only_rust() })
                .collect();
            let reserve = |number: usize| processes[number % 4].reserve(CLUSTER, ACCOUNT).into_future();
            let reserved = join_all((0..callers).map(reserve)).await;
            assert_eq!(scene.live().await?, usize::try_from(limit)?);
            let granted = reserved.iter().filter(|reserved| reserved.is_ok()).count();
            assert_eq!(granted, usize::try_from(limit)?, "counting: {is_counting}");
            drop(reserved);
            for process in processes {
                process.flush().await;
            }
            assert_eq!(scene.live().await?, 0);
        }
    }
    Ok(())
}

/// Callers that are denied together read the slots together.
#[tokio::test]
async fn a_crowd_costs_few_reads() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    let reservations = scene.only_rust();
    let reserved = join_all((0..100).map(|_| reservations.reserve(CLUSTER, ACCOUNT).into_future())).await;
    assert_eq!(reserved.iter().filter(|reserved| reserved.is_ok()).count(), 5);
    let calls = scene.http.calls();
    assert_eq!(calls["UpdateItem"], 5, "{calls:?}");
    assert!(calls["Query"] <= 6, "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn a_lowered_limit_counts_tokens_above_it() -> anyhow::Result<()> {
    let scene = ReservationScene::new(10).await?;
    for reservations in [scene.only_rust(), scene.reservations.clone()] {
        scene.set_limit(10).await?;
        scene.clock.advance(Duration::from_secs(6));
        let mut held = join_all((0..8).map(|_| reservations.reserve(CLUSTER, ACCOUNT).into_future())).await;
        assert!(held.iter().all(Result::is_ok));
        scene.set_limit(4).await?;
        scene.clock.advance(Duration::from_secs(6));
        for left in (4..8).rev() {
            assert_eq!(denied(reservations.reserve(CLUSTER, ACCOUNT).await), (left + 1, 4));
            held.pop().context("a reservation")??.release().await?;
            scene.clock.advance(Duration::from_secs(6));
        }
        assert_eq!(denied(reservations.reserve(CLUSTER, ACCOUNT).await), (4, 4));
        held.pop().context("a reservation")??.release().await?;
        let mut again = reservations.reserve(CLUSTER, ACCOUNT).await?;
        assert_eq!(scene.live().await?, 4);
        again.release().await?;
        drop(held);
        reservations.flush().await;
    }
    Ok(())
}

#[tokio::test]
async fn an_expired_reservation_cannot_be_bound() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let mut late = scene.reserve().await?;
    scene.clock.advance(Duration::from_mins(5));
    let error = late.bind("j-1", LIFETIME).await.unwrap_err();
    assert!(matches!(error, TokenError::Lost { .. }), "{error}");
    assert_eq!(scene.live().await?, 0);
    // Another client holds the same slot. The earlier holder changes nothing.
    let mut next = scene.reserve().await?;
    assert!(next.fence() > late.fence());
    let token = next.bind("j-2", LIFETIME).await?;
    assert!(late.bind("j-1", LIFETIME).await.is_err());
    late.release().await?;
    assert_eq!(scene.live().await?, 1);
    assert_eq!(token.expires(), Some(UNIX_EPOCH + Duration::from_secs(START.unsigned_abs() / 1000 + 300 + 28_800)));
    Ok(())
}

#[tokio::test]
async fn a_token_is_renewed_until_it_expires() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let mut token = scene.reserve().await?.bind("j-1", Duration::from_mins(10)).await?;
    scene.clock.advance(Duration::from_mins(9));
    token.renew(Duration::from_mins(10)).await?;
    let until = token.expires();
    token.renew(Duration::from_mins(1)).await?;
    assert_eq!(token.expires(), until);
    scene.clock.advance(Duration::from_mins(10));
    let error = token.renew(Duration::from_mins(10)).await.unwrap_err();
    assert!(matches!(error, TokenError::Lost { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_token_is_found_by_its_id() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let token = scene.reserve().await?.bind("j-1", LIFETIME).await?;
    let mut found = scene.only_rust().token(CLUSTER, ACCOUNT, token.id())?;
    assert_eq!((found.fence(), found.expires()), (token.fence(), None));
    found.renew(LIFETIME * 2).await?;
    found.release().await?;
    token.release().await?;
    assert_eq!(scene.live().await?, 0);
    for id in ["", "1.2", "x.1.a", "1.x.a", "1.2."] {
        let message = scene.reservations.token(CLUSTER, ACCOUNT, id).unwrap_err().to_string();
        assert!(message.contains(&format!("{id:?}")), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn a_reservation_is_bound_once() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let mut reservation = scene.reserve().await?;
    let token = reservation.bind("j-1", LIFETIME).await?;
    assert_eq!(reservation.bind("j-1", LIFETIME).await?.id(), token.id());
    let message = reservation.bind("j-2", LIFETIME).await.unwrap_err().to_string();
    assert!(message.contains("\"j-2\"") && message.contains("\"j-1\""), "{message}");
    drop(reservation);
    scene.reservations.flush().await;
    assert_eq!(scene.live().await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_dropped_reservation_is_freed() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    drop(scene.reserve().await?);
    scene.reservations.flush().await;
    assert_eq!(scene.live().await?, 0);
    let mut fences = BTreeSet::new();
    for _ in 0..5 {
        let mut reservation = scene.reserve().await?;
        assert!(fences.last().is_none_or(|last| *last < reservation.fence()));
        fences.insert(reservation.fence());
        reservation.release().await?;
    }
    assert_eq!(scene.items().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_request_waits_until_its_deadline() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let mut first = scene.reserve().await?;
    let past = scene.reservations.reserve(CLUSTER, ACCOUNT).until(Instant::now());
    assert!(matches!(past.await, Err(ReserveError::TimedOut)));
    scene.http.hold("Query");
    let waiting = tokio::spawn(scene.reservations.reserve(CLUSTER, ACCOUNT).until(in_time()).into_future());
    scene.http.held().await;
    scene.http.release();
    first.release().await?;
    while !waiting.is_finished() {
        scene.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    let _second = waiting.await??;
    assert_eq!(scene.live().await?, 1);
    Ok(())
}

/// With the clock of the system, and with a clock that stands still.
#[tokio::test]
async fn a_denied_request_ends_at_its_deadline() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    let _first = scene.reserve().await?;
    let system = Reservations::builder(scene.services.dynamodb.clone(), TokenTables::of(BASE)).build();
    for reservations in [&scene.reservations, &system] {
        scene.http.calls();
        let deadline = Instant::now() + Duration::from_millis(300);
        let late = in_time();
        let reserved =
            tokio::time::timeout_at(late, reservations.reserve(CLUSTER, ACCOUNT).until(deadline).into_future());
        let waited = reserved.await?;
        // By the scene's clock, the first reservation is long gone for a client with the system's clock.
        if let Err(error) = waited {
            assert!(matches!(error, ReserveError::Denied(_)), "{error}");
            assert!(Instant::now() >= deadline);
        }
    }
    Ok(())
}

/// After a denial, and a token that another client has freed, the next counts are cheap again.
#[tokio::test]
async fn a_denial_is_forgotten() -> anyhow::Result<()> {
    let scene = ReservationScene::new(2).await?;
    let mut held = vec![scene.reserve().await?, scene.reserve().await?];
    assert_eq!(denied(scene.reserve().await), (2, 2));
    let other = scene.another(|builder| builder);
    let id = held.pop().context("a reservation")?.bind("j-1", LIFETIME).await?.id();
    other.token(CLUSTER, ACCOUNT, id)?.release().await?;
    scene.reserve().await?.release().await?;
    scene.http.calls();
    let units = scene.http.half_read_units();
    scene.reserve().await?.release().await?;
    assert_eq!((scene.http.calls()["Query"], scene.http.half_read_units() - units), (2, 4));
    Ok(())
}

/// Few slots of a limit of 5,000 are free. Callers find the free slots without exceeding the limit.
#[tokio::test]
async fn large_limits_are_filled_exactly() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5_000).await?;
    let expires = START / 1000 + 3_600;
    let slots = (0..4_990).map(|slot| {
        let key = slot_key(slot);
        let item =
            [(RESOURCE_COORDINATE, text(COORDINATE)), (RESERVATION_ID, text(key)), (EXPIRATION_TIME, number(expires))];
        let item = item.map(|(name, value)| (name.to_owned(), value)).into();
        WriteRequest::builder()
            .put_request(PutRequest::builder().set_item(Some(item)).build().expect("an item"))
            .build()
    });
    let slots: Vec<_> = slots.collect();
    for batch in slots.chunks(25) {
        let write = scene.services.dynamodb.batch_write_item();
        write.request_items(TokenTables::of(BASE).non_fungible, batch.to_vec()).send().await?;
    }
    for is_counting in [true, false] {
        let reservations = if is_counting { scene.reservations.clone() } else { scene.only_rust() };
        let reserved = join_all((0..20).map(|_| reservations.reserve(CLUSTER, ACCOUNT).into_future())).await;
        assert_eq!(reserved.iter().filter(|reserved| reserved.is_ok()).count(), 10);
        assert_eq!(scene.live().await?, 5_000);
        drop(reserved);
        reservations.flush().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_list_shows_who_holds_what() -> anyhow::Result<()> {
    let scene = ReservationScene::new(5).await?;
    scene.put_python_token("11111111-1111-4111-8111-111111111111", 60).await?;
    let _token = scene.reserve().await?.bind("j-1", LIFETIME).await?;
    scene.clock.advance(Duration::from_secs(1));
    let _reservation = scene.reserve().await?;
    let mut held = scene.reservations.list(CLUSTER, ACCOUNT).await?;
    held.sort_by_key(|token| token.expires);
    let start = UNIX_EPOCH + Duration::from_millis(START.unsigned_abs());
    let shown: Vec<_> = held.iter().map(|of| (of.owner.as_deref(), of.resource_id.as_deref(), of.since)).collect();
    assert_eq!(
        shown,
        [
            (None, None, None),
            (Some("test"), None, Some(start + Duration::from_secs(1))),
            (Some("test"), Some("j-1"), Some(start)),
        ]
    );
    assert_eq!(held[0].expires, start + Duration::from_mins(1));
    Ok(())
}

#[tokio::test]
async fn limits_have_defaults_and_block() -> anyhow::Result<()> {
    let scene = ReservationScene::new(0).await?;
    let reservations = scene.another(|builder| builder.default_limit(CLUSTER, 1));
    let message = |reserved: Result<Reservation, ReserveError>| reserved.unwrap_err().to_string();
    let blocked = message(reservations.reserve(CLUSTER, ACCOUNT).await);
    assert_eq!(blocked, "account \"123456789012\" has a limit of 0 on resource \"emr-cluster\"");
    let _other = reservations.reserve(CLUSTER, "2").await?;
    assert_eq!(denied(reservations.reserve(CLUSTER, "2").await), (1, 1));
    let unknown = message(reservations.reserve("glue-job", "2").await);
    assert!(unknown.contains("\"glue-job\"") && unknown.contains("no limit"), "{unknown}");
    assert!(message(reservations.reserve("emr:cluster", "2").await).contains("\"emr:cluster\""));
    scene.set_limit(2).await?;
    assert!(reservations.reserve(CLUSTER, ACCOUNT).await.is_err(), "the limit is remembered");
    scene.clock.advance(Duration::from_secs(5));
    assert!(reservations.reserve(CLUSTER, ACCOUNT).await.is_ok());
    Ok(())
}
