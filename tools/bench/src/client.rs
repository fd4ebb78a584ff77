//! What the client crate costs beside zae-limiter, on the same endpoint and in the same run.
//!
//! Two figures need a store that costs nothing: a stub in another process answers each write of a bucket at once, or after
//! five milliseconds. The others use an embedded DynamoDB, also in another process. CPU time is that of this process, which
//! has one thread, or of Python's.

mod bare;

use std::{
    process,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::Client;
use clap::ValueEnum as _;
use tidegate::{AcquireError, Limiter};
use tidegate_sandbox::gateway::{Conditions, Usage};

use crate::{
    client::bare::BareUpdates,
    endpoint::{self, Endpoint, Limits, RESOURCE},
    meter::Meter,
    python::{ClosedLoop, Outcome, PythonClient},
    report,
};

/// Measures the client crate beside zae-limiter: CPU time, throughput, calls, lost responses.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientOptions {
    /// Acquires of a figure; 5 times as many in the loop of one key and with lost responses
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    acquires: u32,

    /// Acquires of a figure of zae-limiter
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..))]
    python_acquires: u32,

    /// Measure only these figures
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURE")]
    only: Vec<Figure>,

    /// Measure only the client crate. Otherwise, `TIDEGATE_PYTHON` or `python3` must have zae-limiter
    #[arg(long)]
    without_python: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Figure {
    /// CPU time of an acquire of one of many keys
    ManyKeys,
    /// Throughput and writes of one key
    OneKey,
    /// A denial that makes no call
    Denial,
    /// Calls and capacity where tokens must be refilled first
    Refill,
    /// What is charged where responses are lost
    LostResponses,
}

/// Limits that no load exhausts.
const UNLIMITED: Limits = Limits { requests: 1_000_000_000, tokens: 1_000_000_000, period: Duration::from_hours(1) };
/// 1,000 tokens, which accrue in a second.
const QUICK: Limits = Limits { requests: 1_000_000_000, tokens: 1_000, period: Duration::from_secs(1) };
/// 1,000 tokens, which accrue in an hour.
const SLOW: Limits = Limits { requests: 1_000_000_000, tokens: 1_000, period: Duration::from_hours(1) };

/// Entities of the loop over many keys.
const MANY: u32 = 10_000;
const ROUNDS: u32 = 5;
/// How long the loop of cached denials lasts: shorter than an image may deny.
const DENIALS: Duration = Duration::from_millis(500);

const STUB: Conditions = Conditions { latency_millis: 0, lose_every: 0, is_stub: true };
const LATE_STUB: Conditions = Conditions { latency_millis: 5, lose_every: 0, is_stub: true };
const STORE: Conditions = Conditions { latency_millis: 0, lose_every: 0, is_stub: false };
const LOSSY_STORE: Conditions = Conditions { latency_millis: 0, lose_every: 100, is_stub: false };

/// Our client and theirs, each with a connection to the same endpoint.
struct Bench {
    endpoint: Endpoint,
    client: Client,
    meter: Meter,
    is_beside_python: bool,
    acquires: u32,
    python_acquires: u32,
    rows: Vec<[String; 4]>,
}

/// Measures all figures, and prints them as a table.
pub(crate) async fn measure(options: &ClientOptions) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(None).await?;
    let mut bench = Bench {
        client: endpoint.client(),
        endpoint,
        meter: Meter::new(process::id())?,
        is_beside_python: !options.without_python,
        acquires: options.acquires,
        python_acquires: options.python_acquires,
        rows: Vec::new(),
    };
    for figure in Figure::value_variants() {
        if !options.only.is_empty() && !options.only.contains(figure) {
            continue;
        }
        let measured = match figure {
            Figure::ManyKeys => bench.many_keys().await,
            Figure::OneKey => bench.one_key().await,
            Figure::Denial => bench.cached_denial().await,
            Figure::Refill => bench.refill().await,
            Figure::LostResponses => bench.lost_responses().await,
        };
        measured.with_context(|| format!("{figure:?}"))?;
    }
    println!("{}", report::table(["", "ours", "zae-limiter", "target of ours"], 1, bench.rows));
    Ok(())
}

impl Bench {
    /// A table of its own, with our client and theirs.
    async fn table(&self, name: &str, limits: Limits) -> anyhow::Result<(Limiter, Option<PythonClient>)> {
        endpoint::prepare_table(&self.client, name, limits).await?;
        let limiter = Limiter::builder(self.client.clone(), name).build().await?;
        let python =
            if self.is_beside_python { Some(PythonClient::open(&self.endpoint.url, name).await?) } else { None };
        Ok((limiter, python))
    }

    fn row(&mut self, name: &str, ours: impl Into<String>, theirs: Option<String>, target: &str) {
        let theirs = theirs.unwrap_or_else(|| "-".to_owned());
        self.rows.push([name.to_owned(), ours.into(), theirs, target.to_owned()]);
    }

    /// Acquires as fast as the answers come; their CPU time is this process's.
    async fn closed_loop(&self, limiter: &Limiter, load: &ClosedLoop) -> anyhow::Result<Outcome> {
        let (start, before) = (Instant::now(), self.meter.cpu()?);
        let workers = (0..load.concurrency).map(|worker| {
            let (limiter, load) = (limiter.clone(), load.clone());
            tokio::spawn(async move {
                let mut outcome = Outcome::default();
                for number in (worker..load.acquires).step_by(load.concurrency as usize) {
                    let entity = format!("{}{}", load.prefix, number % load.entities);
                    let acquire = limiter.acquire(entity, RESOURCE).take("requests", 1).take("tokens", load.tokens);
                    match acquire.await {
                        Ok(_) => outcome.granted += 1,
                        Err(AcquireError::Denied(_)) => outcome.denied += 1,
                        Err(AcquireError::Unavailable(_)) => outcome.unavailable += 1,
                        Err(error) => return Err(error),
                    }
                }
                Ok(outcome)
            })
        });
        let mut sum = Outcome::default();
        for worker in futures::future::join_all(workers).await {
            let outcome = worker??;
            sum.granted += outcome.granted;
            sum.denied += outcome.denied;
            sum.unavailable += outcome.unavailable;
        }
        limiter.flush().await;
        sum.wall_seconds = start.elapsed().as_secs_f64();
        sum.cpu_seconds = self.meter.cpu()?.since(&before).as_secs_f64();
        Ok(sum)
    }

    /// The CPU time of an acquire, beside that of the SDK call that it makes.
    async fn many_keys(&mut self) -> anyhow::Result<()> {
        let (limiter, mut python) = self.table("many-keys", UNLIMITED).await?;
        self.endpoint.set(STUB).await?;
        let bare = BareUpdates::new(&self.client, "many-keys");
        let acquires = self.acquires / ROUNDS;
        let load = ClosedLoop { acquires, concurrency: 50, prefix: "many-", entities: MANY, tokens: 1 };
        let (mut ours, mut sdk) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let outcome = self.closed_loop(&limiter, &load).await?;
            ensure!(outcome.granted == u64::from(acquires), "{outcome:?}");
            let before = self.meter.cpu()?;
            bare.run(&load).await?;
            // The first round opens the connections.
            if round > 0 {
                ours.push(outcome.cpu_seconds / f64::from(acquires));
                sdk.push(self.meter.cpu()?.since(&before).as_secs_f64() / f64::from(acquires));
            }
        }
        let (ours, sdk) = (median(ours), median(sdk));
        let theirs = match &mut python {
            Some(python) => {
                python.closed_loop(&ClosedLoop { acquires: 500, ..load.clone() }).await?;
                let outcome = python.closed_loop(&ClosedLoop { acquires: self.python_acquires, ..load }).await?;
                Some(outcome.cpu_seconds / f64::from(self.python_acquires))
            }
            None => None,
        };
        let target = format!("{} (bare SDK {} + 15 us)", micros(sdk + 15e-6), micros(sdk));
        self.row("CPU of an acquire, 50 at once, many keys", micros(ours), theirs.map(micros), &target);
        let per_second = |cpu: f64| whole(1.0 / cpu);
        let target = format!("10000 (bare SDK {})", per_second(sdk));
        self.row("acquires/s per core, many keys", per_second(ours), theirs.map(per_second), &target);
        Ok(())
    }

    /// Many callers of one bucket, whose writes each take five milliseconds.
    async fn one_key(&mut self) -> anyhow::Result<()> {
        let (limiter, mut python) = self.table("one-key", UNLIMITED).await?;
        self.endpoint.set(LATE_STUB).await?;
        let load = ClosedLoop { acquires: 5 * self.acquires, concurrency: 100, prefix: "one-", entities: 1, tokens: 1 };
        self.closed_loop(&limiter, &ClosedLoop { acquires: 1_000, ..load.clone() }).await?;
        self.endpoint.take_usage().await?;
        let ours = self.closed_loop(&limiter, &load).await?;
        let our_writes = self.endpoint.take_usage().await?;
        ensure!(ours.granted == u64::from(load.acquires), "{ours:?}");
        let theirs = match &mut python {
            Some(python) => {
                python.closed_loop(&ClosedLoop { acquires: 500, ..load.clone() }).await?;
                self.endpoint.take_usage().await?;
                let outcome = python.closed_loop(&ClosedLoop { acquires: self.python_acquires, ..load }).await?;
                Some((outcome, self.endpoint.take_usage().await?))
            }
            None => None,
        };
        let count = |outcome: &Outcome| as_f64(outcome.granted);
        let per_core = |outcome: &Outcome| whole(count(outcome) / outcome.cpu_seconds);
        let in_all = |outcome: &Outcome| whole(count(outcome) / outcome.wall_seconds);
        let writes = |outcome: &Outcome, usage: &Usage| whole(as_f64(usage.total_calls()) * 1_000.0 / count(outcome));
        let of_theirs = |figure: &dyn Fn(&Outcome) -> String| theirs.as_ref().map(|(outcome, _)| figure(outcome));
        let (core, all) = (of_theirs(&per_core), of_theirs(&in_all));
        self.row("acquires/s per core, one key, 100 at once, 5 ms", per_core(&ours), core, "100000");
        self.row("acquires/s in all, one key, 100 at once, 5 ms", in_all(&ours), all, "");
        let their_writes = theirs.as_ref().map(|(outcome, usage)| writes(outcome, usage));
        self.row("writes per 1,000 acquires, same", writes(&ours, &our_writes), their_writes, "50");
        Ok(())
    }

    /// A denial that follows from what is remembered.
    async fn cached_denial(&mut self) -> anyhow::Result<()> {
        let (limiter, mut python) = self.table("denials", SLOW).await?;
        self.endpoint.set(STORE).await?;
        let load = ClosedLoop { acquires: 1, concurrency: 1, prefix: "dry-", entities: 1, tokens: 1_000 };
        ensure!(self.closed_loop(&limiter, &load).await?.granted == 1, "the first acquire takes all tokens");
        self.endpoint.take_usage().await?;
        let (start, mut denials) = (Instant::now(), 0_u32);
        while start.elapsed() < DENIALS {
            for _ in 0..100 {
                let acquired = limiter.acquire("dry-0", RESOURCE).take("requests", 1).take("tokens", 1_000).await;
                ensure!(matches!(acquired, Err(AcquireError::Denied(_))), "{acquired:?}");
            }
            denials += 100;
        }
        let ours = start.elapsed().as_secs_f64() / f64::from(denials);
        let our_calls = self.endpoint.take_usage().await?.total_calls();
        let theirs = match &mut python {
            Some(python) => {
                let load = ClosedLoop { prefix: "dry-python-", ..load };
                python.closed_loop(&ClosedLoop { acquires: 2, ..load.clone() }).await?;
                self.endpoint.take_usage().await?;
                let outcome = python.closed_loop(&ClosedLoop { acquires: 1_000, ..load }).await?;
                let calls = self.endpoint.take_usage().await?.total_calls();
                Some(format!("{}, {calls} calls", micros(outcome.wall_seconds / as_f64(outcome.denied))))
            }
            None => None,
        };
        self.row("cached denial", format!("{}, {our_calls} calls", micros(ours)), theirs, "1 us, 0 calls");
        Ok(())
    }

    /// What an acquire costs whose tokens must be refilled first.
    async fn refill(&mut self) -> anyhow::Result<()> {
        let (limiter, mut python) = self.table("refills", QUICK).await?;
        let other = Limiter::builder(self.client.clone(), "refills").build().await?;
        self.endpoint.set(STORE).await?;
        let acquire = async |limiter: &Limiter, tokens| {
            let acquired = limiter.acquire("refilled", RESOURCE).take("requests", 1).take("tokens", tokens).await;
            acquired.with_context(|| format!("{tokens} tokens")).map(drop)
        };
        let wait = tokio::time::sleep;
        // The first refill reads the configuration. The bucket is full after a second.
        acquire(&limiter, 1_000).await?;
        wait(Duration::from_millis(1_100)).await;
        acquire(&limiter, 1_000).await?;
        wait(Duration::from_millis(500)).await;
        self.endpoint.take_usage().await?;
        acquire(&limiter, 100).await?;
        let projected = self.endpoint.take_usage().await?;
        // Another process takes the tokens that this one has seen.
        wait(Duration::from_millis(1_100)).await;
        acquire(&limiter, 500).await?;
        acquire(&other, 500).await?;
        wait(Duration::from_millis(500)).await;
        self.endpoint.take_usage().await?;
        acquire(&limiter, 400).await?;
        let unseen = self.endpoint.take_usage().await?;
        let theirs = match &mut python {
            Some(python) => {
                let load = ClosedLoop { acquires: 1, concurrency: 1, prefix: "python-", entities: 1, tokens: 1_000 };
                python.closed_loop(&load).await?;
                wait(Duration::from_millis(1_200)).await;
                python.closed_loop(&load).await?;
                wait(Duration::from_millis(1_200)).await;
                self.endpoint.take_usage().await?;
                python.closed_loop(&ClosedLoop { tokens: 100, ..load }).await?;
                Some(units(&self.endpoint.take_usage().await?))
            }
            None => None,
        };
        self.row("refill needed, seen before", units(&projected), theirs.clone(), "1 call, 0 RCU, 1 WCU");
        self.row("refill needed, not seen before", units(&unseen), theirs, "2 calls, 0 RCU, 2 WCU");
        Ok(())
    }

    /// What is charged beyond what was granted if every hundredth response to a write is lost.
    async fn lost_responses(&mut self) -> anyhow::Result<()> {
        let (limiter, _) = self.table("lost-ours", UNLIMITED).await?;
        self.endpoint.set(LOSSY_STORE).await?;
        let load =
            ClosedLoop { acquires: 5 * self.acquires, concurrency: 50, prefix: "lost-", entities: 200, tokens: 1 };
        let outcome = self.closed_loop(&limiter, &load).await?;
        let ours = self.lost_row("lost-ours", &outcome).await?;
        let theirs = if self.is_beside_python {
            self.endpoint.set(STORE).await?;
            let (_, python) = self.table("lost-python", UNLIMITED).await?;
            self.endpoint.set(LOSSY_STORE).await?;
            let load = ClosedLoop { acquires: self.python_acquires, ..load };
            let outcome = python.context("Python")?.closed_loop(&load).await?;
            Some(self.lost_row("lost-python", &outcome).await?)
        } else {
            None
        };
        self.row("charged twice, every 100th response lost", ours, theirs, "0");
        Ok(())
    }

    async fn lost_row(&mut self, table: &str, outcome: &Outcome) -> anyhow::Result<String> {
        let usage = self.endpoint.take_usage().await?;
        let charged = endpoint::charged(&self.client, table).await?;
        let twice = charged - i64::try_from(outcome.granted)?;
        let acquires = outcome.granted + outcome.denied + outcome.unavailable;
        Ok(format!(
            "{twice} of {acquires} ({} responses lost, {} unavailable)",
            usage.lost_responses, outcome.unavailable
        ))
    }
}

fn units(usage: &Usage) -> String {
    let calls = usage.total_calls();
    let plural = if calls == 1 { "call" } else { "calls" };
    format!("{calls} {plural}, {} RCU, {} WCU", usage.read_units, usage.write_units)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 10.0 { format!("{micros:.2} us") } else { format!("{micros:.0} us") }
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// Counts of a benchmark are exact as floating-point numbers.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}
