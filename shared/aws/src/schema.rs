//! The clients' tables and files: every key and attribute name, and the keys' texts. Nothing outside this module
//! spells one. All but [`tokens`] and [`rates`] is about the bucket table.
//!
//! The bucket table belongs to its clients (zae-limiter 0.10 to 0.17), so its shape is fixed; only the
//! attributes and keys marked as ours are Tidegate's additions, and they are such that the clients'
//! readers pass over them.
//!
//! | module | names the attributes of | partition key | sort key |
//! |---|---|---|---|
//! | [`bucket`] | buckets, an item a shard | [`bucket_pk`] | [`bucket::STATE`] |
//! | [`snapshot`] | usage snapshots | [`entity_pk`] | [`snapshot_sk`] |
//! | [`config`] | the limits that clients configure | [`resource_pk`], [`entity_pk`] | [`config::CONFIG`], [`entity_config_sk`] |
//! | `registry` | which scopes have limits of their own | [`system_pk`] | see there |
//! | `audit` | what operators have changed | `audit_pk` | `audit::PREFIX` |
//! | [`system`] | what concerns all namespaces, and our own items | [`system::PARTITION`] | see there |
//!
//! Every partition key begins with a namespace's id and a `/`; no name holds a `#`.

mod administration;
pub mod capacity;
mod table;

use tidegate_domain::bucket::{Limit, Shard};

pub use self::table::{
    InvalidBucketKey, bucket, bucket_gsi2_sk, bucket_gsi3_sk, bucket_gsi4_sk, bucket_pk, config, entity,
    entity_config_sk, entity_pk, namespace_id_sk, namespace_sk, parse_bucket_pk, redriven_pk, redriven_sk, resource_pk,
    snapshot, snapshot_gsi2_sk, snapshot_sk, system, system_pk, tidegate_sk,
};
pub(crate) use self::{
    administration::{
        audit, audit_pk, child_gsi1_sk, children_gsi1_pk, config_key, entity_configs_gsi3_pk, registry, usage,
        usage_range,
    },
    table::{BUCKET, INDEXES, Index, IndexScope},
};

/// The table's partition key.
pub const PK: &str = "PK";
/// The table's sort key.
pub const SK: &str = "SK";
/// Partition key of the index by parent, in which the clients find an entity's children.
pub(crate) const GSI1PK: &str = "GSI1PK";
/// Sort key of the index by parent.
pub(crate) const GSI1SK: &str = "GSI1SK";
/// Partition key of the index by resource: [`resource_pk`].
pub const GSI2PK: &str = "GSI2PK";
/// Sort key of the index by resource: [`bucket_gsi2_sk`], [`snapshot_gsi2_sk`].
pub const GSI2SK: &str = "GSI2SK";
/// Partition key of the index by entity: [`entity_pk`].
pub const GSI3PK: &str = "GSI3PK";
/// Sort key of the index by entity: [`bucket_gsi3_sk`].
pub const GSI3SK: &str = "GSI3SK";
/// Partition key of the index by namespace: the namespace's id alone.
pub const GSI4PK: &str = "GSI4PK";
/// Sort key of the index by namespace: [`bucket_gsi4_sk`]; of other items, their partition key.
pub const GSI4SK: &str = "GSI4SK";
/// When the item expires, in epoch seconds: the table's TTL attribute.
pub const TTL: &str = "ttl";

/// The entity that an item belongs to.
pub const ENTITY_ID: &str = "entity_id";
/// The resource that an item belongs to.
pub const RESOURCE: &str = "resource";

/// The attribute of a snapshot that counts a limit's tokens: the limit's own name, or with a `#`
/// behind it where that is an attribute that the snapshot has anyway.
pub fn snapshot_counter(limit: &Limit<'_>) -> String {
    match limit.as_str() {
        PK | SK | TTL | ENTITY_ID | RESOURCE | snapshot::WINDOW | snapshot::WINDOW_START | snapshot::TOTAL_EVENTS => {
            format!("{limit}#")
        }
        key if INDEXES.iter().any(|index| index.pk == key || index.sk == key) => format!("{limit}#"),
        limit => limit.to_owned(),
    }
}

/// The attribute of a snapshot that counts a soft limit's overdrafts.
pub(crate) fn snapshot_overdrawn(limit: &Limit<'_>) -> String {
    format!("{limit}{}", snapshot::OVERDRAWN)
}

/// The attribute of a snapshot that holds a bucket shard's watermark.
pub(crate) fn snapshot_watermark(shard: Shard) -> String {
    format!("{}{shard}", snapshot::WATERMARK)
}

pub mod tokens {
    //! The token tables: their attributes, and how their names are made up. Their client is rate-limiter-py.
    //!
    //! | table | partition key | sort key | index |
    //! |---|---|---|---|
    //! | non-fungible tokens, with TTL | [`RESOURCE_COORDINATE`] | [`RESERVATION_ID`] | by [`RESOURCE_ID`] |
    //! | fungible tokens | [`RESOURCE_NAME`] | [`ACCOUNT_ID`] | |
    //! | limits | [`RESOURCE_NAME`] | [`ACCOUNT_ID`] | by `SERVICE_NAME` |
    //!
    //! Non-fungible tokens stand each for one resource that runs, such as a cluster; fungible ones are all alike.

    /// What a token is for, and whose it is: `{resourceName}:{accountId}`.
    pub const RESOURCE_COORDINATE: &str = "resourceCoordinate";
    /// The reservation that became the token: a random UUID.
    pub const RESERVATION_ID: &str = "reservationId";
    /// The resource that holds the token; of a reservation, its own id.
    pub const RESOURCE_ID: &str = "resourceId";
    /// When a token expires, in epoch **seconds**: the TTL attribute.
    pub const EXPIRATION_TIME: &str = "expirationTime";
    /// What is limited. Missing in a token that was written after its reservation was deleted.
    pub const RESOURCE_NAME: &str = "resourceName";
    /// Whose limit it is. Missing in a token that was written after its reservation was deleted.
    pub const ACCOUNT_ID: &str = "accountId";
    /// How many tokens an account may hold at the same time, or take in a window. 0 blocks the account.
    pub const LIMIT: &str = "limit";
    /// The window of a fungible limit, in seconds. 0 or missing for non-fungible limits.
    pub const WINDOW_SEC: &str = "windowSec";
    /// The service that a limit belongs to.
    pub const SERVICE_NAME: &str = "serviceName";

    /// The fungible tokens that are left, a whole number. Negative after the clients' fail-safe has admitted requests.
    pub const TOKENS: &str = "tokens";
    /// When rate-limiter-py refilled the row, in epoch **milliseconds**. It refills only if this lies in the past.
    pub const LAST_REFILL: &str = "lastRefill";
    /// When the last fungible token was taken, in epoch **milliseconds**.
    pub const LAST_TOKEN: &str = "lastToken";
    /// Ours: the moment up to which accrued tokens are in `tokens`, in epoch **nanoseconds**.
    pub const REFILLED: &str = "#refilled";
    /// Ours: what `tokens` was after the last write of our clients. The difference is what rate-limiter-py has taken since.
    pub const LEFT: &str = "#left";
    /// Ours: the id of the last write of our clients.
    pub const OPERATION: &str = "#op";
    /// The [`LAST_REFILL`] of a row that rate-limiter-py must not refill: 9999-12-31T00:00:00Z.
    pub const SEALED: i64 = 253_402_214_400_000;

    /// Ours: the prefix of a slot's range key. The slot's number follows.
    pub(crate) const SLOT: &str = "#TIDEGATE#slot#";
    /// Ours, on slots: the id of the reservation that holds the slot.
    pub(crate) const HOLDER: &str = "#holder";
    /// Ours, on slots: who made the reservation, for people to read.
    pub(crate) const OWNER: &str = "#owner";
    /// Ours, on slots: when the reservation was made, in epoch **milliseconds**.
    pub(crate) const SINCE: &str = "#since";
    /// Ours, on slots: the fencing number. It stays when the slot becomes free.
    pub(crate) const FENCE: &str = "#fence";

    /// The range key of a slot. Slots are in the order of their numbers, and before the reservations of other clients.
    pub fn slot_key(slot: u32) -> String {
        format!("{SLOT}{slot:07}")
    }

    /// Reads the number of a slot from its range key. `None` if it is not that of a slot.
    pub fn slot_number(reservation: &str) -> Option<u32> {
        reservation.strip_prefix(SLOT)?.parse().ok()
    }

    /// The partition key of the tokens of an account.
    pub(crate) fn coordinate(resource: &str, account: &str) -> String {
        format!("{resource}:{account}")
    }

    /// What the clients put behind a base name to name the table of non-fungible tokens.
    pub const NON_FUNGIBLE: &str = "non-fungible-tokens";
    /// What the clients put behind a base name to name the table of fungible tokens.
    pub(crate) const FUNGIBLE: &str = "fungible-tokens";
    /// What the clients put behind a base name to name the table of limits.
    pub const LIMITS: &str = "limits";
    /// What the clients put behind a base name to name the index by service.
    pub(crate) const SERVICE_INDEX: &str = "limits-service-index";
    /// What the clients put behind a base name to name the index by resource.
    pub const RESOURCE_INDEX: &str = "resource-index";

    /// The name that the clients make of a base name.
    pub fn name(base: &str, suffix: &str) -> String {
        let separator = if base.ends_with('-') { "" } else { "-" };
        format!("{base}{separator}{suffix}")
    }
}

pub mod rates {
    //! The worker-rate files, JSON objects in S3: their fields, and how their keys are made up. Their client is Bulk
    //! Executor's `DistributedDynamoDBMonitorWorker`.
    //!
    //! | object | fields |
    //! |---|---|
    //! | `{prefix}worker-{worker_id}.json`, a report | [`WORKER_ID`], [`TIMESTAMP`], [`READ_RATE`], [`WRITE_RATE`]; a leasing worker's also the keys of [`lease`] |
    //! | `{prefix}summary.json`, the summary | [`TIMESTAMP`], `AGGREGATED_READ_RATE` to `AGGREGATION_TIME_UTC`; ours from `STALE_WORKERS` on; with leasing workers also the keys of [`lease`] |
    //!
    //! A prefix ends in [`SEPARATOR`].

    /// Who reports. It is not looked at.
    pub const WORKER_ID: &str = "worker_id";
    /// When it was written, in seconds since the epoch, a float.
    pub const TIMESTAMP: &str = "timestamp";
    /// Read capacity units a second, a float.
    pub const READ_RATE: &str = "read_rate";
    /// Write capacity units a second, a float.
    pub const WRITE_RATE: &str = "write_rate";

    /// What the fleet reads.
    pub(crate) const AGGREGATED_READ_RATE: &str = "aggregated_read_rate";
    pub(crate) const AGGREGATED_WRITE_RATE: &str = "aggregated_write_rate";
    /// How many workers were summed up.
    pub(crate) const ACTIVE_WORKERS: &str = "active_workers";
    /// When, for a person to read.
    pub(crate) const AGGREGATION_TIME_UTC: &str = "aggregation_time_utc";
    /// Ours: how many workers have not reported lately.
    pub(crate) const STALE_WORKERS: &str = "stale_workers";
    /// Ours: how many workers' reports are invalid.
    pub(crate) const REJECTED_WORKERS: &str = "rejected_workers";
    /// Ours: the time between two summaries.
    pub const INTERVAL_SECONDS: &str = "interval_seconds";
    /// Ours: the number of the summary, one more than the number of the previous summary.
    pub const SEQUENCE: &str = "sequence";

    /// The summary's name under a prefix, if nothing else is said.
    pub const SUMMARY: &str = "summary.json";
    /// What ends a prefix.
    pub const SEPARATOR: &str = "/";

    /// The key of a worker's report.
    pub fn worker_key(prefix: &str, worker: &str) -> String {
        format!("{prefix}worker-{worker}.json")
    }

    /// The worker whose report has this key. `None` if [`worker_key`] makes no such key.
    pub fn worker_of<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(prefix)?.strip_prefix("worker-")?.strip_suffix(".json")
    }

    pub mod lease {
        //! The keys of leases. All are ours; workers of other programs ignore them. Rates are floats, in capacity units a
        //! second, with up to six decimals.
        //!
        //! | object | keys |
        //! |---|---|
        //! | a leasing worker's report | [`REPORT`], [`FOLLOWS`], [`WEIGHT`]; under each of [`READ`] and [`WRITE`]: [`WANTS`], [`HAS`], [`SAFE`], and [`CAP`] if the worker was started with one |
        //! | the summary | [`LEASE_SECONDS`], [`ACTIVE`], [`REPORTS`]; under each of [`READ`] and [`WRITE`]: [`CAP`], [`LEVEL`], [`GROWTH`] |

        /// The number of the worker's report, which rises.
        pub const REPORT: &str = "report";
        /// The number of the report whose grant the worker has adopted, or null.
        pub const FOLLOWS: &str = "follows";
        /// How many shares the worker gets, an integer above 0.
        pub const WEIGHT: &str = "weight";
        /// An object about reads.
        pub const READ: &str = "read";
        /// An object about writes.
        pub const WRITE: &str = "write";
        /// What the worker would use without a limit of the fleet.
        pub const WANTS: &str = "wants";
        /// What the worker may use.
        pub const HAS: &str = "has";
        /// What the worker may use when its lease has ended.
        pub const SAFE: &str = "safe";
        /// What the fleet may use.
        pub const CAP: &str = "cap";
        /// The most that a worker may hold, for each unit of weight.
        pub const LEVEL: &str = "level";
        /// The most to which a worker may grow, for each unit of weight.
        pub const GROWTH: &str = "growth";
        /// How long a lease lasts, from the beginning of the report that it answers.
        pub const LEASE_SECONDS: &str = "lease_seconds";
        /// How many workers share the cap.
        pub const ACTIVE: &str = "active";
        /// The number of the newest report of each leasing worker that the aggregator has seen, by the worker's id.
        pub const REPORTS: &str = "reports";
    }
}
