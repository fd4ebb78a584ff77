//! `cargo run -- spikes`: one day of a table under the eight designs of AWS's article on traffic spikes, drawn and in
//! figures.
//!
//! It checks that the model reproduces what the article says: [`article`]. The model is pure code:
//!
//! | module | holds |
//! |---|---|
//! | [`traffic`] | users with jitter, and [`traffic::Job`], whose work is fixed |
//! | [`table`] | capacity and burst capacity of a provisioned table; warm throughput of an on-demand table |
//! | [`scaling`], [`quota`] | auto scaling: alarms, minimum and maximum, updates of the capacity, the quota of decreases |
//! | [`designs`] | [`designs::ALL`]: the designs |
//! | [`simulation`] | [`simulation::run`]: a design and a seed become a [`simulation::DesignRun`] |
//! | [`article`] | what the article says |
//! | [`chart`], [`price`] | what is printed |

mod article;
mod chart;
mod designs;
mod price;
mod quota;
mod scaling;
pub(crate) mod simulation;
mod table;
mod traffic;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use self::{simulation::DesignRun, table::INITIAL_WARM_THROUGHPUT};
use crate::print::{self, Outcome};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// The first seed of the users' jitter; its day is printed
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many seeds are compared with the article
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) seeds: u16,
    /// How many minutes are drawn
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(10..=600))]
    pub(crate) minutes: u16,
    /// Write units a second that the on-demand table serves at once in the morning
    #[arg(long, default_value_t = INITIAL_WARM_THROUGHPUT, value_parser = clap::value_parser!(u64).range(4_000..=40_000))]
    pub(crate) warm: u64,
}

/// The days of all designs, with each seed.
#[derive(Clone, Debug)]
pub(crate) struct SpikesRun {
    /// Those of the first seed come first.
    pub(crate) runs: Vec<DesignRun>,
    seeds: u16,
    elapsed: Duration,
}

/// Runs the demonstration and prints its report.
pub(crate) fn demonstrate(options: &Options) -> ExitCode {
    let Options { seed, minutes, .. } = options;
    println!("One day of users, and a job that raises 4000 write units a second to 18000 at noon; seed {seed}\n");
    let spikes = run(options);
    println!("{}\n", spikes.drawings((*minutes).into()));
    println!("{}\n{LEGEND}\n", spikes.table());
    println!("{} simulated days in {:.1} s of real time", spikes.runs.len(), spikes.elapsed.as_secs_f64());
    spikes.outcome().print()
}

/// Runs all designs. The same options give the same days.
pub(crate) fn run(options: &Options) -> SpikesRun {
    let started = Instant::now();
    let mut runs = Vec::new();
    for seed in (options.seed..=u64::MAX).take(options.seeds.into()) {
        let users = traffic::users(seed);
        runs.extend(designs::ALL.map(|design| simulation::run(design, seed, &users, options.warm)));
    }
    SpikesRun { runs, seeds: options.seeds, elapsed: started.elapsed() }
}

const LEGEND: &str = "\
drawn: consumption within the provisioned capacity (blocks) and above it, by burst capacity (shaded), the provisioned capacity
    (line), and throttled requests (a full block is 10,000 a second); each column is a minute, and the mark is noon
throttled requests: attempts that the table refuses; users repeat them in the next second, the job later
cost of the day: of all writes, at the prices of us-east-1
delay of the job: how much later it ends than without any limit";

impl SpikesRun {
    pub(crate) fn outcome(&self) -> Outcome {
        let problems: Vec<_> = self.runs.iter().flat_map(article::differences).collect();
        Outcome {
            passed: format!("REPRODUCED, with {} seeds: {}", self.seeds, article::burst_summary(&self.runs)),
            failed: format!("NOT REPRODUCED: {} statements of the article do not hold", problems.len()),
            problems,
        }
    }

    /// The days of the first seed.
    fn first(&self) -> &[DesignRun] {
        &self.runs[..designs::ALL.len()]
    }

    pub(crate) fn drawings(&self, minutes: usize) -> String {
        self.first().iter().map(|run| chart::draw(run, minutes)).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn table(&self) -> String {
        let header = [
            "design",
            "throttled requests",
            "minutes with throttles",
            "highest provisioned",
            "cost of the day",
            "delay of the job",
        ];
        let rows = self.first().iter().map(|run| {
            [
                run.design.name.to_owned(),
                run.throttled_requests().to_string(),
                run.minutes_with_throttles().to_string(),
                run.highest.map_or("-".to_owned(), |highest| highest.to_string()),
                price::dollars(run.cost),
                run.delay.map_or("not done".to_owned(), |delay| format!("{delay} s")),
            ]
        });
        print::table(&header, 1, rows).to_string()
    }
}

#[cfg(test)]
mod tests {
    //! The laws of the model, and the article's statements for many seeds.

    mod article;
    mod chart;
    mod quota;
    mod scaling;
    mod simulation;
    mod table;
    mod traffic;
}
