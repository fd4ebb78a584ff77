//! An AWS endpoint that accepts every call and counts the calls. It has one token for each resource, except for those
//! that [`events`] names untracked.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, header::CONTENT_TYPE},
    response::IntoResponse,
};

use serde_json::{Value, json};
use tidegate_aws::schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID};
use tidegate_sandbox::loopback::LoopbackServer;

use crate::events;

/// Number of calls by `X-Amz-Target`, like `DynamoDB_20120810.UpdateItem`.
pub(crate) type Calls = BTreeMap<String, u32>;

type Counter = Arc<Mutex<Calls>>;

/// The stub: `{}` is a complete answer of the JSON protocols' writes (an item not returned, a message
/// sent), and of a query that finds nothing, so no call fails and none is retried.
#[derive(Debug)]
pub(crate) struct AwsStub {
    server: LoopbackServer,
    calls: Counter,
}

impl AwsStub {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let calls = Counter::default();
        let server =
            LoopbackServer::start("the AWS stub", Router::new().fallback(answer).with_state(Arc::clone(&calls)))
                .await?;
        Ok(Self { server, calls })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the calls since the last time.
    pub(crate) fn take_calls(&self) -> Calls {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn answer(State(calls): State<Counter>, method: Method, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    let target = match headers.get("x-amz-target").map(|target| String::from_utf8_lossy(target.as_bytes())) {
        Some(target) => target.into_owned(),
        None => format!("{method} without a target"),
    };
    let answer = if target.ends_with(".Query") { found(&body) } else { None };
    *calls.lock().unwrap_or_else(PoisonError::into_inner).entry(target).or_default() += 1;
    ([(CONTENT_TYPE, "application/x-amz-json-1.0")], answer.unwrap_or_else(|| "{}".to_owned()))
}

/// The token that a query asks for, if its resource has one.
fn found(query: &[u8]) -> Option<String> {
    let query: Value = serde_json::from_slice(query).ok()?;
    let resource = query["ExpressionAttributeValues"][":resource"]["S"].as_str()?;
    let token = json!({
        RESOURCE_COORDINATE: {"S": "clusters:123456789012"},
        RESERVATION_ID: {"S": "00000000-0000-4000-8000-000000000000"},
        RESOURCE_ID: {"S": resource},
        EXPIRATION_TIME: {"N": "4102444800"},
    });
    events::has_token(resource).then(|| json!({"Count": 1, "ScannedCount": 1, "Items": [token]}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(resource: &str) -> Option<String> {
        found(json!({"ExpressionAttributeValues": {":resource": {"S": resource}}}).to_string().as_bytes())
    }

    #[test]
    fn a_query_finds_the_token_of_its_resource() {
        let answer: Value = serde_json::from_str(&query("j-1").unwrap()).unwrap();
        assert_eq!(answer["Items"][0][RESOURCE_ID], json!({"S": "j-1"}));
        assert_eq!(query(&events::cluster_id(false, 1)), None);
        assert_eq!(found(b"{}"), None);
    }
}
