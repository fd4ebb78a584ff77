//! The limits of the token tables: what a file of limits changes in them.
//!
//! A limit has the key (resource, account), as in the table. The client rate-limiter-py compares by the account's name
//! followed by the resource's, so it takes `ab` on `c` for `a` on `bc`.

use std::collections::BTreeMap;

/// The key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitKey {
    /// The limited resource.
    pub resource: String,
    /// The account that the limit applies to.
    pub account: String,
}

/// A row of the limits table. A value that is missing or cannot be read is `None`, which differs from every valid value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRow {
    /// The number of tokens.
    pub limit: Option<i64>,
    /// The window in seconds; 0 for limits of non-fungible tokens.
    pub window_seconds: Option<i64>,
    /// The service that the limit belongs to.
    pub service: Option<String>,
}

/// A limit in a file. Both numbers are 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The number of tokens. 0 blocks the account.
    pub limit: i64,
    /// The window in seconds; 0 for limits of non-fungible tokens.
    pub window_seconds: i64,
}

/// A row that differs from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row's key.
    pub key: LimitKey,
    /// The row as it was read. `None` if it does not exist.
    pub before: Option<LimitRow>,
    /// What to do with the row.
    pub action: Action,
}

/// What to do with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write these values.
    Set(LimitRow),
    /// Delete the row.
    Delete,
    /// Write nothing. The row belongs to the service, and the file does not name it.
    Leave,
}

/// Returns how the table differs from a file, in the order of the keys.
///
/// `current` holds the rows that the file names, and with a service all rows of the service. With a service, each row of
/// the file gets that service. Rows of the service that the file does not name are deleted if `prune` is set. Without a
/// service, rows keep the service that they have, and only rows of the file are returned.
///
/// ```
/// use tidegate_domain::token_limits::{Action, FileLimit, LimitKey, plan};
///
/// let key = LimitKey { resource: "emr-cluster".to_owned(), account: "123456789012".to_owned() };
/// let file = [(key, FileLimit { limit: 10, window_seconds: 0 })].into();
/// let changes = plan(&[].into(), &file, Some("emr"), false);
/// assert!(matches!(&changes[0].action, Action::Set(row) if row.limit == Some(10)));
/// ```
#[must_use]
pub fn plan(
    current: &BTreeMap<LimitKey, LimitRow>,
    file: &BTreeMap<LimitKey, FileLimit>,
    service: Option<&str>,
    prune: bool,
) -> Vec<Change> {
    let sets = file.iter().filter_map(|(key, limit)| {
        let before = current.get(key);
        let after = LimitRow {
            limit: Some(limit.limit),
            window_seconds: Some(limit.window_seconds),
            service: service.map(str::to_owned).or_else(|| before?.service.clone()),
        };
        let change = || Change { key: key.clone(), before: before.cloned(), action: Action::Set(after.clone()) };
        (before != Some(&after)).then(change)
    });
    let is_unnamed = |(key, row): &(&LimitKey, &LimitRow)| {
        service.is_some() && row.service.as_deref() == service && !file.contains_key(*key)
    };
    let action = if prune { Action::Delete } else { Action::Leave };
    let unnamed = current.iter().filter(is_unnamed).map(|(key, row)| Change {
        key: key.clone(),
        before: Some(row.clone()),
        action: action.clone(),
    });
    let mut changes: Vec<_> = sets.chain(unnamed).collect();
    changes.sort_by(|one, other| one.key.cmp(&other.key));
    changes
}
