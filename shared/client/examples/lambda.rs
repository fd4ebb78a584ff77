//! A Lambda function that takes tokens for each invocation.
//!
//! ```sh
//! cargo lambda build --release -p tidegate --example lambda    # https://www.cargo-lambda.info
//! ```
//!
//! The function needs the variable `TIDEGATE_TABLE`, and a role that allows `dynamodb:BatchGetItem`, `GetItem`, `PutItem`
//! and `UpdateItem` on the table. It is invoked with an event such as `{"key": "key-1", "text": "three short words"}`.

use std::env;

use aws_config::BehaviorVersion;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Deserialize;
use tidegate::{AcquireError, Limiter};

#[derive(Deserialize)]
struct Request {
    key: String,
    text: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let table = env::var("TIDEGATE_TABLE").map_err(|_| "the variable TIDEGATE_TABLE must name the table")?;
    let config = aws_config::defaults(BehaviorVersion::latest()).load().await;
    // One limiter for all invocations: it remembers limits, and what the buckets held.
    let limiter = &Limiter::builder(aws_sdk_dynamodb::Client::new(&config), table).build().await?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Request>| {
        let response = respond(limiter, event.payload).await;
        // Lambda freezes the process after the response, so adjustments of dropped leases must be written before.
        limiter.flush().await;
        response
    }))
    .await
}

/// Responds to a request; with the seconds to wait, if the key has too few tokens.
async fn respond(limiter: &Limiter, Request { key, text }: Request) -> Result<String, Error> {
    let estimate = 100;
    let mut lease = match limiter.acquire(key, "words").take("requests", 1).take("words", estimate).await {
        Ok(lease) => lease,
        Err(AcquireError::Denied(denied)) => {
            return Ok(format!("retry after {:.3} s", denied.retry_after().as_secs_f64()));
        }
        Err(error) => return Err(error.into()),
    };
    let words = text.split_whitespace().count();
    // The lease is dropped without a commit: the adjustment is written while the response is made.
    lease.adjust("words", i64::try_from(words)?.saturating_sub_unsigned(estimate));
    Ok(format!("{words} words"))
}
