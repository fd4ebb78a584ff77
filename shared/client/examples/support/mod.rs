//! The limiter of the examples.

use std::env;

use aws_config::BehaviorVersion;
use tidegate::{Limit, Limiter};

/// A limiter with these limits in the process, or on the table that `TIDEGATE_TABLE` names, with the table's limits.
pub async fn limiter(limits: impl IntoIterator<Item = Limit>) -> anyhow::Result<Limiter> {
    let Ok(table) = env::var("TIDEGATE_TABLE") else { return Ok(Limiter::in_memory(limits).build().await?) };
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    Ok(Limiter::builder(aws_sdk_dynamodb::Client::new(&config), table).build().await?)
}
