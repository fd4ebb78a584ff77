//! Reservations of the client crate: what the sweeper deletes is free again, and live tokens stay, beside those of Python
//! clients.

use tidegate::{
    ManualClock, TokenTables,
    reservation::{Reservation, Reservations, ReserveError, TokenError},
};
use tidegate_tests::sweeper::prelude::*;

const CLUSTER: &str = "emr-cluster";
const ACCOUNT: &str = "123456789012";
const HOUR: Duration = Duration::from_hours(1);

/// A client with a limit of 3 tokens, and the sweeper. Both see the time of the clock.
struct Both {
    scene: SweeperScene,
    clock: ManualClock,
    reservations: Reservations,
}

impl Both {
    fn of(scene: SweeperScene) -> Self {
        let clock = ManualClock::new(END);
        let reservations = Reservations::builder(scene.services.dynamodb.clone(), TokenTables::of(BASE));
        let reservations = reservations.default_limit(CLUSTER, 3).clock(clock.clone()).build();
        Self { scene, clock, reservations }
    }

    async fn new() -> anyhow::Result<Self> {
        Ok(Self::of(SweeperScene::new().await?))
    }

    async fn reserve(&self) -> Result<Reservation, ReserveError> {
        self.reservations.reserve(CLUSTER, ACCOUNT).await
    }

    async fn start(&self, cluster: &str) -> anyhow::Result<()> {
        self.reserve().await?.bind(cluster, HOUR).await?;
        Ok(())
    }

    /// The clusters that hold tokens.
    async fn clusters(&self) -> anyhow::Result<BTreeSet<String>> {
        let held = self.reservations.list(CLUSTER, ACCOUNT).await?;
        Ok(held.into_iter().filter_map(|token| token.resource_id).collect())
    }

    /// Delivers events until none fails. After the grace, a token that is gone is no failure.
    async fn deliver(&self, events: &[Value]) -> anyhow::Result<()> {
        for _ in 0..20 {
            if failures(&self.scene.invoke(events, GRACE_OVER).await?).is_empty() {
                return Ok(());
            }
        }
        anyhow::bail!("the events still fail")
    }

    async fn assert_full(&self) {
        assert!(matches!(self.reserve().await, Err(ReserveError::Denied(_))));
    }
}

#[tokio::test]
async fn ended_resources_free_the_tokens_of_both_kinds() -> anyhow::Result<()> {
    let both = Both::new().await?;
    let scene = &both.scene;
    scene.put(&token("python", "j-1")).await?;
    both.start("j-2").await?;
    both.start("j-3").await?;
    both.assert_full().await;
    let handled = scene.invoke(&[ended("j-1"), ended("j-2"), ended("j-2")], END).await?;
    assert_eq!(decisions(&handled), ["deleted", "deleted", "deleted"]);
    assert_eq!(both.clusters().await?, ["j-3".to_owned()].into());
    both.start("j-4").await?;
    both.start("j-5").await?;
    both.assert_full().await;
    // A late duplicate of the first end does not touch the slot's next holder.
    let handled = scene.invoke(&[ended("j-2")], GRACE_OVER).await?;
    assert_eq!(decisions(&handled), ["untracked"]);
    assert_eq!(both.clusters().await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn an_early_end_event_is_retried() -> anyhow::Result<()> {
    let both = Both::new().await?;
    let mut reservation = both.reserve().await?;
    let handled = both.scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["early"], vec!["m-0"]));
    let mut token = reservation.bind("j-1", HOUR).await?;
    let handled = both.scene.invoke(&[ended("j-1")], END + 30_000).await?;
    assert_eq!(decisions(&handled), ["deleted"]);
    let error = token.renew(HOUR).await.unwrap_err();
    assert!(matches!(error, TokenError::Lost { .. }), "{error}");
    token.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_reconcile_deletes_expired_tokens() -> anyhow::Result<()> {
    let both = Both::new().await?;
    both.start("j-1").await?;
    let mut token = both.reserve().await?.bind("j-2", HOUR).await?;
    let run = both.scene.reconcile(END).await;
    assert_eq!((run.report.deleted, run.report.kept, run.report.corrupt, run.report.undated), (0, 2, 0, 0));
    both.clock.advance(HOUR / 2);
    token.renew(HOUR).await?;
    both.clock.advance(HOUR / 2);
    let run = both.scene.reconcile(both.clock.epoch_millis()).await;
    assert_eq!((run.report.expired, run.report.deleted, run.report.kept), (1, 1, 1));
    assert_eq!(both.clusters().await?, ["j-2".to_owned()].into());
    Ok(())
}

/// TTL deletes slots that are free, and reservations that have expired.
#[tokio::test]
async fn slots_without_a_resource_are_passed_over() -> anyhow::Result<()> {
    let both = Both::new().await?;
    std::mem::forget(both.reserve().await?);
    both.reserve().await?.release().await?;
    let run = both.scene.reconcile(END + 360_000).await;
    assert_eq!((run.report.tokens, run.report.corrupt, run.report.deleted), (0, 0, 0));
    assert!(run.complete);
    let items = both.scene.services.dynamodb.scan().table_name(TokenTables::of(BASE).non_fungible).send().await?;
    let expired = |item: &std::collections::HashMap<String, AttributeValue>| {
        item["expirationTime"].as_n().is_ok_and(|expires| expires.parse().is_ok_and(|at: i64| at < END / 1000 + 360))
    };
    assert!(items.items().iter().all(expired), "TTL deletes nothing without an expiry in the past: {items:?}");
    Ok(())
}

#[tokio::test]
async fn clusters_that_emr_has_ended_lose_their_slots() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let sweeper = scene.another_process(&[("RECONCILE_EMR", "true")])?;
    let both = Both::of(SweeperScene { sweeper, ..scene });
    for cluster in ["j-1ENDED", "j-2RUNS"] {
        both.start(cluster).await?;
        both.scene.emr.runs(cluster);
    }
    both.scene.put(&token("python", "j-3ENDED")).await?;
    both.scene.emr.ends("j-1ENDED");
    both.scene.emr.ends("j-3ENDED");
    let run = both.scene.reconcile(END).await;
    assert_eq!((run.report.forgotten, run.report.deleted, run.report.kept), (2, 2, 1));
    assert_eq!(both.clusters().await?, ["j-2RUNS".to_owned()].into());
    Ok(())
}

/// A slot is taken and bound again between the sweeper's read and its deletion.
#[tokio::test]
async fn a_slot_that_changed_meanwhile_stays() -> anyhow::Result<()> {
    let both = Both::new().await?;
    let token = both.reserve().await?.bind("j-1", HOUR).await?;
    both.scene.http.hold("DeleteItem");
    let events = [ended("j-1")];
    let (handled, changed) = tokio::join!(
        Box::pin(both.scene.invoke(&events, END)),
        Box::pin(async {
            both.scene.http.held().await;
            let changed = async {
                token.release().await?;
                // All three slots, so that the freed one is among them.
                for cluster in ["j-2", "j-3", "j-4"] {
                    both.start(cluster).await?;
                }
                anyhow::Ok(())
            };
            let changed = changed.await;
            both.scene.http.release();
            changed
        })
    );
    changed?;
    assert_eq!(decisions(&handled?), ["already-gone"]);
    assert_eq!(both.clusters().await?.len(), 3);
    Ok(())
}

/// Deletions that are throttled, lost or repeated free exactly the tokens of ended clusters.
#[tokio::test]
async fn faults_free_exactly_the_ended() -> anyhow::Result<()> {
    let both = Both::of(SweeperScene::with_faults(FaultRates::spread(0.3), 5).await?);
    for round in 0..20 {
        let clusters = ["a", "b", "c"].map(|name| format!("j-{name}{round}"));
        for cluster in &clusters {
            both.start(cluster).await?;
        }
        both.scene.put(&token("python", "j-python")).await?;
        let (gone, stays) = clusters.split_at(2);
        let events = [ended(&gone[0]), ended("j-python"), ended(&gone[1])];
        both.deliver(&events).await?;
        assert_eq!(both.clusters().await?, stays.iter().cloned().collect());
        both.deliver(&[ended(&stays[0])]).await?;
        assert_eq!(both.clusters().await?, BTreeSet::new());
    }
    assert!(both.scene.http.counts().total() > 10, "{:?}", both.scene.http.counts());
    Ok(())
}
