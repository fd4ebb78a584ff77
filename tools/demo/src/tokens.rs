//! The token sweeper at work: the same clients reserve tokens, start resources and wait for them to end twice,
//! with the sweeper and without it, in simulated time.
//!
//! Events report ended resources, in the shapes of the services that send them. Some are repeated, late, early or lost, and some
//! are invalid. The table is compared with the clients and their resources, minute by minute and in the end.

mod client;
mod event;
mod ledger;
mod life;
mod queue;
mod run;
mod sweeper;
pub mod verdict;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use token_sweeper::report::SweepReport;

use self::run::SimulationRun;

/// What to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Resources that the clients start and that end
    #[arg(long, default_value_t = 400, value_parser = events)]
    pub events: usize,
    /// How long resources live, and which calls and invocations fail
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

fn events(text: &str) -> Result<usize, String> {
    let events = text.parse().ok().filter(|events| (1..=20_000).contains(events));
    events.ok_or_else(|| "expected a whole number from 1 to 20000".to_owned())
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// With the sweeper, after everything has come to rest.
    pub with: Measured,
    /// Without it, after the same time.
    pub without: Measured,
    /// Simulated seconds until the last resource had ended with the sweeper.
    pub simulated: i64,
    /// How long it took.
    pub elapsed: Duration,
}

/// What was seen of one side.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Reservations made.
    pub reserved: usize,
    /// Reservations refused, because the limit was reached.
    pub refused: usize,
    /// Reservations with which nothing was started.
    pub abandoned: usize,
    /// Tokens written.
    pub created: usize,
    /// Ends whose event was lost.
    pub lost: usize,
    /// Invalid events sent.
    pub strays: usize,
    /// Tokens and reservations that count in the end.
    pub live: usize,
    /// Resources that run in the end and have a token.
    pub running: usize,
    /// Tokens that stayed although their resource had ended.
    pub leaked: Vec<String>,
    /// Tokens that were gone while their resource ran, and reservations that were gone before they expired.
    pub taken: Vec<String>,
    /// Tokens that clients could still have reserved, minute by minute.
    pub free: Vec<i64>,
    /// What the sweeper did.
    pub tally: Tally,
}

/// What the sweeper did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Messages sent to its queue.
    pub sent: u64,
    /// Messages that it was done with, by what it decided on them.
    pub done: BTreeMap<&'static str, usize>,
    /// Deliveries after which the message came again, by the reason.
    pub again: BTreeMap<&'static str, usize>,
    /// Messages that were received too often.
    pub parked: Vec<String>,
    /// Messages that are still in the queue.
    pub unsettled: usize,
    /// What its invocations for messages did.
    pub report: SweepReport,
    pub reconciled: SweepReport,
    /// Calls that went wrong on purpose.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Runs one side after the other.
pub async fn run(options: &Options) -> anyhow::Result<Outcome> {
    let Options { events, seed } = *options;
    let started = Instant::now();
    let style = ProgressStyle::with_template("{prefix:<18} {bar:40} {pos:>6} of {len:<6} resources")?;
    let bar = |prefix| ProgressBar::new(events as u64).with_style(style.clone()).with_prefix(prefix);
    let mut with = SimulationRun::new(true, events, seed, bar("with the sweeper")).await?;
    let simulated = with.work(None).await.context("with the sweeper")?;
    with.rest().await.context("with the sweeper, at rest")?;
    let mut without = SimulationRun::new(false, events, seed, bar("without")).await?;
    without.work(Some(simulated)).await.context("without the sweeper")?;
    let (with, without) = (with.into_measured(), without.into_measured());
    Ok(Outcome { with, without, simulated, elapsed: started.elapsed() })
}

impl Outcome {
    /// One line for each of the sweeper's promises that was not kept.
    pub fn problems(&self) -> Vec<String> {
        let Measured { leaked, taken, strays, live, running, tally, .. } = &self.with;
        let mut problems: Vec<_> = leaked.iter().map(|token| format!("leaked: {token}")).collect();
        problems.extend(taken.iter().map(|token| format!("live and taken: {token}")));
        if live != running {
            problems.push(format!("{live} tokens count in the end, and {running} resources run"));
        }
        if tally.parked.len() != *strays {
            problems.push(format!("{} messages were parked, of {strays} that should be", tally.parked.len()));
        }
        if tally.unsettled > 0 {
            problems.push(format!("{} messages are still in the queue", tally.unsettled));
        }
        if self.without.refused < self.with.refused {
            let (with, without) = (self.with.refused, self.without.refused);
            problems.push(format!("{with} reservations were refused, and {without} without the sweeper"));
        }
        problems
    }

    /// What the process is to end with: 0 if every promise was kept, else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.problems().is_empty())
    }
}

/// Runs it, and prints what a person wants to see; what the process is to end with.
pub async fn demonstrate(options: &Options) -> anyhow::Result<u8> {
    println!("{} resources that end, seed {}", options.events, options.seed);
    let outcome = Box::pin(run(options)).await?;
    println!("{}\n\n{}\n", verdict::table(&outcome), verdict::lines(&outcome));
    let hours = Duration::from_secs(outcome.simulated.unsigned_abs()).as_secs_f64() / 3600.0;
    println!("{hours:.1} simulated hours in {:.0} s", outcome.elapsed.as_secs_f64());
    for problem in outcome.problems().iter().take(20) {
        eprintln!("{problem}");
    }
    println!("{}", verdict::line(&outcome));
    Ok(outcome.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_resource_or_more() {
        let check = |text, expect| assert_eq!(events(text).ok(), expect, "{text}");
        check("1", Some(1));
        check("20000", Some(20_000));
        check("0", None);
        check("20001", None);
        check("many", None);
    }
}
