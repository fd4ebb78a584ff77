//! zae-limiter in another process: `python/client.py`.

use std::{env, path::Path, time::Duration};

use anyhow::Context as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tidegate_sandbox::peer::Peer;
use tokio::process::Command;

/// A measurement that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(30);

/// The process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct PythonClient(Peer);

/// Acquires as fast as the answers come.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClosedLoop {
    pub(crate) acquires: u32,
    pub(crate) concurrency: u32,
    pub(crate) prefix: &'static str,
    /// Each acquire is of the next of so many entities.
    pub(crate) entities: u32,
    pub(crate) tokens: u64,
}

/// What became of the acquires.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    pub(crate) unavailable: u64,
    /// From the scheduled start to the answer, in microseconds.
    #[serde(default)]
    pub(crate) latencies: Vec<u64>,
    pub(crate) wall_seconds: f64,
    pub(crate) cpu_seconds: f64,
}

impl PythonClient {
    /// Starts the interpreter that `TIDEGATE_PYTHON` names, or `python3`, and opens a table.
    pub(crate) async fn open(endpoint: &str, table: &str) -> anyhow::Result<Self> {
        let python = env::var_os("TIDEGATE_PYTHON").unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/client.py");
        let mut command = Command::new(&python);
        command
            .arg(script)
            .env("AWS_ENDPOINT_URL", endpoint)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("NO_PROXY", "127.0.0.1")
            .process_group(0);
        let peer = Peer::start(&mut command).with_context(|| format!("cannot start {}", python.display()))?;
        let mut client = Self(peer);
        let opened = client.ask::<()>(&json!({"open": {"table": table}})).await;
        opened.context("TIDEGATE_PYTHON must name a Python with the packages of tests/python/requirements.txt")?;
        Ok(client)
    }

    pub(crate) async fn closed_loop(&mut self, load: &ClosedLoop) -> anyhow::Result<Outcome> {
        self.ask(&json!({ "closed_loop": load })).await
    }

    pub(crate) async fn open_loop(&mut self, requests: &[impl Serialize]) -> anyhow::Result<Outcome> {
        self.ask(&json!({"open_loop": {"requests": requests}})).await
    }

    async fn ask<A: DeserializeOwned>(&mut self, command: &impl Serialize) -> anyhow::Result<A> {
        self.0.ask_within(LIMIT, command).await
    }
}
