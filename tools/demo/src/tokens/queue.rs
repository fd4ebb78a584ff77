//! An SQS queue and its redrive policy, by AWS's rules, in simulated time.
//!
//! AWS: [visibility timeout](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html),
//! [dead-letter queues](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html).

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// For so many seconds, a message that was received is not received again.
pub(super) const VISIBILITY: i64 = 30;
/// A message that was received so often is parked instead of being received once more. In this time, a
/// token that is missing must have been written.
pub(super) const MAX_RECEIVES: u32 = 8;
/// The most messages in a batch.
const BATCH: usize = 100;

/// Messages that nobody has done with yet, and those that are parked.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<u64, Waiting>,
    sent: u64,
    /// Bodies of messages that were received too often.
    pub(super) parked: Vec<String>,
}

#[derive(Debug)]
struct Waiting {
    body: String,
    visible: i64,
    receives: u32,
}

/// A message of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    number: u64,
    body: String,
    receives: u32,
}

impl Queue {
    pub(super) fn send(&mut self, body: String, now: i64) {
        self.sent += 1;
        self.waiting.insert(self.sent, Waiting { body, visible: now, receives: 0 });
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many messages nobody has done with.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The next batch, oldest first; empty if nothing is visible.
    pub(super) fn receive(&mut self, now: i64) -> Vec<Received> {
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

    /// Somebody is done with the message: it does not come again.
    pub(super) fn delete(&mut self, message: &Received) {
        self.waiting.remove(&message.number);
    }
}

impl Received {
    pub(super) fn id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.number)
    }

    /// The message as Lambda hands it over.
    pub(super) fn record(&self) -> Value {
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
    fn a_message_is_invisible_for_a_while_and_comes_again_until_it_is_deleted() {
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
    fn a_message_that_was_received_too_often_is_parked() {
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
    fn a_batch_has_an_end() {
        let mut queue = Queue::default();
        (0..=BATCH).for_each(|number| queue.send(number.to_string(), 0));
        assert_eq!((queue.receive(0).len(), queue.receive(0).len()), (BATCH, 1));
    }
}
