//! What a consumer does with messages.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Error, Message, Queue, QueueState};

/// A message in the queue.
#[derive(Debug)]
pub(super) struct Stored {
    id: String,
    pub(super) message: Message,
    is_hidden: bool,
    received: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ReceiveMessage {
    queue_url: String,
    #[serde(default = "one")]
    max_number_of_messages: usize,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Receipt {
    queue_url: String,
    receipt_handle: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ChangeVisibility {
    #[serde(flatten)]
    receipt: Receipt,
    visibility_timeout: u32,
}

impl Stored {
    fn receipt(&self) -> String {
        format!("{}#{}", self.id, self.received)
    }
}

impl QueueState {
    /// Keeps a message; its id.
    pub(super) fn store(&mut self, message: Message) -> String {
        self.sent += 1;
        let id = format!("00000000-0000-4000-8000-{:012}", self.sent);
        self.messages.push(Stored { id: id.clone(), message, is_hidden: false, received: 0 });
        id
    }
}

impl Queue {
    pub(super) fn receive(&self, request: &ReceiveMessage) -> Result<Value, Error> {
        self.must_be(&request.queue_url)?;
        let wants_attributes = request.message_attribute_names.iter().any(|name| name == "All");
        let mut state = self.state();
        let twice = state.delivers_twice;
        let visible = state.messages.iter_mut().filter(|stored| !stored.is_hidden);
        let messages: Vec<_> = visible
            .take(request.max_number_of_messages.min(10))
            .map(|stored| {
                stored.received += 1;
                stored.is_hidden = !twice || stored.received.is_multiple_of(2);
                let mut message = json!({
                    "MessageId": stored.id, "ReceiptHandle": stored.receipt(), "Body": stored.message.body,
                });
                if wants_attributes {
                    message["MessageAttributes"] = attributes(&stored.message);
                }
                message
            })
            .collect();
        Ok(if messages.is_empty() { json!({}) } else { json!({ "Messages": messages }) })
    }

    pub(super) fn delete(&self, request: &Receipt) -> Result<Value, Error> {
        self.must_be(&request.queue_url)?;
        // Deleting a missing message succeeds. With an expired receipt, SQS reports success and keeps the message.
        let mut state = self.state();
        if !state.outdates {
            state.messages.retain(|stored| stored.receipt() != request.receipt_handle);
        }
        Ok(json!({}))
    }

    pub(super) fn change_visibility(&self, request: &ChangeVisibility) -> Result<Value, Error> {
        self.must_be(&request.receipt.queue_url)?;
        let mut state = self.state();
        if state.outdates {
            return Err(Error::NoSuchReceipt);
        }
        let stored = state.messages.iter_mut().find(|stored| stored.receipt() == request.receipt.receipt_handle);
        stored.ok_or(Error::NoSuchReceipt)?.is_hidden = request.visibility_timeout > 0;
        Ok(json!({}))
    }

    fn must_be(&self, url: &str) -> Result<(), Error> {
        if url == self.url { Ok(()) } else { Err(Error::NoSuchQueue) }
    }
}

fn attributes(message: &Message) -> Value {
    let text = |value: &String| json!({ "DataType": "String", "StringValue": value });
    message.attributes.iter().map(|(name, value)| (name.clone(), text(value))).collect::<Map<_, _>>().into()
}
