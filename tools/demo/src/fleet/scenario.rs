//! Scenarios: which worker wants how much and when, and the conditions of the network and the aggregator.

use std::{ops::Range, time::Duration};

use super::worker::Rule;

/// A fleet, what happens to it, and what to measure. Times are whole seconds from the start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What happens, in a line.
    pub(crate) summary: &'static str,
    pub(crate) rule: Rule,
    pub(crate) members: Vec<Member>,
    pub(crate) conditions: NetworkConditions,
    /// When the aggregator is down; an empty range if never.
    pub(crate) outage: Range<u32>,
    /// When the event happens that the scenario shows. Overshoot and utilisation are measured from here on.
    pub(crate) event: u32,
    /// When the fleet can begin to settle: after an outage, for instance.
    pub(crate) settles_from: u32,
    pub(crate) length: u32,
}

/// A consumer: one worker, or several in succession. Each starts when the previous one has died.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    /// When its first worker starts.
    pub(crate) joins: u32,
    /// Its demand in capacity units a second, each with the second at which it starts. Before the first, the demand is 0.
    pub(crate) wants: Vec<(u32, f64)>,
}

/// The conditions of S3 and of the machines on which the workers run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkConditions {
    pub(crate) name: &'static str,
    /// How long a call takes: uniformly distributed within these bounds.
    pub(crate) delay: Range<Duration>,
    /// The probability that a call fails without an effect.
    pub(crate) loss: f64,
    /// The largest difference between a worker's clock and the aggregator's, in either direction.
    pub(crate) skew: Duration,
    /// Every so many seconds a worker dies and leaves its report, and a worker with a new name takes its place. Until the
    /// old report is stale, the member counts twice. 0 if none ever dies.
    pub(crate) deaths_every: u32,
    /// Reports that an earlier fleet left behind just before the start: each of a worker at its maximum.
    pub(crate) leftovers: usize,
}

impl NetworkConditions {
    /// S3 as it is on most days, and exact clocks.
    pub(crate) const fn nominal() -> Self {
        Self {
            name: "nominal",
            delay: Duration::from_millis(20)..Duration::from_millis(80),
            loss: 0.0,
            skew: Duration::ZERO,
            deaths_every: 0,
            leftovers: 0,
        }
    }

    /// Calls take up to two seconds, one in ten fails, clocks are two seconds off, a worker dies every minute, and five
    /// reports were left behind.
    pub(crate) const fn degraded() -> Self {
        Self {
            name: "degraded",
            delay: Duration::from_millis(50)..Duration::from_secs(2),
            loss: 0.1,
            skew: Duration::from_secs(2),
            deaths_every: 60,
            leftovers: 5,
        }
    }
}

impl Member {
    /// Its demand in this second.
    pub(crate) fn wants_in(&self, second: u32) -> f64 {
        let since = self.wants.iter().take_while(|(from, _)| *from <= second).last();
        since.filter(|_| self.joins <= second).map_or(0.0, |(_, rate)| *rate)
    }
}

impl Scenario {
    /// What each member could consume in this second if it were alone.
    pub(crate) fn demand(&self, second: u32) -> Vec<f64> {
        self.members.iter().map(|member| member.wants_in(second).min(self.rule.maximum())).collect()
    }

    /// What the fleet should consume in this second: the cap, or what it could use, if that is less.
    pub(crate) fn aim(&self, second: u32) -> f64 {
        self.demand(second).into_iter().sum::<f64>().min(self.rule.cap())
    }
}

/// When the event happens, in seconds. By then, a fleet that settles at all has settled.
const EVENT: u32 = 120;
/// How long the aggregator is down, in seconds.
const OUTAGE: u32 = 120;
/// How long a fleet is observed once it can settle, in seconds.
const OBSERVED: u32 = 300;

/// The scenarios that measure a rule, for a fleet of `workers`.
pub(crate) fn all(workers: usize, rule: Rule, conditions: &NetworkConditions) -> Vec<Scenario> {
    let insatiable = 2.0 * rule.maximum();
    let share = rule.cap() / share_count(workers);
    let little = 0.3 * share;
    let members = |member: &dyn Fn(usize) -> Member| (0..workers).map(member).collect::<Vec<_>>();
    let scenario = |name, summary, members| Scenario {
        name,
        summary,
        rule,
        members,
        conditions: conditions.clone(),
        outage: 0..0,
        event: EVENT,
        settles_from: EVENT,
        length: EVENT + OBSERVED,
    };
    let full = |joins| Member { joins, wants: vec![(joins, insatiable)] };
    let half = |worker: usize| worker % 2 == 1;
    vec![
        Scenario {
            event: 0,
            settles_from: 0,
            length: OBSERVED,
            ..scenario("cold start", "all start at once and want all that they can get", members(&|_| full(0)))
        },
        scenario(
            "surge",
            "a fleet that wanted three tenths of the cap wants all that it can get",
            members(&|_| Member { joins: 0, wants: vec![(0, little), (EVENT, insatiable)] }),
        ),
        scenario(
            "skewed demand",
            "of a fleet that wanted all, every other worker wants a tenth of a fair share",
            members(&|worker| Member {
                joins: 0,
                wants: vec![(0, insatiable), (EVENT, if half(worker) { 0.1 * share } else { insatiable })],
            }),
        ),
        scenario(
            "half joins",
            "as many workers again join a fleet that is at the cap",
            members(&|worker| full(if half(worker) { EVENT } else { 0 })),
        ),
        with_outage(scenario("outage", "the aggregator is down for two minutes", members(&|_| full(0)))),
        with_outage(scenario(
            "surge in outage",
            "the aggregator is down for two minutes, and the surge comes after the first",
            members(&|_| Member { joins: 0, wants: vec![(0, little), (EVENT + OUTAGE / 2, insatiable)] }),
        )),
    ]
}

fn with_outage(scenario: Scenario) -> Scenario {
    let over = EVENT + OUTAGE;
    Scenario { outage: EVENT..over, settles_from: over, length: over + OBSERVED, ..scenario }
}

#[expect(clippy::cast_precision_loss, reason = "a fleet has far fewer than 2^53 workers")]
const fn share_count(workers: usize) -> f64 {
    workers as f64
}
