//! The answers of the function `capacity-coordinator`, from its JSON. Keys that are not known are ignored.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tidegate_domain::throttle::CapacityKind;

/// The answer to an announcement.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Announced {
    pub(super) ready: bool,
    pub(super) provisioned: Option<u64>,
    #[serde(with = "epoch_seconds")]
    pub(super) until: SystemTime,
    pub(super) retry_after_seconds: Option<u64>,
    #[serde(default)]
    pub(super) targets: Vec<AnnouncedTarget>,
    #[serde(default)]
    pub(super) dry_run: bool,
}

impl Announced {
    /// Returns when the function expects the capacity. `None` if waiting does not help.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        // A dry run raises nothing.
        self.retry_after_seconds.filter(|_| !self.dry_run).map(Duration::from_secs)
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Released {
    pub(super) released: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) announcements: Vec<ListedAnnouncement>,
}

/// A table or an index that an announcement is for. In JSON, it has the function's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnnouncedTarget {
    /// The table or the index, such as `table/orders` or `table/orders/index/by-date`.
    pub resource: String,
    /// What the target needs, in capacity units a second: for all announcements in force and the consumption.
    pub needed: u64,
    /// What the target has.
    #[serde(flatten)]
    pub capacity: TargetCapacity,
}

/// What a target of an announcement has, in capacity units a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TargetCapacity {
    /// The table has provisioned capacity.
    Provisioned {
        /// The minimum of the scalable target.
        minimum: u64,
        /// What the table provides now.
        provisioned: u64,
        /// The maximum of the scalable target.
        maximum: u64,
        /// Whether the target's utilization would need more than the maximum.
        #[serde(default)]
        limited_by_maximum: bool,
    },
    /// The table is on-demand.
    OnDemand {
        /// The warm throughput, which the table serves at once.
        warm: u64,
        /// What the warm throughput lacks.
        missing: u64,
        /// What raising the warm throughput costs once, in US dollars.
        price_usd: f64,
    },
}

/// An announcement in force. In JSON, it has the function's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedAnnouncement {
    /// The id.
    pub id: String,
    /// The [caller](super::AnnounceBuilder::caller) that made it. Empty if it did not say.
    pub caller: String,
    /// The tables and indexes.
    pub resources: Vec<String>,
    /// Whether it is for reads or for writes.
    #[serde(rename = "dimension", with = "kind")]
    pub kind: CapacityKind,
    /// Capacity units a second.
    pub units: u64,
    /// When it ends.
    #[serde(with = "epoch_seconds")]
    pub until: SystemTime,
    /// Whether the capacity was there when it was announced last.
    pub ready: bool,
}

/// What a table or an index provides and needs. In JSON, it has the function's keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TargetStatus {
    /// The table or the index, such as `table/orders` or `table/orders/index/by-date`.
    pub resource: String,
    /// Whether this is about reads or about writes.
    #[serde(rename = "dimension", with = "kind")]
    pub kind: CapacityKind,
    /// What was consumed in the last complete minute, in capacity units a second.
    pub consumption: u64,
    /// What the announcements in force need together, in capacity units a second.
    pub announced: u64,
    /// The capacity that both need, in capacity units a second.
    pub needed: u64,
    /// The ids of the announcements in force.
    pub announcements: Vec<String>,
    /// What the target has.
    #[serde(flatten)]
    pub capacity: StatusCapacity,
}

/// What a target has, in capacity units a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StatusCapacity {
    /// The table has provisioned capacity.
    Provisioned {
        /// The minimum of the scalable target.
        minimum: u64,
        /// The minimum that the owner has set.
        owner_minimum: u64,
        /// The maximum of the scalable target.
        maximum: u64,
        /// The target utilization of the scaling policy, in percent.
        target_utilization: f64,
        /// What the table provides now.
        provisioned: u64,
    },
    /// The table is on-demand.
    OnDemand {
        /// The warm throughput, which the table serves at once.
        warm: u64,
    },
}

/// Reads and writes as the function names them.
pub(super) mod kind {
    use serde::{Deserialize, Deserializer, Serializer};
    use tidegate_domain::throttle::CapacityKind;

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Dimension {
        Read,
        Write,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(in super::super) fn serialize<S: Serializer>(kind: &CapacityKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(kind)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CapacityKind, D::Error> {
        Ok(match Dimension::deserialize(deserializer)? {
            Dimension::Read => CapacityKind::Read,
            Dimension::Write => CapacityKind::Write,
        })
    }
}

/// A moment in whole seconds since 1970.
mod epoch_seconds {
    use serde::{Deserializer, Serializer, de::Error as _};

    use super::{Deserialize as _, Duration, SystemTime, UNIX_EPOCH};

    pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        // The moments of this crate are read by `deserialize`, so they are after 1970.
        serializer.serialize_u64(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let seconds = u64::deserialize(deserializer)?;
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        time.ok_or_else(|| D::Error::custom(format_args!("{seconds} seconds after 1970 are no moment")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn announced(answer: Value) -> Announced {
        serde_json::from_value(answer).unwrap()
    }

    #[test]
    fn answers_to_announcements_are_read() {
        let provisioned = json!({
            "resource": "table/orders", "mode": "provisioned", "minimum": 18_000, "provisioned": 18_000,
            "needed": 18_000, "maximum": 40_000,
        });
        let ready = announced(json!({
            "id": "load-42", "ready": true, "provisioned": 18_000, "until": 1_795_348_805_u64, "targets": [provisioned],
        }));
        assert!(ready.ready && !ready.dry_run && ready.retry_after_seconds.is_none());
        assert_eq!(ready.until, UNIX_EPOCH + Duration::from_secs(1_795_348_805));
        let (minimum, provisioned, maximum) = (18_000, 18_000, 40_000);
        let capacity = TargetCapacity::Provisioned { minimum, provisioned, maximum, limited_by_maximum: false };
        let expect = AnnouncedTarget { resource: "table/orders".to_owned(), needed: 18_000, capacity };
        assert_eq!(ready.targets, [expect]);

        let on_demand = json!({
            "resource": "table/orders", "mode": "on-demand", "warm": 4_000, "needed": 18_000, "missing": 14_000,
            "price_usd": 9.1,
        });
        let answer =
            announced(json!({"id": "a", "ready": false, "provisioned": null, "until": 5, "targets": [on_demand]}));
        assert_eq!((answer.ready, answer.provisioned), (false, None));
        let expect = TargetCapacity::OnDemand { warm: 4_000, missing: 14_000, price_usd: 9.1 };
        assert_eq!(answer.targets[0].capacity, expect);
    }

    #[test]
    fn lists_and_states_are_read_and_written_alike() {
        let listed = json!({
            "id": "load-42", "caller": "etl", "resources": ["table/orders"], "dimension": "write", "units": 4_000,
            "until": 1_795_348_800_u64, "ready": true,
        });
        let read: ListedAnnouncement = serde_json::from_value(listed.clone()).unwrap();
        assert_eq!((read.kind, read.units), (CapacityKind::Write, 4_000));
        assert_eq!(serde_json::to_value(read).unwrap(), listed);

        let status = json!({
            "resource": "table/orders", "dimension": "read", "mode": "provisioned", "minimum": 18_000,
            "owner_minimum": 5, "maximum": 40_000, "target_utilization": 70.0, "provisioned": 18_000,
            "consumption": 8_600, "announced": 4_000, "needed": 18_000, "announcements": ["load-42"],
        });
        let read: TargetStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), status);
        let on_demand = json!({
            "resource": "table/orders", "dimension": "read", "mode": "on-demand", "warm": 4_000, "consumption": 10,
            "announced": 0, "needed": 10, "announcements": [],
        });
        let read: TargetStatus = serde_json::from_value(on_demand).unwrap();
        assert_eq!(read.capacity, StatusCapacity::OnDemand { warm: 4_000 });
    }

    #[test]
    fn wrong_answers_are_errors_that_name_the_value() {
        let check = |answer: Value, expect: &str| {
            let error = serde_json::from_value::<Announced>(answer).unwrap_err().to_string();
            assert!(error.contains(expect), "{error:?} does not contain {expect:?}");
        };
        check(json!({"id": "a", "until": 5}), "`ready`");
        check(json!({"id": "a", "ready": "yes", "until": 5}), "\"yes\"");
        check(json!({"id": "a", "ready": true, "until": u64::MAX}), "18446744073709551615 seconds");
        let target = json!({"resource": "table/a", "mode": "mixed", "needed": 5});
        check(json!({"id": "a", "ready": true, "until": 5, "targets": [target]}), "mixed");
    }
}
