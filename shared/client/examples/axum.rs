//! An HTTP service whose clients have limits.
//!
//! ```sh
//! cargo run -p tidegate --features test-util,tower --example axum
//! curl -i -H 'x-api-key: key-1' -d 'a text to count' http://127.0.0.1:3000/words
//! ```
//!
//! Each key has 5 requests a minute, so the sixth response is `429 Too Many Requests`. `retry-after` says how many seconds
//! to wait.
//!
//! The buckets are in the process. To use those of a table, set its limits and name it:
//!
//! ```sh
//! export TIDEGATE_TABLE=tidegate-buckets # of a deployed stack
//! tidegate namespace register default
//! tidegate limits set --resource words requests=5/minute words=10000/minute
//! cargo run -p tidegate --features test-util,tower --example axum
//! ```

mod support;

use std::net::Ipv4Addr;

use axum::{Extension, Router, body::Body, http::Request, routing::post};
use tidegate::{
    Limit,
    tower::{LimitLayer, RequestLease},
};
use tokio::{net::TcpListener, signal};

/// The words that a request takes before its text has been read.
const ESTIMATE: u64 = 500;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let limits = [Limit::per_minute("requests", 5), Limit::per_minute("words", 10_000)];
    let limiter = support::limiter(limits).await?;

    let acquires = limiter.clone();
    let layer = LimitLayer::new(move |request: &Request<Body>| {
        // All clients without a key share a bucket.
        let key = request.headers().get("x-api-key").and_then(|key| key.to_str().ok()).unwrap_or("anonymous");
        Some(acquires.acquire(key, "words").take("requests", 1).take("words", ESTIMATE))
    });
    let service = Router::new().route("/words", post(count_words)).layer(layer);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 3000)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service).with_graceful_shutdown(async { drop(signal::ctrl_c().await) }).await?;
    // The layer writes adjustments in the background.
    limiter.shutdown().await;
    Ok(())
}

/// Counts the words of a text, and takes as many tokens as there are words.
async fn count_words(Extension(lease): Extension<RequestLease>, text: String) -> String {
    let words = text.split_whitespace().count();
    lease.adjust("words", i64::try_from(words).unwrap_or(i64::MAX).saturating_sub_unsigned(ESTIMATE));
    format!("{words} words\n")
}
