//! Counts what is in `usage-rollup`'s dead-letter queue, once: records that it parked, and batches that its
//! event source mapping gave up. A message is deleted when all of its records are settled; what is not
//! understood or not proved stays in the queue and is named.

mod summary;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::Context as _;
use aws_config::{SdkConfig, retry::RetryConfig};
use serde_json::Value;
use tidegate_aws::{
    client, clock,
    dead_letters::{DeadLetterQueue, FUNCTION, Message, SNAPSHOT, UNSURE},
    error::causes,
    failure_message::{FailureMessage, NoFailureMessage},
    redrive::Redrive,
    snapshots::{self, Snapshots},
    stream::{Record, decode},
};
use tidegate_domain::{
    redrive::{Decision, Origin, may_come_again},
    time::EpochMillis,
    usage,
    window::Window,
};
use tokio::time::Instant;

pub use self::summary::Summary;
use crate::stream;

/// What to redrive, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// URL of usage-rollup's dead-letter queue
    #[arg(long, value_name = "URL")]
    pub queue_url: String,
    /// The bucket table, which also holds the snapshots
    #[arg(long, value_name = "NAME")]
    pub table: String,
    /// The function's `SNAPSHOT_WINDOWS`, like hourly,daily: what is left out here is never counted
    #[arg(long, value_name = "WINDOWS", value_delimiter = ',', required = true)]
    pub windows: Vec<Window>,
    /// The function's `SNAPSHOT_TTL_DAYS`
    #[arg(long, default_value_t = 90)]
    pub snapshot_ttl_days: u16,
    /// What the function's name holds, whatever the case and but for `-`: failure messages of others stay
    #[arg(long, default_value = FUNCTION_NAME)]
    pub function: String,
    /// Says what would be done, and leaves all as it is
    #[arg(long)]
    pub dry_run: bool,
    /// Counts what is undecided, too: you have found that it was not counted
    #[arg(long)]
    pub count_undecided: bool,
}

/// The function whose letters these are.
const FUNCTION_NAME: &str = "usage-rollup";
/// How long nobody else is given a message that is being worked on; asked for anew at half of it.
const HIDDEN: Duration = Duration::from_mins(10);
/// How long the queue may look for messages: without that, it may overlook some.
///
/// AWS: [long polling](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html).
const WAIT: Duration = Duration::from_secs(1);
/// How long an invocation may go on after its event source mapping gave up.
///
/// AWS: [timeout](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const LONGEST_INVOCATION: Duration = Duration::from_mins(15);
/// An operator waits for the end, so unlike a function this gives up.
const ATTEMPTS: u32 = 6;
/// No deadline presses an operator, who may be far away; and an attempt must outlive [`WAIT`].
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What redrives messages.
#[derive(Clone, Debug)]
pub struct Redriver {
    /// The queue.
    pub letters: DeadLetterQueue,
    /// Reads the batches that were given up.
    pub streams: aws_sdk_dynamodbstreams::Client,
    /// Counts.
    pub redrive: Redrive,
    /// Which snapshots are kept.
    pub windows: Vec<Window>,
    /// See [`Options::function`].
    pub function: String,
}

/// Redrives with the credentials, the region and the endpoints of the environment, and prints what came of it; what
/// the process is to end with: 1 if messages are left.
///
/// # Errors
/// When the queue or the clock cannot be read.
pub async fn command(options: Options) -> anyhow::Result<u8> {
    let sdk = unhurried(client::config_from_env().await);
    let redriver = Redriver {
        letters: DeadLetterQueue::new(client::sqs(&sdk), options.queue_url, FUNCTION_NAME),
        streams: aws_sdk_dynamodbstreams::Client::new(&sdk),
        redrive: Redrive {
            snapshots: Snapshots::new(client::dynamodb(&sdk), options.table, options.snapshot_ttl_days),
            dry_run: options.dry_run,
            count_undecided: options.count_undecided,
        },
        windows: options.windows,
        function: options.function,
    };
    let summary = redriver.run(clock::now()?).await?;
    println!("{summary}");
    Ok(summary.exit_code())
}

/// The configuration with the patience of an operator instead of a function's.
fn unhurried(sdk: SdkConfig) -> SdkConfig {
    let timeouts = client::timeouts().to_builder();
    let timeouts = timeouts.connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
    let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS);
    sdk.into_builder().retry_config(retries).timeout_config(timeouts).build()
}

/// Why a message stays.
enum Left {
    /// Nothing proves whether these records were counted. All others are settled.
    Undecided(Vec<String>),
    /// There are records that are not settled.
    Unsettled(String),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided(records) => write!(f, "undecided: record {}", records.join(", ")),
            Self::Unsettled(reason) => f.write_str(reason),
        }
    }
}

impl Redriver {
    /// Redrives all that is in the queue.
    ///
    /// # Errors
    /// When the queue does not answer the first time. From then on, the summary tells what it did not do.
    pub async fn run(&self, now: EpochMillis) -> anyhow::Result<Summary> {
        let mut summary = Summary { dry_run: self.redrive.dry_run, ..Summary::default() };
        // Those that stay, as they were received last.
        let mut kept = BTreeMap::new();
        let mut met = BTreeSet::new();
        // Messages in a row that were met before.
        let mut again = 0;
        // More of them than are kept: nothing new comes, and they would go round for ever.
        while again <= kept.len() {
            let message = match self.letters.receive(HIDDEN, WAIT).await {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(error) if met.is_empty() => return Err(error).context("receiving messages"),
                Err(error) => {
                    summary.troubles.push(format!("no more messages could be received: {}", causes(&error)));
                    break;
                }
            };
            if !met.insert(message.id.clone()) {
                again += 1;
                if let Some(earlier) = kept.get_mut(&message.id) {
                    *earlier = message;
                }
                continue;
            }
            again = 0;
            match self.settle(&message, now, &mut summary).await {
                Ok(()) if !self.redrive.dry_run => match self.letters.delete(&message).await {
                    Ok(()) => summary.deleted += 1,
                    Err(error) => {
                        let reason = format!("all is settled, but it could not be deleted: {}", causes(&error));
                        summary.left.push((message.id, reason));
                    }
                },
                Ok(()) => drop(kept.insert(message.id.clone(), message)),
                Err(reason) => {
                    summary.left.push((message.id.clone(), reason.to_string()));
                    kept.insert(message.id.clone(), message);
                }
            }
        }
        for (id, message) in &kept {
            if let Err(error) = self.letters.give_back(message).await {
                summary.troubles.push(format!("message {id} could not be given back at once: {}", causes(&error)));
            }
        }
        Ok(summary)
    }

    /// Settles a message; why it must stay, if it must.
    async fn settle(&self, message: &Message, now: EpochMillis, summary: &mut Summary) -> Result<(), Left> {
        let unsettled = |reason: &str| Err(Left::Unsettled(reason.to_owned()));
        summary.received += 1;
        match FailureMessage::parse(&message.body) {
            Ok(failure) => self.settle_batch(message, &failure, now, summary).await,
            Err(error @ NoFailureMessage::Part(_)) => unsettled(&error.to_string()),
            Err(NoFailureMessage::Other) => {
                match message.attributes.get(FUNCTION).map(String::as_str) {
                    Some(FUNCTION_NAME) => {}
                    Some(other) => return unsettled(&format!("it was parked by {other}")),
                    None => return unsettled("it is neither a parked record nor a failure message"),
                }
                let only = message.attributes.get(SNAPSHOT).map(String::as_str);
                let unsure = message.attributes.contains_key(UNSURE);
                let origin =
                    if only.is_some() { Origin::Letter { unsure, may_come_again: true } } else { Origin::Poison };
                self.settle_record(&message.body, only, origin, now, summary).await
            }
        }
    }

    async fn settle_batch(
        &self,
        message: &Message,
        failure: &FailureMessage,
        now: EpochMillis,
        summary: &mut Summary,
    ) -> Result<(), Left> {
        let FailureMessage { function_arn, stream_arn, shard_id, start, end, .. } = failure;
        let plain = |name: &str| name.to_lowercase().replace('-', "");
        if !plain(function_arn).contains(&plain(&self.function)) {
            return Err(Left::Unsettled(format!("the batch was given up for {function_arn}")));
        }
        if now.since(failure.time) < LONGEST_INVOCATION {
            let reason = "the batch was given up less than 15 minutes ago: an invocation may still be at work";
            return Err(Left::Unsettled(reason.to_owned()));
        }
        let records = stream::range(&self.streams, stream_arn, shard_id, *start, *end).await;
        let records = records.map_err(|error| Left::Unsettled(format!("records {start} to {end}: {error:#}")))?;
        let origin = Origin::Range { end: *end };
        let (mut undecided, mut reasons) = (Vec::new(), Vec::new());
        let (mut stopped, mut behind) = (BTreeSet::new(), Vec::new());
        let mut held = Instant::now();
        for record in records {
            if held.elapsed() > HIDDEN / 2 {
                // If this fails, somebody else may be given it, too: nothing counts twice, and the deletion tells.
                drop(self.letters.hold(message, HIDDEN).await);
                held = Instant::now();
            }
            let item = item(&record.json);
            // One by one, since the next of an item is decided on the ground that this one is settled. Other items do
            // not wait: the stream will not have them for long.
            if item.as_ref().is_some_and(|item| stopped.contains(item)) {
                behind.push(record.sequence);
                continue;
            }
            match self.settle_record(&record.json, None, origin, now, summary).await {
                Ok(()) => {}
                Err(Left::Undecided(records)) => undecided.extend(records),
                Err(Left::Unsettled(reason)) => {
                    reasons.push(format!("{}: {reason}", record.sequence));
                    stopped.extend(item);
                }
            }
        }
        if reasons.is_empty() {
            return if undecided.is_empty() { Ok(()) } else { Err(Left::Undecided(undecided)) };
        }
        if !behind.is_empty() {
            reasons.push(format!("not tried, behind these in their buckets: record {}", behind.join(", ")));
        }
        if !undecided.is_empty() {
            reasons.push(Left::Undecided(undecided).to_string());
        }
        Err(Left::Unsettled(reasons.join("; ")))
    }

    /// Settles a record, for one snapshot or for all.
    async fn settle_record(
        &self,
        record: &str,
        only: Option<&str>,
        origin: Origin,
        now: EpochMillis,
        summary: &mut Summary,
    ) -> Result<(), Left> {
        let change = match decode(record) {
            Ok(Record::Change(change)) => change,
            Ok(Record::NotOurs) => return Ok(()),
            Err(error) => return Err(Left::Unsettled(format!("the record cannot be decoded: {error}"))),
        };
        let origin = match origin {
            Origin::Letter { unsure, .. } => {
                Origin::Letter { unsure, may_come_again: may_come_again(change.created, now) }
            }
            origin => origin,
        };
        let windows = if only.is_some() { &Window::ALL[..] } else { &self.windows };
        let (mut undecided, mut is_met) = (Vec::new(), false);
        for posting in usage::fold(&[change], windows) {
            let snapshot = snapshots::describe(posting.snapshot());
            if only.is_some_and(|only| only != snapshot) {
                continue;
            }
            is_met = true;
            for (bucket, sequence, posting) in posting.records() {
                let decision = self.redrive.settle(&bucket, sequence, &posting, origin, now).await;
                let decision = decision
                    .map_err(|error| Left::Unsettled(format!("record {sequence} of {snapshot}: {}", causes(&error))))?;
                summary.count(decision);
                match decision {
                    Decision::Undecided => undecided.push(format!("{sequence} of {snapshot}")),
                    Decision::Waiting => {
                        let reason = "may still be counted by the function: try again when it is a day old";
                        return Err(Left::Unsettled(format!("record {sequence} of {snapshot} {reason}")));
                    }
                    Decision::Count | Decision::AlreadyRedriven | Decision::AlreadyCounted => {}
                }
            }
        }
        if let Some(only) = only.filter(|_| !is_met) {
            return Err(Left::Unsettled(format!("its record adds nothing to snapshot {only}, which it names")));
        }
        if undecided.is_empty() { Ok(()) } else { Err(Left::Undecided(undecided)) }
    }
}

/// The bucket item that a record is of, whether or not it can be decoded.
fn item(record: &str) -> Option<String> {
    let record: Value = serde_json::from_str(record).ok()?;
    record.pointer("/dynamodb/Keys/PK/S")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_attempt_ends_before_the_queue_has_looked_for_messages() {
        let sdk = unhurried(SdkConfig::builder().build());
        let timeouts = sdk.timeout_config().unwrap();
        assert!(timeouts.operation_attempt_timeout().unwrap() > 2 * WAIT, "{timeouts:?}");
        assert_eq!(timeouts.operation_timeout(), None);
    }
}
