//! A scenario under one rule with many seeds, compared with what leases must reach.

use std::ops::Range;

use super::{
    aggregator::Aggregation,
    figures::Figures,
    python::Rule,
    scenario::{self, Fleet, Goal, NetworkConditions, Scenario},
    simulation::{self, FleetTrace},
    store::StoredFile,
};
use crate::random::SeededRandom;

/// A scenario of [`scenario::all`], and who plays it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) which: usize,
    pub(crate) rule: Rule,
    /// `None` means from 30 to 70, by the seed.
    pub(crate) workers: Option<usize>,
    pub(crate) conditions: NetworkConditions,
    pub(crate) fleet: Fleet,
}

/// A case that was played once.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) scenario: Scenario,
    pub(crate) fleet: Fleet,
    pub(crate) trace: FleetTrace,
}

/// A case that was played with many seeds.
#[derive(Clone, Debug)]
pub(crate) struct CaseFigures {
    pub(crate) scenario: &'static str,
    pub(crate) network: &'static str,
    pub(crate) fleet: Fleet,
    /// What a fleet with leases must reach.
    pub(crate) goal: Option<Goal>,
    /// In how many seconds the fleet settled: the median and the 95th percentile. `None` if it did not.
    pub(crate) settled: [Option<u32>; 2],
    /// The most of all seeds, in capacity units.
    pub(crate) overshoot: f64,
    /// The least of all seeds.
    pub(crate) fairness: f64,
    /// The least of all seeds.
    pub(crate) utilisation: f64,
    pub(crate) summaries: usize,
    pub(crate) violations: Vec<String>,
}

impl Case {
    pub(crate) fn scenario(&self, seed: u64) -> Scenario {
        let workers = self.workers.unwrap_or_else(|| 30 + SeededRandom::new(seed).below(41));
        scenario::all(workers, self.rule, &self.conditions, self.fleet)[self.which].clone()
    }

    pub(crate) fn play(&self, seed: u64) -> Trial {
        let scenario = self.scenario(seed);
        let trace = simulation::run(&scenario, seed);
        Trial { scenario, fleet: self.fleet, trace }
    }
}

/// Reports up to this age count, and reports up to this far ahead, in milliseconds.
const CUTOFF: i64 = 15_000;

impl Trial {
    /// One line for each summary that is not the exact sum of the reports that count, computed without the aggregator's
    /// code, and one for each moment at which the leases together exceed what is given away.
    pub(crate) fn violations(&self) -> Vec<String> {
        let context =
            format!("{}, {} network, {}", self.scenario.name, self.scenario.conditions.name, self.fleet.name());
        let wrong = self.trace.aggregations.iter().filter_map(|aggregation| {
            let expected = fresh_reports(aggregation);
            let actual = (aggregation.tally.active, aggregation.tally.read().millionths());
            (actual != expected).then(|| {
                format!("{context}: at {}, {actual:?} workers and millionths instead of {expected:?}", aggregation.at)
            })
        });
        let excessive = self.trace.excesses.iter().map(|excess| {
            format!("{context}: at {}, leases of {} millionths exceed {}", excess.at, excess.leased, excess.most)
        });
        wrong.chain(excessive).collect()
    }
}

/// Counts the reports that count, and sums them up in millionths of a capacity unit a second.
fn fresh_reports(aggregation: &Aggregation) -> (usize, u128) {
    let Aggregation { at, files, .. } = aggregation;
    // A leasing worker's clock does not matter.
    let time = |stored: &&StoredFile| if stored.file.lease.is_some() { stored.written } else { stored.file.at };
    let fresh = files.iter().filter(|stored| (at.get() - time(stored).get()).abs() <= CUTOFF);
    fresh.fold((0, 0), |(active, sum), stored| (active + 1, sum + millionths(stored.file.rate)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is neither negative nor that large"
)]
fn millionths(rate: f64) -> u128 {
    (rate * 1e6).round() as u128
}

impl CaseFigures {
    /// Plays a case with so many seeds from the first one on.
    pub(crate) fn of(case: &Case, seeds: Range<u64>) -> Self {
        let scenario = case.scenario(seeds.start);
        let mut settled = Vec::new();
        let mut row = Self {
            scenario: scenario.name,
            network: scenario.conditions.name,
            fleet: case.fleet,
            goal: scenario.goal,
            settled: [None; 2],
            overshoot: 0.0,
            fairness: 1.0,
            utilisation: 1.0,
            summaries: 0,
            violations: Vec::new(),
        };
        for seed in seeds {
            let trial = case.play(seed);
            let figures = Figures::of(&trial.scenario, &trial.trace);
            settled.push(figures.settled_after);
            row.overshoot = row.overshoot.max(figures.overshoot);
            row.fairness = row.fairness.min(figures.fairness);
            row.utilisation = row.utilisation.min(figures.utilisation);
            row.summaries += trial.trace.aggregations.len();
            row.violations.extend(trial.violations());
        }
        // A fleet that does not settle is the last.
        settled.sort_by_key(|settled| settled.unwrap_or(u32::MAX));
        row.settled = [50, 95].map(|percent| percentile(&settled, percent));
        row
    }

    /// One line for each figure that misses its goal by more than a fifth.
    pub(crate) fn misses(&self, goal: &Goal) -> Vec<String> {
        let seconds = |seconds: Option<u32>| seconds.map_or("never".to_owned(), |seconds| format!("{seconds} s"));
        let mut misses = Vec::new();
        let mut check = |misses_goal: bool, what: &str, actual: String, goal: String| {
            if misses_goal {
                let Self { scenario, network, fleet, .. } = self;
                misses.push(format!(
                    "{scenario}, {network} network, {}: {what} {actual}, instead of {goal}",
                    fleet.name()
                ));
            }
        };
        for (what, (actual, goal)) in ["settled in half of the runs:", "settled in 95 % of the runs:"]
            .into_iter()
            .zip(self.settled.into_iter().zip(goal.settled))
        {
            // Figures are whole seconds.
            let is_late = goal.is_some_and(|goal| actual.is_none_or(|actual| actual > (goal * 6).div_ceil(5)));
            check(is_late, what, seconds(actual), seconds(goal));
        }
        let units = |units: f64| format!("{units:.0}");
        check(
            self.overshoot > goal.overshoot * 1.2 + ROUNDING,
            "overshoot of",
            units(self.overshoot),
            units(goal.overshoot),
        );
        for (what, actual, goal) in
            [("fairness of", self.fairness, goal.fairness), ("utilisation of", self.utilisation, goal.utilisation)]
        {
            check((1.0 - actual) > (1.0 - goal) * 1.2 + ROUNDING, what, format!("{actual:.3}"), format!("{goal:.3}"));
        }
        misses
    }
}

/// Figures are sums of floats.
const ROUNDING: f64 = 1e-6;

fn percentile(sorted: &[Option<u32>], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().flatten()
}
