//! The formulas of `docs/units.md`, against the capacity that a mixed run consumes.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate::Lease;
use tidegate_tests::{client::prelude::*, metered::MeteredScene};

/// What happens in a run, counted per bucket: see `docs/units.md`.
#[derive(Debug, Default)]
struct Load {
    acquires: f64,
    /// Writes that grant; several acquires may share one.
    writes: f64,
    unforeseen_refills: f64,
    denials: f64,
    parents_denials: f64,
    adjustments: f64,
    first_acquires: f64,
    bucket_minutes: f64,
}

impl Load {
    /// The write units of the table and of its indexes, and the read units.
    fn capacity(&self) -> [f64; 3] {
        let Self { acquires, denials, parents_denials, adjustments, first_acquires, bucket_minutes, .. } = self;
        let merged = acquires / self.writes;
        let refills = self.unforeseen_refills / self.writes;
        [
            acquires / merged * (1.0 + refills) + denials + 3.0 * parents_denials + adjustments + first_acquires,
            acquires / merged + 2.0 * parents_denials + adjustments + 2.0 * first_acquires,
            2.5 * bucket_minutes,
        ]
    }

    fn granted(&mut self, acquires: f64, writes: f64) {
        self.acquires += acquires;
        self.writes += writes;
    }

    /// Counts a denial, unless it made no call.
    fn denied(&mut self, error: &AcquireError) {
        let AcquireError::Denied(denied) = error else { panic!("{error:?} is no denial") };
        if denied.decided_by() == DecidedBy::Store {
            self.denials += 1.0;
        }
    }
}

const KEYS: u32 = 20;
const CHILDREN: u32 = 5;
/// The run ends before this many minutes are over.
const MINUTES: u32 = 3;
const STEPS: u32 = 1_700;

/// In one thread, requests that start together share a write.
#[tokio::test]
async fn the_formulas_hold_to_two_percent() -> anyhow::Result<()> {
    let mut scene = MeteredScene::ours().await?;
    let limiter = scene.limiter().context("our client")?.clone();
    let acquire = async |entity: &str, tokens| -> Result<Lease, AcquireError> {
        limiter.acquire(entity, RESOURCE).take("requests", 1).take("tokens", tokens).await
    };
    for number in 0..CHILDREN {
        scene.put_entity(&format!("child-{number}"), Some("parent")).await?;
    }
    let mut load = Load::default();
    for number in 0..KEYS {
        let _lease = acquire(&format!("key-{number}"), 1).await?;
    }
    for number in 0..CHILDREN {
        let _lease = acquire(&format!("child-{number}"), 1).await?;
    }
    load.granted(f64::from(KEYS + 2 * CHILDREN), f64::from(KEYS + 2 * CHILDREN));
    load.first_acquires += f64::from(KEYS + CHILDREN + 1);
    load.bucket_minutes += f64::from((KEYS + CHILDREN + 1) * MINUTES);

    let mut rng = StdRng::seed_from_u64(1);
    for step in 0..STEPS {
        scene.advance(100);
        let key = format!("key-{}", rng.random_range(0..KEYS));
        match rng.random_range(0..100) {
            0..50 => {
                let _lease = acquire(&key, 10).await?;
                load.granted(1.0, 1.0);
            }
            50..58 => {
                let leases = futures::future::join_all((0..5).map(|_| acquire(&key, 10))).await;
                assert!(leases.iter().all(Result::is_ok), "{leases:?}");
                load.granted(5.0, 1.0);
            }
            58..70 => {
                let mut lease = acquire(&key, 100).await?;
                lease.adjust("tokens", -50);
                lease.commit().await?;
                load.granted(1.0, 1.0);
                load.adjustments += 1.0;
            }
            70..75 => {
                acquire(&key, 10).await?.refund().await?;
                load.granted(1.0, 1.0);
                load.adjustments += 1.0;
            }
            75..90 => {
                let mut lease = acquire(&format!("child-{}", rng.random_range(0..CHILDREN)), 10).await?;
                load.granted(2.0, 2.0);
                if step.is_multiple_of(2) {
                    lease.adjust("tokens", 5);
                    lease.commit().await?;
                    load.adjustments += 2.0;
                }
            }
            90..95 => {
                scene.put_bucket("dry", None, 1, 0, 1_000).await?;
                load.denied(&acquire("dry", 60_000).await.err().context("there are no tokens")?);
            }
            _ => {
                // Other processes take all tokens, and some time later this one asks again.
                let entity = format!("shared-{}", step % 2);
                scene.put_bucket(&entity, None, 1, 60_000, 1_000).await?;
                let _lease = acquire(&entity, 1).await?;
                scene.put_bucket(&entity, None, 1, 0, 1_000).await?;
                scene.advance(50);
                let _lease = acquire(&entity, 10).await?;
                load.granted(2.0, 2.0);
                load.unforeseen_refills += 1.0;
            }
        }
    }
    load.bucket_minutes += f64::from(3 * MINUTES);
    let usage = scene.take_usage().await;
    let measured = [usage.write_units, usage.index_write_units, usage.read_units];
    for (measured, expect) in measured.into_iter().zip(load.capacity()) {
        let off = (measured / expect - 1.0).abs();
        assert!(off < 0.02, "measured {measured}, expected {expect}: {usage:?}, {load:?}");
    }
    Ok(())
}
