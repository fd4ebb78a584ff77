//! `cargo run -- tokens`: the same clients reserve tokens, start resources and wait for them to end, with the token sweeper
//! and without it, in simulated time. About half of them use our client, the others behave like rate-limiter-py. Then many
//! callers of each kind reserve at the same time, and take fungible tokens.
//!
//! Events report ended resources, in the shapes of the services that send them. Some are repeated, late, early or lost, and
//! some are invalid. The table is compared with the clients and their resources, minute by minute and in the end.

mod calls;
mod client;
mod crowd;
mod ledger;
mod resources;
mod run;
mod sweeper;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use token_sweeper::report::SweepReport;

use self::{calls::Calls, client::capacity, crowd::Crowd, run::SimulationRun};
use crate::print::{self, Bars, Outcome, sparkline};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Resources that the clients start and that end
    #[arg(long, default_value_t = 400, value_parser = events)]
    pub(crate) events: usize,
    /// How long resources live, and which calls and invocations fail
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

fn events(text: &str) -> Result<usize, String> {
    let events = text.parse().ok().filter(|events| (1..=20_000).contains(events));
    events.ok_or_else(|| "expected a whole number from 1 to 20000".to_owned())
}

#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// With the sweeper, after the last event and expiry.
    pub(crate) with: Figures,
    /// Without it, after the same time.
    pub(crate) without: Figures,
    /// Simulated seconds until the last resource had ended with the sweeper.
    simulated: i64,
    /// Callers of each kind of client at once.
    pub(crate) crowds: Vec<Crowd>,
    pub(crate) calls: Calls,
    elapsed: Duration,
}

/// The figures of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    reserved: usize,
    /// Reservations that the limit did not allow.
    pub(crate) refused: usize,
    /// Reservations whose client started nothing.
    abandoned: usize,
    created: usize,
    /// Ends whose event was lost.
    pub(crate) lost: usize,
    /// Invalid events sent.
    pub(crate) strays: usize,
    /// Tokens and reservations that count in the end.
    pub(crate) live: usize,
    /// Resources that run in the end and have a token.
    running: usize,
    /// Tokens that stayed although their resource had ended.
    pub(crate) leaked: Vec<String>,
    /// Tokens that were gone while their resource ran, and reservations that were gone before they expired.
    pub(crate) taken: Vec<String>,
    /// Tokens that clients could still have reserved, minute by minute.
    free: Vec<i64>,
    pub(crate) tally: Tally,
}

/// What the sweeper did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Messages sent to its queue.
    sent: u64,
    /// Messages that it settled, by its decision.
    pub(crate) done: BTreeMap<&'static str, usize>,
    /// Deliveries after which the message was delivered again, by the reason.
    pub(crate) redelivered: BTreeMap<&'static str, usize>,
    /// Messages that were received too often.
    pub(crate) parked: Vec<String>,
    /// Messages that are still in the queue.
    pub(crate) unsettled: usize,
    /// The counts of its invocations for messages.
    report: SweepReport,
    pub(crate) reconciled: SweepReport,
    /// Injected faults.
    faults: BTreeMap<&'static str, u64>,
}

/// Runs the demonstration and prints its report.
pub(crate) async fn demonstrate(options: &Options) -> anyhow::Result<ExitCode> {
    println!("{} resources that end, seed {}", options.events, options.seed);
    let comparison = Box::pin(run(options)).await?;
    println!("{}\n\n{}\n", comparison.table(), comparison.lines());
    println!("{}\n\n{}\n", crowd::table(&comparison.crowds), calls::table(comparison.calls));
    let hours = Duration::from_secs(comparison.simulated.unsigned_abs()).as_secs_f64() / 3600.0;
    println!("{hours:.1} simulated hours in {:.0} s", comparison.elapsed.as_secs_f64());
    Ok(comparison.outcome().print())
}

/// Does one run after the other.
pub(crate) async fn run(options: &Options) -> anyhow::Result<Comparison> {
    let Options { events, seed } = *options;
    let started = Instant::now();
    let bars = Bars::new("resources")?;
    let mut with = SimulationRun::new(true, events, seed, bars.add("with the sweeper", events as u64)).await?;
    let simulated = with.work(None).await.context("with the sweeper")?;
    with.rest().await.context("with the sweeper, at rest")?;
    let mut without = SimulationRun::new(false, events, seed, bars.add("without", events as u64)).await?;
    without.work(Some(simulated)).await.context("without the sweeper")?;
    let (with, without) = (with.into_figures(), without.into_figures());
    let crowds = crowd::run().await.context("callers at once")?;
    let calls = calls::run().await.context("calls at once")?;
    Ok(Comparison { with, without, simulated, crowds, calls, elapsed: started.elapsed() })
}

impl Comparison {
    pub(crate) fn outcome(&self) -> Outcome {
        let Figures { leaked, taken, strays, live, running, tally, refused, .. } = &self.with;
        let mut problems: Vec<_> = leaked.iter().map(|token| format!("leaked: {token}")).collect();
        problems.extend(taken.iter().map(|token| format!("deleted while live: {token}")));
        if live != running {
            problems.push(format!("{live} tokens count in the end, and {running} resources run"));
        }
        if tally.parked.len() != *strays {
            problems.push(format!("{} messages were parked, of {strays} that should be", tally.parked.len()));
        }
        if tally.unsettled > 0 {
            problems.push(format!("{} messages are still in the queue", tally.unsettled));
        }
        if self.without.refused < *refused {
            let without = self.without.refused;
            problems.push(format!("{refused} reservations were refused, and {without} without the sweeper"));
        }
        problems.extend(crowd::problems(&self.crowds));
        problems.extend(calls::problems(self.calls));
        Outcome {
            passed: format!("SWEPT: {} tokens created, none leaked, none taken while it was live", self.with.created),
            failed: format!("NOT SWEPT: {} requirements are not met", problems.len()),
            problems,
        }
    }

    /// The tables: both runs, and what the sweeper did.
    pub(crate) fn table(&self) -> String {
        let row = |name: &str, count: fn(&Figures) -> usize| {
            [name.to_owned(), count(&self.with).to_string(), count(&self.without).to_string()]
        };
        let runs = [
            row("reservations", |of| of.reserved),
            row("of these, abandoned", |of| of.abandoned),
            row("reservations refused at the limit", |of| of.refused),
            row("tokens created", |of| of.created),
            row("tokens that count in the end", |of| of.live),
            row("of these, of resources that run", |of| of.running),
            row("tokens leaked", |of| of.leaked.len()),
            row("live ones taken", |of| of.taken.len()),
        ];
        let Figures { lost, strays, tally, .. } = &self.with;
        let mut rows = Vec::new();
        let mut row = |name: &str, count: usize| rows.push([name.to_owned(), count.to_string()]);
        row("events sent, repeated ones and strays included", usize::try_from(tally.sent).unwrap_or_default());
        row("ends whose event was lost", *lost);
        tally.done.iter().for_each(|(decision, count)| row(&format!("event done with: {decision}"), *count));
        row(&format!("event parked, of {strays} strays"), tally.parked.len());
        tally.redelivered.iter().for_each(|(reason, count)| row(&format!("delivered again: {reason}"), *count));
        row("tokens deleted by event", tally.report.deleted);
        row("tokens deleted by reconcile", tally.reconciled.deleted);
        row("found by reconcile: expired", tally.reconciled.expired);
        row("found by reconcile: EMR says ended", tally.reconciled.forgotten);
        for (fault, count) in &tally.faults {
            row(&format!("fault: {fault}"), usize::try_from(*count).unwrap_or_default());
        }
        format!("{}\n{}", print::table(&["", "with", "without"], 1, runs), print::table(&[], 1, rows))
    }

    /// Free tokens over time, as lines of blocks.
    fn lines(&self) -> String {
        let top = i64::try_from(capacity()).unwrap_or(i64::MAX);
        let line = |name: &str, run: &Figures| format!("  {name:<8}│{}│", sparkline(&run.free, top));
        let title = format!("free tokens over time (the full block is {top})");
        [title, line("with", &self.with), line("without", &self.without)].join("\n")
    }
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
