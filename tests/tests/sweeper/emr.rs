//! The reconcile with EMR: tokens of clusters whose event was lost.

use std::collections::BTreeSet;

use tidegate_tests::sweeper::{END, INTERVAL, SweeperScene, expiring, in_time, time, token};
use token_sweeper::reconcile::Reconciled;

/// The most clusters that one reconcile asks for.
const CLUSTERS: usize = 300;

async fn asking() -> anyhow::Result<SweeperScene> {
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(&[("RECONCILE_EMR", "true")])?;
    Ok(scene)
}

fn decisions_of(run: &Reconciled) -> BTreeSet<(&str, &str, &str)> {
    run.decided
        .iter()
        .map(|response| (response.reservation.as_str(), response.decision, response.why.as_str()))
        .collect()
}

#[tokio::test]
async fn only_clusters_that_emr_calls_ended_lose_their_tokens() -> anyhow::Result<()> {
    let scene = asking().await?;
    scene.emr.ends("j-ENDED");
    scene.emr.runs("j-RUNNING");
    for token in [
        token("ended", "j-ENDED"),
        token("ended-too", "j-ENDED"),
        token("running", "j-RUNNING"),
        // EMR knows none of other accounts, and forgets.
        token("unknown", "j-UNKNOWN"),
        token("reservation", "reservation"),
        token("job", "jr_1f2e3d"),
        expiring("expired", "j-ENDED", END / 1000),
    ] {
        scene.put(&token).await?;
    }
    let run = scene.reconcile(END).await;
    assert_eq!(scene.left().await?, ["job", "reservation", "running", "unknown"]);
    let ended = "EMR says that the cluster has ended";
    let expired = "it expired at 1767225600, in epoch seconds";
    let expect = [("ended", "deleted", ended), ("ended-too", "deleted", ended), ("expired", "deleted", expired)];
    assert_eq!(decisions_of(&run), expect.into());
    let report = &run.report;
    assert_eq!((report.tokens, report.expired, report.forgotten, report.kept, report.deleted), (7, 1, 2, 4, 3));
    assert_eq!((report.clusters_asked, report.clusters_unknown, report.clusters_failed), (3, 1, 0));
    assert_eq!(scene.http.calls()["DescribeCluster"], 3);
    assert!(run.complete && run.error.is_none());
    Ok(())
}

#[tokio::test]
async fn without_the_switch_emr_is_not_asked() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.emr.ends("j-ENDED");
    scene.put(&token("ended", "j-ENDED")).await?;
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.kept, run.report.clusters_asked, run.complete), (1, 0, true));
    assert_eq!(scene.left().await?, ["ended"]);
    Ok(())
}

/// The cluster's reservation is used for another one while EMR is asked.
#[tokio::test]
async fn a_reservation_that_is_used_again_stays() -> anyhow::Result<()> {
    let scene = asking().await?;
    scene.emr.ends("j-ENDED");
    scene.put(&token("r-1", "j-ENDED")).await?;
    scene.http.hold("DescribeCluster");
    let (run, put) = tokio::join!(
        Box::pin(scene.reconcile(END)),
        Box::pin(async {
            scene.http.held().await;
            let put = scene.put(&token("r-1", "j-NEXT")).await;
            scene.http.release();
            put
        })
    );
    put?;
    assert_eq!((run.report.forgotten, run.report.changed, run.report.deleted), (1, 1, 0));
    assert_eq!(scene.left().await?, ["r-1"]);
    Ok(())
}

/// A role may be forbidden to describe one cluster.
#[tokio::test]
async fn a_failed_call_does_not_stop_a_run_but_three_in_a_row_do() -> anyhow::Result<()> {
    let scene = asking().await?;
    scene.emr.ends("j-1");
    scene.emr.refuses("j-2");
    scene.emr.ends("j-3");
    for number in 1..=3 {
        scene.put(&token(&format!("r-{number}"), &format!("j-{number}"))).await?;
    }
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.clusters_asked, run.report.clusters_failed, run.complete), (3, 1, false));
    assert!(run.error.is_none());
    assert_eq!(scene.left().await?, ["r-2"]);

    for number in 4..=6 {
        scene.emr.refuses(&format!("j-{number}"));
        scene.put(&token(&format!("r-{number}"), &format!("j-{number}"))).await?;
    }
    let run = scene.reconcile(END + INTERVAL).await;
    assert_eq!((run.report.clusters_asked, run.report.clusters_failed, run.complete), (3, 3, false));
    Ok(())
}

#[tokio::test]
async fn throttled_it_asks_again() -> anyhow::Result<()> {
    let scene = asking().await?;
    scene.emr.ends("j-1");
    scene.emr.throttles(1);
    scene.put(&token("r-1", "j-1")).await?;
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.clusters_asked, run.report.clusters_failed, run.report.deleted), (1, 0, 1));
    assert_eq!(scene.http.calls()["DescribeCluster"], 2);
    Ok(())
}

/// Each run is a new process. All clusters but the last five run, so that the order of their ids hides those.
#[tokio::test]
async fn processes_that_remember_nothing_ask_for_all() -> anyhow::Result<()> {
    let scene = asking().await?;
    let count = 2 * CLUSTERS + 5;
    for number in 0..count {
        let cluster = format!("j-{number:03}");
        if number < count - 5 {
            scene.emr.runs(&cluster);
        } else {
            scene.emr.ends(&cluster);
        }
        scene.put(&token(&format!("r-{number}"), &cluster)).await?;
    }
    for run in 0..3 {
        let process = scene.another_process(&[("RECONCILE_EMR", "true")])?;
        let run = process.reconcile(time(END + run * INTERVAL), in_time()).await;
        assert_eq!((run.report.clusters_asked, run.complete), (CLUSTERS, false));
    }
    assert_eq!(scene.left().await?.len(), count - 5);
    Ok(())
}

#[tokio::test]
async fn a_dry_run_asks_and_deletes_nothing() -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(&[("RECONCILE_EMR", "true"), ("DRY_RUN", "true")])?;
    scene.emr.ends("j-1");
    scene.put(&token("r-1", "j-1")).await?;
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.forgotten, run.report.would_delete, run.report.deleted), (1, 1, 0));
    assert_eq!(scene.left().await?, ["r-1"]);
    Ok(())
}
