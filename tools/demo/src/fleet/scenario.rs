//! Who wants how much from when on, and what S3 and the aggregator are like meanwhile.

use std::{ops::Range, time::Duration};

use super::rule::Rule;

/// A fleet, what happens to it, and where to look. Times are whole seconds from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub name: &'static str,
    /// What happens, in a line.
    pub summary: &'static str,
    /// The rule by which the workers work.
    pub rule: Rule,
    /// Those who consume.
    pub members: Vec<Member>,
    /// What S3 is like, and the machines.
    pub weather: NetworkConditions,
    /// When the aggregator is down; an empty range if never.
    pub outage: Range<u32>,
    /// When that begins which is to be seen: overshoot and utilisation are measured from here on.
    pub event: u32,
    /// When the fleet can begin to settle: after an outage, for instance.
    pub settles_from: u32,
    /// When it ends.
    pub length: u32,
}

/// One who consumes: a worker, or several of them, each after the one before has died.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// When its first worker starts.
    pub joins: u32,
    /// What it wants, in capacity units a second, by the second from which on it does; before the first one, nothing.
    pub wants: Vec<(u32, f64)>,
}

/// What S3 is like, and the machines on which the workers run.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConditions {
    pub name: &'static str,
    /// How long a call takes, each time within these bounds being as likely.
    pub delay: Range<Duration>,
    /// The probability that a call fails, having done nothing.
    pub loss: f64,
    /// How far a worker's clock is from the aggregator's at most, before or behind.
    pub skew: Duration,
    /// Every so many seconds a worker dies, without cleaning up, and one with a new name takes its place: until the old
    /// report is stale, it counts twice. 0 if none ever dies.
    pub deaths_every: u32,
    /// Reports that an earlier fleet has left behind, just before the start: each of a worker at its maximum.
    pub leftovers: usize,
}

impl NetworkConditions {
    /// S3 as it is on most days, and clocks that are right.
    pub const fn fair() -> Self {
        Self {
            name: "fair",
            delay: Duration::from_millis(20)..Duration::from_millis(80),
            loss: 0.0,
            skew: Duration::ZERO,
            deaths_every: 0,
            leftovers: 0,
        }
    }

    /// Calls take up to two seconds, one in ten fails, clocks are two seconds off, a worker dies every minute, and five
    /// reports were left behind.
    pub const fn foul() -> Self {
        Self {
            name: "foul",
            delay: Duration::from_millis(50)..Duration::from_secs(2),
            loss: 0.1,
            skew: Duration::from_secs(2),
            deaths_every: 60,
            leftovers: 5,
        }
    }
}

impl Member {
    /// What it wants in this second.
    pub fn wants_in(&self, second: u32) -> f64 {
        let since = self.wants.iter().take_while(|(from, _)| *from <= second).last();
        since.filter(|_| self.joins <= second).map_or(0.0, |(_, rate)| *rate)
    }
}

impl Scenario {
    /// What each member could use in this second, were it alone.
    pub fn demand(&self, second: u32) -> Vec<f64> {
        self.members.iter().map(|member| member.wants_in(second).min(self.rule.maximum())).collect()
    }

    /// What the fleet should consume in this second: the cap, or what it could use, if that is less.
    pub fn aim(&self, second: u32) -> f64 {
        self.demand(second).into_iter().sum::<f64>().min(self.rule.cap())
    }
}

/// The scenarios that a rule is measured by, for a fleet of `workers`.
pub fn all(workers: usize, rule: Rule, weather: &NetworkConditions) -> Vec<Scenario> {
    let insatiable = 2.0 * rule.maximum();
    let share = rule.cap() / share_count(workers);
    let little = 0.3 * share;
    let members = |member: &dyn Fn(usize) -> Member| (0..workers).map(member).collect::<Vec<_>>();
    let scenario = |name, summary, members| Scenario {
        name,
        summary,
        rule,
        members,
        weather: weather.clone(),
        outage: 0..0,
        event: EVENT,
        settles_from: EVENT,
        length: EVENT + SEEN,
    };
    let full = |joins| Member { joins, wants: vec![(joins, insatiable)] };
    let half = |worker: usize| worker % 2 == 1;
    vec![
        Scenario {
            event: 0,
            settles_from: 0,
            length: SEEN,
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
        down(scenario("outage", "the aggregator is down for two minutes", members(&|_| full(0)))),
        down(scenario(
            "surge in outage",
            "the aggregator is down for two minutes, and the surge comes after the first",
            members(&|_| Member { joins: 0, wants: vec![(0, little), (EVENT + OUTAGE / 2, insatiable)] }),
        )),
    ]
}

fn down(scenario: Scenario) -> Scenario {
    let over = EVENT + OUTAGE;
    Scenario { outage: EVENT..over, settles_from: over, length: over + SEEN, ..scenario }
}

/// When it happens, in seconds: a fleet has long settled then, if it ever does.
const EVENT: u32 = 120;
/// How long the aggregator is down, in seconds.
const OUTAGE: u32 = 120;
/// How long a fleet is looked at, in seconds, once it can settle.
const SEEN: u32 = 300;

#[expect(clippy::cast_precision_loss, reason = "a fleet has far fewer than 2^53 workers")]
const fn share_count(workers: usize) -> f64 {
    workers as f64
}
