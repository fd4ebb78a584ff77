//! The reconcile: what no event told of goes, on condition, and whatever lives stays.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::{
    schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE},
    tokens::SEGMENTS,
};
use tidegate_domain::sweep::Token;
use tidegate_tests::sweeper::{END, INTERVAL, SweeperScene, expiring, item, text, time, token};
use token_sweeper::{event::Answer, reconcile::Reconciled};
use tokio::time::{Duration, Instant};

const NOW: i64 = END / 1000;

fn decisions(run: &Reconciled) -> BTreeSet<(&str, &str)> {
    run.decided.iter().map(|response| (response.reservation.as_str(), response.decision)).collect()
}

/// A reconcile before whose deletions something else happens.
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
async fn expired_tokens_and_reservations_go_and_live_ones_stay() -> anyhow::Result<()> {
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
async fn it_is_answered_with_each_token_that_goes_and_why() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&expiring("r-1", "j-1", NOW)).await?;
    scene.put(&token("r-2", "j-2")).await?;
    let answer = scene.reconcile(END).await.response();
    assert!(
        matches!(&answer, Answer::Reconcile { tokens: 2, deleted: 1, complete: true, decided } if decided.len() == 1)
    );
    let expect = serde_json::json!({
        "tokens": 2, "deleted": 1, "complete": true,
        "decided": [{"coordinate": "emr-cluster:123456789012", "reservation": "r-1", "resource": "j-1",
            "decision": "deleted", "why": "it expired at 1767225600, in epoch seconds"}],
    });
    assert_eq!(serde_json::to_value(answer)?, expect);
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_extended_meanwhile_stays() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for reservation in ["extended", "gone", "used"] {
        scene.put(&expiring(reservation, "j-1", NOW - 60)).await?;
    }
    let meanwhile = async {
        scene.put(&expiring("extended", "j-1", NOW + 1)).await?;
        scene.delete(&token("gone", "j-1")).await?;
        // Whatever it bears, nobody counts it.
        scene.put(&expiring("used", "j-2", NOW - 1)).await
    };
    let run = reconciled_while(&scene, meanwhile).await?;
    assert_eq!(decisions(&run), [("extended", "changed"), ("gone", "already-gone"), ("used", "deleted")].into());
    assert_eq!((run.report.changed, run.report.already_gone, run.report.deleted), (1, 1, 1));
    assert_eq!(scene.left().await?, ["extended"]);
    Ok(())
}

#[tokio::test]
async fn it_goes_through_all_pages() -> anyhow::Result<()> {
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
async fn items_that_are_no_tokens_are_counted_and_left() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let keys = [(RESOURCE_COORDINATE, text("emr-cluster:1")), (RESERVATION_ID, text("nobody's"))];
    scene.put_item(keys.map(|(name, value)| (name.to_owned(), value)).into()).await?;
    // A client that reads such an expiry fails; TTL does not take it either.
    let mut illegible = item(&token("illegible", "j-1"));
    illegible.insert(EXPIRATION_TIME.to_owned(), AttributeValue::S("1767225600".to_owned()));
    scene.put_item(illegible).await?;
    scene.put(&expiring("expired", "j-1", NOW)).await?;
    let run = scene.reconcile(END).await;
    assert_eq!((run.report.corrupt, run.report.undated, run.report.deleted), (1, 1, 1));
    assert_eq!(scene.left().await?, ["illegible", "nobody's"]);
    Ok(())
}

#[tokio::test]
async fn a_dry_run_tells_what_it_would_delete_and_deletes_nothing() -> anyhow::Result<()> {
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
        let mut patience = Duration::from_millis(100);
        let stopped = loop {
            let run = process.reconcile(now, Instant::now() + patience).await;
            if run.report.tokens > 0 {
                break run;
            }
            patience *= 2;
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
    let deadline = Instant::now() + Duration::from_mins(1);
    let (one, other) = tokio::join!(scene.reconcile(END), other.reconcile(time(END), deadline));
    assert_eq!(one.report.deleted + other.report.deleted, 30);
    assert_eq!(scene.left().await?.len(), 30);
    Ok(())
}

#[tokio::test]
async fn a_table_that_cannot_be_read_is_the_error() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let elsewhere = scene.another_process(&[("NON_FUNGIBLE_TABLE", "no-such-table")])?;
    let run = elsewhere.reconcile(time(END), Instant::now() + Duration::from_mins(1)).await;
    assert!(run.error.is_some() && !run.complete, "{run:?}");
    Ok(())
}
