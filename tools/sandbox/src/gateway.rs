//! An endpoint in front of a DynamoDB. It counts calls and the capacity that they consume, whoever makes them, and can
//! answer late, lose responses, and answer writes of buckets itself.
//!
//! It asks DynamoDB for the consumed capacity of each call. What a call costs whose condition does not hold is in no
//! response, so it is computed as AWS bills it: one unit for a write, two for each item of a transaction, if items have at
//! most a kilobyte.
//!
//! AWS: [consumed capacity](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract,
    http::{HeaderMap, Request, Response, StatusCode, header},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::loopback::{LoopbackServer, broken_body};

/// A running gateway. It ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    server: LoopbackServer,
    shared: Arc<Shared>,
}

/// How the gateway answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Each call takes so much longer, in milliseconds.
    pub latency_millis: u64,
    /// The response to every so many-th `UpdateItem` that is done is lost; 0 for none.
    pub lose_every: u64,
    /// Whether the gateway answers each `UpdateItem` of a bucket itself, at once: a bucket whose limits `requests` and
    /// `tokens` are full.
    pub is_stub: bool,
}

/// Calls, and what they consumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The number of calls by operation, like `UpdateItem`.
    pub calls: BTreeMap<String, u64>,
    pub read_units: f64,
    /// Write units of the table.
    pub write_units: f64,
    /// Write units of the table's indexes.
    pub index_write_units: f64,
    /// Responses that were lost.
    pub lost_responses: u64,
}

/// A call that waits. The gateway answers with what is sent here. If this is dropped, DynamoDB answers.
pub type HeldCall = oneshot::Sender<(StatusCode, Value)>;

#[derive(Debug)]
struct Shared {
    upstream: String,
    client: Client<HttpConnector, Body>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    conditions: Conditions,
    usage: Usage,
    updates: u64,
    /// The operation whose calls are held, and who gets them.
    held: Option<(&'static str, mpsc::UnboundedSender<HeldCall>)>,
}

impl Gateway {
    /// Starts in front of the DynamoDB at `upstream`, like `http://127.0.0.1:8000`, on a free port.
    pub async fn start(upstream: &str) -> anyhow::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let shared = Arc::new(Shared { upstream: upstream.to_owned(), client, state: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        Ok(Self { server: LoopbackServer::start("the gateway", router).await?, shared })
    }

    /// Where clients of DynamoDB find it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Changes how it answers from now on.
    pub fn set(&self, conditions: Conditions) {
        self.shared.state().conditions = conditions;
    }

    /// Holds each call of this operation and sends it to the receiver, until the receiver is dropped.
    pub fn hold(&self, operation: &'static str) -> mpsc::UnboundedReceiver<HeldCall> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.state().held = Some((operation, sender));
        receiver
    }

    /// Returns the usage since the last time.
    pub fn take_usage(&self) -> Usage {
        std::mem::take(&mut self.shared.state().usage)
    }
}

impl Usage {
    /// The number of all calls.
    pub fn total_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Adds what a successful response says of its capacity.
    fn add_consumed(&mut self, operation: &str, response: &Value) {
        let consumed = &response["ConsumedCapacity"];
        let tables = consumed.as_array().map_or_else(|| std::slice::from_ref(consumed), Vec::as_slice);
        for consumed in tables {
            let all = units(consumed);
            if is_write(operation) {
                let table = units(&consumed["Table"]);
                self.write_units += table;
                self.index_write_units += all - table;
            } else {
                self.read_units += all;
            }
        }
    }
}

impl State {
    /// Whether the response to a write that is done is lost.
    fn is_lost(&mut self) -> bool {
        self.updates += 1;
        let is_lost = self.conditions.lose_every > 0 && self.updates.is_multiple_of(self.conditions.lose_every);
        self.usage.lost_responses += u64::from(is_lost);
        is_lost
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the answer to a call that is held.
    async fn held(&self, operation: &str) -> Option<(StatusCode, Bytes)> {
        let (call, answer) = oneshot::channel();
        let is_held =
            |(of, calls): &(&str, mpsc::UnboundedSender<HeldCall>)| *of == operation && calls.send(call).is_ok();
        if !self.state().held.as_ref().is_some_and(is_held) {
            return None;
        }
        let (status, body) = answer.await.ok()?;
        Some((status, Bytes::from(body.to_string())))
    }

    /// Lets DynamoDB answer, and counts what the call has consumed.
    async fn forward(&self, operation: &str, headers: &HeaderMap, body: &[u8]) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut call: Value = serde_json::from_slice(body)?;
        if is_metered(operation) {
            call["ReturnConsumedCapacity"] = json!("INDEXES");
        }
        let mut request = Request::post(&self.upstream);
        for name in ["content-type", "authorization", "x-amz-date", "x-amz-target"] {
            request = request.header(name, headers.get(name).with_context(|| format!("no header {name}"))?);
        }
        let request = request.body(Body::from(call.to_string()))?;
        let (parts, body) = self.client.request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await?;
        let response: Value = serde_json::from_slice(&body)?;
        let kind = response["__type"].as_str().unwrap_or_default();
        let usage = &mut self.state().usage;
        if parts.status.is_success() {
            usage.add_consumed(operation, &response);
        } else if kind.ends_with("ConditionalCheckFailedException") {
            usage.write_units += 1.0;
        } else if kind.ends_with("TransactionCanceledException") {
            let items = call["TransactItems"].as_array().map_or(0, Vec::len);
            usage.write_units += 2.0 * f64::from(u32::try_from(items)?);
        }
        Ok((parts.status, body))
    }
}

async fn answer(
    extract::State(shared): extract::State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let operation = target.rsplit_once('.').map_or(target, |(_, operation)| operation);
    let conditions = {
        let mut state = shared.state();
        *state.usage.calls.entry(operation.to_owned()).or_default() += 1;
        state.conditions
    };
    let is_update = operation == "UpdateItem";
    if conditions.latency_millis > 0 {
        tokio::time::sleep(Duration::from_millis(conditions.latency_millis)).await;
    }
    let answered = if let Some(answer) = shared.held(operation).await {
        Ok(answer)
    } else if conditions.is_stub && is_update && is_of_bucket(&body) {
        Ok((StatusCode::OK, Bytes::from_static(FULL_BUCKET.as_bytes())))
    } else {
        shared.forward(operation, &headers, &body).await
    };
    let (status, body) = match answered {
        Ok((status, _)) if is_update && status.is_success() && shared.state().is_lost() => {
            (StatusCode::OK, broken_body())
        }
        Ok((status, body)) => (status, Body::from(body)),
        Err(error) => (StatusCode::BAD_GATEWAY, Body::from(format!("{error:#}"))),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}

fn is_write(operation: &str) -> bool {
    matches!(operation, "UpdateItem" | "PutItem" | "DeleteItem" | "TransactWriteItems" | "BatchWriteItem")
}

fn is_metered(operation: &str) -> bool {
    is_write(operation) || matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan" | "TransactGetItems")
}

fn units(capacity: &Value) -> f64 {
    capacity["CapacityUnits"].as_f64().unwrap_or_default()
}

/// Whether a call is for a bucket. The stub must be fast, so it does not parse the call.
fn is_of_bucket(body: &[u8]) -> bool {
    body.windows(STATE.len()).any(|window| window == STATE.as_bytes())
}

const STATE: &str = r##""#STATE""##;

/// The response to a write of a full bucket.
const FULL_BUCKET: &str = r##"{"Attributes":{"PK":{"S":"ns/BUCKET#key#gpt-4#0"},"SK":{"S":"#STATE"},"entity_id":{"S":"key"},"resource":{"S":"gpt-4"},"cascade":{"BOOL":false},"rf":{"N":"1767225600000"},"shard_count":{"N":"1"},"ttl":{"N":"4102444800"},"GSI2PK":{"S":"ns/RESOURCE#gpt-4"},"GSI2SK":{"S":"BUCKET#key#0"},"GSI3PK":{"S":"ns/ENTITY#key"},"GSI3SK":{"S":"BUCKET#gpt-4#0"},"GSI4PK":{"S":"ns"},"GSI4SK":{"S":"BUCKET#key#gpt-4#0"},"b_requests_tk":{"N":"1000000000000"},"b_requests_tc":{"N":"1000"},"b_requests_cp":{"N":"1000000000000"},"b_requests_ra":{"N":"1000000000000"},"b_requests_rp":{"N":"60000"},"b_tokens_tk":{"N":"1000000000000"},"b_tokens_tc":{"N":"1000"},"b_tokens_cp":{"N":"1000000000000"},"b_tokens_ra":{"N":"1000000000000"},"b_tokens_rp":{"N":"60000"},"b_wcu_tk":{"N":"1000000"},"b_wcu_tc":{"N":"1000"},"b_wcu_cp":{"N":"1000000"},"b_wcu_ra":{"N":"1000000"},"b_wcu_rp":{"N":"1000"}}}"##;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use aws_sdk_dynamodb::{Client, types::AttributeValue};
    use tidegate_aws::{client, schema, table};

    use super::*;
    use crate::{
        dynamodb::EmbeddedDynamoDb,
        faults::{FaultyHttp, sdk_config},
    };

    const TABLE: &str = "metered-buckets";

    async fn start() -> (EmbeddedDynamoDb, Gateway, Client) {
        let embedded = EmbeddedDynamoDb::start(None).await.unwrap();
        let gateway = Gateway::start(embedded.endpoint()).await.unwrap();
        let client = client::dynamodb(&sdk_config(&gateway.endpoint(), FaultyHttp::undisturbed()));
        table::create(&client, TABLE).await.unwrap();
        gateway.take_usage();
        (embedded, gateway, client)
    }

    fn key() -> HashMap<String, AttributeValue> {
        [(schema::PK, "ns/BUCKET#a#b#0"), (schema::SK, "#STATE")]
            .map(|(name, key)| (name.to_owned(), AttributeValue::S(key.to_owned())))
            .into()
    }

    async fn update(client: &Client, condition: &str) -> bool {
        let update = client.update_item().table_name(TABLE).set_key(Some(key())).update_expression("ADD a :a");
        let update = update.condition_expression(condition);
        update.expression_attribute_values(":a", AttributeValue::N("1".to_owned())).send().await.is_ok()
    }

    #[tokio::test]
    async fn calls_and_their_capacity_are_counted() {
        let (_embedded, gateway, client) = start().await;
        let mut item = key();
        item.insert(schema::GSI2PK.to_owned(), AttributeValue::S("x".to_owned()));
        item.insert(schema::GSI2SK.to_owned(), AttributeValue::S("y".to_owned()));
        client.put_item().table_name(TABLE).set_item(Some(item)).send().await.unwrap();
        assert!(update(&client, "attribute_exists(PK)").await);
        assert!(!update(&client, "attribute_not_exists(PK)").await);
        client.get_item().table_name(TABLE).set_key(Some(key())).consistent_read(true).send().await.unwrap();
        let calls = [("GetItem", 1), ("PutItem", 1), ("UpdateItem", 2)];
        let expect = Usage {
            calls: calls.map(|(operation, calls)| (operation.to_owned(), calls)).into(),
            read_units: 1.0,
            write_units: 3.0,
            index_write_units: 2.0,
            lost_responses: 0,
        };
        assert_eq!(gateway.take_usage(), expect);
        assert_eq!(gateway.take_usage(), Usage::default());
    }

    #[tokio::test]
    async fn a_lost_response_belongs_to_a_write_that_happened() {
        let (_embedded, gateway, client) = start().await;
        gateway.set(Conditions { lose_every: 1, ..Conditions::default() });
        assert!(!update(&client, "attribute_not_exists(PK)").await);
        let usage = gateway.take_usage();
        // The SDK sends it again, and the condition fails.
        assert_eq!((usage.lost_responses, usage.calls["UpdateItem"]), (1, 2));
        gateway.set(Conditions { is_stub: true, ..Conditions::default() });
        assert!(update(&client, "attribute_not_exists(PK)").await);
        let usage = gateway.take_usage();
        assert_eq!((usage.calls["UpdateItem"], usage.total_calls()), (1, 1));
    }
}
