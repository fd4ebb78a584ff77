//! The dead-letter queue: records that cannot be processed, whole, with the reason; and what an operator does
//! with its messages.

use std::{collections::HashMap, time::Duration};

use aws_sdk_sqs::{Client, error::BuildError, types::MessageAttributeValue};
use futures::{StreamExt as _, stream};

use crate::error::StoreError;

/// A queue that takes the records that cannot be processed.
#[derive(Clone, Debug)]
pub struct DeadLetterQueue {
    client: Client,
    url: String,
    function: &'static str,
}

/// A record on its way to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// The record's JSON text as it was delivered: the message's body.
    pub record: &'a str,
    /// Why it cannot be processed: message attribute `reason`.
    pub reason: String,
    /// The only snapshot that misses the record, as `PK SK`: message attribute `snapshot`. `None` if all snapshots miss it.
    pub snapshot: Option<String>,
}

/// A message of the queue. It stays hidden from other receivers for as long as was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub body: String,
    pub attributes: HashMap<String, String>,
    receipt: String,
}

/// The message attribute that names the function that parked a record. Each function parks the records that it could not
/// process itself.
pub const FUNCTION: &str = "function";
/// The message attribute that holds [`DeadLetter::reason`].
const REASON: &str = "reason";
/// The message attribute that holds [`DeadLetter::snapshot`].
pub const SNAPSHOT: &str = "snapshot";

/// The most characters of a reason that are sent: SQS counts attributes towards a message's 1 MiB.
///
/// AWS: [message quotas](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
const REASON_LENGTH: usize = 1000;

/// How long a message that is about to be deleted is kept from others.
const DELETION: Duration = Duration::from_mins(1);

/// The most messages in one response.
///
/// AWS: [ReceiveMessage](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html).
const MESSAGES: i32 = 10;

/// How many calls for messages are under way at the same time.
const CALLS: usize = 128;

impl DeadLetterQueue {
    /// The queue at this URL, for records that `function` parks.
    pub fn new(client: Client, url: impl Into<String>, function: &'static str) -> Self {
        Self { client, url: url.into(), function }
    }

    /// Parks a record. A batch that is delivered again parks its records again, as equal messages.
    pub async fn park(&self, dead_letter: &DeadLetter<'_>) -> Result<(), StoreError> {
        let refused = |source: BuildError| StoreError::Refused { operation: "SendMessage", source: source.into() };
        let reason = dead_letter.reason.chars().take(REASON_LENGTH).collect();
        let mut message = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_body(dead_letter.record)
            .message_attributes(FUNCTION, text(self.function.to_owned()).map_err(refused)?)
            .message_attributes(REASON, text(reason).map_err(refused)?);
        if let Some(snapshot) = &dead_letter.snapshot {
            message = message.message_attributes(SNAPSHOT, text(snapshot.clone()).map_err(refused)?);
        }
        message.send().await.map_err(|error| StoreError::from_sdk("SendMessage", error))?;
        Ok(())
    }

    /// Up to ten messages, which are hidden from other receivers for `hidden`. An empty result does not mean that the
    /// queue is empty: `wait` is how long the queue looks for messages.
    pub async fn receive(&self, hidden: Duration, wait: Duration) -> Result<Vec<Message>, StoreError> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(MESSAGES)
            .visibility_timeout(seconds(hidden))
            .wait_time_seconds(seconds(wait))
            .message_attribute_names("All");
        let received = received.send().await.map_err(|error| StoreError::from_sdk("ReceiveMessage", error))?;
        Ok(received.messages.unwrap_or_default().into_iter().map(Message::of).collect())
    }

    /// Deletes messages. SQS may ignore a deletion after the visibility timeout and still report success, so this first
    /// extends the timeout.
    ///
    /// AWS: [DeleteMessage](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html).
    pub async fn delete(&self, messages: Vec<Message>) -> Vec<(Message, Result<(), StoreError>)> {
        let delete = async |message: Message| {
            let deleted = async {
                self.hide(&message, DELETION).await?;
                let delete = self.client.delete_message().queue_url(&self.url).receipt_handle(&message.receipt);
                delete.send().await.map(drop).map_err(|error| StoreError::from_sdk("DeleteMessage", error))
            };
            let deleted = deleted.await;
            (message, deleted)
        };
        stream::iter(messages).map(delete).buffer_unordered(CALLS).collect().await
    }

    /// Makes messages visible to others at once.
    pub async fn make_visible(&self, messages: Vec<Message>) -> Vec<(Message, Result<(), StoreError>)> {
        let make_visible = async |message: Message| {
            let given = self.hide(&message, Duration::ZERO).await;
            (message, given)
        };
        stream::iter(messages).map(make_visible).buffer_unordered(CALLS).collect().await
    }

    /// Hides a message for that long from now on. Fails when the message's time has passed.
    async fn hide(&self, message: &Message, hidden: Duration) -> Result<(), StoreError> {
        let change = self.client.change_message_visibility().queue_url(&self.url).receipt_handle(&message.receipt);
        let changed = change.visibility_timeout(seconds(hidden)).send().await;
        changed.map(drop).map_err(|error| StoreError::from_sdk("ChangeMessageVisibility", error))
    }
}

impl Message {
    fn of(message: aws_sdk_sqs::types::Message) -> Self {
        let attributes = message.message_attributes.unwrap_or_default();
        Self {
            id: message.message_id.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            attributes: attributes.into_iter().filter_map(|(name, value)| Some((name, value.string_value?))).collect(),
            receipt: message.receipt_handle.unwrap_or_default(),
        }
    }
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

fn text(value: String) -> Result<MessageAttributeValue, BuildError> {
    MessageAttributeValue::builder().data_type("String").string_value(value).build()
}
