//! The real client, zae-limiter 0.17.0, beside the keeper: the keeper saves slow paths and never causes one.
//!
//! Time is simulated: the client and the keeper get every time from the test. The client's acquires and the keeper's
//! batches take turns, so every run sends the same requests. The tests are skipped where Python does not have the
//! library: see `tidegate_tests::python`.

use std::{ffi::OsStr, fs, path::Path};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::try_join;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::Deserialize;
use tidegate_aws::schema;
use tidegate_sandbox::peer::Peer;
use tidegate_tests::{
    keeper::prelude::*,
    python::{another_version, interpreter, python_at, script},
};
use tokio::time::timeout;

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
const SECOND: i64 = 1_000;
const SEED: u64 = 1;
/// The example ends within this time, or it hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// A limit in tokens a second, and acquires that need 80 % of it.
#[derive(Clone, Copy, Debug)]
struct Load {
    capacity: i64,
    refill: i64,
    tokens: i64,
    acquires_per_second: i64,
    seconds: i64,
}

/// A full bucket lasts for six seconds: the keeper has time to act.
const DEEP: Load = Load { capacity: 2_000, refill: 400, tokens: 20, acquires_per_second: 16, seconds: 20 };
/// An empty bucket fills up within one second: the keeper is too slow for it.
const SHALLOW: Load = Load { capacity: 40, refill: 40, tokens: 1, acquires_per_second: 32, seconds: 20 };

/// What happens within one second. All times are in epoch milliseconds.
#[derive(Debug)]
struct Second {
    start: i64,
    /// When the keeper receives the records of the second before: the batching window has ended.
    delivery: i64,
    acquires: Vec<i64>,
}

impl Load {
    /// The acquires are evenly spread, each at a random moment of its interval.
    fn schedule(&self) -> Vec<Second> {
        let mut rng = StdRng::seed_from_u64(SEED);
        let interval = SECOND / self.acquires_per_second;
        let second = |number| {
            let start = START + number * SECOND;
            let delivery = start + rng.random_range(100..=500);
            let begins =
                (0..self.acquires_per_second).map(|acquire| start + acquire * SECOND / self.acquires_per_second);
            Second { start, delivery, acquires: begins.map(|begin| begin + rng.random_range(0..interval)).collect() }
        };
        (0..self.seconds).map(second).collect()
    }
}

/// What one run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Acquires that took the slow path: they read the bucket. The acquire that creates the bucket is one of them.
    slow_paths: usize,
    /// Acquires that raised `RateLimitExceeded`.
    rejections: usize,
    /// The client's requests by operation.
    requests: BTreeMap<String, usize>,
    /// The keeper's write units.
    keeper_units: u64,
}

#[derive(Debug, Deserialize)]
struct Acquired {
    admitted: bool,
    requests: Vec<String>,
}

impl Counts {
    fn add(&mut self, acquires: Vec<Acquired>) {
        for Acquired { admitted, requests } in acquires {
            let is_slow = requests.iter().any(|operation| operation == "BatchGetItem");
            assert!(is_slow || requests.len() <= 1, "the fast path is one write, not {requests:?}");
            self.slow_paths += usize::from(is_slow);
            self.rejections += usize::from(!admitted);
            for operation in requests {
                *self.requests.entry(operation).or_default() += 1;
            }
        }
    }
}

/// The process of the client.
struct Client(Peer);

impl Client {
    /// Opens the table as an application does, and sets the limit. The client is of the version at this path, or of
    /// the interpreter's if it is empty.
    async fn open(python: &OsStr, path: &Path, scene: &KeeperScene, load: Load) -> anyhow::Result<Self> {
        let mut script = script(python, "bucket_client.py", &scene.services.endpoint);
        let mut client = Self(Peer::start(script.env("PYTHONPATH", path))?);
        let Load { capacity, refill, .. } = load;
        let open = json!({"table": scene.services.table, "at": START, "capacity": capacity, "refill": refill});
        client.0.ask::<()>(&json!({"open": open})).await?;
        Ok(client)
    }

    async fn acquire(&mut self, at: &[i64], tokens: i64) -> anyhow::Result<Vec<Acquired>> {
        self.0.ask(&json!({"acquire": {"at": at, "tokens": tokens}})).await
    }
}

/// The version record with which every version of the client starts, and none updates the stack.
fn version_record() -> Item {
    let null = AttributeValue::Null(true);
    [
        (schema::PK, text("_/SYSTEM#")),
        (schema::SK, text("#VERSION")),
        (schema::GSI4PK, text("_")),
        (schema::GSI4SK, text("_/SYSTEM#")),
        ("schema_version", text("0.10.0")),
        ("client_min_version", text("0.0.0")),
        ("lambda_version", null),
        ("updated_by", text("tidegate")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

async fn scene() -> anyhow::Result<KeeperScene> {
    let scene = KeeperScene::new().await?;
    assert!(scene.keeper.registry.enter_version(true).await?);
    Ok(scene)
}

/// Runs the load on a new table. This many processes of the keeper receive the batches in turn; they share no memory.
async fn run(python: &OsStr, load: Load, processes: usize) -> anyhow::Result<Counts> {
    let mut scene = scene().await?;
    let keepers: Vec<_> = (0..processes).map(|_| scene.another_process()).collect::<Result<_, _>>()?;
    let mut turns = keepers.iter().cycle();
    let mut client = Client::open(python, Path::new(""), &scene, load).await?;
    // Drop the records of the configuration: the event source mapping filters them out.
    scene.records(START).await?;
    let (mut batch, mut counts) = (Vec::new(), Counts::default());
    for Second { start, delivery, acquires } in load.schedule() {
        let (before, after) = acquires.split_at(acquires.partition_point(|at| *at < delivery));
        counts.add(client.acquire(before, load.tokens).await?);
        if !batch.is_empty()
            && let Some(keeper) = turns.next()
        {
            let answer = keeper.handle(&event(&batch)?, time(delivery), in_time()).await.answer?;
            ensure!(answer.batch_item_failures.is_empty(), "the keeper failed: {answer:?}");
        }
        counts.add(client.acquire(after, load.tokens).await?);
        batch = scene.records(start).await?;
    }
    counts.keeper_units = scene.http.write_units();
    Ok(counts)
}

/// The counts of one load.
#[derive(Debug)]
struct Compared {
    without: Counts,
    with: Counts,
}

/// Runs a load without the keeper and with it. Asserts that the keeper does no harm, and that it does the same in
/// one process, in two that take turns, and in a new one for each batch. `None` where there is no client.
async fn compare(load: Load) -> anyhow::Result<Option<Compared>> {
    let Some(python) = interpreter("zae_limiter").await? else { return Ok(None) };
    let batches = load.schedule().len();
    let [without, one, two, new] = [0, 1, 2, batches].map(|processes| Box::pin(run(&python, load, processes)));
    let (without, one, two, new) = try_join!(without, one, two, new)?;
    println!(
        "{load:?}\nno keeper      {without:?}\none process    {one:?}\ntwo processes  {two:?}\none per batch  {new:?}"
    );
    for with in [&one, &two, &new] {
        assert!(with.slow_paths <= without.slow_paths, "{with:?} with the keeper, {without:?} without");
        assert!(with.rejections <= without.rejections, "{with:?} with the keeper, {without:?} without");
    }
    assert_eq!(one, two, "one process, and two");
    assert_eq!(one, new, "one process, and one per batch");
    Ok(Some(Compared { without, with: one }))
}

#[tokio::test(flavor = "multi_thread")]
async fn keeper_halves_the_slow_paths_of_deep_buckets() -> anyhow::Result<()> {
    let Some(Compared { without, with }) = compare(DEEP).await? else { return Ok(()) };
    assert!(with.slow_paths * 2 <= without.slow_paths, "{with:?} with the keeper, {without:?} without");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn keeper_leaves_shallow_buckets_to_their_clients() -> anyhow::Result<()> {
    let Some(Compared { without, with }) = compare(SHALLOW).await? else { return Ok(()) };
    assert_eq!(with.slow_paths, without.slow_paths);
    Ok(())
}

/// The first client of a table finds the version record of the repair, and so does each later one, be it newer or
/// older. If a client were the first to write it, a newer one would deploy an aggregator, which is a call of another
/// service and fails here.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_all_versions_open_a_new_table() -> anyhow::Result<()> {
    let Some(python) = interpreter("zae_limiter").await? else { return Ok(()) };
    let Some(oldest) = another_version(&python, "zae-limiter-0.10.3")? else { return Ok(()) };
    let latest = Path::new("");
    for order in [[&*oldest, latest], [latest, &oldest]] {
        let scene = scene().await?;
        for path in order {
            let mut client = Client::open(&python, path, &scene, DEEP).await?;
            assert!(client.acquire(&[START], DEEP.tokens).await?[0].admitted);
            assert!(!scene.keeper.registry.enter_version(true).await?, "a second repair writes nothing");
            assert_eq!(scene.table().await?["_/SYSTEM# #VERSION"], version_record());
        }
    }
    Ok(())
}

/// A client that comes before the repair enters its version as that of the functions. On our own table, the repair removes it.
#[tokio::test(flavor = "multi_thread")]
async fn repair_removes_the_version_of_an_early_client() -> anyhow::Result<()> {
    let Some(python) = interpreter("zae_limiter").await? else { return Ok(()) };
    let Some(oldest) = another_version(&python, "zae-limiter-0.10.3")? else { return Ok(()) };
    let scene = KeeperScene::new().await?;
    let version = async || anyhow::Ok(scene.table().await?["_/SYSTEM# #VERSION"]["lambda_version"].clone());
    Client::open(&python, &oldest, &scene, DEEP).await?;
    assert_eq!(version().await?, text("0.10.3"));
    assert!(!scene.keeper.registry.enter_version(false).await?, "the table may be that of a stack with an aggregator");
    assert_eq!(version().await?, text("0.10.3"));
    assert!(scene.keeper.registry.enter_version(true).await?);
    assert_eq!(version().await?, AttributeValue::Null(true));
    let mut client = Client::open(&python, Path::new(""), &scene, DEEP).await?;
    assert!(client.acquire(&[START], DEEP.tokens).await?[0].admitted);
    assert_eq!(version().await?, AttributeValue::Null(true));
    Ok(())
}

/// The README's example, on this table.
#[tokio::test(flavor = "multi_thread")]
async fn example_of_the_readme_takes_a_token() -> anyhow::Result<()> {
    let Some(python) = interpreter("zae_limiter").await? else { return Ok(()) };
    let readme = fs::read_to_string(root().join("README.md"))?;
    let (_, example) = readme.split_once("```python\n").context("README.md has an example")?;
    let (example, _) = example.split_once("```").context("the example ends")?;
    let scene = scene().await?;
    let example = example.replace("tidegate-buckets", &scene.services.table);
    let mut command = python_at(&python, &scene.services.endpoint);
    let ran = timeout(LIMIT, command.args(["-c", &example]).output()).await.context("the example hangs")??;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let buckets = scene.table().await?.into_keys().filter(|key| key.contains("/BUCKET#customer-1#api#0")).count();
    assert_eq!(buckets, 1);
    Ok(())
}
