//! What the rate aggregator costs, by the size of the fleet: its release binary against the embedded S3, one process
//! a size, so that each peak of memory is that size's own.

use std::{env, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use axum::body::Bytes;
use serde_json::{Value, json};
use tidegate_aws::{clock, rates::text::leasing_report, schema::rates::worker_key};
use tidegate_domain::{
    lease::{EQUAL_WEIGHT, LeaseKeys, LeaseReport, ReportNumber},
    rates::{Rate, Rates},
    time::EpochMillis,
};
use tidegate_sandbox::{
    process,
    runtime_api::RuntimeApi,
    s3::{BUCKET, Bucket, Call, Calls, EmbeddedS3, Fault, workers::report},
};
use tokio::process::Child;

use crate::{
    meter::{CpuQuota, Meter},
    report::{memory, table},
};

const PREFIX: &str = "fleet/";
/// Aggregations of each kind that are measured.
const ROUNDS: u32 = 10;
/// The same under a quota, where an aggregation takes seconds.
const LIMITED_ROUNDS: u32 = 3;
/// Fresh workers, and files that dead workers left.
const FLEETS: [(usize, usize); 4] = [(100, 0), (1_000, 0), (10_000, 0), (1_000, 9_000)];

/// What the workers have done since the last aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    New,
    Unchanged,
    /// Each has written another report of its lease.
    Leasing,
}

/// Memory of a function, in MB.
const MEMORIES: [u32; 5] = [256, 512, 1_024, 1_769, 3_008];
/// How long S3 takes to answer: for a page of a listing, and for any other call.
const LIST_LATENCY: Duration = Duration::from_millis(100);
const OBJECT_LATENCY: Duration = Duration::from_millis(25);
/// The time in which an aggregation must have read all files, with the default interval of five seconds.
const READ_WITHIN: Duration = Duration::from_millis(3_750);

/// What one kind of aggregation costs.
struct Cost {
    wall: Duration,
    cpu: Duration,
    calls: Calls,
    peak_memory_kib: u64,
}

/// The function and its services. Dropping it kills the process.
struct Running {
    process: Child,
    runtime_api: RuntimeApi,
    s3: EmbeddedS3,
}

/// Measures each fleet: with all reports new, with none, and with all reports of leases new. Prints a table.
pub(crate) async fn run(binary: &Path, variables: &[(String, String)]) -> anyhow::Result<()> {
    let header = [
        "fresh workers",
        "leftover files",
        "reports",
        "lists",
        "GETs",
        "wall, median",
        "CPU",
        "CPU per worker",
        "peak memory",
    ];
    let mut rows = Vec::new();
    for (fresh, leftover) in FLEETS {
        let mut running = Running::start(binary, variables).await?;
        write(running.s3.bucket(), 0..fresh, 0)?;
        write(running.s3.bucket(), fresh..fresh + leftover, 3_600_000)?;
        // The first one opens the connections.
        running.aggregate(fresh).await?;
        let _ = running.s3.bucket().take_calls();
        let kinds =
            [("all new", Reports::New), ("unchanged", Reports::Unchanged), ("all new, leasing", Reports::Leasing)];
        for (name, reports) in kinds {
            let cost =
                running.measure(fresh, reports, ROUNDS).await.with_context(|| format!("{fresh} workers, {name}"))?;
            rows.push(row(fresh, leftover, name, &cost).to_vec());
        }
    }
    println!("{}", table(header, 0, rows));
    Ok(())
}

/// Measures each fleet, all of its reports new, under the CPU time of a function with each memory, and with S3's latency.
/// Prints a table of how long an aggregation takes.
pub(crate) async fn run_limited(binary: &Path, variables: &[(String, String)]) -> anyhow::Result<()> {
    let fleets = || FLEETS.iter().filter(|(_, leftover)| *leftover == 0).map(|(fresh, _)| *fresh);
    let headers = fleets().map(|fresh| format!("{fresh} workers"));
    let headers = ["memory".to_owned(), "share of a CPU".to_owned()].into_iter().chain(headers);
    let header = headers.chain(["CPU per worker".to_owned()]);
    let mut rows = Vec::new();
    // A slow aggregation must end, not fail.
    let patient = [variables, &[("INTERVAL_SECONDS".to_owned(), "60".to_owned())]].concat();
    for memory in MEMORIES {
        let mut cells = vec![format!("{memory} MB"), format!("{:.2}", CpuQuota::share(memory))];
        let mut per_worker = String::new();
        for fresh in fleets() {
            let mut running = Running::start(binary, &patient).await?;
            running.s3.bucket().on_call(|_, call| {
                Some(Fault::Late(if matches!(call, Call::List { .. }) { LIST_LATENCY } else { OBJECT_LATENCY }))
            });
            write(running.s3.bucket(), 0..fresh, 0)?;
            running.aggregate(fresh).await?;
            let process = running.process.id().context("the process has ended")?;
            let quota = CpuQuota::limit(process, memory)?;
            let cost = running.measure(fresh, Reports::New, LIMITED_ROUNDS).await?;
            let late = if cost.wall > READ_WITHIN { ", too late" } else { "" };
            cells.push(format!("{:.2} s{late}", cost.wall.as_secs_f64()));
            per_worker = cost.cpu_per_worker(fresh);
            running.process.kill().await?;
            drop(quota);
        }
        cells.push(per_worker);
        rows.push(cells);
    }
    println!("{}", table(header, 0, rows));
    Ok(())
}

impl Cost {
    fn cpu_per_worker(&self, fresh: usize) -> String {
        let workers = u32::try_from(fresh).unwrap_or(u32::MAX);
        format!("{:.1} µs", self.cpu.as_secs_f64() * 1e6 / f64::from(workers))
    }
}

impl Running {
    async fn start(binary: &Path, variables: &[(String, String)]) -> anyhow::Result<Self> {
        let mut runtime_api = RuntimeApi::start().await?;
        let s3 = EmbeddedS3::start(None).await?;
        let process = process::command(binary, "rate-aggregator", runtime_api.address())
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("AWS_ENDPOINT_URL_S3", s3.endpoint())
            .env("S3_FORCE_PATH_STYLE", "true")
            .env("BUCKET", BUCKET)
            .env("PREFIX", PREFIX)
            // A report of the first round must count in the last, too.
            .env("STALENESS_CUTOFF_SECONDS", "600")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            // Errors are shown.
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("{} cannot be started", binary.display()))?;
        runtime_api.polled().await?;
        Ok(Self { process, runtime_api, s3 })
    }

    /// One aggregation, in which this many workers must count; how long it took.
    async fn aggregate(&mut self, fresh: usize) -> anyhow::Result<Duration> {
        let answer = self.runtime_api.invoke(Bytes::from_static(br#"{"action": "once"}"#)).await?;
        let body: Value = serde_json::from_slice(&answer.body)?;
        let job = &body["jobs"][0];
        ensure!(job["active_workers"] == json!(fresh) && job["outcome"] == "published", "{body}");
        Ok(answer.took)
    }

    async fn measure(&mut self, fresh: usize, reports: Reports, rounds: u32) -> anyhow::Result<Cost> {
        let meter = Meter::new(self.process.id().context("the process has ended")?)?;
        let (mut walls, mut cpu, mut calls) = (Vec::new(), Duration::ZERO, Calls::default());
        for round in 1..=rounds {
            match reports {
                Reports::New => write(self.s3.bucket(), 0..fresh, 0)?,
                Reports::Leasing => write_leasing(self.s3.bucket(), fresh, round.into())?,
                Reports::Unchanged => {}
            }
            let before = meter.cpu()?;
            walls.push(self.aggregate(fresh).await?);
            cpu += meter.cpu()?.since(&before);
            calls = self.s3.bucket().take_calls();
        }
        walls.sort_unstable();
        let wall = walls[walls.len() / 2];
        Ok(Cost { wall, cpu: cpu / rounds, calls, peak_memory_kib: meter.peak_memory_kib()? })
    }
}

/// Lets workers write their reports, as of so many milliseconds ago.
fn write(bucket: &Bucket, workers: std::ops::Range<usize>, ago: i64) -> anyhow::Result<()> {
    let at = EpochMillis::new(clock::now()?.get() - ago)?;
    for number in workers {
        let worker = format!("{number:05}");
        bucket.put(worker_key(PREFIX, &worker), report(&worker, at, 10.0, 2.5), at);
    }
    Ok(())
}

/// Lets workers write their reports of this number. Each wants three times what it has.
fn write_leasing(bucket: &Bucket, workers: usize, number: u64) -> anyhow::Result<()> {
    let rates = |read: u64| Rates { read: Rate::from_millionths(read * Rate::UNIT), ..Rates::default() };
    let report = LeaseReport {
        number: ReportNumber::new(number),
        follows: Some(ReportNumber::new(number - 1)),
        wants: rates(30),
        has: rates(10),
        safe: rates(10),
        weight: EQUAL_WEIGHT,
    };
    let keys = LeaseKeys { report, cap: Some(rates(10 * u64::try_from(workers)?)) };
    let at = clock::now()?;
    for number in 0..workers {
        let worker = format!("{number:05}");
        bucket.put(worker_key(PREFIX, &worker), leasing_report(&worker, at, rates(10), &keys), at);
    }
    Ok(())
}

fn row(fresh: usize, leftover: usize, name: &str, cost: &Cost) -> [String; 9] {
    let millis = |duration: Duration| format!("{:.1} ms", duration.as_secs_f64() * 1e3);
    [
        fresh.to_string(),
        leftover.to_string(),
        name.to_owned(),
        cost.calls.lists.to_string(),
        cost.calls.gets.to_string(),
        millis(cost.wall),
        millis(cost.cpu),
        cost.cpu_per_worker(fresh),
        memory(cost.peak_memory_kib).0,
    ]
}
