//! The real client, rate-limiter-py 0.3.0: what the sweeper deletes is capacity that it has again, and no more.
//!
//! It is skipped where Python does not have that library: see `tidegate_tests::python`.

use std::{ffi::OsString, process::Output};

use tidegate_aws::clock;
use tidegate_tests::{
    python::{interpreter, script},
    sweeper::prelude::*,
};

/// The client, and the tables that it shares with the sweeper.
struct Client {
    scene: SweeperScene,
    python: OsString,
}

impl Client {
    /// `None` where there is no such client.
    async fn with_limit(limit: usize) -> anyhow::Result<Option<Self>> {
        let Some(python) = interpreter("limiter, boto3").await? else { return Ok(None) };
        let client = Self { scene: SweeperScene::new().await?, python };
        client.run(&["limit", &limit.to_string()]).await?;
        Ok(Some(client))
    }

    async fn run(&self, command: &[&str]) -> anyhow::Result<Value> {
        let Output { status, stdout, stderr } =
            script(&self.python, "limiter_client.py", &self.scene.services.endpoint)
                .args(command)
                .env("LIMITER_TABLES_BASE_NAME", BASE)
                // The library takes the local time of day for that of UTC.
                .env("TZ", "UTC")
                .output()
                .await?;
        ensure!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
        serde_json::from_slice(&stdout).with_context(|| format!("{command:?}: {}", String::from_utf8_lossy(&stdout)))
    }

    /// Starts resources until one is refused; those that were started.
    async fn start(&self, resources: &[&str]) -> anyhow::Result<Value> {
        self.run(&[&["start"], resources].concat()).await
    }
}

#[tokio::test]
async fn ended_resources_free_exactly_their_capacity() -> anyhow::Result<()> {
    let Some(client) = Client::with_limit(3).await? else { return Ok(()) };
    let scene = &client.scene;
    assert_eq!(client.start(&["j-1", "j-2", "j-3", "j-4"]).await?, json!(["j-1", "j-2", "j-3"]));
    assert_eq!(client.run(&["reserve"]).await?, json!(false));

    // Duplicates, strays and what is no end give nothing.
    let running = changed(ended("j-3"), "/detail/state", json!("RUNNING"));
    let handled = scene.invoke(&[ended("j-1"), running, ended("j-1"), json!("stray")], END).await?;
    assert_eq!(decisions(&handled), ["deleted", "no-end", "deleted", "failed"]);
    assert_eq!(client.start(&["j-4", "j-5"]).await?, json!(["j-4"]));

    let handled = scene.invoke(&[ended("j-2"), ended("j-4"), ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["deleted", "deleted", "early"], vec!["m-2"]));
    assert_eq!(client.start(&["j-5", "j-6", "j-7"]).await?, json!(["j-5", "j-6"]));
    let held: Vec<_> = scene.held().await?.into_values().collect();
    assert_eq!(held.into_iter().collect::<BTreeSet<_>>(), ["j-3", "j-5", "j-6"].map(str::to_owned).into());
    Ok(())
}

#[tokio::test]
async fn reservations_are_the_clients_own_until_they_expire() -> anyhow::Result<()> {
    let Some(client) = Client::with_limit(2).await? else { return Ok(()) };
    let scene = &client.scene;
    assert_eq!(client.start(&["j-1"]).await?, json!(["j-1"]));
    // Its client deletes it, since nothing was started.
    assert_eq!(client.run(&["fail"]).await?, json!(true));
    assert_eq!(client.run(&["reserve"]).await?, json!(true));
    let now = clock::now()?;
    assert_eq!(scene.sweeper.reconcile(now, in_time()).await.report.kept, 2);
    assert_eq!(client.run(&["reserve"]).await?, json!(false));

    // A reservation lasts five minutes, a token eight hours.
    let run = scene.sweeper.reconcile(now.after(Duration::from_mins(6)), in_time()).await;
    assert_eq!((run.report.expired, run.report.deleted, run.report.kept), (1, 1, 1));
    assert_eq!(client.run(&["reserve"]).await?, json!(true));
    let run = scene.sweeper.reconcile(now.after(Duration::from_hours(9)), in_time()).await;
    assert_eq!((run.report.deleted, run.report.kept), (2, 0));
    assert_eq!(client.start(&["j-2", "j-3", "j-4"]).await?, json!(["j-2", "j-3"]));
    Ok(())
}
