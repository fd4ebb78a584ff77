//! `cargo run -- keeper`: the same clients draw from the same buckets three times, in simulated time: without the bucket
//! keeper, with one process of it, and with two processes that receive the batches in turn.
//!
//! | phase | shows |
//! |---|---|
//! | steady | four fifths of a limit: whether the first write finds tokens |
//! | burst | many times the limit: whether the keeper causes no harm |
//! | surge | write units and tokens run out together: whether new shards create tokens |
//! | ramp | more and more writes to one bucket: whether it gets the shards that it needs, and no more |
//! | idle | a drained shard without writes: whether it fills up |

mod client;
mod phases;
mod simulation;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::task::JoinHandle;

pub(crate) use self::phases::Figures;
use self::{
    phases::{DRAINS, IDLE, IDLE_SHARDS, RAMP, RAMP_SHARDS, STEADY, percent_above},
    simulation::SimulationRun,
};
use crate::print::{self, Bars, Outcome, sparkline};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Simulated seconds of the steady phase
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(30..))]
    pub(crate) seconds: u32,
    /// Seed of arrivals and shards
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// The figures of all phases, run by run.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) without: Vec<Figures>,
    /// With one process of the keeper.
    pub(crate) one: Vec<Figures>,
    /// With two processes that receive the batches in turn.
    pub(crate) two: Vec<Figures>,
    /// The real time that the runs took.
    elapsed: Duration,
}

/// Runs the demonstration and prints its report.
pub(crate) async fn demonstrate(options: &Options) -> anyhow::Result<ExitCode> {
    println!("seed {}", options.seed);
    let comparison = run(options).await?;
    println!("{}\n\n{}\n", comparison.table(), comparison.lines());
    println!("{:.0} s of real time", comparison.elapsed.as_secs_f64());
    Ok(comparison.outcome().print())
}

/// Does all runs at the same time.
pub(crate) async fn run(options: &Options) -> anyhow::Result<Comparison> {
    let started = Instant::now();
    let bars = Bars::new("acquires")?;
    let acquires: u64 = phases::with_traffic(options.seconds).iter().map(phases::Phase::acquires).sum();
    let start = async |processes, name| {
        let run = SimulationRun::new(processes, options.seed, bars.add(name, acquires)).await?;
        anyhow::Ok(tokio::spawn(run.run(options.seconds)))
    };
    let finish = async |run: JoinHandle<anyhow::Result<_>>| run.await.context("a run panicked")?;
    let (without, one, two) =
        (start(0, "without").await?, start(1, "one process").await?, start(2, "two processes").await?);
    let (without, one, two) = tokio::try_join!(finish(without), finish(one), finish(two))?;
    Ok(Comparison { without, one, two, elapsed: started.elapsed() })
}

impl Comparison {
    pub(crate) fn outcome(&self) -> Outcome {
        let problems = self.problems();
        Outcome {
            passed: "MET: no over-admitted tokens; where clients admit no more than the limit, no more slow paths and at most \
                     0.5 % more cost; the same with one process and with two"
                .to_owned(),
            failed: format!("NOT MET: {} of the keeper's requirements", problems.len()),
            problems,
        }
    }

    fn problems(&self) -> Vec<String> {
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

    /// A row for each figure of each phase, a column for each run.
    pub(crate) fn table(&self) -> String {
        let mut rows = Vec::new();
        for ((without, one), two) in self.without.iter().zip(&self.one).zip(&self.two) {
            let mut row = |name: &str, figure: &dyn Fn(&Figures) -> String| {
                rows.push([without.phase.to_owned(), name.to_owned(), figure(without), figure(one), figure(two)]);
            };
            row("acquires, admitted by the first write", &|of| format!("{}, {}", of.acquires, of.first));
            row("slow paths", &|of| of.slow_paths.to_string());
            row("rejected, by one exact bucket", &|of| format!("{}, {}", of.rejected, of.exactly_rejected));
            row("write units of clients, keeper", &|of| format!("{}, {}", of.clients.write, of.keeper.write));
            row("read units of clients, keeper", &|of| {
                format!("{}, {}", halves(of.clients.half_read), halves(of.keeper.half_read))
            });
            row("cost compared with no keeper", &|of| format!("{:+.2} %", percent_above(of.price(), without.price())));
            row("tokens over-admitted", &|of| of.over_admitted.to_string());
            row("refills, doublings, splits", &|of| {
                format!("{}, {}, {}", of.report.refilled, of.report.doubled, of.report.split)
            });
            row("shards at the end, created by clients", &|of| {
                format!("{} of {}, {}", of.existing, of.shards, of.created)
            });
        }
        print::table(&["phase", "", "without", "one process", "two processes"], 2, rows).to_string()
    }

    /// Some series as lines of blocks.
    fn lines(&self) -> String {
        let runs = [("without", &self.without), ("one process", &self.one), ("two processes", &self.two)];
        let mut lines = Vec::new();
        let mut draw = |title: &str, phase: &str, series: fn(&Figures) -> &[i64]| {
            let runs = runs
                .map(|(name, run)| (name, run.iter().find(|figures| figures.phase == phase).map_or(&[][..], series)));
            let top = runs.iter().flat_map(|(_, series)| *series).max().copied().unwrap_or(1);
            lines.push(format!("{title} ({phase}; the full block is {top})"));
            lines.extend(runs.map(|(name, series)| format!("  {name:<14}│{}│", sparkline(series, top))));
        };
        draw("stored tokens by the second", STEADY, |of| &of.stored);
        draw("shards by the second", RAMP, |of| &of.shards_by_second);
        draw("tokens of the drained shard, and a minute later", IDLE, |of| &of.drained);
        lines.join("\n")
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
        problems.push(format!("the drained shard has {:?} tokens; its capacity is {}", with.drained, idle_share()));
    }
    problems
}

/// The tokens that the drained shard can hold.
fn idle_share() -> i64 {
    phases::idle().terms.capacity / i64::from(IDLE_SHARDS)
}

fn halves(halves: u64) -> String {
    let half = if halves.is_multiple_of(2) { "" } else { ".5" };
    format!("{}{half}", halves / 2)
}
