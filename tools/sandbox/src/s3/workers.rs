//! Workers' files as the workers write them.

use tidegate_aws::{
    clock,
    rates::text::PythonFloat,
    schema::rates::{READ_RATE, TIMESTAMP, WORKER_ID, WRITE_RATE, worker_key},
};
use tidegate_domain::time::EpochMillis;
use tokio::{task::JoinSet, time::Duration};

use super::Bucket;

/// How often a worker writes.
const EVERY: Duration = Duration::from_secs(5);

/// What a worker writes: one line, as Python's `json.dumps` makes it.
pub fn report(worker: &str, at: EpochMillis, read_rate: f64, write_rate: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the calendar ends far below 2^53 milliseconds")]
    let timestamp = at.get() as f64 / 1000.0;
    let [timestamp, read_rate, write_rate] = [timestamp, read_rate, write_rate].map(PythonFloat);
    format!(
        r#"{{"{WORKER_ID}": "{worker}", "{TIMESTAMP}": {timestamp}, "{READ_RATE}": {read_rate}, "{WRITE_RATE}": {write_rate}}}"#
    )
}

/// Workers that write for as long as this is kept.
#[derive(Debug)]
pub struct Workers {
    // A JoinSet, because dropping it ends its tasks.
    _writing: JoinSet<()>,
}

impl Workers {
    /// Lets `count` workers write their reports under this prefix, the first ones at once.
    pub fn start(bucket: &Bucket, prefix: &str, count: u32) -> Self {
        let (bucket, prefix) = (bucket.clone(), prefix.to_owned());
        let mut writing = JoinSet::new();
        writing.spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            loop {
                ticks.tick().await;
                let Ok(now) = clock::now() else { return };
                for number in 0..count {
                    let worker = format!("{number:04}");
                    bucket.put(worker_key(&prefix, &worker), report(&worker, now, 10.0, 2.5), now);
                }
            }
        });
        Self { _writing: writing }
    }
}
