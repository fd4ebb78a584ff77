//! EMR in this process: it knows which clusters run and which have ended, and no more. It may throttle and refuse.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// What EMR knows.
#[derive(Clone, Debug, Default)]
struct Known(Arc<Mutex<Knowledge>>);

#[derive(Debug, Default)]
struct Knowledge {
    states: BTreeMap<String, &'static str>,
    /// How many of the next calls are throttled.
    throttled: usize,
}

/// The state of a cluster about which the caller may not ask.
const REFUSED: &str = "refused";

/// Answers `DescribeCluster` on loopback until it is dropped.
#[derive(Debug)]
pub struct EmbeddedEmr {
    endpoint: String,
    known: Known,
    // A JoinSet, because dropping it ends its tasks.
    _serving: JoinSet<()>,
}

impl EmbeddedEmr {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("EMR cannot listen on 127.0.0.1")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let known = Known::default();
        let router = Router::new().fallback(answer).with_state(known.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // Never returns an error: a connection that cannot be accepted is tried again.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { endpoint, known, _serving: serving })
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn runs(&self, cluster: &str) {
        self.is(cluster, "RUNNING");
    }

    pub fn ends(&self, cluster: &str) {
        self.is(cluster, "TERMINATED");
    }

    /// Nobody may ask about a cluster.
    pub fn refuses(&self, cluster: &str) {
        self.is(cluster, REFUSED);
    }

    /// The next calls are too many.
    pub fn throttles(&self, calls: usize) {
        self.known.lock().throttled = calls;
    }

    fn is(&self, cluster: &str, state: &'static str) {
        self.known.lock().states.insert(cluster.to_owned(), state);
    }
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Knowledge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, cluster: &str) -> (StatusCode, Value) {
        let error =
            |kind: &str, message: String| (StatusCode::BAD_REQUEST, json!({"__type": kind, "Message": message}));
        let mut known = self.lock();
        if known.throttled > 0 {
            known.throttled -= 1;
            return error("ThrottlingException", "Rate exceeded".to_owned());
        }
        match known.states.get(cluster) {
            Some(&REFUSED) => error("AccessDeniedException", format!("not authorized to describe {cluster}")),
            Some(state) => (StatusCode::OK, json!({"Cluster": {"Id": cluster, "Status": {"State": state}}})),
            None => error("InvalidRequestException", format!("Cluster id '{cluster}' is not valid.")),
        }
    }
}

async fn answer(State(known): State<Known>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = known.answer(asked["ClusterId"].as_str().unwrap_or_default());
    (status, [(CONTENT_TYPE, "application/x-amz-json-1.1")], answer.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use tidegate_aws::{client, emr::Clusters};
    use tidegate_domain::sweep::Resource;

    use super::*;
    use crate::faults::{FaultRates, FaultyHttp, sdk_config};

    #[tokio::test]
    async fn it_tells_what_it_was_told() {
        let emr = EmbeddedEmr::start().await.unwrap();
        let http = FaultyHttp::new(FaultRates::default(), 0);
        let clusters = Clusters::new(client::emr(&sdk_config(emr.endpoint(), http)));
        emr.runs("j-1");
        emr.runs("j-2");
        emr.ends("j-2");
        emr.refuses("j-4");
        // A call that was throttled is made again.
        emr.throttles(1);
        for (cluster, expect) in [("j-1", Resource::Running), ("j-2", Resource::Ended), ("j-3", Resource::Unknown)] {
            assert_eq!(clusters.find(cluster).await.unwrap(), expect, "{cluster}");
        }
        assert!(clusters.find("j-4").await.is_err());
    }
}
