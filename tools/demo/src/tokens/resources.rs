//! The resources that clients start: how long each step takes, and the EventBridge events of their state changes.

use anyhow::Context as _;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster,
    Step,
    ServerlessJob,
    ContainersJob,
    GlueJob,
    Instance,
}

impl Kind {
    /// The resource name in the clients' tokens.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "clusters",
            Self::Step => "steps",
            Self::ServerlessJob => "serverless-jobs",
            Self::ContainersJob => "containers-jobs",
            Self::GlueJob => "glue-jobs",
            Self::Instance => "instances",
        }
    }

    /// The id of the resource with this number.
    pub(crate) fn id(self, number: usize) -> String {
        match self {
            Self::Cluster => format!("j-{number:013}"),
            Self::Step => format!("s-{number:013}"),
            Self::ServerlessJob => format!("00f{number:013}"),
            Self::ContainersJob => format!("{number:019}"),
            Self::GlueJob => format!("jr_{number:064x}"),
            Self::Instance => format!("i-{number:017x}"),
        }
    }

    /// The source and detail-type of its events, and the key of its id.
    const fn event_pattern(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Cluster => ("aws.emr", "EMR Cluster State Change", "clusterId"),
            Self::Step => ("aws.emr", "EMR Step Status Change", "stepId"),
            Self::ServerlessJob => ("aws.emr-serverless", "EMR Serverless Job Run State Change", "jobRunId"),
            Self::ContainersJob => ("aws.emr-containers", "EMR Job Run State Change", "id"),
            Self::GlueJob => ("aws.glue", "Glue Job State Change", "jobRunId"),
            Self::Instance => ("aws.ec2", "EC2 Instance State-change Notification", "instance-id"),
        }
    }

    const fn ends(self) -> &'static [&'static str] {
        match self {
            Self::Cluster => &["TERMINATED", "TERMINATED_WITH_ERRORS"],
            Self::Step => &["COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED"],
            Self::ServerlessJob => &["SUCCESS", "FAILED", "CANCELLED"],
            Self::ContainersJob => &["COMPLETED", "FAILED", "CANCELLED"],
            Self::GlueJob => &["SUCCEEDED", "TIMEOUT", "STOPPED"],
            Self::Instance => &["terminated"],
        }
    }

    /// The event of its end, at a time in epoch seconds. A Glue job run ends with its retry.
    pub(crate) fn end(self, number: usize, time: i64) -> anyhow::Result<String> {
        let ends = self.ends();
        let attempt = if self == Self::GlueJob { "_attempt_1" } else { "" };
        self.event(number, attempt, ends[number % ends.len()], time)
    }

    /// An event that is not its end. The first attempt of a Glue job run fails.
    pub(crate) fn running(self, number: usize, time: i64) -> anyhow::Result<String> {
        let state = match self {
            Self::GlueJob => "FAILED",
            Self::Instance => "running",
            _ => "RUNNING",
        };
        self.event(number, "", state, time)
    }

    fn event(self, number: usize, attempt: &str, state: &str, time: i64) -> anyhow::Result<String> {
        let (source, detail_type, key) = self.event_pattern();
        let id = format!("{}{attempt}", self.id(number));
        let detail = json!({"severity": "INFO", key: id, "state": state});
        envelope(number, source, detail_type, time, &detail)
    }
}

/// Invalid events, which take turns.
pub(crate) fn stray(number: usize, time: i64) -> anyhow::Result<String> {
    match number % 4 {
        0 => envelope(number, "my.jobs", "Job Ended", time, &json!({"id": number.to_string()})),
        1 => envelope(number, "aws.emr", "EMR Cluster State Change", time, &json!({"state": "TERMINATED"})),
        2 => Ok(json!({"detail-type": "EMR Cluster State Change", "detail": {"state": "TERMINATED"}}).to_string()),
        _ => Ok("not JSON".to_owned()),
    }
}

fn envelope(number: usize, source: &str, detail_type: &str, time: i64, detail: &Value) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_second(time).context("an event's time")?;
    let event = json!({
        "version": "0",
        "id": format!("00000000-0000-4000-8000-{number:012}"),
        "detail-type": detail_type,
        "source": source,
        "account": "123456789012",
        "time": time.to_string(),
        "region": "us-east-1",
        "resources": [],
        "detail": detail,
    });
    Ok(event.to_string())
}

/// Seconds after which a token expires.
pub(crate) const HELD: i64 = 7_200;
/// Seconds after which the token of a resource that outlives the run expires.
pub(crate) const HELD_FOR_LONG: i64 = 90 * 86_400;
/// The most seconds between a resource's end and the writing of its token.
const SLOWEST_WRITE: i64 = 100;

/// The scenario of a reservation. Scenarios take turns, so each occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    Plain,
    /// The resource ends before its token is written.
    Early,
    /// The event comes minutes later.
    Late,
    /// The event is lost.
    Lost,
    /// The event is delivered more than once.
    Repeated,
    /// The resource ends soon, and the client uses the same reservation for another one.
    Reused,
    /// The client starts nothing.
    Abandoned,
}

/// The seconds between the steps of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// From the reservation to the start of the resource.
    pub(crate) start: i64,
    /// From the start to the write of the token.
    pub(crate) write: i64,
    /// From the start to the end of the resource.
    pub(crate) end: i64,
    /// From the end to each delivery of its event.
    pub(crate) event_delays: Vec<i64>,
}

impl Scenario {
    pub(crate) const fn of(turn: usize) -> Self {
        match turn % 20 {
            2 | 11 => Self::Early,
            4 => Self::Late,
            6 => Self::Lost,
            8 | 13 | 17 => Self::Repeated,
            15 => Self::Reused,
            18 => Self::Abandoned,
            _ => Self::Plain,
        }
    }
}

impl Timing {
    pub(crate) fn draw(scenario: Scenario, rng: &mut StdRng) -> Self {
        let (start, soon) = (rng.random_range(1..20), rng.random_range(1..5));
        let (write, end) = match scenario {
            Scenario::Early => {
                let end = rng.random_range(1..10);
                (end + rng.random_range(1..=SLOWEST_WRITE), end)
            }
            Scenario::Reused => (rng.random_range(1..5), rng.random_range(6..30)),
            _ => (rng.random_range(1..20), rng.random_range(60..1_200)),
        };
        let event_delays = match scenario {
            Scenario::Late => vec![rng.random_range(300..1_200)],
            Scenario::Lost => vec![],
            Scenario::Repeated => vec![soon, soon + rng.random_range(0..5), soon + rng.random_range(5..600)],
            _ => vec![soon],
        };
        Self { start, write, end, event_delays }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng as _;
    use tidegate_aws::{
        event::BusEvent,
        processors::{Processors, Reading},
    };
    use tidegate_domain::sweep::{Outcome, Removals, decide};
    use token_sweeper::config::Config;

    use super::*;
    use crate::tokens::{
        client::RESERVED,
        sweeper::{MAX_RECEIVES, VISIBILITY},
    };

    const KINDS: [Kind; 6] =
        [Kind::Cluster, Kind::Step, Kind::ServerlessJob, Kind::ContainersJob, Kind::GlueJob, Kind::Instance];
    const TIME: i64 = 1_767_225_600;

    #[test]
    fn built_in_processors_read_only_ends() {
        let processors = Processors::built_in().unwrap();
        let is_end = |body: &str, id: &str| {
            let event = BusEvent::parse(body).unwrap();
            assert_eq!(event.time().unwrap().get(), TIME * 1000);
            matches!(processors.read(&event).unwrap(), Reading::Ended { resource, .. } if resource == id)
        };
        for (kind, number) in KINDS.into_iter().flat_map(|kind| (0..4).map(move |number| (kind, number))) {
            assert!(is_end(&kind.end(number, TIME).unwrap(), &kind.id(number)), "{kind:?} {number}");
            assert!(!is_end(&kind.running(number, TIME).unwrap(), &kind.id(number)), "{kind:?} {number}");
        }
    }

    #[test]
    fn strays_are_rejected() {
        let processors = Processors::built_in().unwrap();
        for number in 0..4 {
            let body = stray(number, TIME).unwrap();
            assert!(BusEvent::parse(&body).map_or(true, |event| processors.read(&event).is_err()), "{body}");
        }
    }

    #[test]
    fn timings_fit_expiry_visibility_and_grace() {
        let config = Config::read(|name| (name == "LIMITER_TABLES_BASE_NAME").then(|| "demo".to_owned())).unwrap();
        for turn in 0..2_000 {
            let timing = Timing::draw(Scenario::of(turn), &mut StdRng::seed_from_u64(turn as u64));
            assert!(timing.start + timing.write < RESERVED, "{timing:?}");
            assert!(timing.start + timing.end < HELD, "{timing:?}");
            let age = Duration::from_secs((timing.write - timing.end).try_into().unwrap_or_default());
            assert_eq!(decide(&Removals::default(), age, config.grace), Outcome::Early, "{timing:?}");
        }
        let grace = i64::try_from(config.grace.as_secs()).unwrap();
        assert!(i64::from(MAX_RECEIVES - 1) * VISIBILITY > grace);
    }

    #[test]
    fn only_an_early_end_comes_before_its_token() {
        for turn in 0..200 {
            let (scenario, mut rng) = (Scenario::of(turn), StdRng::seed_from_u64(turn as u64));
            let timing = Timing::draw(scenario, &mut rng);
            // The timing of an abandoned reservation is not used.
            if scenario == Scenario::Early {
                assert!(timing.end < timing.write);
            } else if scenario == Scenario::Reused {
                assert!(timing.write < timing.end);
            }
            assert_eq!(timing.event_delays.is_empty(), scenario == Scenario::Lost);
            assert_eq!(timing.event_delays.len() > 1, scenario == Scenario::Repeated);
        }
    }
}
