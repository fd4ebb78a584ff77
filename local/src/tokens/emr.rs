//! EMR in this process: it knows which clusters run and which have ended, and no more.

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

/// Clusters, and the state of each.
#[derive(Clone, Debug, Default)]
struct Known(Arc<Mutex<BTreeMap<String, &'static str>>>);

/// Answers `DescribeCluster` on loopback until it is dropped.
#[derive(Debug)]
pub(super) struct EmbeddedEmr {
    pub(super) endpoint: String,
    known: Known,
    // A JoinSet, because dropping it ends its tasks.
    _serving: JoinSet<()>,
}

impl EmbeddedEmr {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub(super) async fn start() -> anyhow::Result<Self> {
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

    pub(super) fn runs(&self, cluster: &str) {
        self.known.states().insert(cluster.to_owned(), "RUNNING");
    }

    pub(super) fn ends(&self, cluster: &str) {
        self.known.states().insert(cluster.to_owned(), "TERMINATED");
    }
}

impl Known {
    fn states(&self) -> MutexGuard<'_, BTreeMap<String, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(State(known): State<Known>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let cluster = asked["ClusterId"].as_str().unwrap_or_default();
    let (status, answer) = match known.states().get(cluster) {
        Some(state) => (StatusCode::OK, json!({"Cluster": {"Id": cluster, "Status": {"State": state}}})),
        None => (
            StatusCode::BAD_REQUEST,
            json!({"__type": "InvalidRequestException", "Message": format!("Cluster id '{cluster}' is not valid.")}),
        ),
    };
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
        let clusters = Clusters::new(client::emr(&sdk_config(&emr.endpoint, http)));
        emr.runs("j-1");
        emr.runs("j-2");
        emr.ends("j-2");
        for (cluster, expect) in [("j-1", Resource::Running), ("j-2", Resource::Ended), ("j-3", Resource::Unknown)] {
            assert_eq!(clusters.find(cluster).await.unwrap(), expect, "{cluster}");
        }
    }
}
