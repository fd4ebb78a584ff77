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
/// The service that a limit belongs to.
pub(crate) const SERVICE_NAME: &str = "serviceName";

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
