//! The capacity that tables and their indexes have.

use aws_sdk_dynamodb::{
    Client,
    error::ProvideErrorMetadata as _,
    operation::describe_table::DescribeTableError,
    types::{
        BillingMode, GlobalSecondaryIndexUpdate, IndexStatus, ProvisionedThroughputDescription, TableDescription,
        TableStatus, UpdateGlobalSecondaryIndexAction, WarmThroughput,
    },
};
use tidegate_domain::{
    capacity::{Capacity, Target},
    throttle::CapacityKind,
};

use crate::{dynamodb::WriteOutcome, error::StoreError};

/// The capacity of tables.
#[derive(Clone, Debug)]
pub struct TableCapacity {
    client: Client,
}

/// A table or an index as it is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Whether the table is active, and the index, if it is one.
    pub is_active: bool,
    pub mode: Mode,
}

/// How capacity is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Provisioned { units: Capacity },
    OnDemand { warm: Warm },
}

/// The warm throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warm {
    pub units: Capacity,
    /// Whether it is being raised.
    pub is_rising: bool,
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    #[error("table {0:?} does not exist")]
    UnknownTable(String),
    #[error("table {table:?} has no global secondary index {index:?}")]
    UnknownIndex { table: String, index: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TableCapacity {
    /// The tables that this client sees.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Describes a table or an index.
    pub async fn describe(&self, target: &Target) -> Result<Described, DescribeError> {
        let sent = self.client.describe_table().table_name(&target.table).send().await;
        let table = match sent {
            Ok(output) => output.table,
            Err(error)
                if matches!(error.as_service_error(), Some(DescribeTableError::ResourceNotFoundException(_))) =>
            {
                None
            }
            Err(error) => return Err(StoreError::from_sdk("DescribeTable", error).into()),
        };
        let table = table.ok_or_else(|| DescribeError::UnknownTable(target.table.clone()))?;
        described(&table, target).ok_or_else(|| DescribeError::UnknownIndex {
            table: target.table.clone(),
            index: target.index.clone().unwrap_or_default(),
        })
    }

    /// Raises the warm throughput of an on-demand table or index. It can never be lowered. The write is lost if another update
    /// of the table or the index is pending.
    ///
    /// AWS: [warm throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html).
    pub async fn raise_warm(&self, target: &Target, units: Capacity) -> Result<WriteOutcome, StoreError> {
        let units = i64::try_from(units.get()).unwrap_or(i64::MAX);
        let warm = match target.kind {
            CapacityKind::Read => WarmThroughput::builder().read_units_per_second(units),
            CapacityKind::Write => WarmThroughput::builder().write_units_per_second(units),
        };
        let update = self.client.update_table().table_name(&target.table);
        let update = match &target.index {
            None => update.warm_throughput(warm.build()),
            Some(index) => {
                let action =
                    UpdateGlobalSecondaryIndexAction::builder().index_name(index).warm_throughput(warm.build());
                let action = action
                    .build()
                    .map_err(|source| StoreError::Refused { operation: "UpdateTable", source: source.into() })?;
                update.global_secondary_index_updates(GlobalSecondaryIndexUpdate::builder().update(action).build())
            }
        };
        match update.send().await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(WriteOutcome::Lost),
            Err(error) => Err(StoreError::from_sdk("UpdateTable", error)),
        }
    }
}

/// `None` if the table has no such index.
fn described(table: &TableDescription, target: &Target) -> Option<Described> {
    let is_table_active = table.table_status == Some(TableStatus::Active);
    let is_on_demand =
        table.billing_mode_summary().and_then(|summary| summary.billing_mode()) == Some(&BillingMode::PayPerRequest);
    let (is_active, provisioned, warm) = match &target.index {
        None => {
            let warm = table.warm_throughput().map(|warm| {
                let units = (warm.read_units_per_second, warm.write_units_per_second);
                (units, warm.status == Some(TableStatus::Updating))
            });
            (is_table_active, table.provisioned_throughput(), warm)
        }
        Some(name) => {
            let index = table.global_secondary_indexes().iter().find(|index| index.index_name() == Some(name))?;
            let warm = index.warm_throughput().map(|warm| {
                let units = (warm.read_units_per_second, warm.write_units_per_second);
                (units, warm.status == Some(IndexStatus::Updating))
            });
            let is_active = is_table_active && index.index_status == Some(IndexStatus::Active);
            (is_active, index.provisioned_throughput(), warm)
        }
    };
    let mode = if is_on_demand {
        let ((read, write), is_rising) = warm.unwrap_or_default();
        Mode::OnDemand { warm: Warm { units: pick(target.kind, read, write), is_rising } }
    } else {
        let units = |throughput: &ProvisionedThroughputDescription| {
            pick(target.kind, throughput.read_capacity_units, throughput.write_capacity_units)
        };
        Mode::Provisioned { units: provisioned.map(units).unwrap_or_default() }
    };
    Some(Described { is_active, mode })
}

fn pick(kind: CapacityKind, read: Option<i64>, write: Option<i64>) -> Capacity {
    let units = match kind {
        CapacityKind::Read => read,
        CapacityKind::Write => write,
    };
    Capacity::new(units.and_then(|units| u64::try_from(units).ok()).unwrap_or_default())
}
