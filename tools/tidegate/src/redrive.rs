//! Counts the usage in records that their stream does not deliver any more, once: records that `usage-rollup` parked in
//! its dead-letter queue, and batches that its event source mapping discarded and stored in S3.
//!
//! Records are taken from the source in rounds. The records of a round are folded by snapshot, so that one transaction
//! counts many of them, and many snapshots are worked on at the same time. A message or an object is deleted when all
//! of its records are settled. An interrupted redrive can be run again, because counted records are marked.

mod queue;
mod snapshot_work;
mod stored_failures;
mod summary;

use std::env;

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use tidegate_aws::{client, clock, dead_letters::DeadLetterQueue, redrive::Redrive, snapshots::Snapshots};
use tidegate_domain::{redrive::Origin, time::EpochMillis, window::Window};
use tokio::{signal, sync::oneshot, time::Duration};

use crate::connection::Connection;

#[cfg(test)]
pub(crate) use self::queue::WAIT;
use self::snapshot_work::count_records;
pub use self::{queue::Queue, stored_failures::StoredFailures, summary::Summary};

/// What to redrive, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    from: From,
    /// The function's `SNAPSHOT_WINDOWS`, like hourly,daily: what is left out here is never counted
    #[arg(long, value_name = "WINDOWS", value_delimiter = ',', required = true)]
    pub windows: Vec<Window>,
    /// The table that the records are of, if it is another one: --table was restored from it
    #[arg(long, value_name = "NAME")]
    pub from_table: Option<String>,
    /// The function's `SNAPSHOT_TTL_DAYS`
    #[arg(long, value_name = "DAYS")]
    pub snapshot_ttl_days: u16,
    /// A part of the function's name, in any case and without `-`: stored failures of other functions stay
    #[arg(long, default_value = FUNCTION_NAME)]
    pub function: String,
    /// Shows what would be done, and changes nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Counts undecided records, too, of all snapshots or of those whose key, `PK SK`, begins like this: you have found
    /// that they were not counted
    #[arg(long, value_name = "SNAPSHOT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub count_undecided: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct From {
    /// URL of usage-rollup's dead-letter queue
    #[arg(long, value_name = "URL")]
    queue: Option<String>,
    /// Where the event source mapping stores the batches that it discards
    #[arg(long, value_name = "s3://BUCKET/PREFIX", value_parser = StoredFailures::parse_location)]
    failures: Option<(String, String)>,
}

/// The function whose dead letters these are.
const FUNCTION_NAME: &str = "usage-rollup";
/// The most snapshots that are worked on at the same time.
const CONCURRENCY: usize = 64;
/// The most time for one snapshot. While it is throttled or contended for longer, its records stay.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(2);
/// The status of a process that Ctrl-C stopped.
const INTERRUPTED: u8 = 130;

/// A message or an object with records to redrive.
#[derive(Clone, Debug)]
pub struct RedriveItem {
    /// A message's id, or an object's key.
    pub name: String,
    /// The records, as JSON text; or why they cannot be redriven.
    pub records: Result<Vec<String>, String>,
    pub origin: Origin,
    /// The only snapshot that misses them, as `PK SK`. `None`: all snapshots miss them.
    pub snapshot: Option<String>,
}

/// The names of a round's items, each with the reasons why it must stay.
pub(super) type ItemReasons = Vec<(String, Vec<String>)>;

/// Where items come from.
#[expect(async_fn_in_trait, reason = "only this crate implements and calls it")]
pub trait Source {
    /// Takes the items of one round, each item once. Returns none when all were taken.
    async fn take(&mut self) -> anyhow::Result<Vec<RedriveItem>>;

    /// Deletes the items that have no reason to stay, unless it is a dry run.
    async fn finish(&mut self, items: ItemReasons, dry_run: bool, summary: &mut Summary);

    /// Makes the items that stay visible to other receivers again.
    async fn make_visible(&mut self, summary: &mut Summary);
}

/// What counts records.
#[derive(Clone, Debug)]
pub struct Redriver {
    /// Decides and counts.
    pub redrive: Redrive,
    /// Which snapshots are kept.
    pub windows: Vec<Window>,
    /// The table that the records are of. Records of other tables stay.
    pub from_table: String,
}

/// Redrives and prints a summary. Returns the exit code: 0 if all is settled, 1 if something is left, 130 after Ctrl-C. The
/// first Ctrl-C lets the current work finish, a second one drops it.
pub async fn command(connection: &Connection, options: Options) -> anyhow::Result<u8> {
    let sdk = connection.sdk().await;
    let redriver = Redriver {
        redrive: Redrive {
            snapshots: Snapshots::new(connection.dynamodb(&sdk), &connection.table, options.snapshot_ttl_days),
            dry_run: options.dry_run,
            count_undecided: options.count_undecided,
        },
        windows: options.windows,
        from_table: options.from_table.unwrap_or_else(|| connection.table.clone()),
    };
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} records and snapshots read so far, {per_sec}")?;
    let bar = ProgressBar::new(0).with_style(style);
    let now = clock::now()?;
    let (stop, stopped) = oneshot::channel();
    let interrupt = async { drop(stopped.await) };
    let interrupted_twice = async {
        drop(signal::ctrl_c().await);
        eprintln!("finishing what is under way; press Ctrl-C again to stop at once");
        // Fails when the run has ended.
        let _ = stop.send(());
        drop(signal::ctrl_c().await);
    };
    let run = async {
        match (options.from.queue, options.from.failures) {
            (Some(url), _) => {
                let mut queue = Queue::new(DeadLetterQueue::new(client::sqs(&sdk), url, FUNCTION_NAME));
                redriver.run(&mut queue, now, &bar, interrupt).await
            }
            (None, Some((bucket, prefix))) => {
                // Where S3 is not AWS's, a bucket has no host name of its own.
                let is_elsewhere = sdk.endpoint_url().is_some() || env::var_os("AWS_ENDPOINT_URL_S3").is_some();
                let s3 = client::s3(&sdk, is_elsewhere);
                let mut failures = StoredFailures::new(s3, bucket, prefix, options.function);
                redriver.run(&mut failures, now, &bar, interrupt).await
            }
            (None, None) => anyhow::bail!("expected --queue or --failures"),
        }
    };
    let summary = tokio::select! {
        summary = run => summary?,
        () = interrupted_twice => return Ok(INTERRUPTED),
    };
    bar.finish_and_clear();
    println!("{}", if connection.json { summary.json()? } else { summary.to_string() });
    Ok(if summary.interrupted { INTERRUPTED } else { summary.exit_code() })
}

impl Redriver {
    /// Redrives all items of a source. After `interrupt`, it starts nothing new and finishes the current work.
    pub async fn run<S: Source>(
        &self,
        source: &mut S,
        now: EpochMillis,
        bar: &ProgressBar,
        interrupt: impl Future<Output = ()>,
    ) -> anyhow::Result<Summary> {
        ensure!(!self.windows.is_empty(), "no windows");
        let mut summary = Summary { dry_run: self.redrive.dry_run, ..Summary::default() };
        let mut interrupt = std::pin::pin!(interrupt.fuse());
        let mut unread = None;
        while !summary.interrupted {
            let items = match source.take().await {
                Ok(items) if items.is_empty() => break,
                Ok(items) => items,
                Err(error) => {
                    unread = Some(error);
                    break;
                }
            };
            summary.items += items.len();
            let finished = count_records(items, self, now, bar, interrupt.as_mut(), &mut summary).await;
            source.finish(finished, self.redrive.dry_run, &mut summary).await;
        }
        source.make_visible(&mut summary).await;
        match unread {
            Some(error) if summary.items == 0 => return Err(error).context("reading the source"),
            Some(error) => summary.source_errors.push(format!("no more could be read: {error:#}")),
            None => {}
        }
        Ok(summary)
    }
}
