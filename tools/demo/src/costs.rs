//! `cargo run -- keeper-costs`: what the keeper saves and costs, by a bucket's clients in simulated time, with the keeper's
//! refills and without them.
//!
//! There is no table here: one bucket, a model of its clients, a stream that delivers late, and the keeper's own
//! decisions. An hour of a load therefore takes less than a second.

mod loads;
mod simulation;

use std::process::ExitCode;

use comfy_table::presets::ASCII_MARKDOWN;
use tidegate_domain::bucket::InvalidName;

pub(crate) use self::loads::Expectation;
use self::{
    loads::Load,
    simulation::{Counts, Delivery},
};
use crate::print::{self, Outcome, float};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Simulated minutes of each load; a load with many acquires gets fewer
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(5..=1_440))]
    pub(crate) minutes: u32,
    /// Seed of arrivals, shards and call durations
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// As in the template: a batching window of a second. It is not aligned to whole seconds.
const DELIVERY: Delivery = Delivery { window: 1_000_000, lag: 300_000 };

/// The read units of a slow path: of clients since 0.12, and of clients of 0.10.
const READS: f64 = 2.5;
const READS_OF_OLD_CLIENTS: f64 = 1.0;

/// A load ends after about so many acquires: its results no longer change then.
const MOST_ACQUIRES: f64 = 600_000.0;

/// The price of a write unit in read units.
const WRITE_PRICE: f64 = 5.0;

/// The most that the keeper may add to the price of the table, in percent.
const MOST_ADDED: f64 = 0.5;

/// A load, with the keeper and without it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) load: Load,
    pub(crate) without: Counts,
    /// The same acquires with the keeper.
    pub(crate) with: Counts,
}

/// Runs the demonstration and prints its report.
pub(crate) fn demonstrate(options: Options) -> anyhow::Result<ExitCode> {
    println!("{} simulated minutes of each load, seed {}\n", options.minutes, options.seed);
    let rows = run(options)?;
    println!("{}\n", table(&rows));
    Ok(outcome(&rows).print())
}

/// Runs all loads. The same options give the same rows.
pub(crate) fn run(options: Options) -> Result<Vec<Row>, InvalidName> {
    let rows = loads::all().into_iter().map(|load| {
        let seconds = f64::from(options.minutes * 60).min(MOST_ACQUIRES / load.highest_rate());
        let run = |delivery| simulation::run(&load, delivery, seconds, options.seed);
        let (without, with) = (run(None)?, run(Some(DELIVERY))?);
        Ok(Row { load, without, with })
    });
    rows.collect()
}

impl Row {
    /// One line for each requirement that the keeper does not meet.
    pub(crate) fn problems(&self) -> Vec<String> {
        let Self { load, without, with } = self;
        let mut problems = Vec::new();
        let mut check = |is_met: bool, problem: String| {
            if !is_met {
                problems.push(format!("{}: {problem}", load.name));
            }
        };
        for (reads, clients) in [(READS, "0.12 to 0.17"), (READS_OF_OLD_CLIENTS, "0.10")] {
            let added = self.added(reads, false);
            check(added <= MOST_ADDED, format!("costs {added:.2} % more with the keeper, with clients of {clients}"));
        }
        for (what, with, without) in
            [("slow paths", with.slow, without.slow), ("rejections", with.rejected, without.rejected)]
        {
            // One refill changes which later calls overlap. If many slow paths are left, their number differs by chance:
            // its standard deviation is about the square root.
            let chance = if load.expectation == Expectation::NoHarm { 4 * without.isqrt() } else { 0 };
            check(with <= without + chance, format!("{with} {what}, and {without} without the keeper"));
        }
        let tried = with.refilled + with.lost;
        match load.expectation {
            Expectation::Halve => {
                check(with.slow * 2 <= without.slow, format!("{} of {} slow paths are left", with.slow, without.slow));
            }
            Expectation::LeaveAlone => check(tried == 0, format!("{tried} refills, which cannot pay")),
            Expectation::NoHarm => {}
        }
        problems
    }

    /// The change of the price by the keeper, in percent: below zero if it saves.
    fn added(&self, reads: f64, with_index: bool) -> f64 {
        let price = |counts: &Counts| {
            let writes = counts.writes + if with_index { counts.changes } else { 0 };
            // An eventually consistent read of two items costs one read unit.
            float(writes) * WRITE_PRICE + float(counts.slow) * reads + float(counts.repair_reads) / 2.0
        };
        (price(&self.with) / price(&self.without) - 1.0) * 100.0
    }
}

pub(crate) fn outcome(rows: &[Row]) -> Outcome {
    let problems: Vec<_> = rows.iter().flat_map(Row::problems).collect();
    Outcome {
        passed: format!(
            "PAYS: no load costs over {MOST_ADDED} % more, takes more slow paths or is rejected more often"
        ),
        failed: format!("DOES NOT PAY: {} requirements are not met", problems.len()),
        problems,
    }
}

/// The table, as the function's README shows it.
pub(crate) fn table(rows: &[Row]) -> String {
    let header = [
        "load",
        "slow paths, without / with",
        "rejections, without / with / exact bucket",
        "write units per 1,000, without / with",
        "read units per 1,000, without / with",
        "refills per 1,000, written / lost",
        "cost of the table",
        "and of GSI2",
    ];
    let cells = |row: &Row| {
        let Row { load, without, with } = row;
        let per = |count: u64, scale: f64| float(count) * scale / float(without.acquires.max(1));
        let reads = |counts: &Counts| per(counts.slow, 1000.0 * READS) + per(counts.repair_reads, 500.0);
        [
            load.name.to_owned(),
            format!("{:.2} % / {:.2} %", per(without.slow, 100.0), per(with.slow, 100.0)),
            format!(
                "{:.1} % / {:.1} % / {:.1} %",
                per(without.rejected, 100.0),
                per(with.rejected, 100.0),
                per(without.exact, 100.0)
            ),
            format!("{:.0} / {:.0}", per(without.writes, 1000.0), per(with.writes, 1000.0)),
            format!("{:.0} / {:.0}", reads(without), reads(with)),
            format!("{:.1} / {:.1}", per(with.refilled, 1000.0), per(with.lost, 1000.0)),
            format!("{:+.2} %", row.added(READS, false)),
            format!("{:+.2} %", row.added(READS, true)),
        ]
    };
    let mut table = print::table(&header, 1, rows.iter().map(cells));
    table.load_style(ASCII_MARKDOWN);
    table.to_string()
}
