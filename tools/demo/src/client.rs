//! `cargo run -- client`: Rust and Python clients take tokens from the same buckets, while `usage-rollup` and
//! `bucket-keeper` handle the stream. Every token that a client was granted is in the buckets and in the snapshots.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | what each client does |
//! | `clients` | limiters of the Rust crate, and processes of zae-limiter |
//! | `functions` | the functions, fed by the table's stream |

mod clients;
mod functions;
mod plan;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::future::{FutureExt as _, LocalBoxFuture, try_join_all};
use tidegate::{Limiter, NewEntity};
use tidegate_aws::{
    acquires::Acquires,
    buckets::{Buckets, Consistency, WriteOutcome},
    client,
    namespaces::Namespaces,
    registry::Registry,
};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Namespace, Resource, Shard},
    split,
    state::ShardCount,
};
use tidegate_sandbox::{
    faults::{FaultyHttp, sdk_config},
    python::{another_version, interpreter},
    services::Services,
    usage_totals::UsageTotals,
};

use self::{
    functions::Functions,
    plan::{CAPACITY, CHILD, ENTITIES, Granted, HOT, Habits, PARENT, RESOURCE, SHARED, TOKENS},
};
use crate::print::{self, Bars, Outcome};

/// The namespace of the clients.
const NAMESPACE: &str = "demo";
/// The shards of [`HOT`] after the doubling.
const SHARDS: u32 = 2;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Acquires of each client
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) acquires: u32,
    /// Seed of what the clients do
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub(crate) struct ClientRun {
    /// What each client was granted.
    pub(crate) clients: Vec<(&'static str, Granted)>,
    /// By entity and limit, in whole tokens: what the buckets count, and what the hourly snapshots hold.
    pub(crate) counted: BTreeMap<(&'static str, &'static str), Counted>,
    elapsed: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) buckets: i128,
    pub(crate) snapshots: i128,
}

/// Runs the demonstration and prints its report.
pub(crate) async fn demonstrate(options: &Options) -> anyhow::Result<ExitCode> {
    let run = Box::pin(run(options)).await?;
    println!("{}", run.table());
    if run.clients.len() < 4 {
        println!("zae-limiter is not installed, so only Rust clients took part: see CONTRIBUTING.md");
    }
    Ok(run.outcome().print())
}

/// Runs all clients at the same time.
pub(crate) async fn run(options: &Options) -> anyhow::Result<ClientRun> {
    let services = Services::embedded(None, "tidegate-demo-clients").await?;
    let now = tidegate_aws::clock::now()?;
    // What the bucket keeper writes to a new table.
    Registry::new(services.dynamodb.clone(), &services.table).enter_version(true).await?;
    let namespace = Namespaces::new(services.dynamodb.clone(), &services.table).register(NAMESPACE, now).await?;
    let limiter = async || {
        let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, FaultyHttp::undisturbed()));
        Limiter::builder(dynamodb, &services.table).namespace(NAMESPACE).build().await
    };
    let operator = limiter().await?;
    operator.entities().create(NewEntity::new(CHILD).parent(PARENT).cascade(true)).await?;
    for entity in ENTITIES {
        clients::set_limits(&operator, entity, &plan::limits(CAPACITY)).await?;
    }

    let bars = Bars::new("")?;
    let bar = bars.add("acquires", u64::from(options.acquires) * 2);
    let started = Instant::now();
    let mut running: Vec<LocalBoxFuture<'_, anyhow::Result<(&'static str, Granted)>>> = Vec::new();
    let mut seeds = options.seed..;
    let mut steps = |habits| plan::steps(options.acquires, seeds.next().unwrap_or_default(), habits);
    for (name, sets_limits) in [("Rust", true), ("Rust, another process", false)] {
        let (limiter, steps, bar) = (limiter().await?, steps(Habits { sets_limits, is_old: false }), bar.clone());
        running.push(async move { Ok((name, clients::rust(limiter, steps, || bar.inc(1)).await?)) }.boxed_local());
    }
    if let Some(python) = interpreter("zae_limiter").await? {
        let mut versions = vec![("zae-limiter 0.17.0", PathBuf::new())];
        versions.extend(another_version(&python, "zae-limiter-0.10.3")?.map(|path| ("zae-limiter 0.10.3", path)));
        for (name, path) in versions {
            let is_old = name.ends_with("0.10.3");
            let (python, steps, services) = (python.clone(), steps(Habits { sets_limits: !is_old, is_old }), &services);
            running.push(
                async move { Ok((name, clients::python(&python, &path, services, NAMESPACE, steps).await?)) }
                    .boxed_local(),
            );
        }
    }
    let mut functions = Functions::new(&services).await?;
    let doubling = double(&services, &namespace);
    let work = async { anyhow::Ok(futures::try_join!(try_join_all(running), doubling)?.0) };
    let clients = Box::pin(functions.run_beside(work)).await?;
    let elapsed = started.elapsed();
    bar.finish();
    let counted = count(&services, &namespace).await?;
    Ok(ClientRun { clients, counted, elapsed })
}

/// Doubles the shards of [`HOT`] as soon as it exists, as clients do when its partition is too hot.
async fn double(services: &Services, namespace: &Namespace<'static>) -> anyhow::Result<()> {
    let buckets = Buckets::new(services.dynamodb.clone(), &services.table);
    let key = key(namespace, HOT)?;
    let shards = ShardCount::new(SHARDS).context("shards")?;
    loop {
        let read = buckets.read(&key, 0..SHARDS, Consistency::Strong).await?;
        if read.states.len() == SHARDS as usize {
            return Ok(());
        }
        if let Some(plan) = split::plan(&read.states, shards)
            && buckets.increase_shards(&key, &read, &plan).await? == WriteOutcome::Written
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the buckets and the snapshots hold.
async fn count(
    services: &Services,
    namespace: &Namespace<'static>,
) -> anyhow::Result<BTreeMap<(&'static str, &'static str), Counted>> {
    let buckets = Acquires::new(services.dynamodb.clone(), &services.table);
    let mut counted: BTreeMap<_, Counted> = BTreeMap::new();
    let limits = plan::limits(CAPACITY);
    for entity in ENTITIES {
        for item in buckets.find_all(&key(namespace, entity)?, 0..SHARDS).await?.values() {
            let state = item.image.plain().with_context(|| format!("{entity}: {:?}", item.image))?;
            for (limit, of) in state.divided() {
                let Some((limit, _)) = limits.get_key_value(limit.as_str()) else { continue };
                counted.entry((entity, *limit)).or_default().buckets += i128::from(of.consumed.get() / 1000);
            }
        }
    }
    for (snapshot, usage) in UsageTotals::read(&services.dynamodb, &services.table).await?.iter() {
        let entity = ENTITIES.into_iter().find(|entity| *entity == snapshot.entity);
        for (limit, tokens) in usage.tokens.iter().filter(|_| snapshot.window == "hourly") {
            if let Some((entity, (limit, _))) = entity.zip(limits.get_key_value(limit.as_str())) {
                counted.entry((entity, *limit)).or_default().snapshots += tokens;
            }
        }
    }
    Ok(counted)
}

fn key(namespace: &Namespace<'static>, entity: &'static str) -> anyhow::Result<BucketKey<'static>> {
    let (entity, resource) = (Entity::new(entity)?, Resource::new(RESOURCE)?);
    Ok(BucketKey { namespace: namespace.clone(), entity, resource, shard: Shard::ZERO })
}

impl ClientRun {
    fn total(&self) -> Granted {
        let mut total = Granted::default();
        self.clients.iter().for_each(|(_, granted)| total.add(granted));
        total
    }

    /// The most that the clients' own rules admit of [`TOKENS`]. Until 0.12, clients refill shard 0 of a sharded bucket as
    /// if it were the whole one, so that it admits up to twice its limit.
    fn most(&self, entity: &str) -> i128 {
        let shards = if entity == HOT { 2 } else { 1 };
        let (capacity, millis) = (i128::from(CAPACITY), i128::try_from(self.elapsed.as_millis()).unwrap_or(i128::MAX));
        shards * (capacity + capacity * millis / 60_000) + self.total().beyond
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let granted = self.total().tokens;
        let mut problems = Vec::new();
        for (of @ (entity, limit), tokens) in &granted {
            let Counted { buckets, snapshots } = self.counted.get(of).copied().unwrap_or_default();
            if buckets != *tokens || snapshots != *tokens {
                problems.push(format!(
                    "{entity} {limit}: {tokens} granted, {buckets} in the buckets, {snapshots} in the snapshots"
                ));
            }
            if *limit == TOKENS && *tokens > self.most(entity) {
                problems.push(format!("{entity} {limit}: {tokens} granted, at most {} allowed", self.most(entity)));
            }
        }
        let failed = format!("WRONG: {} differences", problems.len());
        let passed = format!(
            "EXACT: {} clients were granted what the buckets and the snapshots hold, to the last token",
            self.clients.len()
        );
        Outcome { problems, passed, failed }
    }

    /// What each client was granted, and what was counted.
    pub(crate) fn table(&self) -> String {
        let clients = self.clients.iter().map(|(name, granted)| {
            let tokens: i128 = granted.tokens.iter().filter(|((_, limit), _)| *limit == TOKENS).map(|(_, of)| of).sum();
            [(*name).to_owned(), granted.acquires.to_string(), granted.denied.to_string(), tokens.to_string()]
        });
        let clients = print::table(&["client", "acquires", "denied", "tokens granted"], 1, clients);
        let granted = self.total().tokens;
        let buckets = granted.iter().map(|(of @ (entity, limit), tokens)| {
            let Counted { buckets, snapshots } = self.counted.get(of).copied().unwrap_or_default();
            let what = match *entity {
                SHARED => "limits lowered and raised",
                CHILD => "cascades to its parent",
                PARENT => "parent",
                _ => "shards doubled",
            };
            [(*entity).to_owned(), what.to_owned(), (*limit).to_owned()]
                .into_iter()
                .chain([*tokens, buckets, snapshots].map(|tokens| tokens.to_string()))
                .collect::<Vec<_>>()
        });
        let header = ["entity", "", "limit", "granted", "buckets", "snapshots"];
        format!("{clients}\n{}", print::table(&header, 3, buckets))
    }
}
