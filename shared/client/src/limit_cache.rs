//! Caches limits of the token tables for five seconds.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quick_cache::sync::Cache;
use tidegate_aws::token_limits::{TokenLimit, TokenLimits};
use tidegate_domain::token_limits::LimitKey;

use crate::{clock::Clock, error::InvalidRequest, shared_call::SharedCall, table_error::TableError};

/// For how long a limit is remembered.
pub(crate) const LIMIT_LIFETIME: Duration = Duration::from_secs(5);

/// How many limits are remembered.
const CAPACITY: usize = 100_000;

/// The longest name of a resource or an account, in bytes: together they fit in a partition key.
///
/// AWS: [partition keys and sort keys](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys).
const LONGEST: usize = 1_000;

/// Checks the names.
pub(crate) fn checked_key(resource: &str, account: &str) -> Result<LimitKey, InvalidRequest> {
    Ok(LimitKey {
        resource: name("resource", resource, "a name", true)?,
        account: name("account", account, "a name", true)?,
    })
}

/// Checks the names of reservations. rate-limiter-py joins them with a colon, so a resource must not have one: otherwise two
/// accounts could share their tokens.
pub(crate) fn checked_coordinate(resource: &str, account: &str) -> Result<LimitKey, InvalidRequest> {
    name("resource", resource, "a name without a colon", !resource.contains(':'))?;
    checked_key(resource, account)
}

fn name(field: &'static str, value: &str, expected: &'static str, is_valid: bool) -> Result<String, InvalidRequest> {
    if is_valid && (1..=LONGEST).contains(&value.len()) {
        return Ok(value.to_owned());
    }
    Err(InvalidRequest::Name { field, value: value.to_owned(), longest: LONGEST, expected })
}

/// Caches the limits of accounts, and knows the defaults of resources.
pub(crate) struct LimitCache {
    store: TokenLimits,
    defaults: BTreeMap<String, TokenLimit>,
    clock: Clock,
    entries: Cache<LimitKey, Arc<Entry>>,
}

/// What was read of the limit of an account.
#[derive(Default)]
struct Entry {
    /// With the moment of the read, as [`Moment::elapsed`](crate::clock::Moment::elapsed).
    read: Mutex<Option<(Option<TokenLimit>, Duration)>>,
    reading: SharedCall<Result<Option<TokenLimit>, TableError>>,
}

impl LimitCache {
    pub(crate) fn new(store: TokenLimits, defaults: BTreeMap<String, TokenLimit>, clock: Clock) -> Self {
        Self { store, defaults, clock, entries: Cache::new(CAPACITY) }
    }

    /// Returns the account's own limit, or the resource's default, as it was at most [`LIMIT_LIFETIME`] ago. `None` if
    /// neither exists. A limit without a window has the window of the default.
    pub(crate) async fn get(&self, key: &LimitKey) -> Result<Option<TokenLimit>, TableError> {
        let default = self.defaults.get(&key.resource).copied();
        let with_window =
            |own: TokenLimit| TokenLimit { window: own.window.or(default.and_then(|of| of.window)), ..own };
        Ok(self.own(key).await?.map(with_window).or(default))
    }

    async fn own(&self, key: &LimitKey) -> Result<Option<TokenLimit>, TableError> {
        let Ok(entry) = self.entries.get_or_insert_with(key, || Ok::<_, Infallible>(Arc::default()));
        let now = self.clock.moment().elapsed;
        let fresh = || {
            let read = *entry.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.filter(|(_, read_at)| now.saturating_sub(*read_at) < LIMIT_LIFETIME).map(|(limit, _)| limit)
        };
        if let Some(limit) = fresh() {
            return Ok(limit);
        }
        let call = async {
            // Another caller may have read it meanwhile.
            if let Some(limit) = fresh() {
                return Ok(limit);
            }
            let limit = self.store.find(&key.resource, &key.account).await;
            let limit = limit.map_err(|error| TableError::new(self.store.table(), error))?;
            *entry.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((limit, now));
            Ok(limit)
        };
        // Boxed to keep the future of a cached lookup small.
        entry.reading.get(|_| true, Box::pin(call)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_collide() {
        assert!(checked_coordinate("emr-cluster", "123456789012").is_ok());
        assert!(checked_coordinate("emr-cluster", "arn:aws:iam::1:role/a").is_ok());
        let message = |resource, account| checked_coordinate(resource, account).unwrap_err().to_string();
        assert!(message("emr:cluster", "1").contains("\"emr:cluster\""));
        assert!(checked_key("emr:cluster", "1").is_ok());
        assert!(message("", "1").contains("resource"));
        assert!(message("emr", "").contains("account"));
        assert!(message("emr", &"1".repeat(1001)).contains("at most 1000"));
    }
}
