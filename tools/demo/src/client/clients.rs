//! The clients: limiters of the Rust crate, and processes of zae-limiter.

use std::{collections::BTreeMap, ffi::OsStr, path::Path, process::Stdio, sync::Mutex};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use serde_json::json;
use tidegate::{AcquireError, Limit, Limiter, Scope};
use tidegate_sandbox::{python::python_at, services::Services};
use tokio::io::AsyncWriteExt as _;

use super::plan::{Granted, RESOURCE, Step, TOKENS};

/// How many acquires a Rust client makes at once.
const CONCURRENCY: usize = 8;

/// Does the steps with a limiter.
pub(crate) async fn rust(limiter: Limiter, steps: Vec<Step>, done: impl Fn()) -> anyhow::Result<Granted> {
    let granted = Mutex::new(Granted::default());
    let results: Vec<anyhow::Result<()>> = futures::stream::iter(&steps)
        .map(async |step| {
            let is_granted = act(&limiter, step).await?;
            granted.lock().map_err(|_| anyhow::anyhow!("a client panicked"))?.count(step, is_granted);
            done();
            Ok(())
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    results.into_iter().collect::<anyhow::Result<()>>()?;
    limiter.flush().await;
    granted.into_inner().context("a client panicked")
}

async fn act(limiter: &Limiter, step: &Step) -> anyhow::Result<bool> {
    let (entity, take, adjust, refund) = match step {
        Step::Acquire { entity, take, adjust, refund } => (entity, take, *adjust, *refund),
        Step::SetLimits { entity, capacity } => {
            set_limits(limiter, entity, capacity).await?;
            return Ok(false);
        }
    };
    let request = limiter.acquire(entity, RESOURCE);
    let request = take.iter().fold(request, |request, (limit, tokens)| request.take(limit, *tokens));
    match request.await {
        Ok(lease) if refund => lease.refund().await?,
        Ok(mut lease) => {
            lease.adjust(TOKENS, adjust);
            lease.commit().await?;
        }
        Err(AcquireError::Denied(_)) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Sets an entity's limits to so many tokens a minute.
pub(crate) async fn set_limits(
    limiter: &Limiter,
    entity: &str,
    capacity: &BTreeMap<&'static str, u64>,
) -> anyhow::Result<()> {
    let limits = capacity.iter().map(|(limit, tokens)| Limit::per_minute(*limit, *tokens));
    limiter.limits().set(Scope::entity(entity).on(RESOURCE), limits).await?;
    Ok(())
}

/// Does the steps with a process of zae-limiter, of the version at this path, or of the interpreter's if it is empty.
pub(crate) async fn python(
    interpreter: &OsStr,
    path: &Path,
    services: &Services,
    namespace: &str,
    steps: Vec<Step>,
) -> anyhow::Result<Granted> {
    let mut process = python_at(interpreter, &services.endpoint)
        .args(["-c", include_str!("client.py"), &services.table])
        .env("PYTHONPATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("Python could not be started")?;
    let mut input = process.stdin.take().context("the client has no input")?;
    input.write_all(json!({"namespace": namespace, "steps": steps}).to_string().as_bytes()).await?;
    drop(input);
    let output = process.wait_with_output().await?;
    ensure!(output.status.success(), "zae-limiter failed: {}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<bool> = serde_json::from_slice(&output.stdout).context("the answer of zae-limiter")?;
    let mut granted = Granted::default();
    let acquires = steps.iter().filter(|step| matches!(step, Step::Acquire { .. }));
    acquires.zip(answers).for_each(|(step, is_granted)| granted.count(step, is_granted));
    Ok(granted)
}
