//! `cargo run -- rates`: simulated fleets under AWS's rule, with leases, and with both, drawn and in figures.
//!
//! It checks that each summary counts the exact sum of the fresh reports, that leases together never exceed the cap, and
//! that fleets with leases reach their goals. The figures of AWS's rule are not checked.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    ops::Range,
    panic::resume_unwind,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use crate::{
    fleet::{
        comparison::{Case, CaseFigures, Trial},
        python::{InvalidRate, Rule},
        scenario::{self, Fleet, Goal, NetworkConditions},
        simulation::Second,
    },
    print::{self, Outcome, WIDTH, sparkline},
};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Workers in each fleet; from 30 to 70, by the seed, if not given
    #[arg(long, value_parser = workers)]
    pub(crate) workers: Option<usize>,
    /// What the fleet may consume, in capacity units a second
    #[arg(long, default_value_t = 20_000.0, value_parser = rate)]
    pub(crate) cap: f64,
    /// What one worker may consume, in capacity units a second
    #[arg(long, default_value_t = 1_500.0, value_parser = rate)]
    pub(crate) worker_max: f64,
    /// The first seed: when workers report, how long calls take, and which of them fail
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many seeds each scenario is played with; with fewer than 20, a goal may be missed by chance
    #[arg(long, default_value = "20")]
    pub(crate) seeds: NonZeroU64,
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

/// Each scenario on a nominal and on a degraded network, under each rule.
#[derive(Clone, Debug)]
pub(crate) struct RatesRun {
    pub(crate) rows: Vec<CaseFigures>,
    /// The drawn ones.
    pub(crate) trials: Vec<Trial>,
    elapsed: Duration,
}

/// Runs the demonstration and prints its report.
pub(crate) fn demonstrate(options: &Options) -> anyhow::Result<ExitCode> {
    let Options { workers, cap, worker_max, seed, seeds } = options;
    let workers = workers.map_or("30 to 70".to_owned(), |workers| workers.to_string());
    println!(
        "{workers} workers of up to {worker_max} capacity units a second, cap {cap}, {seeds} seeds from {seed} on"
    );
    let rates = run(options)?;
    println!("\n{}\n", rates.drawings());
    println!("{}\n{LEGEND}\n", rates.table());
    println!("{:.1} s of real time", rates.elapsed.as_secs_f64());
    Ok(rates.outcome().print())
}

/// Plays all scenarios. The same options give the same figures.
pub(crate) fn run(options: &Options) -> Result<RatesRun, InvalidRate> {
    let started = Instant::now();
    let cases = cases(options.workers, Rule::new(options.cap, options.worker_max)?);
    let seeds = options.seed..options.seed.saturating_add(options.seeds.get());
    let rows = in_parallel(&cases, &seeds);
    let drawn = cases.iter().filter(|case| {
        let scenario = case.scenario(options.seed);
        scenario.conditions.loss == 0.0 && DRAWN.contains(&(scenario.name, case.fleet))
    });
    let trials = drawn.map(|case| case.play(options.seed)).collect();
    Ok(RatesRun { rows, trials, elapsed: started.elapsed() })
}

/// The scenarios that are drawn, on a nominal network.
const DRAWN: [(&str, Fleet); 5] = [
    ("surge", Fleet::Python),
    ("surge", Fleet::Leases),
    ("surge", Fleet::Mixed),
    ("surge in outage", Fleet::Python),
    ("surge in outage", Fleet::Leases),
];

fn cases(workers: Option<usize>, rule: Rule) -> Vec<Case> {
    let networks = [NetworkConditions::nominal(), NetworkConditions::degraded()];
    let mut cases = Vec::new();
    for which in 0..scenario::COUNT {
        for conditions in &networks {
            let case = |fleet| Case { which, rule, workers, conditions: conditions.clone(), fleet };
            cases.extend(Fleet::ALL.map(case));
        }
    }
    cases
}

/// Plays each case with all seeds, on all processors.
fn in_parallel(cases: &[Case], seeds: &Range<u64>) -> Vec<CaseFigures> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    // Neighbours take as long as each other, so each thread takes every so many of them.
    let mut rows: Vec<_> = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                let own = cases.iter().enumerate().skip(part).step_by(threads);
                scope.spawn(move || {
                    own.map(|(place, case)| (place, CaseFigures::of(case, seeds.clone()))).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    rows.sort_by_key(|(place, _)| *place);
    rows.into_iter().map(|(_, row)| row).collect()
}

const LEGEND: &str = "\
settled: from when the fleet can begin to settle until its total is within 5 % of its aim, and stays so for 30 s, in half
    and in 95 % of the runs; the aim is the cap, or what the fleet could use, if that is less
overshoot: what was consumed above the cap since the event, in capacity units; the most of all runs
fairness: Jain's index of what workers got in the last minute, each of its max-min fair share; 1 is fair; the least of all runs
utilisation: what was consumed in the last minute, of the aim; what lies above it does not count; the least of all runs
nominal network: calls take 20 to 80 ms; degraded: reports take up to 3 s, summaries up to 2 s, one call in ten fails, and
    clocks are up to 2 s off";

impl RatesRun {
    pub(crate) fn outcome(&self) -> Outcome {
        let summaries: usize = self.rows.iter().map(|row| row.summaries).sum();
        let problems: Vec<_> = self.rows.iter().flat_map(|row| self.problems(row)).collect();
        Outcome {
            passed: format!(
                "KEPT: leases never exceed the cap, all goals are reached, and {summaries} summaries are exact"
            ),
            failed: format!("BROKEN: {} problems in {summaries} summaries", problems.len()),
            problems,
        }
    }

    /// A mixed fleet must be no worse than one under AWS's rule. But leases that end take their time, and use 98 % of the cap.
    fn problems(&self, row: &CaseFigures) -> Vec<String> {
        let of = |fleet| {
            let same = (row.scenario, row.network, fleet);
            self.rows.iter().find(|other| (other.scenario, other.network, other.fleet) == same)
        };
        let goal = match row.fleet {
            Fleet::Python => None,
            Fleet::Leases => row.goal,
            Fleet::Mixed => of(Fleet::Python).zip(of(Fleet::Leases)).map(|(python, leases)| Goal {
                settled: [0, 1].map(|place| Some(python.settled[place]?.max(leases.settled[place]?))),
                overshoot: python.overshoot,
                fairness: python.fairness,
                utilisation: 0.96,
            }),
        };
        let misses = goal.iter().flat_map(|goal| row.misses(goal));
        row.violations.iter().cloned().chain(misses).collect()
    }

    /// The fleet's total against the cap over time, one drawing for each run.
    pub(crate) fn drawings(&self) -> String {
        self.trials.iter().map(Trial::drawing).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn table(&self) -> String {
        let header = ["scenario", "network", "fleet", "settled, 50 %", "95 %", "overshoot", "fairness", "utilisation"];
        let settled = |settled: Option<u32>| settled.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
        let rows = self.rows.iter().map(|row| {
            let [median, most] = row.settled.map(settled);
            [
                row.scenario.to_owned(),
                row.network.to_owned(),
                row.fleet.name().to_owned(),
                median,
                most,
                format!("{:.0}", row.overshoot),
                format!("{:.3}", row.fairness),
                format!("{:.1} %", row.utilisation * 100.0),
            ]
        });
        print::table(&header, 3, rows).to_string()
    }
}

const ROWS_TO_CAP: i64 = 2;
/// The most rows of a drawing: up to four times the cap.
const MAX_ROWS: i64 = 8;
/// Units per row of the drawing. The drawing rounds numbers to whole units.
const ROW: i64 = 1_000;
/// Smaller values are not drawn; even the thinnest block would exaggerate them.
const LEAST: i64 = ROW / 16;

impl Trial {
    /// Draws the mean of each few seconds in rows of half the cap. What is above the line of the cap is overshoot.
    fn drawing(&self) -> String {
        let Self { scenario, fleet, trace } = self;
        let part = trace.seconds.len().div_ceil(WIDTH).max(1);
        let columns: Vec<_> =
            trace.seconds.chunks(part).map(|seconds| height(seconds, scenario.rule.cap() / 2.0)).collect();
        let highest = columns.iter().max().copied().unwrap_or(0);
        let rows = (highest - LEAST + ROW).div_euclid(ROW).clamp(ROWS_TO_CAP + 1, MAX_ROWS);
        let mut lines = vec![format!("{}, {}: {}", scenario.name, fleet.name(), scenario.summary)];
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
