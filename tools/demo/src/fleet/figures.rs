//! What a course comes to, in four figures.

use super::{course::Course, scenario::Scenario};

/// How near to its aim a fleet must be to have settled.
const NEAR: f64 = 0.05;
/// How long it must stay so, in seconds.
const STAYS: usize = 30;
/// Over how many seconds in the end fairness is measured.
const FAIRNESS_SPAN: usize = 60;

/// The figures by which rules are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Seconds, from when the fleet can begin to settle, until its total is within 5 % of the aim and stays so for 30 s;
    /// `None` if it never does. The aim is the cap, or what the fleet could use, if that is less.
    pub settled_after: Option<u32>,
    /// Capacity units that were consumed above the cap since the event: the total minus the cap, summed up over
    /// the seconds in which it is above.
    pub overshoot: f64,
    /// [Jain's index](jain) of what the members got in the last 60 s, each in proportion to its [fair share](fair_shares):
    /// 1 if all got theirs, or all the same part of it. Of those that want nothing, nothing is asked. 1 if nobody got anything.
    pub fairness: f64,
    /// What was consumed since the event, of the aim: what lies above it does not count.
    pub utilisation: f64,
}

impl Figures {
    /// The figures of a scenario's course.
    pub fn of(scenario: &Scenario, course: &Course) -> Self {
        let totals: Vec<_> = course
            .seconds
            .iter()
            .zip(0..)
            .map(|(second, at)| Total { at, consumed: second.total(), aim: scenario.aim(at) })
            .collect();
        let since = |from| totals.iter().filter(move |total| total.at >= from);
        let used: f64 = since(scenario.event).map(|total| total.consumed.min(total.aim)).sum();
        let aimed: f64 = since(scenario.event).map(|total| total.aim).sum();
        Self {
            settled_after: settled(&totals, scenario.settles_from).map(|at| at - scenario.settles_from),
            overshoot: since(scenario.event).map(|total| (total.consumed - scenario.rule.cap()).max(0.0)).sum(),
            fairness: fairness(scenario, course),
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

fn fairness(scenario: &Scenario, course: &Course) -> f64 {
    let span = &course.seconds[course.seconds.len().saturating_sub(FAIRNESS_SPAN)..];
    let fair = fair_shares(&scenario.demand(scenario.length.saturating_sub(1)), scenario.rule.cap());
    let parts: Vec<_> = (0..)
        .zip(fair)
        .filter(|(_, share)| *share > 0.0)
        .map(|(member, share): (usize, _)| span.iter().map(|second| second.consumed[member]).sum::<f64>() / share)
        .collect();
    jain(&parts).unwrap_or(1.0)
}

/// The fairness index of Jain, Chiu and Hawe, [A Quantitative Measure of Fairness and Discrimination][paper]: from `1 / n`,
/// where one of `n` gets all, to 1, where all get the same. `None` if nobody gets anything.
///
/// [paper]: https://arxiv.org/abs/cs/9809099
pub fn jain(parts: &[f64]) -> Option<f64> {
    // By the greatest, so that no square is out of a float's range.
    let greatest = parts.iter().copied().fold(0.0, f64::max);
    if greatest <= 0.0 {
        return None;
    }
    let (count, sum, squares) = parts.iter().fold((0.0, 0.0, 0.0), |(count, sum, squares), part| {
        let part = part / greatest;
        (count + 1.0, sum + part, squares + part * part)
    });
    // Rounding may take it past its bound.
    Some((sum * sum / (count * squares)).min(1.0))
}

/// Max-min fair shares: nobody gets more than it wants, and who gets less gets as much as anybody does.
pub fn fair_shares(wants: &[f64], cap: f64) -> Vec<f64> {
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
