//! Scenarios: which worker wants how much and when, and the conditions of the network and the aggregator.

use std::{ops::Range, time::Duration};

use super::{python::Rule, worker::Kind};

/// A fleet, what happens to it, and what to measure. Times are whole seconds from the start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What happens, in a line.
    pub(crate) summary: &'static str,
    pub(crate) rule: Rule,
    pub(crate) members: Vec<Member>,
    pub(crate) conditions: NetworkConditions,
    /// When the aggregator does not run; an empty range if it always runs. Its process stays, and goes on at once afterwards.
    pub(crate) outage: Range<u32>,
    /// When another process of the aggregator takes over. It knows the stored summary only.
    pub(crate) takeover: Option<u32>,
    /// When the event happens that the scenario shows. Overshoot is measured from here on.
    pub(crate) event: u32,
    /// When the fleet can begin to settle: after an outage, for instance.
    pub(crate) settles_from: u32,
    pub(crate) length: u32,
    /// What a fleet with leases must reach.
    pub(crate) goal: Option<Goal>,
}

/// The figures that a fleet must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    /// In how many seconds it settles: the median and the 95th percentile of many seeds. `None` sets no goal.
    pub(crate) settled: [Option<u32>; 2],
    /// The most that it consumes above the cap, in capacity units.
    pub(crate) overshoot: f64,
    pub(crate) fairness: f64,
    pub(crate) utilisation: f64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    /// When it starts.
    pub(crate) joins: u32,
    /// When it dies, and leaves its file.
    pub(crate) dies: Option<u32>,
    /// Its demand in capacity units a second, each with the second at which it starts. Before the first, the demand is 0.
    pub(crate) wants: Vec<(u32, f64)>,
}

/// Which rules the workers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fleet {
    Python,
    Leases,
    /// Every other worker follows AWS's rule.
    Mixed,
}

impl Fleet {
    pub(crate) const ALL: [Self; 3] = [Self::Python, Self::Leases, Self::Mixed];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Python => "AWS's rule",
            Self::Leases => "leases",
            Self::Mixed => "half and half",
        }
    }

    const fn kind(self, worker: usize) -> Kind {
        match self {
            Self::Python => Kind::Python,
            Self::Mixed if worker % 2 == 1 => Kind::Python,
            Self::Leases | Self::Mixed => Kind::Leasing,
        }
    }
}

/// The conditions of S3 and of the machines on which the workers run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetworkConditions {
    pub(crate) name: &'static str,
    /// How long it takes until a worker's file is in the store: uniformly distributed within these bounds.
    pub(crate) report_delay: Range<Duration>,
    /// How long it takes until a summary is in the store.
    pub(crate) summary_delay: Range<Duration>,
    /// How long it takes to read a summary.
    pub(crate) read_delay: Range<Duration>,
    /// The probability that a call fails without an effect.
    pub(crate) loss: f64,
    /// The largest difference between a worker's clock and the aggregator's, in either direction.
    pub(crate) skew: Duration,
}

impl NetworkConditions {
    /// S3 as it is on most days, and exact clocks.
    pub(crate) const fn nominal() -> Self {
        let [report_delay, summary_delay, read_delay] =
            [const { Duration::from_millis(20)..Duration::from_millis(80) }; 3];
        Self { name: "nominal", report_delay, summary_delay, read_delay, loss: 0.0, skew: Duration::ZERO }
    }

    /// Reports take up to three seconds, and may overtake each other. Summaries take up to two, one call in ten fails, and
    /// clocks are two seconds off.
    pub(crate) const fn degraded() -> Self {
        Self {
            name: "degraded",
            report_delay: Duration::from_millis(50)..Duration::from_secs(3),
            summary_delay: Duration::from_millis(50)..Duration::from_secs(2),
            loss: 0.1,
            skew: Duration::from_secs(2),
            ..Self::nominal()
        }
    }
}

impl Member {
    pub(crate) fn lives_in(&self, second: u32) -> bool {
        self.joins <= second && self.dies.is_none_or(|dies| second < dies)
    }

    /// Its demand in this second.
    pub(crate) fn wants_in(&self, second: u32) -> f64 {
        let since = self.wants.iter().take_while(|(from, _)| *from <= second).last();
        since.filter(|_| self.lives_in(second)).map_or(0.0, |(_, rate)| *rate)
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
const OBSERVED: u32 = 180;

pub(crate) const COUNT: usize = 6;

/// The scenarios that measure a rule, for so many workers.
pub(crate) fn all(workers: usize, rule: Rule, conditions: &NetworkConditions, fleet: Fleet) -> [Scenario; COUNT] {
    let insatiable = 2.0 * rule.maximum();
    let share = rule.cap() / share_count(workers);
    let little = 0.3 * share;
    let members = |member: &dyn Fn(usize) -> Member| (0..workers).map(member).collect::<Vec<_>>();
    let of = |worker, joins, wants| Member { kind: fleet.kind(worker), joins, dies: None, wants };
    let full = |worker, joins| of(worker, joins, vec![(joins, insatiable)]);
    // In a mixed fleet, a pair of workers has one of each kind.
    let pair = |worker: usize| worker / 2;
    let is_degraded = conditions.loss > 0.0;
    let scenario = |name, summary, nominal: [u32; 2], degraded: [u32; 2], members| Scenario {
        name,
        summary,
        rule,
        members,
        conditions: conditions.clone(),
        outage: 0..0,
        takeover: None,
        event: EVENT,
        settles_from: EVENT,
        length: EVENT + OBSERVED,
        goal: Some(Goal {
            settled: (if is_degraded { degraded } else { nominal }).map(Some),
            // A tenth of a second of the cap.
            overshoot: if is_degraded { rule.cap() / 10.0 } else { 0.0 },
            fairness: 0.99,
            utilisation: 0.97,
        }),
    };
    let surge = |name, summary, nominal, degraded, at| {
        let members = members(&|worker| of(worker, 0, vec![(0, little), (at, insatiable)]));
        scenario(name, summary, nominal, degraded, members)
    };
    let over = EVENT + OUTAGE;
    [
        Scenario {
            event: 0,
            settles_from: 0,
            length: OBSERVED,
            ..scenario(
                "cold start",
                "all start at once and want all that they can get",
                // The design has 3 s and 3 s, for an aggregator that begins when the workers do.
                [3, 6],
                [20, 24],
                members(&|worker| full(worker, 0)),
            )
        },
        surge(
            "surge",
            "a fleet that wanted three tenths of the cap wants all that it can get",
            [5, 12],
            [19, 24],
            EVENT,
        ),
        scenario(
            "half joins",
            "as many workers again join a fleet that is at the cap",
            [11, 16],
            [19, 23],
            members(&|worker| full(worker, if pair(worker) % 2 == 1 { EVENT } else { 0 })),
        ),
        Scenario {
            outage: EVENT..over,
            settles_from: over,
            length: over + OBSERVED,
            ..surge(
                "surge in outage",
                "the aggregator is down for two minutes, and the surge comes after the first",
                [1, 1],
                [3, 12],
                EVENT + OUTAGE / 2,
            )
        },
        scenario(
            "a quarter dies",
            "a quarter of a fleet at the cap dies and leaves its files",
            [63, 65],
            [64, 66],
            members(&|worker| Member { dies: (pair(worker) % 4 == 3).then_some(EVENT), ..full(worker, 0) }),
        ),
        Scenario {
            takeover: Some(EVENT),
            goal: None,
            ..surge(
                "surge at takeover",
                "another process of the aggregator takes over when the surge comes",
                [0, 0],
                [0, 0],
                EVENT,
            )
        },
    ]
}

#[expect(clippy::cast_precision_loss, reason = "a fleet has far fewer than 2^53 workers")]
const fn share_count(workers: usize) -> f64 {
    workers as f64
}
