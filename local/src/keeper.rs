//! The bucket keeper at work: the same clients draw from the same buckets twice, on a table that is kept and
//! on one that is not, in simulated time.
//!
//! | phase | shows |
//! |---|---|
//! | steady | four fifths of a limit: whether tokens are there when the first write comes |
//! | burst | many times the limit: that nothing is admitted that one exact bucket would not admit |
//! | ramp | more and more writes to one bucket: whether it gets the shards that it takes, and no more |
//! | idle | a drained shard that nobody writes to: whether it fills up |

mod client;
pub mod costs;
mod function;
mod measured;
mod phases;
mod side;
pub mod verdict;
mod virtual_bucket;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

pub use self::{
    function::{TimedKeeper, function},
    measured::Measured,
};
use self::{
    phases::{IDLE, IDLE_SHARDS, RAMP, RAMP_SHARDS, STEADY},
    side::Side,
};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Simulated seconds of the steady phase; the ramp takes half as many
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(6..))]
    pub seconds: u32,
    /// The batching window of the event source mapping, in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub window: u32,
    /// When acquires come and which shards they draw; what is under way at once still runs free
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The least part of the steady phase's acquires that the first write must admit, in percent.
const STEADY_PERCENT: f64 = 99.5;

/// How a run ended: the phases on either side.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// With the keeper.
    pub with: Vec<Measured>,
    /// Without it.
    pub without: Vec<Measured>,
    /// How long it took.
    pub elapsed: Duration,
}

/// Runs both sides at the same time.
///
/// # Errors
/// When a service fails in a way that is no fault of ours.
pub async fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let bars = Bars::new(options.seconds)?;
    let with = Side::new(Some(options.window), options.seed, bars.add("with the keeper")).await?;
    let without = Side::new(None, options.seed, bars.add("without")).await?;
    let (with, without) =
        tokio::try_join!(tokio::spawn(all(with, options.seconds)), tokio::spawn(all(without, options.seconds)))
            .context("a side panicked")?;
    Ok(Outcome { with: with?, without: without?, elapsed: started.elapsed() })
}

async fn all(mut side: Side, seconds: u32) -> anyhow::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for phase in phases::with_traffic(seconds) {
        measured.push(side.run(&phase).await.with_context(|| format!("phase {}", phase.name))?);
    }
    measured.push(side.idle().await.context("phase idle")?);
    Ok(measured)
}

impl Outcome {
    /// One line for each of the keeper's promises that was not kept.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some((with, without)) = self.phase(STEADY) {
            let [percent, other] = [with, without].map(Measured::speculative_percent);
            if percent < STEADY_PERCENT {
                problems.push(format!("steady: first writes admit {percent:.2} %, not {STEADY_PERCENT} %"));
            }
            if percent <= other {
                problems
                    .push(format!("steady: first writes admit {percent:.2} %, and {other:.2} % without the keeper"));
            }
            if with.units() > without.units() {
                let (with, without) = (with.units(), without.units());
                problems.push(format!("steady: {with} write units, and {without} without the keeper"));
            }
        }
        for with in self.with.iter().filter(|with| with.over_admitted() > 0) {
            problems.push(format!("{}: {} tokens were admitted too many", with.phase, with.over_admitted()));
        }
        if let Some((Measured { shards, existing, .. }, _)) = self.phase(RAMP)
            && (*shards != RAMP_SHARDS || *existing != RAMP_SHARDS as usize)
        {
            problems.push(format!("ramp: {shards} shards, of which {existing} are there, instead of {RAMP_SHARDS}"));
        }
        if let Some((with, without)) = self.phase(IDLE) {
            let [kept, left] = [with, without].map(|side| side.drained.last().copied().unwrap_or_default());
            let share = idle_share();
            if kept * 16 < share * 15 {
                problems.push(format!("idle: the drained shard has {kept} of {share} tokens"));
            }
            if left != 0 {
                problems.push(format!("idle: the drained shard has {left} tokens without the keeper"));
            }
        }
        problems
    }

    /// What the process is to end with: 0 if every promise was kept, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.problems().is_empty())
    }

    fn phase(&self, name: &str) -> Option<(&Measured, &Measured)> {
        let of = |side: &'_ Vec<Measured>| side.iter().position(|measured| measured.phase == name);
        Some((&self.with[of(&self.with)?], &self.without[of(&self.without)?]))
    }
}

/// The part of the idle bucket's tokens that its drained shard can hold.
fn idle_share() -> i64 {
    phases::terms(IDLE).capacity / i64::from(IDLE_SHARDS)
}

/// Runs it, and prints what a person wants to see; what the process is to end with.
///
/// # Errors
/// Those of [`run`].
pub async fn demonstrate(options: &Options) -> anyhow::Result<u8> {
    println!("batching window {} s, seed {}", options.window, options.seed);
    let outcome = run(options).await?;
    println!("{}\n\n{}\n", verdict::table(&outcome), verdict::lines(&outcome));
    println!("{:.0} s of real time", outcome.elapsed.as_secs_f64());
    for problem in outcome.problems() {
        eprintln!("{problem}");
    }
    println!("{}", verdict::line(&outcome));
    Ok(outcome.exit_code())
}

/// A bar for each side; they show nothing where there is no terminal.
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
