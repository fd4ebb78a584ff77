//! `capacity-coordinator`: raises the minimum of a table's scalable target before announced work starts, and restores the
//! owner's minimum afterwards.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with |
//! | [`handler`] | the story of one invocation |
//! | `announce` | accepts an announcement, and has the minimum raised |
//! | `goal` | the capacity that an announcement waits for |
//! | `target` | what is known of a target: its table, its consumption, its scalable target |
//! | `settle` | brings the minimum of a target in line with the announcements in force |
//! | `restore` | settles all targets, and deletes what has ended |
//! | `time` | the time of an invocation |
//! | `view` | the announcements in force, and the state of a target |
//! | [`answer`] | what the function answers |
//! | [`failure`] | why a request fails |
//! | [`report`] | what an invocation did, in numbers |

use std::time::Duration;

use tidegate_aws::{
    announcements::Announcements,
    client::{self, SdkConfig},
    consumption::Consumption,
    scaling::ScalableTargets,
    table_capacity::TableCapacity,
};

use self::config::Config;

mod announce;
pub mod answer;
pub mod config;
pub mod event;
pub mod failure;
mod goal;
pub mod handler;
pub mod report;
mod restore;
mod settle;
mod target;
mod time;
mod view;

/// How long the function waits before it looks at a table again.
const POLL: Duration = Duration::from_secs(1);

/// The function: its state, and what it reads and scales.
#[derive(Clone, Debug)]
pub struct CapacityCoordinator {
    announcements: Announcements,
    tables: TableCapacity,
    scaling: ScalableTargets,
    consumption: Consumption,
    config: Config,
    poll: Duration,
}

/// The clients of the services.
#[derive(Clone, Debug)]
pub struct Services {
    /// For the state table.
    pub state: client::DynamoDb,
    /// For the tables that are scaled.
    pub tables: client::DynamoDb,
    pub scaling: client::ApplicationAutoScaling,
    pub metrics: client::CloudWatch,
}

impl Services {
    /// Makes the clients of an account.
    pub fn new(sdk: &SdkConfig) -> Self {
        Self {
            state: client::dynamodb(sdk),
            tables: client::control_plane(sdk),
            scaling: client::application_auto_scaling(sdk),
            metrics: client::cloudwatch(sdk),
        }
    }
}

impl CapacityCoordinator {
    /// Creates the function as it is configured.
    pub fn new(config: Config, services: &Services) -> Self {
        Self {
            announcements: Announcements::new(services.state.clone(), &config.state_table),
            tables: TableCapacity::new(services.tables.clone()),
            scaling: ScalableTargets::new(services.scaling.clone()),
            consumption: Consumption::new(services.metrics.clone()),
            config,
            poll: POLL,
        }
    }

    /// Looks at a table more or less often while it waits.
    pub fn polling_every(self, poll: Duration) -> Self {
        Self { poll, ..self }
    }
}
