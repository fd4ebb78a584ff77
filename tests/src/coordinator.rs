//! `capacity-coordinator` on an embedded state table and an embedded control plane of tables.

use aws_sdk_dynamodb::types::ProvisionedThroughput;
use capacity_coordinator::{
    CapacityCoordinator, Services, answer::Answer, config::Config, event::Event, failure::Failure,
    report::CoordinatorReport,
};
use serde_json::{Value, json};
use tidegate_aws::{client, table};
use tidegate_domain::{throttle::CapacityKind, time::EpochMillis};
use tidegate_sandbox::{
    capacity::{Account, EmbeddedCapacity},
    dynamodb::EmbeddedDynamoDb,
    faults::{FaultRates, FaultyHttp, sdk_config},
};
use tokio::time::{Duration, Instant};

use crate::in_time;

/// What the scenarios of `capacity-coordinator` use.
pub mod prelude {
    pub use capacity_coordinator::CapacityCoordinator;
    pub use tidegate_domain::throttle::CapacityKind::{self, Read, Write};
    pub use tidegate_sandbox::{
        capacity::{Account, Call, Fault as CallFault},
        gate::Gate,
    };

    pub use super::{CoordinatorScene, INDEX, NEEDED, OWNERS, TABLE, announce, release, restore};
    pub use crate::prelude::*;
}

/// When the scenarios begin: 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
const STATE_TABLE: &str = "tidegate-test-announcements";
/// How often the function looks at a table that it waits for.
const POLL: Duration = Duration::from_millis(5);

/// The resource name of the table.
pub const TABLE: &str = "table/orders";
/// The resource name of its index.
pub const INDEX: &str = "table/orders/index/by-date";
/// The minimum that the owner has set.
pub const OWNERS: u64 = 5;
/// What 14,000 announced units need beside a consumption of 4,000.
pub const NEEDED: u64 = 25_715;

/// The function, its state table, and a table `orders` with 8,000 provisioned units, of which 4,000 are consumed.
#[derive(Debug)]
pub struct CoordinatorScene {
    dynamodb: EmbeddedDynamoDb,
    control_plane: EmbeddedCapacity,
    /// The function's connection to its state table.
    pub http: FaultyHttp,
    pub coordinator: CapacityCoordinator,
}

impl CoordinatorScene {
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// Calls of the function to its state table meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let (dynamodb, control_plane) = (EmbeddedDynamoDb::start(None).await?, EmbeddedCapacity::start().await?);
        let undisturbed = client::dynamodb(&sdk_config(dynamodb.endpoint(), FaultyHttp::undisturbed()));
        table::create_announcements(&undisturbed, STATE_TABLE).await?;
        let account = control_plane.account();
        account.create_provisioned("orders", 100, 8_000);
        account.create_index("orders", "by-date", 100, 8_000)?;
        for resource in [TABLE, INDEX] {
            account.register(resource, CapacityKind::Write, OWNERS, 40_000)?;
            account.put_policy(resource, CapacityKind::Write, 70.0)?;
            account.consumes(resource, CapacityKind::Write, 4_000.0);
        }
        account.take_calls();
        let http = FaultyHttp::new(rates, seed);
        let coordinator = process(&dynamodb, &control_plane, &http, &[])?;
        Ok(Self { dynamodb, control_plane, http, coordinator })
    }

    pub fn account(&self) -> &Account {
        self.control_plane.account()
    }

    /// Changes the provisioned capacity as the owner does.
    pub async fn update_writes(&self, units: i64) -> anyhow::Result<()> {
        let client = client::dynamodb(&sdk_config(self.control_plane.endpoint(), FaultyHttp::undisturbed()));
        let throughput = ProvisionedThroughput::builder().read_capacity_units(100).write_capacity_units(units);
        client.update_table().table_name("orders").provisioned_throughput(throughput.build()?).send().await?;
        Ok(())
    }

    /// Another process of the function, with these variables beside the tables' names, and a connection without faults.
    pub fn process(&self, variables: &[(&str, &str)]) -> anyhow::Result<CapacityCoordinator> {
        process(&self.dynamodb, &self.control_plane, &FaultyHttp::undisturbed(), variables)
    }

    pub fn minimum(&self) -> Option<u64> {
        self.account().minimum(TABLE, CapacityKind::Write)
    }

    /// Invokes the function so many seconds after the start.
    pub async fn invoke(&self, event: Value, second: i64) -> Result<Value, Failure> {
        invoke(&self.coordinator, event, second, in_time()).await
    }

    /// Announces 14,000 write units of the table for ten minutes.
    pub async fn announce(&self, id: &str, second: i64) -> anyhow::Result<Value> {
        Ok(self.invoke(announce(id, &json!({})), second).await?)
    }

    /// Does the same, and returns what the function reports.
    pub async fn report(&self, id: &str, second: i64) -> anyhow::Result<CoordinatorReport> {
        let now = moment(second);
        Ok(report_of(&self.coordinator, announce(id, &json!({})), now, in_time()).await?.1)
    }

    /// Does what the schedule does.
    pub async fn restore(&self, second: i64) -> anyhow::Result<Value> {
        Ok(self.invoke(restore(), second).await?)
    }

    /// The number of items in the state table.
    pub async fn items(&self) -> anyhow::Result<usize> {
        let client = client::dynamodb(&sdk_config(self.dynamodb.endpoint(), FaultyHttp::undisturbed()));
        let scan = client.scan().table_name(STATE_TABLE).consistent_read(true).send().await?;
        Ok(scan.items.unwrap_or_default().len())
    }
}

fn process(
    dynamodb: &EmbeddedDynamoDb,
    control_plane: &EmbeddedCapacity,
    http: &FaultyHttp,
    variables: &[(&str, &str)],
) -> anyhow::Result<CapacityCoordinator> {
    let mut services = Services::new(&sdk_config(control_plane.endpoint(), FaultyHttp::undisturbed()));
    services.state = client::dynamodb(&sdk_config(dynamodb.endpoint(), http.clone()));
    process_on(&services, variables)
}

/// A process of the function on these services, with these variables beside the tables' names.
pub fn process_on(services: &Services, variables: &[(&str, &str)]) -> anyhow::Result<CapacityCoordinator> {
    let known = [("STATE_TABLE", STATE_TABLE), ("TABLES", "orders,customers,gone")];
    let all: Vec<_> = known.iter().chain(variables).collect();
    let config = Config::read(|name| all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))?;
    Ok(CapacityCoordinator::new(config, services).polling_every(POLL))
}

/// Invokes a process so many seconds after the start. The answer is JSON, as Lambda returns it.
pub async fn invoke(
    coordinator: &CapacityCoordinator,
    event: Value,
    second: i64,
    deadline: Instant,
) -> Result<Value, Failure> {
    invoke_at(coordinator, event, moment(second), deadline).await
}

fn moment(second: i64) -> EpochMillis {
    EpochMillis::EPOCH.after(Duration::from_millis((START + second * 1_000).unsigned_abs()))
}

/// Invokes a process at the moment `now`.
pub async fn invoke_at(
    coordinator: &CapacityCoordinator,
    event: Value,
    now: EpochMillis,
    deadline: Instant,
) -> Result<Value, Failure> {
    let (answer, _) = report_of(coordinator, event, now, deadline).await?;
    Ok(serde_json::to_value(answer).unwrap_or_default())
}

/// The same, with what the function reports.
async fn report_of(
    coordinator: &CapacityCoordinator,
    event: Value,
    now: EpochMillis,
    deadline: Instant,
) -> Result<(Answer, CoordinatorReport), Failure> {
    let mut report = CoordinatorReport::default();
    let answer = Box::pin(coordinator.handle(Event::try_from(event)?, now, deadline, &mut report)).await?;
    Ok((answer, report))
}

/// A request for 14,000 write units of the table for ten minutes, with these changes.
pub fn announce(id: &str, changes: &Value) -> Value {
    let mut event = json!({
        "action": "announce", "id": id, "table": "orders", "dimension": "write", "units": 14_000, "for_seconds": 600,
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        event[key] = value.clone();
    }
    event
}

pub fn release(id: &str) -> Value {
    json!({"action": "release", "id": id})
}

pub fn restore() -> Value {
    json!({"action": "restore"})
}
