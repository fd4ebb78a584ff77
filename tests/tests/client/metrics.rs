//! The counters of the client crate.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::join_all;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tidegate::{TokenTables, fungible::Fungible};
use tidegate_tests::{
    announcements::{AnnouncementScene, Scripted},
    client::prelude::*,
    reservations::{ACCOUNT, BASE, ReservationScene},
};

/// Keeps counters by name and labels.
#[derive(Default)]
struct Counters(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Counters {
    fn get(&self, counter: &str) -> u64 {
        self.counter(counter.to_owned()).load(Ordering::Relaxed)
    }

    fn counter(&self, counter: String) -> Arc<AtomicU64> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(counter).or_default())
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        Counter::from_arc(self.counter(format!("{}{}", key.name(), labels.collect::<String>())))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn acquires_are_counted_by_outcome() -> anyhow::Result<()> {
    let counters = Counters::default();
    let _recorder = metrics::set_default_local_recorder(&counters);
    let scene = ClientScene::new().await?;
    drop(scene.acquire(59_000).await?);
    assert!(scene.acquire(2_000).await.is_err());
    assert!(scene.acquire(2_000).await.is_err());
    assert!(scene.acquire(60_001).await.is_err());
    assert!(scene.acquire(1).take("words", 1).await.is_err());
    scene.http.on_call(|_, _| Some(Fault::InternalBefore));
    assert!(scene.limiter.acquire("key-2", RESOURCE).take("requests", 1).await.is_err());
    let http = FaultyHttp::new(FaultRates::default(), 0);
    let allowing = scene.another_with(&http, |builder| builder.on_unavailable(OnUnavailable::Allow)).await?;
    http.on_call(|_, _| Some(Fault::InternalBefore));
    assert!(allowing.acquire(ENTITY, RESOURCE).take("requests", 1).await?.is_degraded());
    for (labels, count) in [
        ("outcome=granted", 1),
        ("outcome=denied decided_by=cache", 2),
        ("outcome=never", 1),
        ("outcome=error", 1),
        ("outcome=unavailable", 1),
        ("outcome=degraded", 1),
    ] {
        assert_eq!(counters.get(&format!("tidegate_acquires_total {labels}")), count, "{labels}");
    }
    Ok(())
}

#[tokio::test]
async fn merged_acquires_share_a_write() -> anyhow::Result<()> {
    let counters = Counters::default();
    let _recorder = metrics::set_default_local_recorder(&counters);
    let scene = ClientScene::new().await?;
    drop(scene.acquire(1).await?);
    let before = counters.get("tidegate_writes_total operation=take outcome=applied");
    for acquired in join_all((0..50).map(|_| scene.acquire(1).into_future())).await {
        drop(acquired?);
    }
    let writes = counters.get("tidegate_writes_total operation=take outcome=applied") - before;
    assert_eq!(writes + counters.get("tidegate_merged_acquires_total"), 50);
    assert!(writes < 50, "{writes}");
    Ok(())
}

#[tokio::test]
async fn lost_adjustments_are_counted() -> anyhow::Result<()> {
    let counters = Counters::default();
    let _recorder = metrics::set_default_local_recorder(&counters);
    let scene = ClientScene::new().await?;
    let mut lease = scene.acquire(500).await?;
    lease.adjust("tokens", -80);
    lease.commit().await?;
    assert_eq!(counters.get("tidegate_writes_total operation=adjust outcome=applied"), 1);
    assert_eq!(counters.get("tidegate_adjustments_lost_total"), 0);
    let lease = scene.acquire(500).await?;
    scene.http.on_call(|operation, _| (operation == "UpdateItem").then_some(Fault::DroppedBefore));
    assert!(lease.refund().await.is_err());
    assert_eq!(counters.get("tidegate_writes_total operation=adjust outcome=lost"), 1);
    assert_eq!(counters.get("tidegate_adjustments_lost_total"), 1);
    Ok(())
}

#[tokio::test]
async fn token_requests_are_counted_by_outcome() -> anyhow::Result<()> {
    let counters = Counters::default();
    let _recorder = metrics::set_default_local_recorder(&counters);
    let scene = ReservationScene::new(1).await?;
    let _held = scene.reserve().await?;
    assert!(scene.reserve().await.is_err());
    assert!(scene.reservations.reserve("no:resource", ACCOUNT).await.is_err());
    let fungible = Fungible::builder(scene.services.dynamodb.clone(), TokenTables::of(BASE));
    let fungible = fungible.default_limit("emr-api", 1, Duration::from_hours(1)).build();
    fungible.take("emr-api", ACCOUNT, 1).await?;
    assert!(fungible.take("emr-api", ACCOUNT, 1).await.is_err());
    assert!(fungible.take("emr-api", ACCOUNT, 2).await.is_err());
    for (labels, count) in [
        ("reservations_total outcome=granted", 1),
        ("reservations_total outcome=denied", 1),
        ("reservations_total outcome=error", 1),
        ("fungible_takes_total outcome=granted", 1),
        ("fungible_takes_total outcome=denied", 1),
        ("fungible_takes_total outcome=never", 1),
    ] {
        assert_eq!(counters.get(&format!("tidegate_{labels}")), count, "{labels}");
    }
    Ok(())
}

#[tokio::test]
async fn announcements_are_counted_by_outcome() -> anyhow::Result<()> {
    let counters = Counters::default();
    let _recorder = metrics::set_default_local_recorder(&counters);
    let scene = AnnouncementScene::new().await?;
    let answers = [Scripted::NotReady(20), Scripted::Error("UnknownTable"), Scripted::Error("Busy")];
    scene.function.answers(answers.into_iter().chain([Scripted::Answer(json!("?"))]));
    for _ in 0..4 {
        assert!(scene.announce().deadline(Duration::ZERO).await.is_err());
    }
    scene.announce().await?.keep();
    for outcome in ["ready", "not_ready", "refused", "unavailable", "error"] {
        assert_eq!(counters.get(&format!("tidegate_announcements_total outcome={outcome}")), 1, "{outcome}");
    }
    Ok(())
}
