//! A fleet of workers and the rate aggregator, simulated: what the workers' rule makes of the summary, drawn and in figures.
//!
//! It checks that each summary is the exact sum of the fresh reports. The other figures describe the workers' rule and are
//! not checked.

mod drawing;
mod promise;
pub mod verdict;

use std::time::{Duration, Instant};

use crate::fleet::{
    course::Course,
    figures::Figures,
    rule::{InvalidRate, Rule},
    scenario::{self, NetworkConditions, Scenario},
    simulation,
};

/// What to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Workers in the fleet
    #[arg(long, default_value_t = 40, value_parser = workers)]
    pub workers: usize,
    /// What the fleet may consume, in capacity units a second
    #[arg(long, default_value_t = 20_000.0, value_parser = rate)]
    pub cap: f64,
    /// What one worker may consume, in capacity units a second
    #[arg(long, default_value_t = 1_500.0, value_parser = rate)]
    pub worker_max: f64,
    /// When workers report, how long calls take, and which of them fail
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn workers(text: &str) -> Result<usize, String> {
    let workers = text.parse().ok().filter(|workers| (1..=1_000).contains(workers));
    workers.ok_or_else(|| "expected a whole number from 1 to 1000".to_owned())
}

/// Far more than anybody has, and a tenth of what would be rejected in a worker's report.
const MOST: f64 = 1_000_000.0;

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (Rule::FLOOR..=MOST).contains(rate));
    rate.ok_or_else(|| format!("expected a number from {} to {MOST}", Rule::FLOOR))
}

/// How a run ended: each scenario in fair weather and in foul.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub runs: Vec<Run>,
    /// How long it took.
    pub elapsed: Duration,
}

/// One scenario, played.
#[derive(Clone, Debug)]
pub struct Run {
    pub scenario: Scenario,
    pub course: Course,
    pub figures: Figures,
}

/// Plays all scenarios. The same options make the same courses.
pub fn run(options: &Options) -> Result<Outcome, InvalidRate> {
    let started = Instant::now();
    let rule = Rule::new(options.cap, options.worker_max)?;
    let [fair, foul] = [NetworkConditions::fair(), NetworkConditions::foul()]
        .map(|weather| scenario::all(options.workers, rule, &weather));
    let scenarios = fair.into_iter().zip(foul).flat_map(|(fair, foul)| [fair, foul]);
    let runs = scenarios.map(|scenario| play(scenario, options.seed)).collect();
    Ok(Outcome { runs, elapsed: started.elapsed() })
}

fn play(scenario: Scenario, seed: u64) -> Run {
    let course = simulation::run(&scenario, seed);
    let figures = Figures::of(&scenario, &course);
    Run { scenario, course, figures }
}

impl Outcome {
    /// One line for each summary that is not what the aggregator promises.
    pub fn problems(&self) -> Vec<String> {
        self.runs.iter().flat_map(promise::problems).collect()
    }

    pub fn aggregations(&self) -> usize {
        self.runs.iter().map(|run| run.course.passes.len()).sum()
    }

    /// What the process is to end with: 0 if every summary was right, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.problems().is_empty())
    }
}

/// Runs it, and prints what a person wants to see; what the process is to end with.
pub fn demonstrate(options: &Options) -> anyhow::Result<u8> {
    let Options { workers, cap, worker_max, seed } = options;
    println!("{workers} workers of up to {worker_max} capacity units a second, cap {cap}, seed {seed}");
    let outcome = run(options)?;
    println!("\n{}\n", verdict::drawings(&outcome));
    println!("{}\n{}\n", verdict::table(&outcome), verdict::LEGEND);
    println!("{:.1} s of real time", outcome.elapsed.as_secs_f64());
    let problems = outcome.problems();
    for problem in problems.iter().take(20) {
        eprintln!("{problem}");
    }
    println!("{}", verdict::line(&outcome));
    Ok(outcome.exit_code())
}
