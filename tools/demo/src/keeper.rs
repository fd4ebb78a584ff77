//! The bucket keeper at work: the same clients draw from the same buckets three times, in simulated time. No keeper
//! runs beside the first ones, one process of it beside the second, and two processes beside the third, which receive
//! the batches in turn.
//!
//! | phase | shows |
//! |---|---|
//! | steady | four fifths of a limit: whether tokens are there when the first write comes |
//! | burst | many times the limit: whether the keeper stays out of the way |
//! | surge | write units and tokens run out together: whether new shards create tokens |
//! | ramp | more and more writes to one bucket: whether it gets the shards that it needs, and no more |
//! | idle | a drained shard to which nobody writes: whether it fills up |

mod client;
pub mod costs;
mod exact_bucket;
mod figures;
mod phases;
pub mod report;
mod simulation;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

pub use self::figures::{Figures, Units};
use self::{
    figures::percent_above,
    phases::{DRAINS, IDLE, IDLE_SHARDS, RAMP, RAMP_SHARDS, STEADY},
    simulation::SimulationRun,
};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Simulated seconds of the steady phase
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(30..))]
    pub seconds: u32,
    /// When acquires come and which shards they draw
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The runs: for each, the figures of all phases.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub without: Vec<Figures>,
    /// With one process of the keeper.
    pub one: Vec<Figures>,
    /// With two processes that receive the batches in turn.
    pub two: Vec<Figures>,
    /// The real time that the runs took.
    pub elapsed: Duration,
}

/// Does all runs at the same time.
pub async fn run(options: &Options) -> anyhow::Result<Comparison> {
    let started = Instant::now();
    let bars = Bars::new(options.seconds)?;
    let start = async |processes, bar| {
        let run = SimulationRun::new(processes, options.seed, bars.add(bar)).await?;
        anyhow::Ok(tokio::spawn(run.run(options.seconds)))
    };
    let finish = async |run: JoinHandle<anyhow::Result<_>>| run.await.context("a run panicked")?;
    let (without, one, two) =
        (start(0, "without").await?, start(1, "one process").await?, start(2, "two processes").await?);
    let (without, one, two) = tokio::try_join!(finish(without), finish(one), finish(two))?;
    Ok(Comparison { without, one, two, elapsed: started.elapsed() })
}

impl Comparison {
    /// One line for each requirement that is not met.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, run) in [("one process", &self.one), ("two processes", &self.two)] {
            for (with, without) in run.iter().zip(&self.without) {
                let found = compare(with, without).into_iter();
                problems.extend(found.map(|problem| format!("{}, {name}: {problem}", with.phase)));
            }
        }
        // Reads differ by chance: the keeper samples batches by their sequence numbers, which follow the real time.
        let of = |with: &Figures| [with.slow_paths, with.rejected, with.report.refilled as u64, with.keeper.write];
        for (one, two) in self.one.iter().zip(&self.two).filter(|(one, two)| of(one) != of(two)) {
            let (phase, one, two) = (one.phase, of(one), of(two));
            problems.push(format!(
                "{phase}: slow paths, rejections, refills, writes are {one:?} with one process, {two:?} with two"
            ));
        }
        problems
    }

    /// The exit code: 0 if every requirement is met, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.problems().is_empty())
    }
}

/// The requirements that a phase with the keeper does not meet.
fn compare(with: &Figures, without: &Figures) -> Vec<String> {
    let mut problems = Vec::new();
    let mut at_most = |most: u64, figure: u64, what: &str| {
        if figure > most {
            problems.push(format!("{figure} {what}, at most {most} are allowed"));
        }
    };
    at_most(0, with.over_admitted, "over-admitted tokens");
    at_most(0, with.created, "shards that clients created with a full share");
    // If clients without the keeper over-admit, compare with an exact bucket. Each shard may keep one token back.
    let is_standard = without.over_admitted == 0;
    if is_standard {
        let slow_paths = if with.phase == STEADY { without.slow_paths / 2 } else { without.slow_paths };
        at_most(slow_paths, with.slow_paths, "slow paths");
    }
    let rejected = if is_standard { without.rejected } else { with.exactly_rejected + u64::from(with.shards) };
    at_most(rejected, with.rejected, "rejections");
    let price = if is_standard { without.price() } else { with.clients.price() };
    if with.price() * 1000 > price * 1005 {
        problems.push(format!("costs {:.2} % more, at most 0.50 % is allowed", percent_above(with.price(), price)));
    }
    if with.phase == RAMP && (with.shards != RAMP_SHARDS || with.existing != RAMP_SHARDS as usize) {
        problems.push(format!("{} of {} shards exist, instead of {RAMP_SHARDS}", with.existing, with.shards));
    }
    if with.phase == IDLE && with.drained != [0, idle_share()].repeat(DRAINS) {
        problems.push(format!("the drained shard has {:?} tokens, and {} fit", with.drained, idle_share()));
    }
    problems
}

/// The tokens that the drained shard can hold.
fn idle_share() -> i64 {
    phases::idle().terms.capacity / i64::from(IDLE_SHARDS)
}

/// Runs the demonstration and prints its report; returns the exit code.
pub async fn demonstrate(options: &Options) -> anyhow::Result<u8> {
    println!("seed {}", options.seed);
    let comparison = run(options).await?;
    println!("{}\n\n{}\n", report::table(&comparison), report::lines(&comparison));
    println!("{:.0} s of real time", comparison.elapsed.as_secs_f64());
    for problem in comparison.problems() {
        eprintln!("{problem}");
    }
    println!("{}", report::summary(&comparison));
    Ok(comparison.exit_code())
}

/// A bar for each run; they show nothing where there is no terminal.
struct Bars {
    all: MultiProgress,
    style: ProgressStyle,
    acquires: u64,
}

impl Bars {
    fn new(seconds: u32) -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{prefix:<18} {bar:40} {pos:>9} of {len:<9} acquires {per_sec}")?;
        let acquires = phases::with_traffic(seconds).iter().map(phases::Phase::acquires).sum();
        Ok(Self { all: MultiProgress::new(), style, acquires })
    }

    fn add(&self, prefix: &'static str) -> ProgressBar {
        self.all.add(ProgressBar::new(self.acquires).with_style(self.style.clone()).with_prefix(prefix))
    }
}
