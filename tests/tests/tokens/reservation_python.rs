//! The real rate-limiter-py 0.3.0 beside ours, on the same tables. Skipped where Python does not have that library.

use std::{ffi::OsString, process::Output};

use tidegate_tests::{
    python::{interpreter, script},
    reservations::prelude::*,
};

/// The Python client, and the tables that it shares with ours. Both use the real time.
struct Both {
    scene: ReservationScene,
    python: OsString,
    ours: Reservations,
}

impl Both {
    /// `None` where Python does not have the client.
    async fn with_limit(limit: i64) -> anyhow::Result<Option<Self>> {
        let Some(python) = interpreter("limiter, boto3").await? else { return Ok(None) };
        let scene = ReservationScene::new(limit).await?;
        let ours = Reservations::builder(scene.services.dynamodb.clone(), TokenTables::of(BASE)).build();
        Ok(Some(Self { scene, python, ours }))
    }

    async fn python(&self, command: &[&str]) -> anyhow::Result<Value> {
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

    async fn reserve(&self) -> Result<Reservation, ReserveError> {
        self.ours.reserve(CLUSTER, ACCOUNT).await
    }
}

#[tokio::test]
async fn each_client_counts_the_others_tokens() -> anyhow::Result<()> {
    let Some(both) = Both::with_limit(4).await? else { return Ok(()) };
    assert_eq!(both.python(&["start", "j-1"]).await?, json!(["j-1"]));
    assert_eq!(both.python(&["reserve"]).await?, json!(true));
    let token = both.reserve().await?.bind("j-2", LIFETIME).await?;
    assert_eq!(both.python(&["start", "j-3", "j-4"]).await?, json!(["j-3"]));
    assert!(matches!(both.reserve().await, Err(ReserveError::Denied(_))));
    token.release().await?;
    assert_eq!(both.python(&["start", "j-5", "j-6"]).await?, json!(["j-5"]));
    let mut held: Vec<_> = both.ours.list(CLUSTER, ACCOUNT).await?.into_iter().map(|of| of.resource_id).collect();
    held.sort();
    assert_eq!(held, [None, Some("j-1"), Some("j-3"), Some("j-5")].map(|id| id.map(str::to_owned)));
    Ok(())
}

#[tokio::test]
async fn a_crowd_of_ours_keeps_the_limit_beside_python() -> anyhow::Result<()> {
    let Some(both) = Both::with_limit(10).await? else { return Ok(()) };
    assert_eq!(both.python(&["start", "j-1", "j-2", "j-3"]).await?, json!(["j-1", "j-2", "j-3"]));
    let processes: Vec<_> = (0..5)
        .map(|_| Reservations::builder(both.scene.services.dynamodb.clone(), TokenTables::of(BASE)).build())
        .collect();
    let crowd = (0..50).map(|number| processes[number % 5].reserve(CLUSTER, ACCOUNT).into_future());
    let reserved = futures::future::join_all(crowd).await;
    assert_eq!(reserved.iter().filter(|reserved| reserved.is_ok()).count(), 7);
    assert_eq!(both.python(&["reserve"]).await?, json!(false));
    Ok(())
}

/// Both kinds reserve at the same time. What Python adds beyond the limit denies ours.
#[tokio::test]
async fn only_python_callers_exceed_the_limit() -> anyhow::Result<()> {
    let Some(both) = Both::with_limit(10).await? else { return Ok(()) };
    let ours = async {
        let mut reserved = Vec::new();
        for _ in 0..20 {
            reserved.extend(both.reserve().await.ok());
        }
        Ok(reserved)
    };
    let theirs = async { both.python(&["crowd", "50"]).await };
    let (reserved, granted) = futures::future::try_join(ours, theirs).await?;
    let granted = usize::try_from(granted.as_u64().context("a count")?)?;
    let live = both.ours.list(CLUSTER, ACCOUNT).await?.len();
    assert_eq!(live, granted + reserved.len());
    assert!(live >= 10, "{live} are held");
    assert!(matches!(both.reserve().await, Err(ReserveError::Denied(_))));
    Ok(())
}
