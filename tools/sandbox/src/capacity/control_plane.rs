//! `DescribeTable` and `UpdateTable`.
//!
//! AWS: [UpdateTable](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateTable.html),
//! [warm throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/update-warm-throughput.html).

use std::iter;

use serde::{Deserialize, Serialize};

use super::{
    protocol::ServiceError,
    tables::{Resource, Table, Tables, Throughput, Update},
};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DescribeTable {
    table_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct UpdateTable {
    table_name: String,
    provisioned_throughput: Option<ProvisionedThroughput>,
    warm_throughput: Option<WarmThroughput>,
    #[serde(default)]
    global_secondary_index_updates: Vec<IndexUpdate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct IndexUpdate {
    update: UpdateIndex,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UpdateIndex {
    index_name: String,
    provisioned_throughput: Option<ProvisionedThroughput>,
    warm_throughput: Option<WarmThroughput>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProvisionedThroughput {
    read_capacity_units: u64,
    write_capacity_units: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WarmThroughput {
    read_units_per_second: Option<u64>,
    write_units_per_second: Option<u64>,
}

/// The answer to `DescribeTable`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Described {
    table: TableDescription,
}

/// The answer to `UpdateTable`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Updated {
    table_description: TableDescription,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TableDescription {
    table_name: String,
    table_arn: String,
    table_status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    billing_mode_summary: Option<BillingModeSummary>,
    #[serde(flatten)]
    capacity: CapacityDescription,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    global_secondary_indexes: Vec<IndexDescription>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct BillingModeSummary {
    billing_mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct IndexDescription {
    index_name: String,
    index_arn: String,
    index_status: &'static str,
    #[serde(flatten)]
    capacity: CapacityDescription,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CapacityDescription {
    provisioned_throughput: ProvisionedThroughputDescription,
    warm_throughput: WarmThroughputDescription,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProvisionedThroughputDescription {
    read_capacity_units: u64,
    write_capacity_units: u64,
    number_of_decreases_today: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct WarmThroughputDescription {
    read_units_per_second: u64,
    write_units_per_second: u64,
    status: &'static str,
}

impl DescribeTable {
    pub(super) fn table(&self) -> &str {
        table_name(&self.table_name)
    }

    pub(super) fn answer(&self, tables: &mut Tables) -> Result<Described, ServiceError> {
        let name = self.table();
        let table = tables.table_mut(name).ok_or_else(|| unknown_table(name))?;
        table.resources().for_each(Resource::finish);
        let description = describe(name, table);
        table.resources().for_each(Resource::count_poll);
        Ok(Described { table: description })
    }
}

impl UpdateTable {
    pub(super) fn table(&self) -> &str {
        table_name(&self.table_name)
    }

    /// Starts all changes, or none.
    pub(super) fn answer(&self, tables: &mut Tables) -> Result<Updated, ServiceError> {
        let (name, polls) = (self.table(), tables.polls);
        let table = tables.table_mut(name).ok_or_else(|| unknown_table(name))?;
        let itself = (None, self.provisioned_throughput, self.warm_throughput);
        let indexes = self.global_secondary_index_updates.iter().map(|IndexUpdate { update }| {
            (Some(update.index_name.as_str()), update.provisioned_throughput, update.warm_throughput)
        });
        let mut updates = Vec::new();
        for (index, provisioned, warm) in iter::once(itself).chain(indexes) {
            if provisioned.is_some() || warm.is_some() {
                updates.push((index, check(name, table, index, provisioned, warm)?));
            }
        }
        if updates.is_empty() {
            let message =
                "At least one of ProvisionedThroughput, GlobalSecondaryIndexUpdates or WarmThroughput is required";
            return Err(ServiceError::validation(message));
        }
        for (index, update) in updates {
            if let Some(resource) = table.resource_mut(index) {
                resource.start(update, polls);
            }
        }
        Ok(Updated { table_description: describe(name, table) })
    }
}

/// Checks the update of a table, or of its index, by AWS's rules.
fn check(
    name: &str,
    table: &mut Table,
    index: Option<&str>,
    provisioned: Option<ProvisionedThroughput>,
    warm: Option<WarmThroughput>,
) -> Result<Update, ServiceError> {
    let is_on_demand = table.is_on_demand;
    let Some(resource) = table.resource_mut(index) else {
        let index = index.unwrap_or_default();
        return Err(not_found(&format!("Index {index} for table {name}")));
    };
    let what = index.map_or_else(|| "table".to_owned(), |index| format!("index {index}"));
    let invalid =
        |message: &str| ServiceError::validation(format!("One or more parameter values were invalid: {message}"));
    let provisioned = provisioned.map(|to| Throughput { read: to.read_capacity_units, write: to.write_capacity_units });
    if provisioned.is_some() && is_on_demand {
        let message =
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST";
        return Err(invalid(message));
    }
    if provisioned.is_some() && resource.is_updating() {
        let message = index.map_or_else(
            || format!("Table is being updated: {name}"),
            |index| format!("Index is being updated. Table: {name} Index: {index}"),
        );
        let message = format!("Attempt to change a resource which is still in use: {message}");
        return Err(ServiceError::new(400, "ResourceInUseException", message));
    }
    if provisioned == Some(resource.provisioned) {
        let message = format!("The provisioned throughput for the {what} will not change.");
        return Err(ServiceError::validation(message));
    }
    let current = resource.warm;
    let warm = warm.map(|to| Throughput {
        read: to.read_units_per_second.unwrap_or(current.read),
        write: to.write_units_per_second.unwrap_or(current.write),
    });
    for (kind, to, current) in
        warm.into_iter().flat_map(|to| [("Read", to.read, current.read), ("Write", to.write, current.write)])
    {
        if to < current {
            return Err(invalid(&format!(
                "Requested {kind}UnitsPerSecond for WarmThroughput for {what} is lower than current WarmThroughput, \
                 decreasing WarmThroughput is not supported"
            )));
        }
    }
    Ok(Update { provisioned, warm })
}

fn describe(name: &str, table: &Table) -> TableDescription {
    let arn = format!("arn:aws:dynamodb:us-east-1:000000000000:table/{name}");
    let describe_index = |(index, resource): (&String, &Resource)| IndexDescription {
        index_name: index.clone(),
        index_arn: format!("{arn}/index/{index}"),
        index_status: status(resource.is_updating()),
        capacity: describe_capacity(resource),
    };
    TableDescription {
        table_name: name.to_owned(),
        table_status: status(table.itself.is_updating()),
        // A table that was always provisioned has no summary.
        billing_mode_summary: table.is_on_demand.then_some(BillingModeSummary { billing_mode: "PAY_PER_REQUEST" }),
        capacity: describe_capacity(&table.itself),
        global_secondary_indexes: table.indexes.iter().map(describe_index).collect(),
        table_arn: arn,
    }
}

fn describe_capacity(resource: &Resource) -> CapacityDescription {
    let Resource { provisioned, warm, decreases, .. } = resource;
    CapacityDescription {
        provisioned_throughput: ProvisionedThroughputDescription {
            read_capacity_units: provisioned.read,
            write_capacity_units: provisioned.write,
            number_of_decreases_today: *decreases,
        },
        warm_throughput: WarmThroughputDescription {
            read_units_per_second: warm.read,
            write_units_per_second: warm.write,
            status: status(resource.is_warming()),
        },
    }
}

const fn status(is_changing: bool) -> &'static str {
    if is_changing { "UPDATING" } else { "ACTIVE" }
}

/// The name of a table that is given by its name or its ARN.
fn table_name(name: &str) -> &str {
    name.rsplit_once(":table/").map_or(name, |(_, name)| name)
}

fn unknown_table(name: &str) -> ServiceError {
    not_found(&format!("Table: {name} not found"))
}

fn not_found(what: &str) -> ServiceError {
    ServiceError::new(400, "ResourceNotFoundException", format!("Requested resource not found: {what}"))
}
