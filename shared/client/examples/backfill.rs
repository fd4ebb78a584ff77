//! Rewrites a table under a fleet's cap: a parallel scan, shared between up to 16 processes, that can resume.
//!
//! ```sh
//! export TABLE=orders BUCKET=my-rates PREFIX=rates/    # rate-aggregator runs on the prefix, which ends in a slash
//! cargo run -p tidegate --features fleet --example backfill -- 0..8    # segments 0 to 7 of 16
//! cargo run -p tidegate --features fleet --example backfill -- 8..16   # in another process or on another machine
//! ```
//!
//! Each item gets the attribute `schema_version` with the value 2. The fleet reads 2,000 and writes 1,000 capacity units a
//! second at most. Ctrl-C stops the process. The same command resumes: after each page, the place of a segment is stored
//! under `{PREFIX}places/`, for as long as the bucket keeps it: a day in the bucket of a stack. An item is written only if its version is lower, so what is done twice does no harm.

#[path = "backfill/job.rs"]
mod job;

use std::{env, ops::Range, time::Duration};

use anyhow::Context as _;
use aws_config::{BehaviorVersion, retry::RetryConfig};
use tidegate::fleet::Worker;

use self::job::{Job, Progress};

/// All processes must use the same number.
const SEGMENTS: i32 = 16;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mine = env::args().nth(1).and_then(|text| range(&text)).context("expected segments, such as 0..16")?;
    let variable = |name: &str| env::var(name).with_context(|| format!("the variable {name} is not set"));
    let (table, bucket, prefix) = (variable("TABLE")?, variable("BUCKET")?, variable("PREFIX")?);
    let config =
        aws_config::defaults(BehaviorVersion::latest()).retry_config(RetryConfig::standard().with_max_attempts(10));
    let config = config.load().await;
    let s3 = aws_sdk_s3::Client::new(&config);
    let worker = Worker::builder(s3.clone(), &bucket, &prefix)
        .name("backfill")
        .caps(2_000.0, 1_000.0)
        .slow_start(Duration::from_mins(5))
        .start()?;
    let throttle = worker.throttle().clone();
    let job = Job { dynamodb: throttle.client(&config), throttle, s3, bucket, prefix, table, segments: SEGMENTS };
    let progress = Progress::default();
    let done = tokio::select! {
        done = job.run(mine, &progress) => done,
        () = report(&worker, &progress) => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    println!("{progress}");
    // Also after an error: the other workers get its share at once.
    let stopped = worker.stop().await;
    done?;
    Ok(stopped?)
}

/// Prints the progress every five seconds.
async fn report(worker: &Worker, progress: &Progress) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let write = worker.status().write;
        println!("{progress}; {:.0} writes a second, limited by {:?}", write.allowed, write.limited_by);
    }
}

fn range(text: &str) -> Option<Range<i32>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty() && range.start >= 0 && range.end <= SEGMENTS).then_some(range)
}
