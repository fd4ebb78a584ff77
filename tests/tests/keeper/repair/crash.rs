//! A repair that dies anywhere is finished by the next.

use std::collections::BTreeMap;

use tidegate_aws::schema::{bucket, system};
use tidegate_domain::state::BucketState;
use tidegate_tests::keeper::{
    Item, KeeperScene, START, a_minute, count, full, in_time, key, limit_of, set_tokens, shard, time,
};

/// By then, every shard can be full.
const NOW: i64 = START + 120_000;

/// Buckets with all kinds of work.
async fn scene() -> anyhow::Result<KeeperScene> {
    let scene = KeeperScene::new().await?;
    let mut whole = BucketState { shards: count(8), ..full(1) };
    set_tokens(&mut whole, "rpm", 70_003);
    set_tokens(&mut whole, "tpm", -5_001);
    scene.put(&key("unsplit"), &whole).await?;

    let mut zero = BucketState { expires: Some(NOW / 1_000 + 9), ..full(2) };
    limit_of(&mut zero, "rpm").terms = a_minute(40);
    scene.put(&key("shrunken"), &zero).await?;
    scene.put(&shard(&key("shrunken"), 1), &BucketState { expires: Some(5), ..full(2) }).await?;

    scene.put(&key("behind"), &full(4)).await?;
    for number in 1..4 {
        scene.put(&shard(&key("behind"), number), &BucketState { shards: count(1), ..full(4) }).await?;
    }
    for (number, held) in [(0, 50_000), (1, 0), (2, 50_000), (3, 20_000)] {
        // Nothing accrues to it meanwhile.
        let mut state = BucketState { last_refill: time(NOW + 60_000), ..full(2) };
        set_tokens(&mut state, "rpm", held);
        let entity = if number < 2 { "uneven" } else { "idle" };
        scene.put(&shard(&key(entity), number % 2), &state).await?;
    }
    scene.change(&shard(&key("idle"), 1), |state| state.last_refill = time(START)).await?;
    scene.put(&key("single"), &full(1)).await?;
    for entity in ["unsplit", "shrunken", "behind", "uneven", "idle", "single", "gone"] {
        scene.enter(&key(entity), 2).await?;
    }
    Ok(scene)
}

/// Repairs until nothing is left to be done; the table then, but for when it was refilled and checked.
async fn repaired(scene: &mut KeeperScene) -> anyhow::Result<BTreeMap<String, Item>> {
    scene.writes().await?;
    for _ in 0..3 {
        scene.repair(NOW).await?;
        if scene.writes().await? == 0 {
            let mut table = scene.table().await?;
            for item in table.values_mut() {
                item.retain(|name, _| ![bucket::LAST_REFILL, system::CHECKED].contains(&name.as_str()));
            }
            return Ok(table);
        }
    }
    anyhow::bail!("the repair does not come to rest")
}

#[tokio::test]
async fn a_repair_that_dies_is_finished_by_the_next() -> anyhow::Result<()> {
    let expect = repaired(&mut scene().await?).await?;
    assert_eq!(expect.len(), 8 + 2 + 4 + 2 + 2 + 1 + 5, "shards and entries");
    let mut crashes = 0;
    for writes in 0.. {
        let mut scene = scene().await?;
        scene.http.crash_after(writes);
        let is_done = tokio::select! {
            repaired = scene.keeper.repair(time(NOW), in_time()) => repaired.complete.is_ok(),
            () = scene.http.crashed() => false,
        };
        scene.http.heal();
        scene.keeper = scene.another_process()?;
        assert!(repaired(&mut scene).await? == expect, "a crash after {writes} writes");
        if is_done {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 10, "{crashes}");
    Ok(())
}
