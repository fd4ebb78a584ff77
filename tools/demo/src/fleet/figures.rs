//! Four figures that summarise a trace.

use super::{scenario::Scenario, simulation::FleetTrace};

/// The largest relative distance from the aim of a fleet that has settled.
const NEAR: f64 = 0.05;
/// How long it must stay so to have settled, in seconds.
const STAYS: usize = 30;
/// Fairness and utilisation are measured over so many seconds at the end.
const LAST: usize = 60;

/// The figures by which rules are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    /// Seconds, from when the fleet can begin to settle, until its total is within 5 % of the aim and stays so for 30 s;
    /// `None` if it never does. The aim is the cap, or what the fleet could use, if that is less.
    pub(crate) settled_after: Option<u32>,
    /// Capacity units that were consumed above the cap since the event: the total minus the cap, summed up over
    /// the seconds in which it is above.
    pub(crate) overshoot: f64,
    /// [Jain's index](jain) of what the members got in the last 60 s, each in proportion to its [fair share](fair_shares): 1
    /// if all got the same part of theirs, or if no member got anything. Members that want nothing do not count.
    pub(crate) fairness: f64,
    /// The part of the aim that was consumed in the last 60 s. Consumption above the aim does not count.
    pub(crate) utilisation: f64,
}

impl Figures {
    /// Measures a trace of the scenario.
    pub(crate) fn of(scenario: &Scenario, trace: &FleetTrace) -> Self {
        let totals: Vec<_> = trace
            .seconds
            .iter()
            .zip(0..)
            .map(|(second, at)| Total { at, consumed: second.total(), aim: scenario.aim(at) })
            .collect();
        let since_event = totals.iter().filter(|total| total.at >= scenario.event);
        let last = &totals[totals.len().saturating_sub(LAST)..];
        let used: f64 = last.iter().map(|total| total.consumed.min(total.aim)).sum();
        let aimed: f64 = last.iter().map(|total| total.aim).sum();
        Self {
            settled_after: settled(&totals, scenario.settles_from).map(|at| at - scenario.settles_from),
            overshoot: since_event.map(|total| (total.consumed - scenario.rule.cap()).max(0.0)).sum(),
            fairness: fairness(scenario, trace),
            utilisation: if aimed > 0.0 { used / aimed } else { 1.0 },
        }
    }
}

struct Total {
    at: u32,
    consumed: f64,
    aim: f64,
}

impl Total {
    fn is_near(&self) -> bool {
        (self.consumed - self.aim).abs() <= NEAR * self.aim
    }
}

fn settled(totals: &[Total], from: u32) -> Option<u32> {
    let from = totals.iter().position(|total| total.at >= from)?;
    let settled = totals[from..].windows(STAYS).find(|window| window.iter().all(Total::is_near))?;
    settled.first().map(|total| total.at)
}

fn fairness(scenario: &Scenario, trace: &FleetTrace) -> f64 {
    let span = &trace.seconds[trace.seconds.len().saturating_sub(LAST)..];
    let fair = fair_shares(&scenario.demand(scenario.length.saturating_sub(1)), scenario.rule.cap());
    let parts: Vec<_> = (0..)
        .zip(fair)
        .filter(|(_, share)| *share > 0.0)
        .map(|(member, share): (usize, _)| span.iter().map(|second| second.consumed[member]).sum::<f64>() / share)
        .collect();
    jain(&parts).unwrap_or(1.0)
}

/// The fairness index of Jain, Chiu and Hawe, [A Quantitative Measure of Fairness and Discrimination][paper]: from `1 / n`,
/// where one of `n` gets all, to 1, where all get the same. `None` if none gets anything.
///
/// [paper]: https://arxiv.org/abs/cs/9809099
pub(crate) fn jain(parts: &[f64]) -> Option<f64> {
    // Relative to the greatest, so that no square exceeds the range of a float.
    let greatest = parts.iter().copied().fold(0.0, f64::max);
    if greatest <= 0.0 {
        return None;
    }
    let (count, sum, squares) = parts.iter().fold((0.0, 0.0, 0.0), |(count, sum, squares), part| {
        let part = part / greatest;
        (count + 1.0, sum + part, squares + part * part)
    });
    // Rounding may exceed the bound.
    Some((sum * sum / (count * squares)).min(1.0))
}

/// Max-min fair shares: no member gets more than it wants, and a member that gets less gets as much as any other.
pub(crate) fn fair_shares(wants: &[f64], cap: f64) -> Vec<f64> {
    let mut sorted = wants.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (mut left, mut waiting) = (cap, wants.iter().map(|_| 1.0).sum::<f64>());
    let mut level = f64::INFINITY;
    for want in sorted {
        if want * waiting > left {
            level = left / waiting;
            break;
        }
        left -= want;
        waiting -= 1.0;
    }
    wants.iter().map(|want| want.min(level)).collect()
}
