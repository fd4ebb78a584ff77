//! An SQS queue in this process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::loopback::{Loopback, LoopbackServer};

/// The most bytes of a message: its body and its attributes' names, types and values.
///
/// AWS: [message quotas](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html).
pub const MAX_MESSAGE_BYTES: usize = 1_048_576;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub body: String,
    /// The message attributes' values; the base64 text of binary ones.
    pub attributes: BTreeMap<String, String>,
}

/// A standard queue, empty at first, served on loopback until it is dropped.
///
/// It understands `SendMessage`, `ReceiveMessage`, `DeleteMessage` and `ChangeMessageVisibility`. It has no
/// visibility timeout: a received message stays hidden until its visibility changes. A receipt is valid until the next
/// receive. Responses have no MD5 digests, because the SDK for Rust does not check them.
#[derive(Debug)]
pub struct EmbeddedQueue {
    endpoint: String,
    queue: Arc<Queue>,
    _server: LoopbackServer,
}

#[derive(Debug)]
struct Queue {
    url: String,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: Vec<Stored>,
    sent: usize,
    refuses: bool,
    delivers_twice: bool,
    expires_receipts: bool,
    refused: usize,
}

/// A message in the queue.
#[derive(Debug)]
struct Stored {
    id: String,
    message: Message,
    is_hidden: bool,
    received: usize,
}

impl EmbeddedQueue {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub async fn start() -> Result<Self> {
        let loopback = Loopback::bind("the embedded queue", None).await?;
        let endpoint = loopback.endpoint();
        let url = format!("{endpoint}/000000000000/parked");
        let queue = Arc::new(Queue { url, state: Mutex::default() });
        let server = loopback.serve(Router::new().fallback(answer).with_state(Arc::clone(&queue)));
        Ok(Self { endpoint, queue, _server: server })
    }

    /// Where clients of SQS find it, like `http://127.0.0.1:40123`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The queue's URL.
    pub fn url(&self) -> &str {
        &self.queue.url
    }

    /// The messages in the queue, hidden ones included, oldest first.
    pub fn messages(&self) -> Vec<Message> {
        self.queue.state().messages.iter().map(|stored| stored.message.clone()).collect()
    }

    /// Puts a message into the queue, as another service would.
    pub fn put(&self, message: Message) {
        self.queue.state().store(message);
    }

    /// Refuses every message from now on, as if the queue had been deleted (400, `QueueDoesNotExist`,
    /// which the SDK does not retry), or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.queue.state().refuses = refuses;
    }

    /// From now on, delivers each message once more although it is hidden, as a standard queue may.
    ///
    /// AWS: [at-least-once delivery](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/standard-queues-at-least-once-delivery.html).
    pub fn deliver_twice(&self) {
        self.queue.state().delivers_twice = true;
    }

    /// From now on, treats every receipt as expired.
    pub fn expire_receipts(&self) {
        self.queue.state().expires_receipts = true;
    }

    /// How many messages were refused because of [`refuse`](Self::refuse).
    pub fn refused(&self) -> usize {
        self.queue.state().refused
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendMessage {
    queue_url: String,
    message_body: String,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    data_type: String,
    string_value: Option<String>,
    binary_value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveMessage {
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
struct Receipt {
    queue_url: String,
    receipt_handle: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeVisibility {
    #[serde(flatten)]
    receipt: Receipt,
    visibility_timeout: u32,
}

impl SendMessage {
    fn bytes(&self) -> usize {
        let attribute = |(name, attribute): (&String, &Attribute)| {
            name.len() + attribute.data_type.len() + attribute.string_value.as_ref().map_or(0, String::len)
                // Base64 has four characters for three bytes.
                + attribute.binary_value.as_ref().map_or(0, |value| value.trim_end_matches('=').len() * 3 / 4)
        };
        self.message_body.len() + self.message_attributes.iter().map(attribute).sum::<usize>()
    }

    fn into_message(self) -> Message {
        let value = |attribute: Attribute| attribute.string_value.or(attribute.binary_value).unwrap_or_default();
        Message {
            body: self.message_body.chars().map(stored).collect(),
            attributes: self.message_attributes.into_iter().map(|(name, attribute)| (name, value(attribute))).collect(),
        }
    }
}

/// The character that SQS stores. It replaces one that XML 1.0 does not allow.
///
/// AWS: [SendMessage](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html).
fn stored(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'.. => character,
        _ => char::REPLACEMENT_CHARACTER,
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, request: SendMessage) -> Result<Value, Error> {
        let mut state = self.state();
        if state.refuses {
            state.refused += 1;
            return Err(Error::NoSuchQueue);
        }
        if request.queue_url != self.url {
            return Err(Error::NoSuchQueue);
        }
        if request.bytes() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong);
        }
        Ok(json!({ "MessageId": state.store(request.into_message()) }))
    }

    fn receive(&self, request: &ReceiveMessage) -> Result<Value, Error> {
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

    fn delete(&self, request: &Receipt) -> Result<Value, Error> {
        self.must_be(&request.queue_url)?;
        // Deleting a missing message succeeds. With an expired receipt, SQS reports success and keeps the message.
        let mut state = self.state();
        if !state.expires_receipts {
            state.messages.retain(|stored| stored.receipt() != request.receipt_handle);
        }
        Ok(json!({}))
    }

    fn change_visibility(&self, request: &ChangeVisibility) -> Result<Value, Error> {
        self.must_be(&request.receipt.queue_url)?;
        let mut state = self.state();
        if state.expires_receipts {
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

impl Stored {
    fn receipt(&self) -> String {
        format!("{}#{}", self.id, self.received)
    }
}

impl QueueState {
    /// Keeps a message; its id.
    fn store(&mut self, message: Message) -> String {
        self.sent += 1;
        let id = format!("00000000-0000-4000-8000-{:012}", self.sent);
        self.messages.push(Stored { id: id.clone(), message, is_hidden: false, received: 0 });
        id
    }
}

fn attributes(message: &Message) -> Value {
    let text = |value: &String| json!({ "DataType": "String", "StringValue": value });
    message.attributes.iter().map(|(name, value)| (name.clone(), text(value))).collect::<Map<_, _>>().into()
}

async fn answer(State(queue): State<Arc<Queue>>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let done = match target {
        "AmazonSQS.SendMessage" => read(&body).and_then(|request| queue.take(request)),
        "AmazonSQS.ReceiveMessage" => read(&body).and_then(|request| queue.receive(&request)),
        "AmazonSQS.DeleteMessage" => read(&body).and_then(|request| queue.delete(&request)),
        "AmazonSQS.ChangeMessageVisibility" => read(&body).and_then(|request| queue.change_visibility(&request)),
        _ => Err(Error::UnknownOperation),
    };
    match done {
        Ok(answer) => json_answer(StatusCode::OK, &answer),
        Err(error) => error.into_response(),
    }
}

fn read<R: DeserializeOwned>(body: &[u8]) -> Result<R, Error> {
    serde_json::from_slice(body).map_err(|_| Error::Malformed)
}

fn json_answer(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(CONTENT_TYPE, "application/x-amz-json-1.0")], body.to_string()).into_response()
}

#[derive(Clone, Copy)]
enum Error {
    Malformed,
    NoSuchQueue,
    NoSuchReceipt,
    TooLong,
    UnknownOperation,
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, kind, code, message) = match self {
            Self::Malformed => (
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.service#SerializationException",
                "MalformedInput;Sender",
                "The request is not one of this operation.",
            ),
            Self::NoSuchQueue => (
                StatusCode::BAD_REQUEST,
                "com.amazonaws.sqs#QueueDoesNotExist",
                "AWS.SimpleQueueService.NonExistentQueue;Sender",
                "The specified queue does not exist.",
            ),
            Self::NoSuchReceipt => (
                StatusCode::BAD_REQUEST,
                "com.amazonaws.sqs#ReceiptHandleIsInvalid",
                "ReceiptHandleIsInvalid;Sender",
                "The input receipt handle is invalid.",
            ),
            Self::TooLong => (
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.service#InvalidParameterValueException",
                "InvalidParameterValue;Sender",
                "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
            ),
            Self::UnknownOperation => (
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.service#UnknownOperationException",
                "InvalidAction;Sender",
                "This queue does not understand the operation.",
            ),
        };
        // Where there is this header, its code is the one that the SDK reports.
        let code = [("x-amzn-query-error", code)];
        (code, json_answer(status, &json!({ "__type": kind, "message": message }))).into_response()
    }
}

#[cfg(test)]
mod tests;
