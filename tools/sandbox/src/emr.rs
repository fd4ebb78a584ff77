//! EMR in this process: the states of clusters. It may throttle calls and refuse access.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::loopback::{Loopback, LoopbackServer};

#[derive(Clone, Debug, Default)]
struct Emr(Arc<Mutex<EmrState>>);

#[derive(Debug, Default)]
struct EmrState {
    states: BTreeMap<String, &'static str>,
    /// How many of the next calls are throttled.
    throttled: usize,
}

/// The state of a cluster that the caller may not describe.
const REFUSED: &str = "refused";

/// Answers `DescribeCluster` on loopback until it is dropped.
#[derive(Debug)]
pub struct EmbeddedEmr {
    endpoint: String,
    emr: Emr,
    _server: LoopbackServer,
}

impl EmbeddedEmr {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub async fn start() -> anyhow::Result<Self> {
        let loopback = Loopback::bind("the embedded EMR", None).await?;
        let (endpoint, emr) = (loopback.endpoint(), Emr::default());
        let server = loopback.serve(Router::new().fallback(answer).with_state(emr.clone()));
        Ok(Self { endpoint, emr, _server: server })
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

    /// Refuses access to a cluster.
    pub fn refuses(&self, cluster: &str) {
        self.is(cluster, REFUSED);
    }

    /// Throttles the next calls.
    pub fn throttles(&self, calls: usize) {
        self.emr.lock().throttled = calls;
    }

    fn is(&self, cluster: &str, state: &'static str) {
        self.emr.lock().states.insert(cluster.to_owned(), state);
    }
}

impl Emr {
    fn lock(&self) -> MutexGuard<'_, EmrState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, cluster: &str) -> (StatusCode, Value) {
        let error =
            |kind: &str, message: String| (StatusCode::BAD_REQUEST, json!({"__type": kind, "Message": message}));
        let mut emr = self.lock();
        if emr.throttled > 0 {
            emr.throttled -= 1;
            return error("ThrottlingException", "Rate exceeded".to_owned());
        }
        match emr.states.get(cluster) {
            Some(&REFUSED) => error("AccessDeniedException", format!("not authorized to describe {cluster}")),
            Some(state) => (StatusCode::OK, json!({"Cluster": {"Id": cluster, "Status": {"State": state}}})),
            None => error("InvalidRequestException", format!("Cluster id '{cluster}' is not valid.")),
        }
    }
}

async fn answer(State(emr): State<Emr>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = emr.answer(request["ClusterId"].as_str().unwrap_or_default());
    (status, [(CONTENT_TYPE, "application/x-amz-json-1.1")], answer.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use tidegate_aws::{client, emr::Clusters};
    use tidegate_domain::sweep::Resource;

    use super::*;
    use crate::faults::{FaultRates, FaultyHttp, sdk_config};

    #[tokio::test]
    async fn clusters_have_the_states_that_were_set() {
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
