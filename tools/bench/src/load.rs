//! A load generator: acquires that start on schedule, whatever becomes of the earlier ones.
//!
//! A latency is measured from the moment at which the acquire should have started. So a client that falls behind shows it,
//! and the figures are free of coordinated omission.

mod schedule;
mod target;

use std::{
    io::stdout,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tidegate::{AcquireError, Limiter};
use tidegate_sandbox::gateway::Usage;
use tokio::sync::mpsc;

use crate::{
    client::as_f64,
    endpoint::{self, Limits, RESOURCE},
    load::{
        schedule::{Request, Scenario, Spikes},
        target::Target,
    },
    python::{ClosedLoop, PythonClient},
    report,
};

/// Generates load: an open loop of acquires over many entities, with a table of latencies and consumed capacity.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadOptions {
    /// What the acquires are
    #[arg(long, value_enum, default_value_t = Scenario::Simple)]
    scenario: Scenario,

    /// Acquires a second outside of spikes
    #[arg(long, value_name = "N", default_value_t = 200.0)]
    rate: f64,

    /// How long acquires start, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    duration: u32,

    /// Entities, whose shares of the load follow a power law
    #[arg(long, value_name = "N", default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(1..))]
    entities: u32,

    /// The same seed gives the same acquires
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How much more load a spike is; 1 for no spikes
    #[arg(long, value_name = "FACTOR", default_value_t = 3.0)]
    spike: f64,

    /// From the start of a spike to that of the next one, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    spike_every: f64,

    /// How long a spike lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    spike_length: f64,

    /// Acquires at once in the scenario max-rps, which has no rate
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,

    /// Requests a minute that each entity may make
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(i64).range(1..))]
    requests_per_minute: i64,

    /// Tokens a minute that each entity may take
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(i64).range(1..))]
    tokens_per_minute: i64,

    /// A DynamoDB in place of the embedded one. Credentials and region are those of the environment. At an `https` URL,
    /// capacity is computed, without indexes
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,

    /// The bucket table; it is created if it does not exist
    #[arg(long, value_name = "NAME", default_value = "tidegate-load")]
    table: String,

    /// Run the same acquires with zae-limiter afterwards, on a table whose name ends in `-python`. `TIDEGATE_PYTHON` or
    /// `python3` must have it
    #[arg(long)]
    beside_python: bool,

    /// Print JSON in place of the table
    #[arg(long)]
    json: bool,
}

/// What became of the acquires of one client.
#[derive(Debug, Default, Serialize)]
struct LoadReport {
    client: &'static str,
    granted: u64,
    denied: u64,
    unavailable: u64,
    seconds: f64,
    acquires_per_second: f64,
    /// Latencies in milliseconds.
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    calls: u64,
    calls_per_acquire: f64,
    read_units: f64,
    write_units: f64,
    index_write_units: f64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Granted,
    Denied,
    Unavailable,
}

/// Counts acquires while they run.
struct Recorder {
    report: LoadReport,
    latencies: Histogram<u64>,
    progress: ProgressBar,
}

/// Runs the load, and prints a table or JSON.
pub(crate) async fn run(options: &LoadOptions) -> anyhow::Result<()> {
    options.check()?;
    let requests = schedule::requests(
        options.scenario,
        &Spikes { factor: options.spike, every: options.spike_every, length: options.spike_length },
        options.rate,
        Duration::from_secs(options.duration.into()),
        options.entities,
        options.seed,
    );
    let mut target = Target::start(options.endpoint.as_deref()).await?;
    let mut reports = vec![options.run_ours(&mut target, &requests).await?];
    if options.beside_python {
        reports.push(options.run_python(&mut target, &requests).await?);
    }
    if options.json {
        serde_json::to_writer_pretty(stdout(), &reports)?;
        println!();
    } else {
        println!("{}", table(&reports));
    }
    Ok(())
}

impl LoadOptions {
    fn check(&self) -> anyhow::Result<()> {
        for (option, value) in [
            ("rate", self.rate),
            ("spike", self.spike),
            ("spike-every", self.spike_every),
            ("spike-length", self.spike_length),
        ] {
            ensure!(value.is_finite() && value > 0.0, "--{option} {value} is not a number above 0");
        }
        ensure!(tidegate_aws::table::is_name(&self.table), "--table {:?} is not the name of a table", self.table);
        ensure!(
            !self.beside_python || !self.endpoint.as_deref().is_some_and(target::is_remote),
            "--beside-python needs the embedded DynamoDB or an endpoint that begins with http://"
        );
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { requests: self.requests_per_minute, tokens: self.tokens_per_minute, period: Duration::from_mins(1) }
    }

    async fn run_ours(&self, target: &mut Target, requests: &[Request]) -> anyhow::Result<LoadReport> {
        endpoint::prepare_table(target.client(), &self.table, self.limits()).await?;
        let limiter = Limiter::builder(target.client().clone(), &self.table).build().await?;
        target.take_usage().await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let start = Instant::now();
        let recorder = Recorder::new("tidegate", self, requests.len())?;
        let recording = tokio::spawn(recorder.record(receiver));
        if self.scenario == Scenario::MaxRps {
            closed_loop(&limiter, self, start, &sender);
        } else {
            open_loop(&limiter, requests, start, &sender).await;
        }
        drop(sender);
        let mut recorder = recording.await?;
        limiter.flush().await;
        recorder.report.seconds = start.elapsed().as_secs_f64();
        Ok(recorder.finish(&target.take_usage().await?))
    }

    async fn run_python(&self, target: &mut Target, requests: &[Request]) -> anyhow::Result<LoadReport> {
        let table = format!("{}-python", self.table);
        endpoint::prepare_table(target.client(), &table, self.limits()).await?;
        let mut python = PythonClient::open(target.url()?, &table).await?;
        target.take_usage().await?;
        let progress = ProgressBar::new_spinner().with_message("zae-limiter");
        progress.enable_steady_tick(Duration::from_millis(100));
        let outcome = if self.scenario == Scenario::MaxRps {
            let acquires = 500 * self.duration;
            let load = ClosedLoop {
                acquires,
                concurrency: self.concurrency,
                prefix: "entity-",
                entities: self.entities,
                tokens: 0,
            };
            python.closed_loop(&load).await?
        } else {
            python.open_loop(requests).await?
        };
        progress.finish_and_clear();
        let mut recorder = Recorder::new("zae-limiter", self, requests.len())?;
        for latency in &outcome.latencies {
            recorder.latencies.saturating_record(*latency);
        }
        let report = &mut recorder.report;
        (report.granted, report.denied, report.unavailable) = (outcome.granted, outcome.denied, outcome.unavailable);
        report.seconds = outcome.wall_seconds;
        Ok(recorder.finish(&target.take_usage().await?))
    }
}

/// Starts each request at its time.
async fn open_loop(
    limiter: &Limiter,
    requests: &[Request],
    start: Instant,
    events: &mpsc::UnboundedSender<(Event, Duration)>,
) {
    for request in requests {
        let at = start + Duration::from_micros(request.at_micros);
        tokio::time::sleep_until(at.into()).await;
        let (limiter, request, events) = (limiter.clone(), request.clone(), events.clone());
        tokio::spawn(async move {
            let acquire = limiter.acquire(&request.entity, RESOURCE).take("requests", 1);
            let acquire = if request.tokens > 0 { acquire.take("tokens", request.tokens) } else { acquire };
            let acquired = acquire.await;
            // The receiver is open as long as there is a sender.
            let _ = events.send((event(&acquired), at.elapsed()));
            if let Ok(mut lease) = acquired {
                tokio::time::sleep(Duration::from_micros(request.hold_micros)).await;
                lease.adjust("tokens", request.adjust);
                if let Err(error) = lease.commit().await {
                    eprintln!("{error:#}");
                }
            }
        });
    }
}

/// Acquires as fast as the answers come, for as long as the load lasts.
fn closed_loop(
    limiter: &Limiter,
    options: &LoadOptions,
    start: Instant,
    events: &mpsc::UnboundedSender<(Event, Duration)>,
) {
    let end = start + Duration::from_secs(options.duration.into());
    for worker in 0..options.concurrency {
        let (limiter, events) = (limiter.clone(), events.clone());
        let (entities, concurrency) = (options.entities, options.concurrency);
        tokio::spawn(async move {
            for number in (worker..u32::MAX).step_by(concurrency as usize) {
                let begin = Instant::now();
                if begin >= end {
                    break;
                }
                let acquired = limiter.acquire(schedule::entity(number % entities), RESOURCE).take("requests", 1).await;
                let _ = events.send((event(&acquired), begin.elapsed()));
            }
        });
    }
}

fn event(acquired: &Result<tidegate::Lease, AcquireError>) -> Event {
    match acquired {
        Ok(_) => Event::Granted,
        Err(AcquireError::Denied(_) | AcquireError::Never(_)) => Event::Denied,
        Err(_) => Event::Unavailable,
    }
}

impl Recorder {
    fn new(client: &'static str, options: &LoadOptions, requests: usize) -> anyhow::Result<Self> {
        let progress = match options.scenario {
            Scenario::MaxRps => ProgressBar::new_spinner(),
            _ => ProgressBar::new(requests as u64),
        };
        let style = ProgressStyle::with_template("{prefix} {elapsed} {wide_bar} {pos}/{len} {msg}");
        let progress = progress.with_prefix(client).with_style(style.context("the style of the progress")?);
        // Latencies of up to a minute, with three digits.
        let latencies = Histogram::new_with_bounds(1, 60_000_000, 3)?;
        Ok(Self { report: LoadReport { client, ..LoadReport::default() }, latencies, progress })
    }

    /// Counts until all requests are answered.
    async fn record(mut self, mut events: mpsc::UnboundedReceiver<(Event, Duration)>) -> Self {
        while let Some((event, latency)) = events.recv().await {
            let report = &mut self.report;
            match event {
                Event::Granted => report.granted += 1,
                Event::Denied => report.denied += 1,
                Event::Unavailable => report.unavailable += 1,
            }
            self.latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
            let LoadReport { granted, denied, unavailable, .. } = self.report;
            if self.latencies.len().is_multiple_of(100) {
                self.progress.set_position(self.latencies.len());
                self.progress.set_message(format!("{granted} granted, {denied} denied, {unavailable} unavailable"));
            }
        }
        self.progress.finish_and_clear();
        self
    }

    fn finish(self, usage: &Usage) -> LoadReport {
        let Self { mut report, latencies, .. } = self;
        let millis = |micros: u64| as_f64(micros) / 1_000.0;
        let quantile = |quantile| millis(latencies.value_at_quantile(quantile));
        let acquires = as_f64(report.granted + report.denied + report.unavailable);
        [report.p50, report.p90, report.p99, report.p999] = [0.5, 0.9, 0.99, 0.999].map(quantile);
        report.max = millis(latencies.max());
        report.acquires_per_second = acquires / report.seconds;
        report.calls = usage.total_calls();
        report.calls_per_acquire = as_f64(report.calls) / acquires;
        report.read_units = usage.read_units;
        report.write_units = usage.write_units;
        report.index_write_units = usage.index_write_units;
        report
    }
}

type Quantity = fn(&LoadReport) -> String;

fn table(reports: &[LoadReport]) -> comfy_table::Table {
    let rows: [(&str, Quantity); 14] = [
        ("granted", |of| of.granted.to_string()),
        ("denied", |of| of.denied.to_string()),
        ("unavailable", |of| of.unavailable.to_string()),
        ("acquires/s", |of| format!("{:.0}", of.acquires_per_second)),
        ("p50", |of| format!("{:.2} ms", of.p50)),
        ("p90", |of| format!("{:.2} ms", of.p90)),
        ("p99", |of| format!("{:.2} ms", of.p99)),
        ("p99.9", |of| format!("{:.2} ms", of.p999)),
        ("max", |of| format!("{:.2} ms", of.max)),
        ("calls", |of| of.calls.to_string()),
        ("calls per acquire", |of| format!("{:.3}", of.calls_per_acquire)),
        ("RCU", |of| of.read_units.to_string()),
        ("WCU of the table", |of| of.write_units.to_string()),
        ("WCU of the indexes", |of| of.index_write_units.to_string()),
    ];
    let header = std::iter::once(String::new()).chain(reports.iter().map(|report| report.client.to_owned()));
    let row = |(name, quantity): (&str, Quantity)| {
        std::iter::once(name.to_owned()).chain(reports.iter().map(quantity)).collect::<Vec<_>>()
    };
    report::table(header, 1, rows.map(row))
}
