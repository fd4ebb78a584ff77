//! `usage-rollup` over a real table and queue: the payloads in `events/usage-rollup`, faults, and the records of a real client.

mod captured_stream;
mod undeliverable;
mod writes;

use tidegate_tests::rollup::prelude::*;
use usage_rollup::report::RollupReport;

/// A payload gives this report and no failure. Returns the scene.
async fn check(name: &str, expect: RollupReport) -> anyhow::Result<RollupScene> {
    let event = serde_json::from_slice(&std::fs::read(root().join("events/usage-rollup").join(name))?)?;
    let scene = RollupScene::new().await?;
    let handled = scene.invoke(&event).await;
    assert_eq!((failure(&handled.answer), handled.report), (None, expect), "{name}");
    Ok(scene)
}

#[tokio::test]
async fn payloads_do_what_they_say() -> anyhow::Result<()> {
    // Two buckets, on both sides of midnight on New Year's Eve: twelve snapshots.
    let twelve = RollupReport {
        records: 9,
        not_ours: 1,
        changes: 8,
        postings: 12,
        posted: 12,
        writes: 12,
        ..RollupReport::default()
    };
    check("batch.json", twelve).await?;
    check("empty.json", RollupReport::default()).await?;
    check("remove-by-ttl.json", RollupReport { records: 1, changes: 1, unused: 1, ..RollupReport::default() }).await?;

    let one = RollupReport { records: 1, changes: 1, postings: 3, posted: 3, writes: 3, ..RollupReport::default() };
    for (_, usage) in check("insert.json", one).await?.usage().await?.iter() {
        assert!(usage.events == 1 && usage.tokens["rpm"] > 0, "{usage:?}");
    }
    let good = RollupReport { records: 3, changes: 2, postings: 6, posted: 6, writes: 6, ..RollupReport::default() };
    let scene = check("malformed-among-good.json", RollupReport { poison: 1, parked: 1, ..good }).await?;
    assert_eq!(scene.services.queue.messages().len(), 1);
    Ok(())
}
