//! How fast a redrive is where every call takes 20 ms: `cargo run --release -p tidegate-command --example redrive_speed`.
//!
//! The services are embedded, so their work and the command's share this machine.

use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::ProgressBar;
use serde_json::Value;
use tidegate_aws::{client, dead_letters::DeadLetterQueue, redrive::Redrive, snapshots::Snapshots};
use tidegate_command::redrive::{Queue, Redriver, StoredFailures, Summary};
use tidegate_domain::{redrive::Decision, time::EpochMillis, window::Window};
use tidegate_sandbox::{
    faults::{FaultRates, FaultyHttp, sdk_config},
    records::{CREATED, consumed, dead_letter, discarded_batch, record},
    s3::{BUCKET, EmbeddedS3},
    services::Services,
};

const LATENCY: Duration = Duration::from_millis(20);
const RECORDS: usize = 4_000;
const BATCH: usize = 100;
const WINDOWS: [Window; 2] = [Window::Hourly, Window::Daily];

/// An acquire of one token from one of so many buckets.
fn acquire(at: usize, buckets: usize) -> Value {
    let pk = format!("TQ5vSMvQTm4/BUCKET#user-{}#api#0", at % buckets);
    record(&pk, at as u64, None, &consumed("rpm", 1000))
}

fn slow() -> FaultyHttp {
    FaultyHttp::new(FaultRates::default(), 0).with_latency(LATENCY)
}

async fn measure(from: &str, buckets: usize) -> anyhow::Result<()> {
    let services = Services::embedded(None, "redrive-speed").await?;
    let s3 = EmbeddedS3::start(None).await?;
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, slow()));
    let snapshots = Snapshots::new(dynamodb, &services.table, 90);
    let redriver = Redriver {
        redrive: Redrive { snapshots, dry_run: false, count_undecided: None },
        windows: WINDOWS.to_vec(),
        from_table: "limits".to_owned(),
    };
    let now = EpochMillis::new((CREATED + 25 * 3600) * 1000)?;
    let (bar, forever) = (ProgressBar::hidden(), std::future::pending());
    let records: Vec<_> = (0..RECORDS).map(|at| acquire(at, buckets)).collect();
    let (summary, elapsed): (Summary, Duration) = if from == "queue" {
        for record in &records {
            services.queue.put(dead_letter(record));
        }
        let sqs = client::sqs(&sdk_config(services.queue.endpoint(), slow()));
        let mut queue = Queue::new(DeadLetterQueue::new(sqs, services.queue.url(), "usage-rollup"));
        let started = Instant::now();
        (redriver.run(&mut queue, now, &bar, forever).await?, started.elapsed())
    } else {
        for (at, records) in records.chunks(BATCH).enumerate() {
            s3.bucket().put(format!("{at:06}"), discarded_batch("usage-rollup", records), now);
        }
        let s3 = client::s3(&sdk_config(&s3.endpoint(), slow()), true);
        let mut failures = StoredFailures::new(s3, BUCKET.to_owned(), String::new(), "usage-rollup".to_owned());
        let started = Instant::now();
        (redriver.run(&mut failures, now, &bar, forever).await?, started.elapsed())
    };
    ensure!(summary.decided(Decision::Count) == RECORDS * WINDOWS.len() && summary.left.is_empty(), "{summary}");
    let per_second = RECORDS * 1000 / usize::try_from(elapsed.as_millis())?;
    // With one record in each bucket, all is spent in the embedded service: a transaction for each record and window.
    ensure!(
        per_second >= 500 || buckets == RECORDS,
        "only {per_second} records per second of {buckets} buckets from the {from}"
    );
    println!("{RECORDS} records of {buckets:4} buckets from the {from:8}: {per_second:5} per second ({elapsed:.1?})");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    for from in ["queue", "failures"] {
        for buckets in [1, 100, RECORDS] {
            measure(from, buckets).await?;
        }
    }
    Ok(())
}
