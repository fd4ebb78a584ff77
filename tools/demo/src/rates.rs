//! `cargo run -- rates`: a simulated fleet of workers and the rate aggregator, drawn and in figures.
//!
//! It checks that each summary is the exact sum of the fresh reports. The other figures describe the workers' rule and are
//! not checked.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{
    fleet::{
        figures::Figures,
        scenario::{self, NetworkConditions, Scenario},
        simulation::{self, Aggregation, FleetTrace, Second},
        worker::{InvalidRate, Rule},
    },
    print::{self, Outcome, WIDTH, sparkline},
};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Workers in the fleet
    #[arg(long, default_value_t = 40, value_parser = workers)]
    pub(crate) workers: usize,
    /// What the fleet may consume, in capacity units a second
    #[arg(long, default_value_t = 20_000.0, value_parser = rate)]
    pub(crate) cap: f64,
    /// What one worker may consume, in capacity units a second
    #[arg(long, default_value_t = 1_500.0, value_parser = rate)]
    pub(crate) worker_max: f64,
    /// When workers report, how long calls take, and which of them fail
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

fn workers(text: &str) -> Result<usize, String> {
    let workers = text.parse().ok().filter(|workers| (1..=1_000).contains(workers));
    workers.ok_or_else(|| "expected a whole number from 1 to 1000".to_owned())
}

/// A tenth of what the aggregator rejects in a worker's report.
const HIGHEST_RATE: f64 = 1_000_000.0;

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (Rule::FLOOR..=HIGHEST_RATE).contains(rate));
    rate.ok_or_else(|| format!("expected a number from {} to {HIGHEST_RATE}", Rule::FLOOR))
}

/// Each scenario under nominal and degraded conditions.
#[derive(Clone, Debug)]
pub(crate) struct RatesRun {
    pub(crate) runs: Vec<ScenarioRun>,
    elapsed: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct ScenarioRun {
    pub(crate) scenario: Scenario,
    pub(crate) trace: FleetTrace,
    figures: Figures,
}

/// Runs the demonstration and prints its report.
pub(crate) fn demonstrate(options: &Options) -> anyhow::Result<ExitCode> {
    let Options { workers, cap, worker_max, seed } = options;
    println!("{workers} workers of up to {worker_max} capacity units a second, cap {cap}, seed {seed}");
    let rates = run(options)?;
    println!("\n{}\n", rates.drawings());
    println!("{}\n{LEGEND}\n", rates.table());
    println!("{:.1} s of real time", rates.elapsed.as_secs_f64());
    Ok(rates.outcome().print())
}

/// Plays all scenarios. The same options give the same traces.
pub(crate) fn run(options: &Options) -> Result<RatesRun, InvalidRate> {
    let started = Instant::now();
    let rule = Rule::new(options.cap, options.worker_max)?;
    let [nominal, degraded] = [NetworkConditions::nominal(), NetworkConditions::degraded()]
        .map(|conditions| scenario::all(options.workers, rule, &conditions));
    let scenarios = nominal.into_iter().zip(degraded).flat_map(|(nominal, degraded)| [nominal, degraded]);
    let runs = scenarios.map(|scenario| play(scenario, options.seed)).collect();
    Ok(RatesRun { runs, elapsed: started.elapsed() })
}

fn play(scenario: Scenario, seed: u64) -> ScenarioRun {
    let trace = simulation::run(&scenario, seed);
    let figures = Figures::of(&scenario, &trace);
    ScenarioRun { scenario, trace, figures }
}

const LEGEND: &str = "\
to within 5 %: from when the fleet can begin to settle until its total is within 5 % of its aim, and stays so for 30 s;
    the aim is the cap, or what the fleet could use, if that is less
overshoot: what was consumed above the cap since the event, in capacity units
fairness: Jain's index of what workers got in the last minute, each of its max-min fair share; 1 is fair
utilisation: what was consumed since the event, of the aim; what lies above it does not count
nominal network: calls take 20 to 80 ms; degraded: up to 2 s, one in ten fails, clocks are up to 2 s off,
    a worker dies every minute and its report stays, and five reports were left behind";

impl RatesRun {
    /// Judges the aggregator, not the rule.
    pub(crate) fn outcome(&self) -> Outcome {
        let problems: Vec<_> = self.runs.iter().flat_map(ScenarioRun::problems).collect();
        let summaries: usize = self.runs.iter().map(|run| run.trace.aggregations.len()).sum();
        Outcome {
            passed: format!("EXACT: each of {summaries} summaries is the sum of the reports that count"),
            failed: format!(
                "NOT EXACT: {} of {summaries} summaries are not the sum of the reports that count",
                problems.len()
            ),
            problems,
        }
    }

    /// The fleet's total against the cap over time, one drawing for each run.
    pub(crate) fn drawings(&self) -> String {
        self.runs.iter().map(ScenarioRun::drawing).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn table(&self) -> String {
        let header = ["scenario", "network", "to within 5 %", "overshoot", "fairness", "utilisation"];
        let rows = self.runs.iter().map(|ScenarioRun { scenario, figures, .. }| {
            [
                scenario.name.to_owned(),
                scenario.conditions.name.to_owned(),
                figures.settled_after.map_or("never".to_owned(), |seconds| format!("{seconds} s")),
                format!("{:.0}", figures.overshoot),
                format!("{:.3}", figures.fairness),
                format!("{:.1} %", figures.utilisation * 100.0),
            ]
        });
        print::table(&header, 2, rows).to_string()
    }
}

/// Reports up to this age count, and reports up to this far ahead, in milliseconds.
const CUTOFF: i64 = 15_000;

impl ScenarioRun {
    /// One line for each summary that is not the exact sum of the reports that count, computed without the aggregator's
    /// code.
    fn problems(&self) -> Vec<String> {
        let (name, network) = (self.scenario.name, self.scenario.conditions.name);
        let wrong = self.trace.aggregations.iter().filter_map(|aggregation| {
            let expected = fresh_reports(aggregation);
            let actual = (aggregation.tally.active, aggregation.tally.read().millionths());
            (actual != expected).then(|| {
                format!(
                    "{name}, {network} network: at {}, {actual:?} workers and millionths instead of {expected:?}",
                    aggregation.at
                )
            })
        });
        wrong.collect()
    }
}

/// Counts the reports that count, and sums them up in millionths of a capacity unit a second.
fn fresh_reports(aggregation: &Aggregation) -> (usize, u128) {
    let Aggregation { at, reports, .. } = aggregation;
    let fresh = reports.iter().filter(|report| (at.get() - report.at.get()).abs() <= CUTOFF);
    fresh.fold((0, 0), |(active, sum), report| (active + 1, sum + millionths(report.rate)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is neither negative nor that large"
)]
fn millionths(rate: f64) -> u128 {
    (rate * 1e6).round() as u128
}

const ROWS_TO_CAP: i64 = 2;
/// The most rows of a drawing: up to four times the cap.
const MAX_ROWS: i64 = 8;
/// Units per row of the drawing. The drawing rounds numbers to whole units.
const ROW: i64 = 1_000;
/// Smaller values are not drawn; even the thinnest block would exaggerate them.
const LEAST: i64 = ROW / 16;

impl ScenarioRun {
    /// Draws the mean of each few seconds in rows of half the cap. What is above the line of the cap is overshoot.
    fn drawing(&self) -> String {
        let ScenarioRun { scenario, trace, .. } = self;
        let part = trace.seconds.len().div_ceil(WIDTH).max(1);
        let columns: Vec<_> =
            trace.seconds.chunks(part).map(|seconds| height(seconds, scenario.rule.cap() / 2.0)).collect();
        let highest = columns.iter().max().copied().unwrap_or(0);
        let rows = (highest - LEAST + ROW).div_euclid(ROW).clamp(ROWS_TO_CAP + 1, MAX_ROWS);
        let mut lines = vec![format!("{}, {} network: {}", scenario.name, scenario.conditions.name, scenario.summary)];
        for row in (0..rows).rev() {
            let above = columns.iter().map(|column| column - row * ROW);
            let blocks: Vec<_> = above.map(|part| if part < LEAST { 0 } else { part }).collect();
            let label = if row + 1 == ROWS_TO_CAP { "cap ┤" } else { "    │" };
            lines.push(format!("  {label}{}│", sparkline(&blocks, ROW)));
        }
        // The axis has a mark at the event, and where the fleet can begin to settle.
        let marks = [scenario.event, scenario.settles_from].map(|second| second as usize / part);
        let mark = |column| if marks.contains(&column) { '┴' } else { '─' };
        let axis: String = (0..columns.len()).map(mark).collect();
        lines.push(format!("  0 s └{axis}┘ {} s", scenario.length));
        lines.join("\n")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a cast saturates, and a drawing ends at four times the cap")]
fn height(seconds: &[Second], row: f64) -> i64 {
    let (count, sum) = seconds.iter().fold((0.0, 0.0), |(count, sum), second| (count + 1.0, sum + second.total()));
    (sum / count / row * 1_000.0).round() as i64
}
