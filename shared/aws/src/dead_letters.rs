//! The dead-letter queue: records that cannot be processed, whole, with the reason.

use aws_sdk_sqs::{Client, error::BuildError, types::MessageAttributeValue};

use crate::error::StoreError;

/// A queue that takes the records that cannot be processed.
#[derive(Clone, Debug)]
pub struct DeadLetterQueue {
    client: Client,
    url: String,
}

/// A record on its way to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    /// The record's JSON text as it was delivered: the message's body.
    pub record: &'a str,
    /// Why it cannot be processed: message attribute `reason`.
    pub reason: String,
    /// The one snapshot that lacks the record, as `PK SK`; all of them do if there is none: message
    /// attribute `snapshot`.
    pub snapshot: Option<String>,
}

/// The most characters of a reason that are sent: SQS counts attributes towards a message's 1 MiB.
///
/// AWS: [message quotas](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
const REASON_LENGTH: usize = 1000;

impl DeadLetterQueue {
    /// The queue at this URL.
    #[must_use]
    pub fn new(client: Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }

    /// Parks a record. A batch that is delivered again parks its records again, as equal messages.
    ///
    /// # Errors
    /// [`StoreError`] when the queue does not take the message.
    pub async fn park(&self, letter: &DeadLetter<'_>) -> Result<(), StoreError> {
        let refused = |source: BuildError| StoreError::Refused { operation: "SendMessage", source: source.into() };
        let reason = letter.reason.chars().take(REASON_LENGTH).collect();
        let mut message = self
            .client
            .send_message()
            .queue_url(&self.url)
            .message_body(letter.record)
            .message_attributes("reason", text(reason).map_err(refused)?);
        if let Some(snapshot) = &letter.snapshot {
            message = message.message_attributes("snapshot", text(snapshot.clone()).map_err(refused)?);
        }
        message.send().await.map_err(|error| StoreError::from_sdk("SendMessage", error))?;
        Ok(())
    }
}

fn text(value: String) -> Result<MessageAttributeValue, BuildError> {
    MessageAttributeValue::builder().data_type("String").string_value(value).build()
}
