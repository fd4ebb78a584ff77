//! The payloads in `events/` do what their names say.

use tidegate_aws::stream::StreamEvent;
use tidegate_sandbox::faults::FaultRates;
use tidegate_tests::{Scene, failure, root};
use usage_rollup::{handler::Handled, report::Report};

async fn invoke(name: &str) -> anyhow::Result<(Scene, Handled)> {
    let event: StreamEvent = serde_json::from_slice(&std::fs::read(root().join("events/usage-rollup").join(name))?)?;
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let handled = scene.invoke(&event).await;
    assert_eq!(failure(&handled), None);
    Ok((scene, handled))
}

fn check(handled: &Handled, expect: &Report) {
    assert_eq!(&handled.report, expect);
}

#[tokio::test]
async fn a_good_batch() -> anyhow::Result<()> {
    // Two buckets, on both sides of midnight on New Year's Eve: twelve snapshots.
    let (_, handled) = invoke("batch.json").await?;
    let expect =
        Report { records: 9, not_ours: 1, changes: 8, postings: 12, posted: 12, writes: 12, ..Report::default() };
    check(&handled, &expect);
    Ok(())
}

#[tokio::test]
async fn an_insert_counts() -> anyhow::Result<()> {
    let (scene, handled) = invoke("insert.json").await?;
    check(&handled, &Report { records: 1, changes: 1, postings: 3, posted: 3, writes: 3, ..Report::default() });
    for (_, usage) in scene.books().await?.iter() {
        assert!(usage.events == 1 && usage.tokens["rpm"] > 0, "{usage:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_removal_by_ttl_does_not_count() -> anyhow::Result<()> {
    let (_, handled) = invoke("remove-by-ttl.json").await?;
    check(&handled, &Report { records: 1, changes: 1, unused: 1, ..Report::default() });
    Ok(())
}

#[tokio::test]
async fn a_malformed_record_among_good_ones() -> anyhow::Result<()> {
    let (scene, handled) = invoke("malformed-among-good.json").await?;
    let expect =
        Report { records: 3, changes: 2, poison: 1, parked: 1, postings: 6, posted: 6, writes: 6, ..Report::default() };
    check(&handled, &expect);
    assert_eq!(scene.services.queue.messages().len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_empty_batch() -> anyhow::Result<()> {
    let (_, handled) = invoke("empty.json").await?;
    check(&handled, &Report::default());
    Ok(())
}
