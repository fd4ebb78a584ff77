//! `bucket-keeper` over a real table, with faults and with the real client.

mod events;
mod faults;
mod python_client;

/// Batches, as the function handles them.
mod batches {
    mod doubling;
    mod left_alone;
    mod refill;
    mod splits;
    mod undeliverable;

    use tidegate_tests::keeper::prelude::{BucketState, KeeperScene, START, key, shard};

    /// Ten seconds after [`START`].
    const LATER: i64 = START + 10_000;

    /// The creation time of records that are written at a moment: in whole seconds.
    const fn created(at: i64) -> i64 {
        at / 1_000 * 1_000
    }

    /// Writes the shards of a bucket, as the function sees it.
    async fn create(scene: &mut KeeperScene, entity: &str, shards: &[BucketState<'static>]) -> anyhow::Result<()> {
        for (number, state) in (0..).zip(shards) {
            scene.put(&shard(&key(entity), number), state).await?;
        }
        let event = scene.event(START).await?;
        scene.invoke(&event, START).await;
        assert_eq!(scene.writes().await?, 0, "nothing is to be done yet");
        Ok(())
    }
}

/// The repair of the registered buckets, which no stream record starts.
mod repair {
    mod progress;
    mod shards;
}

/// Each conditional write: what it writes, and when it writes nothing.
mod writes {
    mod refill;
    mod registry;
    mod shards;
    mod split;
}
