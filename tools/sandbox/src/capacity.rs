//! The control plane of tables in this process: DynamoDB's `DescribeTable` and `UpdateTable`, Application Auto Scaling,
//! and the metrics of consumed capacity in CloudWatch, all on one endpoint.
//!
//! Resources are named as Application Auto Scaling names them, like `table/orders` and `table/orders/index/by-date`.
//! Nothing happens by itself: no alarm scales a table, and a change of capacity is done after a set number of
//! descriptions of the table.
//!
//! | module | holds |
//! |---|---|
//! | `tables` | tables and indexes with their capacity |
//! | `control_plane` | the calls of DynamoDB |
//! | `scaling` | scalable targets, policies, and the calls of Application Auto Scaling |
//! | `metrics` | consumed capacity, and the call of CloudWatch |
//! | `protocol` | requests, answers, errors and faults |

mod control_plane;
mod metrics;
mod protocol;
mod scaling;
mod tables;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use axum::Router;
use tidegate_domain::throttle::CapacityKind;

use self::{
    metrics::Metrics,
    scaling::{Limits, Target, Targets},
    tables::{Resource, Tables, Throughput, Update},
};
use crate::{
    gate::Gate,
    loopback::{Loopback, LoopbackServer},
};

/// An account without tables, served on loopback until it is dropped.
#[derive(Debug)]
pub struct EmbeddedCapacity {
    endpoint: String,
    account: Account,
    _server: LoopbackServer,
}

/// A handle of the account that bypasses the protocols. Clones share the account.
#[derive(Clone, Default)]
pub struct Account(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    tables: Tables,
    targets: Targets,
    metrics: Metrics,
    calls: Vec<Call>,
    hook: Option<Arc<Hook>>,
}

/// Called before each call. Returns the fault to inject, if any.
type Hook = dyn Fn(&Account, &Call) -> Option<Fault> + Send + Sync;

/// A call that is about to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    DescribeTable {
        table: String,
    },
    UpdateTable {
        table: String,
    },
    DescribeScalableTargets {
        /// Empty for all.
        resources: Vec<String>,
    },
    RegisterScalableTarget {
        resource: String,
        kind: CapacityKind,
        minimum: Option<u64>,
        maximum: Option<u64>,
    },
    DescribeScalingPolicies {
        resource: Option<String>,
    },
    GetMetricData {
        queries: usize,
    },
}

/// A fault of a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The rate of calls is too high; nothing is done.
    Throttled,
    /// The permission is missing; nothing is done.
    AccessDenied,
    /// The service fails; nothing is done.
    Internal,
    /// Another update of the resource is pending (`ConcurrentUpdateException`, `ResourceInUseException`); nothing is
    /// done.
    Conflict,
    /// It is done, and the connection breaks.
    LostResponse,
    /// It is done when the gate opens, even if the client has hung up by then.
    Held(Gate),
}

impl EmbeddedCapacity {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub async fn start() -> anyhow::Result<Self> {
        let loopback = Loopback::bind("the embedded control plane of tables", None).await?;
        let (endpoint, account) = (loopback.endpoint(), Account::default());
        let server = loopback.serve(Router::new().fallback(protocol::answer).with_state(account.clone()));
        Ok(Self { endpoint, account, _server: server })
    }

    /// Where clients of DynamoDB's control plane, Application Auto Scaling and CloudWatch find it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The account itself, without the protocols.
    pub const fn account(&self) -> &Account {
        &self.account
    }
}

/// What owners of tables do, and what tests read.
impl Account {
    /// Creates a table with provisioned capacity.
    pub fn create_provisioned(&self, table: &str, read: u64, write: u64) {
        self.state().tables.create(table, false, Throughput { read, write });
    }

    /// Creates an on-demand table with this warm throughput.
    pub fn create_on_demand(&self, table: &str, warm_read: u64, warm_write: u64) {
        self.state().tables.create(table, true, Throughput { read: warm_read, write: warm_write });
    }

    /// Creates an index with this capacity, which is warm throughput if the table is on-demand.
    pub fn create_index(&self, table: &str, index: &str, read: u64, write: u64) -> anyhow::Result<()> {
        let mut state = self.state();
        let found = state.tables.table_mut(table).with_context(|| format!("there is no table {table}"))?;
        found.create_index(index, Throughput { read, write });
        Ok(())
    }

    /// Deletes a table. As on AWS, its scalable targets stay.
    pub fn delete_table(&self, table: &str) {
        self.state().tables.delete(table);
    }

    /// Registers a scalable target, or changes its range, as the owner.
    pub fn register(&self, resource: &str, kind: CapacityKind, minimum: u64, maximum: u64) -> anyhow::Result<()> {
        self.set_limits(resource, kind, Limits { minimum: Some(minimum), maximum: Some(maximum) })
    }

    /// Changes the minimum of a scalable target, as the owner.
    pub fn set_minimum(&self, resource: &str, kind: CapacityKind, minimum: u64) -> anyhow::Result<()> {
        self.set_limits(resource, kind, Limits { minimum: Some(minimum), maximum: None })
    }

    /// Changes the maximum of a scalable target, as the owner.
    pub fn set_maximum(&self, resource: &str, kind: CapacityKind, maximum: u64) -> anyhow::Result<()> {
        self.set_limits(resource, kind, Limits { minimum: None, maximum: Some(maximum) })
    }

    /// Removes a scalable target and its policy, as the owner.
    pub fn deregister(&self, resource: &str, kind: CapacityKind) {
        self.state().targets.deregister(resource, kind);
    }

    /// Gives a scalable target a target tracking policy with this utilization, in percent.
    pub fn put_policy(&self, resource: &str, kind: CapacityKind, utilization: f64) -> anyhow::Result<()> {
        Ok(self.state().targets.put_policy(resource, kind, Some(utilization))?)
    }

    /// Sets whether the policy of a scalable target may not scale in, and whether the owner has suspended scaling in.
    pub fn disable_scale_in(
        &self,
        resource: &str,
        kind: CapacityKind,
        is_disabled: bool,
        is_suspended: bool,
    ) -> anyhow::Result<()> {
        Ok(self.state().targets.disable_scale_in(resource, kind, is_disabled, is_suspended)?)
    }

    /// Removes the policy of a scalable target.
    pub fn delete_policy(&self, resource: &str, kind: CapacityKind) -> anyhow::Result<()> {
        Ok(self.state().targets.put_policy(resource, kind, None)?)
    }

    /// Sets the provisioned capacity at once, as auto scaling or the owner may.
    pub fn set_provisioned(&self, resource: &str, kind: CapacityKind, units: u64) -> anyhow::Result<()> {
        let mut state = self.state();
        let found = state.tables.find_mut(resource).with_context(|| format!("there is no {resource}"))?;
        let to = found.provisioned.with(kind, units);
        found.start(Update { provisioned: Some(to), warm: None }, 0);
        Ok(())
    }

    /// Lets each change of capacity be seen as `UPDATING` by so many descriptions of its table. The change is done at
    /// the next one. With 0, which is the default, a change is done at once.
    pub fn set_update_polls(&self, polls: u32) {
        self.state().tables.polls = polls;
    }

    /// Completes all changes of capacity.
    pub fn settle(&self) {
        self.state().tables.settle();
    }

    /// Sets the units that were consumed in the minute that contains this Unix time.
    pub fn consume(&self, resource: &str, kind: CapacityKind, minute_epoch_seconds: u64, sum: f64) {
        self.state().metrics.set_minute(resource, kind, minute_epoch_seconds, sum);
    }

    /// Sets what is consumed in each minute that has no sum of its own.
    pub fn consumes(&self, resource: &str, kind: CapacityKind, units_per_second: f64) {
        self.state().metrics.set_steady(resource, kind, units_per_second);
    }

    /// Lets so many of the newest complete minutes be missing, because metrics arrive late.
    pub fn hold_back_minutes(&self, minutes: u64) {
        self.state().metrics.late = minutes;
    }

    /// The minimum of a scalable target.
    pub fn minimum(&self, resource: &str, kind: CapacityKind) -> Option<u64> {
        self.target(resource, kind, |target| target.minimum)
    }

    /// The maximum of a scalable target.
    pub fn maximum(&self, resource: &str, kind: CapacityKind) -> Option<u64> {
        self.target(resource, kind, |target| target.maximum)
    }

    /// All values that the minimum has had, in their order.
    pub fn minimums(&self, resource: &str, kind: CapacityKind) -> Vec<u64> {
        self.target(resource, kind, |target| target.minimums.clone()).unwrap_or_default()
    }

    /// The provisioned capacity that is in effect.
    pub fn provisioned(&self, resource: &str, kind: CapacityKind) -> Option<u64> {
        self.resource(resource, |resource| resource.provisioned.of(kind))
    }

    /// The warm throughput that is in effect.
    pub fn warm(&self, resource: &str, kind: CapacityKind) -> Option<u64> {
        self.resource(resource, |resource| resource.warm.of(kind))
    }

    /// The calls since this was last asked, including those that met a fault.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// Runs `hook` before each call. The hook may change the account or return a fault.
    pub fn on_call(&self, hook: impl Fn(&Self, &Call) -> Option<Fault> + Send + Sync + 'static) {
        self.state().hook = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn undisturbed(&self) {
        self.state().hook = None;
    }

    fn set_limits(&self, resource: &str, kind: CapacityKind, limits: Limits) -> anyhow::Result<()> {
        let State { tables, targets, .. } = &mut *self.state();
        Ok(targets.register(tables, resource, kind, limits)?)
    }

    fn target<T>(&self, resource: &str, kind: CapacityKind, read: impl FnOnce(&Target) -> T) -> Option<T> {
        self.state().targets.get(resource, kind).map(read)
    }

    fn resource<T>(&self, resource: &str, read: impl FnOnce(&Resource) -> T) -> Option<T> {
        self.state().tables.find(resource).map(read)
    }

    /// Logs a call and asks the hook for its fault.
    fn fault_of(&self, call: &Call) -> Option<Fault> {
        let hook = {
            let mut state = self.state();
            state.calls.push(call.clone());
            state.hook.clone()?
        };
        hook(self, call)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Account")
            .field("tables", &state.tables)
            .field("targets", &state.targets)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
