//! Items from the dead-letter queue: records that the function parked.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    time::Duration,
};

use futures::future;
use tidegate_aws::{
    dead_letters::{DeadLetterQueue, FUNCTION, Message, SNAPSHOT},
    error::{StoreError, causes},
};
use tidegate_domain::redrive::Origin;

use super::{FUNCTION_NAME, ItemReasons, RedriveItem, Source, summary::Summary};

/// How long a received message is hidden from other receivers: longer than a round takes.
const HIDDEN: Duration = Duration::from_mins(10);
/// How long a receive polls. Short polling may miss messages.
///
/// AWS: [long polling](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html).
pub(crate) const WAIT: Duration = Duration::from_secs(1);
/// Concurrent receives, of ten messages each.
const RECEIVERS: usize = 8;
/// The most messages in a round.
const ROUND: usize = 2_000;

/// A dead-letter queue.
#[derive(Debug)]
pub struct Queue {
    messages: DeadLetterQueue,
    /// The messages of this round and those that stay, by id. A message that is delivered twice has two receipts, and
    /// perhaps only one of them is still valid.
    received: HashMap<String, Vec<Message>>,
    /// The ids of all received messages: each becomes one item.
    known: HashSet<String>,
}

impl Queue {
    /// Items from this queue.
    pub fn new(queue: DeadLetterQueue) -> Self {
        Self { messages: queue, received: HashMap::new(), known: HashSet::new() }
    }
}

impl Source for Queue {
    async fn take(&mut self) -> anyhow::Result<Vec<RedriveItem>> {
        let mut items = Vec::new();
        while items.len() < ROUND {
            let received = (0..RECEIVERS).map(|_| self.messages.receive(HIDDEN, WAIT));
            let mut has_new = false;
            let mut failure = None;
            // Messages of successful receives are used although others fail.
            let received = future::join_all(received).await.into_iter();
            let received = received.filter_map(|received| received.map_err(|error| failure = Some(error)).ok());
            for mut message in received.flatten().collect::<Vec<_>>() {
                let item = item(&mut message);
                if self.known.insert(message.id.clone()) {
                    has_new = true;
                    items.push(item);
                }
                self.received.entry(message.id.clone()).or_default().push(message);
            }
            match failure {
                Some(error) if items.is_empty() => return Err(error.into()),
                None if has_new => {}
                _ => break,
            }
        }
        Ok(items)
    }

    async fn finish(&mut self, items: ItemReasons, dry_run: bool, summary: &mut Summary) {
        let mut done = Vec::new();
        for (id, reasons) in items {
            if !reasons.is_empty() {
                summary.left.push((id, reasons.join("; ")));
            } else if !dry_run && let Some(messages) = self.received.remove(&id) {
                done.extend(messages);
            }
        }
        for (id, deleted) in by_any_receipt(self.messages.delete(done).await) {
            match deleted {
                Ok(()) => summary.deleted += 1,
                Err(error) => {
                    let reason = format!("all is settled, but it could not be deleted: {}", causes(&error));
                    summary.left.push((id, reason));
                }
            }
        }
    }

    async fn make_visible(&mut self, summary: &mut Summary) {
        let messages: Vec<_> = self.received.drain().flat_map(|(_, messages)| messages).collect();
        for (id, given) in by_any_receipt(self.messages.make_visible(messages).await) {
            if let Err(error) = given {
                let error = format!("message {id} is hidden for up to ten minutes: {}", causes(&error));
                summary.source_errors.push(error);
            }
        }
    }
}

/// The results by message: `Ok` if any of its receipts succeeded.
fn by_any_receipt(results: Vec<(Message, Result<(), StoreError>)>) -> BTreeMap<String, Result<(), StoreError>> {
    let mut by_id = BTreeMap::new();
    for (message, result) in results {
        if result.is_ok() || !by_id.contains_key(&message.id) {
            by_id.insert(message.id, result);
        }
    }
    by_id
}

/// The item of a message, whose body it takes: the message may be held for long.
fn item(message: &mut Message) -> RedriveItem {
    let body = mem::take(&mut message.body);
    let records = match message.attributes.get(FUNCTION).map(String::as_str) {
        Some(FUNCTION_NAME) => Ok(vec![body]),
        Some(other) => Err(format!("it was parked by {other}")),
        None => Err(format!("it is not a parked record: it has no attribute {FUNCTION}")),
    };
    let snapshot = message.attributes.get(SNAPSHOT).cloned();
    RedriveItem { name: message.id.clone(), records, origin: Origin::Parked, snapshot }
}
