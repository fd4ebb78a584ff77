//! EventBridge events: state changes of resources, and events that token-sweeper must reject.

use anyhow::Context as _;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cluster,
    Step,
    ServerlessJob,
    ContainersJob,
    GlueJob,
    Instance,
}

impl Kind {
    /// What the clients call it.
    pub(super) const fn name(self) -> &'static str {
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
    pub(super) fn id(self, number: usize) -> String {
        match self {
            Self::Cluster => format!("j-{number:013}"),
            Self::Step => format!("s-{number:013}"),
            Self::ServerlessJob => format!("00f{number:013}"),
            Self::ContainersJob => format!("{number:019}"),
            Self::GlueJob => format!("jr_{number:064x}"),
            Self::Instance => format!("i-{number:017x}"),
        }
    }

    /// Its source, its detail-type, and the key of its id.
    const fn told_by(self) -> (&'static str, &'static str, &'static str) {
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

    /// The event of its end, at a moment in epoch seconds. Of a Glue job run, it is its retry that ends.
    pub(super) fn end(self, number: usize, time: i64) -> anyhow::Result<String> {
        let ends = self.ends();
        let attempt = if self == Self::GlueJob { "_attempt_1" } else { "" };
        self.event(number, attempt, ends[number % ends.len()], time)
    }

    /// An event that is no end. The first attempt of a Glue job run fails.
    pub(super) fn running(self, number: usize, time: i64) -> anyhow::Result<String> {
        let state = match self {
            Self::GlueJob => "FAILED",
            Self::Instance => "running",
            _ => "RUNNING",
        };
        self.event(number, "", state, time)
    }

    fn event(self, number: usize, attempt: &str, state: &str, time: i64) -> anyhow::Result<String> {
        let (source, detail_type, key) = self.told_by();
        let id = format!("{}{attempt}", self.id(number));
        let detail = json!({"severity": "INFO", key: id, "state": state});
        envelope(number, source, detail_type, time, &detail)
    }
}

/// Invalid events, which take turns.
pub(super) fn stray(number: usize, time: i64) -> anyhow::Result<String> {
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

#[cfg(test)]
mod tests {
    use tidegate_aws::{
        event::BusEvent,
        processors::{Processors, Reading},
    };

    use super::*;

    const KINDS: [Kind; 6] =
        [Kind::Cluster, Kind::Step, Kind::ServerlessJob, Kind::ContainersJob, Kind::GlueJob, Kind::Instance];
    const TIME: i64 = 1_767_225_600;

    #[test]
    fn built_in_processors_understand_every_end_and_nothing_else() {
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
    fn nobody_understands_a_stray() {
        let processors = Processors::built_in().unwrap();
        for number in 0..4 {
            let body = stray(number, TIME).unwrap();
            assert!(BusEvent::parse(&body).map_or(true, |event| processors.read(&event).is_err()), "{body}");
        }
    }
}
