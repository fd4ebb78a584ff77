//! What each operation on fungible tokens costs: calls and consumed capacity, of our client and of rate-limiter-py 0.3.0,
//! on the same rows.
//!
//! The capacity is what the embedded DynamoDB reports for each call (`ReturnConsumedCapacity`), and what AWS bills for a
//! failed condition: see `tidegate_sandbox::gateway`. Without Python, only our side is checked.

use tidegate_tests::fungible::prelude::*;

/// Calls, read units, and write units.
type Cost = (u64, f64, f64);

/// What each operation costs with our client and with theirs.
const OPERATIONS: &[(&str, Cost, Cost)] = &[
    ("take, no row, in a new process", (3, 1.0, 1.0), (3, 0.5, 2.0)),
    ("take of stored tokens", (1, 0.0, 1.0), (3, 0.5, 2.0)),
    ("take of stored tokens, in a new process", (3, 1.0, 1.0), (3, 0.5, 2.0)),
    ("take of stored tokens, limit not read for five seconds", (2, 0.5, 1.0), (3, 0.5, 2.0)),
    ("take with a refill", (1, 0.0, 1.0), (3, 0.5, 2.0)),
    ("take after another process has refilled", (2, 0.0, 2.0), (3, 0.5, 2.0)),
    ("denied, in a new process", (2, 1.0, 0.0), (2, 0.5, 1.0)),
    ("denied within a second", (0, 0.0, 0.0), (2, 0.5, 1.0)),
    ("denied after a second", (1, 0.5, 0.0), (2, 0.5, 1.0)),
];

/// The operations for which our client consumes more in one of the columns: a new process reads the row first.
const WORSE: [&str; 3] =
    ["take, no row, in a new process", "take of stored tokens, in a new process", "denied, in a new process"];

fn taken(scene: &FungibleScene) -> Cost {
    let usage = scene.gateway.take_usage();
    (usage.total_calls(), usage.read_units, usage.write_units)
}

/// The costs of our client, in the order of the operations.
async fn ours() -> anyhow::Result<Vec<Cost>> {
    let scene = FungibleScene::new().await?;
    let (mut costs, mut ours) = (Vec::new(), scene.another());
    macro_rules! measure {
        ($granted:literal) => {{
            taken(&scene);
            ensure!(count(&ours, 1).await? == $granted, "operation {}", costs.len());
            costs.push(taken(&scene));
        }};
    }
    measure!(1);
    measure!(1);
    ours = scene.another();
    measure!(1);
    scene.clock.advance(Duration::from_secs(5));
    measure!(1);
    scene.put_stored(5, scene.clock.epoch_millis() - 5_000).await?;
    count(&ours, 5).await?;
    scene.clock.advance(Duration::from_secs(1));
    measure!(1);
    ours = scene.another();
    scene.put_stored(5, scene.clock.epoch_millis() - 5_000).await?;
    count(&ours, 5).await?;
    scene.clock.advance(Duration::from_secs(1));
    scene.put_stored(1, scene.clock.epoch_millis()).await?;
    measure!(1);
    ours = scene.another();
    measure!(0);
    measure!(0);
    scene.clock.advance(Duration::from_secs(1));
    measure!(0);
    Ok(costs)
}

/// The costs of rate-limiter-py: it knows nothing of the past, so there are only two cases. `None` where Python does not
/// have it.
async fn theirs() -> anyhow::Result<Option<(Cost, Cost)>> {
    let scene = FungibleScene::new().await?;
    let Some(mut python) = PythonLimiter::start(&scene).await? else { return Ok(None) };
    taken(&scene);
    ensure!(python.count(1, &scene.clock).await? == 1, "a token is taken");
    let granted = taken(&scene);
    let row = [(TOKENS, 0), (LAST_TOKEN, START), (LAST_REFILL, START)].map(|(name, value)| (name, number(value)));
    scene.put_row(&row).await?;
    ensure!(python.count(1, &scene.clock).await? == 0, "there are no tokens");
    Ok(Some((granted, taken(&scene))))
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_cost_what_the_table_says() -> anyhow::Result<()> {
    let (ours, theirs) = (ours().await?, theirs().await?);
    assert_eq!(ours.len(), OPERATIONS.len());
    for ((name, expect, expect_theirs), cost) in OPERATIONS.iter().zip(ours) {
        assert_eq!(cost, *expect, "{name}");
        if let Some((granted, denied)) = theirs {
            let theirs = if name.starts_with("denied") { denied } else { granted };
            assert_eq!(theirs, *expect_theirs, "{name}, theirs");
        }
        let is_worse = cost.0 > expect_theirs.0 || cost.1 > expect_theirs.1 || cost.2 > expect_theirs.2;
        assert_eq!(is_worse, WORSE.contains(name), "{name}");
    }
    Ok(())
}
