//! `token-sweeper` in simulated time, behind an SQS queue with a redrive policy by AWS's rules.
//!
//! AWS: [visibility timeout](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html),
//! [dead-letter queues](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tidegate_aws::{client, emr::Clusters, tokens::Tokens};
use tidegate_sandbox::faults::{FaultRates, FaultyHttp, sdk_config};
use token_sweeper::{TokenSweeper, config::Config, event::Event, report::Handled};
use tokio::time::{Duration, Instant};

use super::{Tally, run::moment};

/// Time for an invocation: more than any needs here.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The share of calls to DynamoDB that fail.
const FAULTS: f64 = 0.1;
/// The share of invocations that crash between two deletes.
const CRASHES: f64 = 0.05;
/// The share of messages that are delivered again although they are settled.
const REPEATED: f64 = 0.02;
/// Seconds for which a received message is invisible.
pub(crate) const VISIBILITY: i64 = 30;
/// A message that was received so often is parked. A missing token must have been written by then.
pub(crate) const MAX_RECEIVES: u32 = 8;
/// The most messages in a batch.
const BATCH: usize = 100;

/// `token-sweeper` behind a queue.
#[derive(Debug)]
pub(crate) struct Sweeper {
    function: TokenSweeper,
    http: FaultyHttp,
    rng: StdRng,
    pub(crate) queue: Queue,
    pub(crate) tally: Tally,
}

impl Sweeper {
    /// Creates the function with its defaults. Its reconciles ask EMR.
    pub(crate) fn new(base_name: &str, dynamodb: &str, emr: &str, seed: u64) -> anyhow::Result<Self> {
        let config = Config::read(|name| match name {
            "LIMITER_TABLES_BASE_NAME" => Some(base_name.to_owned()),
            "RECONCILE_EMR" => Some(true.to_string()),
            _ => None,
        })
        .context("the sweeper's defaults")?;
        let http = FaultyHttp::new(FaultRates::spread(FAULTS), seed);
        let emr = sdk_config(emr, FaultyHttp::new(FaultRates::default(), 0));
        let dynamodb = client::dynamodb(&sdk_config(dynamodb, http.clone()));
        let tokens = Tokens::new(dynamodb, &config.table, &config.index);
        let function = TokenSweeper::new(config, tokens, Clusters::new(client::emr(&emr)));
        let rng = StdRng::seed_from_u64(seed);
        Ok(Self { function, http, rng, queue: Queue::default(), tally: Tally::default() })
    }

    /// Delivers the visible messages. `now` is in epoch seconds.
    pub(crate) async fn poll(&mut self, now: i64) -> anyhow::Result<()> {
        let batch = self.queue.receive(now);
        if batch.is_empty() {
            return Ok(());
        }
        let moment = moment(now)?;
        let records: Vec<_> = batch.iter().map(Received::record).collect();
        let Event::Batch(messages) = serde_json::from_value(json!({"Records": records}))? else {
            bail!("the function does not recognise a batch");
        };
        let crash = self.rng.random_bool(CRASHES).then(|| self.rng.random_range(0..3));
        if let Some(writes) = crash {
            self.http.crash_after(writes);
        }
        let handled = tokio::select! {
            handled = self.function.handle(&messages, moment, Instant::now() + TIMEOUT) => Some(handled),
            () = self.http.crashed() => None,
        };
        self.http.heal();
        match handled {
            Some(handled) => self.settle(&batch, &handled)?,
            None => *self.tally.redelivered.entry("invocation crashed").or_default() += batch.len(),
        }
        Ok(())
    }

    /// Deletes the messages that are not among the failures.
    fn settle(&mut self, batch: &[Received], Handled { report, decided, answer }: &Handled) -> anyhow::Result<()> {
        self.tally.report += report;
        let failures = &answer.as_ref().map_err(|unreportable| *unreportable)?.batch_item_failures;
        let failed: BTreeSet<_> = failures.iter().map(|failure| failure.item_identifier.as_str()).collect();
        for (message, decided) in batch.iter().zip(decided) {
            let name = decided.decision.name();
            if failed.contains(message.id().as_str()) {
                *self.tally.redelivered.entry(name).or_default() += 1;
            } else if self.rng.random_bool(REPEATED) {
                *self.tally.redelivered.entry("done with").or_default() += 1;
            } else {
                *self.tally.done.entry(name).or_default() += 1;
                self.queue.delete(message);
            }
        }
        Ok(())
    }

    pub(crate) async fn reconcile(&mut self, now: i64) -> anyhow::Result<()> {
        let reconciled = self.function.reconcile(moment(now)?, Instant::now() + TIMEOUT).await;
        self.tally.reconciled += &reconciled.report;
        reconciled.error.map_or(Ok(()), |error| Err(error).context("the reconcile failed"))
    }

    pub(crate) fn into_tally(self) -> Tally {
        let faults: BTreeMap<_, _> = self.http.counts().iter().collect();
        Tally { sent: self.queue.sent(), unsettled: self.queue.len(), parked: self.queue.parked, faults, ..self.tally }
    }
}

/// An SQS queue and its dead-letter queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<u64, Waiting>,
    sent: u64,
    /// Bodies of messages that were received too often.
    pub(crate) parked: Vec<String>,
}

#[derive(Debug)]
struct Waiting {
    body: String,
    visible: i64,
    receives: u32,
}

/// A message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    number: u64,
    body: String,
    receives: u32,
}

impl Queue {
    pub(crate) fn send(&mut self, body: String, now: i64) {
        self.sent += 1;
        self.waiting.insert(self.sent, Waiting { body, visible: now, receives: 0 });
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many messages were neither deleted nor parked.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The next batch, oldest first; empty if nothing is visible.
    pub(crate) fn receive(&mut self, now: i64) -> Vec<Received> {
        let overdue = |message: &mut Waiting| message.visible <= now && message.receives >= MAX_RECEIVES;
        let parked = self.waiting.extract_if(.., |_, message| overdue(message)).map(|(_, message)| message.body);
        self.parked.extend(parked);
        let mut batch = Vec::new();
        for (number, message) in self.waiting.iter_mut().filter(|(_, message)| message.visible <= now).take(BATCH) {
            message.visible = now + VISIBILITY;
            message.receives += 1;
            batch.push(Received { number: *number, body: message.body.clone(), receives: message.receives });
        }
        batch
    }

    pub(crate) fn delete(&mut self, message: &Received) {
        self.waiting.remove(&message.number);
    }
}

impl Received {
    pub(crate) fn id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.number)
    }

    /// The message as Lambda delivers it.
    pub(crate) fn record(&self) -> Value {
        json!({
            "messageId": self.id(),
            "receiptHandle": format!("receipt-{}-{}", self.number, self.receives),
            "body": self.body,
            "attributes": {"ApproximateReceiveCount": self.receives.to_string()},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:ended",
            "awsRegion": "us-east-1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(batch: &[Received]) -> Vec<&str> {
        batch.iter().map(|message| message.body.as_str()).collect()
    }

    #[test]
    fn a_message_reappears_until_it_is_deleted() {
        let mut queue = Queue::default();
        queue.send("a".to_owned(), 0);
        queue.send("b".to_owned(), 10);
        assert_eq!(bodies(&queue.receive(0)), ["a"]);
        let batch = queue.receive(10);
        assert_eq!(bodies(&batch), ["b"]);
        queue.delete(&batch[0]);
        assert!(queue.receive(VISIBILITY - 1).is_empty());
        let again = queue.receive(VISIBILITY);
        assert_eq!((bodies(&again), again[0].receives), (vec!["a"], 2));
        assert_eq!((queue.sent(), queue.len()), (2, 1));
    }

    #[test]
    fn a_message_received_too_often_is_parked() {
        let mut queue = Queue::default();
        queue.send("a".to_owned(), 0);
        for receive in 0..MAX_RECEIVES {
            assert_eq!(queue.receive(i64::from(receive) * VISIBILITY).len(), 1);
        }
        let next = i64::from(MAX_RECEIVES) * VISIBILITY;
        assert!(queue.receive(next - 1).is_empty() && queue.parked.is_empty());
        assert!(queue.receive(next).is_empty());
        assert_eq!((queue.parked, queue.waiting.len()), (vec!["a".to_owned()], 0));
    }

    #[test]
    fn a_batch_is_limited() {
        let mut queue = Queue::default();
        (0..=BATCH).for_each(|number| queue.send(number.to_string(), 0));
        assert_eq!((queue.receive(0).len(), queue.receive(0).len()), (BATCH, 1));
    }
}
