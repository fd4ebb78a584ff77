//! The eight designs of AWS's article [Handle traffic spikes with Amazon DynamoDB provisioned capacity][article].
//!
//! The spike is a job that adds 14,000 write units a second to the users' 4,000. The article leaves some of it open. These
//! are assumptions:
//!
//! - *On demand*: the table is new in the morning, and has not had the job before. `--warm` gives it more warm throughput.
//! - *Accepted throttles*: the maximum of the scalable target is too low for the spike. It saves capacity, and the job takes
//!   longer.
//!
//! [article]: https://aws.amazon.com/blogs/database/handle-traffic-spikes-with-amazon-dynamodb-provisioned-capacity/

use super::traffic::{JOB_RATE, MINUTE, Step};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Design {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) mode: Mode,
    /// How fast the job goes.
    pub(crate) pace: &'static [Step],
    pub(crate) expectation: Expectation,
}

/// The capacity mode of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Provisioned {
        /// The target utilization, in percent.
        utilization: u32,
        maximum: u64,
        preparation: Preparation,
    },
    OnDemand,
}

/// What raises the minimum of the scalable target for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    Nothing,
    /// A scheduled action, before the job.
    Schedule,
    /// The announcement of the job, which waits until the table is ready.
    Announcement,
}

/// What the article says about a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Throttles begin about four minutes after the jump, and end when the capacity reaches about 26,000.
    BurstUsedUp,
    NoThrottles,
    /// The highest provisioned capacity is about 20,000.
    LowPeak,
    /// The article gives no number.
    Any,
}

/// The minimum that the owner of the table has set.
pub(crate) const MINIMUM: u64 = 1_000;
/// The maximum of the scalable target: the default quota of a table.
///
/// AWS: [throughput quotas](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html).
const MAXIMUM: u64 = 40_000;
/// A maximum that is too low for the spike.
const LOW_MAXIMUM: u64 = 16_000;
/// A scheduled action runs so many seconds before the job.
pub(crate) const SCHEDULED_AHEAD: u32 = 2 * MINUTE;

const UNLIMITED: &[Step] = &[(0, JOB_RATE)];
/// With the users, 14,000 write units a second.
const SELF_THROTTLED: &[Step] = &[(0, 10_000)];
/// With the users, 9,000, 14,000 and 18,000 write units a second.
const SLOW_START: &[Step] = &[(0, 5_000), (5 * MINUTE, 10_000), (10 * MINUTE, JOB_RATE)];

const AUTO_SCALING: Mode = Mode::Provisioned { utilization: 70, maximum: MAXIMUM, preparation: Preparation::Nothing };

/// In the order of the article.
pub(crate) const ALL: [Design; 8] = [
    Design {
        name: "auto scaling, 70 %",
        summary: "the job starts at once",
        mode: AUTO_SCALING,
        pace: UNLIMITED,
        expectation: Expectation::BurstUsedUp,
    },
    Design {
        name: "auto scaling, 60 %",
        summary: "the job starts at once, and the table has more capacity and burst capacity",
        mode: Mode::Provisioned { utilization: 60, maximum: MAXIMUM, preparation: Preparation::Nothing },
        pace: UNLIMITED,
        expectation: Expectation::NoThrottles,
    },
    Design {
        name: "on demand",
        summary: "the job starts at once; the line is the warm throughput",
        mode: Mode::OnDemand,
        pace: UNLIMITED,
        expectation: Expectation::Any,
    },
    Design {
        name: "self-throttling",
        summary: "the job never exceeds 10,000 write units a second",
        mode: AUTO_SCALING,
        pace: SELF_THROTTLED,
        expectation: Expectation::LowPeak,
    },
    Design {
        name: "slow start",
        summary: "the job begins with 5,000 write units a second, and has 14,000 after ten minutes",
        mode: AUTO_SCALING,
        pace: SLOW_START,
        expectation: Expectation::NoThrottles,
    },
    Design {
        name: "schedule",
        summary: "a scheduled action raises the minimum two minutes before the job",
        mode: Mode::Provisioned { utilization: 70, maximum: MAXIMUM, preparation: Preparation::Schedule },
        pace: UNLIMITED,
        expectation: Expectation::NoThrottles,
    },
    Design {
        name: "coordinator",
        summary: "the job announces itself, and starts when the table is ready",
        mode: Mode::Provisioned { utilization: 70, maximum: MAXIMUM, preparation: Preparation::Announcement },
        pace: UNLIMITED,
        expectation: Expectation::NoThrottles,
    },
    Design {
        name: "accepted throttles",
        summary: "the maximum is 16,000, and the job repeats what is throttled",
        mode: Mode::Provisioned { utilization: 70, maximum: LOW_MAXIMUM, preparation: Preparation::Nothing },
        pace: UNLIMITED,
        expectation: Expectation::Any,
    },
];
