//! The reconcile deletes expired tokens, and with EMR also those of ended clusters whose event was lost.

use tidegate_aws::{
    schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE},
    tokens::SEGMENTS,
};
use tidegate_tests::sweeper::prelude::*;
use token_sweeper::reconcile::ReconcileAnswer;

const NOW: i64 = END / 1000;

fn decisions(run: &Reconciled) -> BTreeSet<(&str, &str)> {
    run.decided.iter().map(|response| (response.reservation.as_str(), response.decision)).collect()
}

/// A reconcile. Another write happens before its deletions.
async fn reconciled_while(
    scene: &SweeperScene,
    meanwhile: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Reconciled> {
    scene.http.hold("DeleteItem");
    let (run, done) = tokio::join!(
        Box::pin(scene.reconcile(END)),
        Box::pin(async {
            scene.http.held().await;
            let done = meanwhile.await;
            scene.http.release();
            done
        })
    );
    done?;
    Ok(run)
}

#[tokio::test]
async fn expired_tokens_go_and_live_ones_stay() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for token in [
        expiring("expired", "j-1", NOW - 1),
        expiring("expiring-now", "j-2", NOW),
        expiring("expired-reservation", "expired-reservation", NOW - 1),
        expiring("live", "j-1", NOW + 1),
        expiring("live-reservation", "live-reservation", NOW + 300),
        Token { expires: None, ..token("undated", "j-3") },
    ] {
        scene.put(&token).await?;
    }
    let run = scene.reconcile(END + 999).await;
    assert_eq!(scene.left().await?, ["live", "live-reservation", "undated"]);
    let deleted = ["expired", "expired-reservation", "expiring-now"].map(|reservation| (reservation, "deleted"));
    assert_eq!(decisions(&run), deleted.into());
    let report = &run.report;
    assert_eq!((report.tokens, report.kept, report.expired, report.deleted, report.undated), (6, 3, 3, 3, 1));
    assert!(run.complete && run.error.is_none());
    Ok(())
}

#[tokio::test]
async fn a_reconcile_is_answered_with_its_deletions() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&expiring("r-1", "j-1", NOW)).await?;
    scene.put(&token("r-2", "j-2")).await?;
    let answer = scene.reconcile(END).await.answer();
    assert!(
        matches!(&answer, ReconcileAnswer { tokens: 2, deleted: 1, complete: true, decided } if decided.len() == 1)
    );
    let expect = json!({
        "tokens": 2, "deleted": 1, "complete": true,
        "decided": [{"coordinate": "emr-cluster:123456789012", "reservation": "r-1", "resource": "j-1",
            "decision": "deleted", "why": "it expired at 1767225600, in epoch seconds"}],
    });
    assert_eq!(serde_json::to_value(Answer::Reconcile(answer))?, expect);
    Ok(())
}

#[tokio::test]
async fn a_concurrently_extended_token_stays() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for reservation in ["extended", "gone", "used"] {
        scene.put(&expiring(reservation, "j-1", NOW - 60)).await?;
    }
    let meanwhile = async {
        scene.put(&expiring("extended", "j-1", NOW + 1)).await?;
        scene.delete(&token("gone", "j-1")).await?;
        // It has expired, so it counts for no one, whatever resource it names.
        scene.put(&expiring("used", "j-2", NOW - 1)).await
    };
    let run = reconciled_while(&scene, meanwhile).await?;
    assert_eq!(decisions(&run), [("extended", "changed"), ("gone", "already-gone"), ("used", "deleted")].into());
    assert_eq!((run.report.changed, run.report.already_gone, run.report.deleted), (1, 1, 1));
    assert_eq!(scene.left().await?, ["extended"]);
    Ok(())
}

#[tokio::test]
async fn a_reconcile_reads_all_pages() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for number in 0..250 {
        scene.put(&expiring(&format!("r-{number:03}"), "j-1", NOW + i64::from(number % 2))).await?;
    }
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.tokens, run.report.deleted, run.complete), (250, 125, true));
    // All of them are in one segment.
    assert_eq!(scene.http.calls()["Scan"], usize::try_from(SEGMENTS)? + 2);
    assert_eq!(scene.reconcile(END).await.report.tokens, 125);
    Ok(())
}

#[tokio::test]
async fn corrupt_items_are_counted_and_left() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let keys = [(RESOURCE_COORDINATE, text("emr-cluster:1")), (RESERVATION_ID, text("without-expiry"))];
    scene.put_item(keys.map(|(name, value)| (name.to_owned(), value)).into()).await?;
    // A client that reads such an expiry fails; TTL does not take it either.
    let mut illegible = item(&token("illegible", "j-1"));
    illegible.insert(EXPIRATION_TIME.to_owned(), AttributeValue::S("1767225600".to_owned()));
    scene.put_item(illegible).await?;
    scene.put(&expiring("expired", "j-1", NOW)).await?;
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.corrupt, run.report.undated, run.report.deleted), (1, 1, 1));
    assert_eq!(scene.left().await?, ["illegible", "without-expiry"]);
    Ok(())
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    scene.sweeper = scene.another_process(&[("DRY_RUN", "true")])?;
    scene.put(&expiring("r-1", "j-1", NOW)).await?;
    scene.put(&token("r-2", "j-2")).await?;
    let run = scene.reconcile(END).await;
    assert_eq!(decisions(&run), [("r-1", "would-delete")].into());
    assert_eq!((run.report.would_delete, run.report.deleted, run.complete), (1, 0, true));
    assert_eq!(scene.left().await?, ["r-1", "r-2"]);
    assert!(!scene.http.calls().contains_key("DeleteItem"));
    Ok(())
}

/// Each run is a new process, and the deletions of its first page take all of its time.
#[tokio::test]
async fn runs_without_time_for_all_take_turns() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for number in 0..50 {
        let mut token = expiring(&format!("r-{number}"), "j-1", NOW);
        token.key.coordinate = format!("emr-cluster:{number}");
        scene.put(&token).await?;
    }
    scene.http.hold("DeleteItem");
    let mut met = BTreeSet::new();
    for run in 0..i64::from(SEGMENTS) {
        let (process, now) = (scene.another_process(&[])?, time(END + run * INTERVAL));
        let mut limit = Duration::from_millis(100);
        let stopped = loop {
            let run = process.reconcile(now, Instant::now() + limit).await;
            if run.report.tokens > 0 {
                break run;
            }
            limit *= 2;
        };
        assert!(!stopped.complete && stopped.report.tokens < 50, "{stopped:?}");
        met.extend(stopped.decided.into_iter().map(|response| response.reservation));
    }
    assert_eq!(met.len(), 50);
    scene.http.release();
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.deleted, run.complete), (50, true));
    Ok(())
}

/// Not even a page was read.
#[tokio::test]
async fn a_run_without_time_is_an_error() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let run = scene.sweeper.reconcile(time(END), Instant::now()).await;
    assert!(run.error.is_some() && !run.complete, "{run:?}");
    Ok(())
}

#[tokio::test]
async fn two_at_a_time_delete_each_token_once() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for number in 0..60 {
        scene.put(&expiring(&format!("r-{number}"), "j-1", NOW + i64::from(number % 2))).await?;
    }
    let other = scene.another_process(&[])?;
    let deadline = in_time();
    let (one, other) = tokio::join!(scene.reconcile(END), other.reconcile(time(END), deadline));
    assert_eq!(one.report.deleted + other.report.deleted, 30);
    assert_eq!(scene.left().await?.len(), 30);
    Ok(())
}

#[tokio::test]
async fn an_unreadable_table_is_an_error() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let elsewhere = scene.another_process(&[("NON_FUNGIBLE_TABLE", "no-such-table")])?;
    let run = elsewhere.reconcile(time(END), in_time()).await;
    assert!(run.error.is_some() && !run.complete, "{run:?}");
    Ok(())
}

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
async fn only_clusters_that_ended_lose_their_tokens() -> anyhow::Result<()> {
    let scene = asking().await?;
    scene.emr.ends("j-ENDED");
    scene.emr.runs("j-RUNNING");
    for token in [
        token("ended", "j-ENDED"),
        token("ended-too", "j-ENDED"),
        token("running", "j-RUNNING"),
        // EMR does not know clusters of other accounts, or old ones.
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
async fn three_failed_calls_in_succession_stop_a_run() -> anyhow::Result<()> {
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
async fn a_throttled_call_is_made_again() -> anyhow::Result<()> {
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
