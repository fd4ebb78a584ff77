//! What each operation costs: calls and consumed capacity, of our client and of zae-limiter 0.17.0, on the same items.
//!
//! The capacity is what the embedded DynamoDB reports for each call (`ReturnConsumedCapacity`), and what AWS bills for a
//! failed condition: see `tidegate_sandbox::gateway`. Without Python, only our side is checked.

use tidegate_sandbox::gateway::Usage;
use tidegate_tests::{
    client::prelude::*,
    metered::{Exit, MeteredScene},
};

/// A step of an operation. Entities are `child`, whose consumption cascades to `parent`, and those without a parent.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Another client leaves a bucket with so many shards, tokens in each of them, and write units.
    Bucket(&'static str, u32, i64, i64),
    /// The entity exists, without a bucket.
    Entity(&'static str),
    /// Time passes, in milliseconds.
    Advance(u64),
    /// An acquire of so many tokens, which is granted.
    Granted(&'static str, u64, Exit),
    /// An acquire of so many tokens, which is denied.
    Denied(&'static str, u64),
}

use Exit::{Adjust, Keep, Refund};
use Step::{Advance, Bucket, Denied, Entity, Granted};

/// Calls, read units, write units of the table, and write units of its indexes.
type Cost = (u64, f64, f64, f64);

/// An operation: its name, the steps before it, its steps, and what they cost with our client and with theirs.
type Operation = (&'static str, &'static [Step], &'static [Step], Cost, Cost);

const FULL: i64 = 60_000;
const UNITS: i64 = 1_000;

/// The doubling copies a shard and then takes; theirs takes from the new shard as it creates it, so it writes the indexes
/// once less.
const SHARDS_DOUBLED: &str = "write units exhausted, shards doubled";

/// The client has refilled the bucket, knows its limits, and knows that it needs a refill again.
const REFILLED_ONCE: &[Step] = &[
    Bucket("key", 1, FULL, UNITS),
    Granted("key", 60_000, Keep),
    Advance(10_000),
    Granted("key", 10_000, Keep),
    Advance(10_000),
];

const OPERATIONS: &[Operation] = &[
    (
        "acquire, fast path",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep)],
        &[Granted("key", 100, Keep)],
        (1, 0.0, 1.0, 1.0),
        (1, 0.0, 1.0, 1.0),
    ),
    (
        "acquire, fast path, in a new process",
        &[Bucket("key", 1, FULL, UNITS)],
        &[Granted("key", 100, Keep)],
        (1, 0.0, 1.0, 1.0),
        (2, 0.5, 1.0, 1.0),
    ),
    (
        "cascade, parent known",
        &[Bucket("child", 1, FULL, UNITS), Bucket("parent", 1, FULL, UNITS), Granted("child", 1, Keep)],
        &[Granted("child", 100, Keep)],
        (2, 0.0, 2.0, 2.0),
        (2, 0.0, 2.0, 2.0),
    ),
    (
        "cascade, in a new process",
        &[Bucket("child", 1, FULL, UNITS), Bucket("parent", 1, FULL, UNITS)],
        &[Granted("child", 100, Keep)],
        (2, 0.0, 2.0, 2.0),
        (3, 0.5, 2.0, 2.0),
    ),
    (
        "cascade, parent short",
        &[
            Bucket("child", 1, FULL, UNITS),
            Bucket("parent", 1, FULL, UNITS),
            Granted("child", 60_000, Keep),
            Advance(10_000),
            Granted("child", 1, Keep),
            Bucket("child", 1, FULL, UNITS),
            Bucket("parent", 1, 0, UNITS),
        ],
        &[Denied("child", 100)],
        (3, 0.0, 3.0, 2.0),
        (3, 0.0, 3.0, 2.0),
    ),
    (
        "denied",
        &[
            Bucket("key", 1, FULL, UNITS),
            Granted("key", 60_000, Keep),
            Advance(10_000),
            Granted("key", 1, Keep),
            Bucket("key", 1, 0, UNITS),
        ],
        &[Denied("key", 100)],
        (1, 0.0, 1.0, 0.0),
        (1, 0.0, 1.0, 0.0),
    ),
    (
        "denied, limits not known",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep), Bucket("key", 1, 0, UNITS)],
        &[Denied("key", 100)],
        (1, 0.0, 1.0, 0.0),
        (1, 0.0, 1.0, 0.0),
    ),
    (
        "denied again within a second",
        &[Bucket("key", 1, 0, UNITS), Denied("key", 2_000), Advance(500)],
        &[Denied("key", 2_000)],
        (0, 0.0, 0.0, 0.0),
        (0, 0.0, 0.0, 0.0),
    ),
    (
        "denied, 4 shards",
        &[
            Bucket("key", 4, 0, UNITS),
            Advance(10_000),
            Granted("key", 100, Keep),
            Advance(2_000),
            Bucket("key", 4, 0, UNITS),
        ],
        &[Denied("key", 10_000)],
        (3, 0.0, 3.0, 0.0),
        (3, 0.0, 3.0, 0.0),
    ),
    ("refill needed, seen before", REFILLED_ONCE, &[Granted("key", 100, Keep)], (1, 0.0, 1.0, 1.0), (4, 2.5, 2.0, 1.0)),
    (
        "refill needed, not seen before",
        &[
            Bucket("key", 1, FULL, UNITS),
            Granted("key", 60_000, Keep),
            Advance(10_000),
            Granted("key", 100, Keep),
            Bucket("key", 1, 0, UNITS),
            Advance(10_000),
        ],
        &[Granted("key", 100, Keep)],
        (2, 0.0, 2.0, 1.0),
        (4, 2.5, 2.0, 1.0),
    ),
    (
        "refill needed, in a new process",
        &[Bucket("key", 1, 0, UNITS), Advance(10_000)],
        &[Granted("key", 100, Keep)],
        (3, 2.5, 2.0, 1.0),
        (5, 3.0, 2.0, 1.0),
    ),
    (
        "cascade, both need a refill",
        &[
            Bucket("child", 1, FULL, UNITS),
            Bucket("parent", 1, FULL, UNITS),
            Granted("child", 60_000, Keep),
            Advance(10_000),
            Granted("child", 10_000, Keep),
            Advance(10_000),
        ],
        &[Granted("child", 100, Keep)],
        (2, 0.0, 2.0, 2.0),
        (7, 5.0, 6.0, 2.0),
    ),
    (
        "first acquire, in a new process",
        &[Entity("key")],
        &[Granted("key", 100, Keep)],
        (3, 2.5, 2.0, 3.0),
        (5, 3.0, 5.0, 3.0),
    ),
    (
        "first acquire",
        &[Entity("other"), Granted("other", 100, Keep), Entity("key")],
        &[Granted("key", 100, Keep)],
        (3, 2.5, 2.0, 3.0),
        (5, 3.5, 5.0, 3.0),
    ),
    (
        "write units exhausted, refill due",
        &[
            Bucket("key", 1, FULL, UNITS),
            Granted("key", 60_000, Keep),
            Advance(10_000),
            Granted("key", 100, Keep),
            Bucket("key", 1, FULL, 0),
            Advance(100),
        ],
        &[Granted("key", 100, Keep)],
        (2, 0.0, 2.0, 1.0),
        (4, 2.5, 2.0, 1.0),
    ),
    (
        SHARDS_DOUBLED,
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep), Bucket("key", 1, FULL, 0)],
        &[Granted("key", 100, Keep)],
        (4, 1.0, 6.0, 5.0),
        (5, 2.5, 6.0, 4.0),
    ),
    (
        "exit without a change",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep)],
        &[Granted("key", 100, Adjust(0))],
        (1, 0.0, 1.0, 1.0),
        (1, 0.0, 1.0, 1.0),
    ),
    (
        "acquire, exit with an adjustment",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep)],
        &[Granted("key", 100, Adjust(-50))],
        (2, 0.0, 2.0, 2.0),
        (2, 0.0, 2.0, 2.0),
    ),
    (
        "acquire, exit with a refund",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep)],
        &[Granted("key", 100, Refund)],
        (2, 0.0, 2.0, 2.0),
        (2, 0.0, 2.0, 2.0),
    ),
    (
        "cascade, exit with an adjustment",
        &[Bucket("child", 1, FULL, UNITS), Bucket("parent", 1, FULL, UNITS), Granted("child", 1, Keep)],
        &[Granted("child", 100, Adjust(50))],
        (4, 0.0, 4.0, 4.0),
        (4, 0.0, 4.0, 4.0),
    ),
    (
        "expired bucket, limits not known",
        &[Bucket("key", 1, FULL, UNITS), Granted("key", 1, Keep), Advance(420_000)],
        &[Granted("key", 100, Keep)],
        (2, 2.5, 1.0, 1.0),
        (5, 3.0, 2.0, 1.0),
    ),
];

/// Runs steps. Each operation has entities of its own.
async fn run(scene: &mut MeteredScene, operation: usize, steps: &[Step]) -> anyhow::Result<()> {
    let named = |entity: &str| format!("{entity}-{operation}");
    let parent = |entity: &str| (entity == "child").then(|| named("parent"));
    for step in steps {
        match *step {
            Bucket(entity, shards, tokens, units) => {
                scene.put_bucket(&named(entity), parent(entity).as_deref(), shards, tokens, units).await?;
            }
            Entity(entity) => scene.put_entity(&named(entity), parent(entity).as_deref()).await?,
            Advance(millis) => scene.advance(millis),
            Granted(entity, tokens, exit) => {
                ensure!(scene.acquire(&named(entity), tokens, exit).await?, "{step:?} is denied");
            }
            Denied(entity, tokens) => {
                ensure!(!scene.acquire(&named(entity), tokens, Keep).await?, "{step:?} is granted");
            }
        }
    }
    Ok(())
}

/// What each operation costs in a new process of the client.
async fn costs(mut scene: MeteredScene) -> anyhow::Result<Vec<(Cost, Usage)>> {
    let mut costs = Vec::new();
    for (number, (name, before, steps, ..)) in OPERATIONS.iter().enumerate() {
        scene.restart().await?;
        run(&mut scene, number, before).await.with_context(|| format!("before {name:?}"))?;
        scene.take_usage().await;
        run(&mut scene, number, steps).await.with_context(|| format!("{name:?}"))?;
        let usage = scene.take_usage().await;
        costs.push(((usage.total_calls(), usage.read_units, usage.write_units, usage.index_write_units), usage));
    }
    Ok(costs)
}

/// The operations for which our client consumes more in one of the columns.
const WORSE: [&str; 1] = [SHARDS_DOUBLED];

#[tokio::test(flavor = "multi_thread")]
async fn operations_cost_what_the_table_says() -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let ours = costs(MeteredScene::ours().await?).await?;
    for ((name, .., expect, _), (cost, usage)) in OPERATIONS.iter().zip(&ours) {
        if cost != expect {
            wrong.push(format!("{name}: {cost:?}, not {expect:?}: {:?}", usage.calls));
        }
    }
    if let Some(theirs) = MeteredScene::theirs().await? {
        for (((name, .., expect), (ours, _)), (cost, usage)) in OPERATIONS.iter().zip(&ours).zip(&costs(theirs).await?)
        {
            if cost != expect {
                wrong.push(format!("{name}, theirs: {cost:?}, not {expect:?}: {:?}", usage.calls));
            }
            let is_less = ours.0 <= cost.0 && ours.1 <= cost.1 && ours.2 <= cost.2 && ours.3 <= cost.3;
            if is_less == WORSE.contains(name) {
                wrong.push(format!("{name}: ours {ours:?}, theirs {cost:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    Ok(())
}
