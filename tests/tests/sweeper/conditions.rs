//! Between the look for tokens and their deletion, others go on.

use tidegate_aws::error::StoreError;
use tidegate_domain::sweep::{Reason, Removal, Token};
use tidegate_tests::sweeper::{END, SweeperScene, decisions, ended, expiring, failures, time, token};
use token_sweeper::{decision::Decision, handler::Handled};

/// An end of `j-1`, before whose deletions something else happens.
async fn swept_while(
    scene: &SweeperScene,
    meanwhile: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Handled> {
    scene.http.hold("DeleteItem");
    let events = [ended("j-1")];
    let (handled, done) = tokio::join!(
        Box::pin(scene.invoke(&events, END)),
        Box::pin(async {
            scene.http.held().await;
            let done = meanwhile.await;
            scene.http.release();
            done
        })
    );
    done?;
    handled
}

/// What became of a token that was `seen`, when the table holds `current`.
async fn check_delete(seen: Token, current: Option<Token>, reason: Reason, expect: Removal) -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    if let Some(current) = &current {
        scene.put(current).await?;
    }
    let removal: Result<Removal, StoreError> = scene.sweeper.tokens.delete(&seen, reason, time(END + 999)).await;
    assert_eq!(removal?, expect, "{reason:?} of {seen:?}");
    assert_eq!(scene.left().await?.is_empty(), expect != Removal::Changed, "{reason:?} of {seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_reservation_that_is_used_for_another_resource_stays() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = swept_while(&scene, async { scene.put(&token("r-1", "j-2")).await }).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["already-gone"], vec![]));
    assert_eq!((handled.report.changed, handled.report.deleted), (1, 0));
    assert!(handled.decided[0].response().why.contains("another resource"), "{handled:?}");
    assert_eq!(scene.held().await?, [("r-1".to_owned(), "j-2".to_owned())].into());
    Ok(())
}

#[tokio::test]
async fn a_token_that_somebody_else_deletes_is_gone() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let handled = swept_while(&scene, async { scene.delete(&token("r-1", "j-1")).await }).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["already-gone"], vec![]));
    assert_eq!((handled.report.already_gone, handled.report.gone), (1, 1));
    Ok(())
}

/// Whatever became of some of its tokens, the others of a resource go.
#[tokio::test]
async fn what_others_do_with_one_token_keeps_no_other() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    for reservation in ["r-1", "r-2", "r-3"] {
        scene.put(&token(reservation, "j-1")).await?;
    }
    let meanwhile = async {
        scene.put(&token("r-1", "j-2")).await?;
        scene.delete(&token("r-2", "j-1")).await
    };
    let handled = swept_while(&scene, meanwhile).await?;
    let [decided] = &handled.decided[..] else { panic!("{handled:?}") };
    assert!(matches!(decided.decision, Decision::Decided(_, removals)
        if (removals.deleted, removals.already_gone, removals.changed) == (1, 1, 1)));
    assert_eq!(decided.response().deleted, 1);
    assert_eq!(scene.left().await?, ["r-1"]);
    Ok(())
}

/// Extending a token makes it no other resource's: that one has ended.
#[tokio::test]
async fn a_token_that_is_extended_goes_with_its_resource() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    scene.put(&token("r-1", "j-1")).await?;
    let extended = expiring("r-1", "j-1", END / 1000 + 99_999);
    let handled = swept_while(&scene, async { scene.put(&extended).await }).await?;
    assert_eq!((decisions(&handled), scene.left().await?), (vec!["deleted"], vec![]));
    Ok(())
}

#[tokio::test]
async fn a_token_is_deleted_only_as_it_was_seen() -> anyhow::Result<()> {
    let now = END / 1000;
    let seen = || expiring("r-1", "j-1", now);
    let check = check_delete;
    check(seen(), Some(seen()), Reason::Ended, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-2", now)), Reason::Ended, Removal::Changed).await?;
    check(seen(), None, Reason::Ended, Removal::AlreadyGone).await?;
    check(seen(), Some(seen()), Reason::Expired, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-2", now)), Reason::Expired, Removal::Deleted).await?;
    check(seen(), Some(expiring("r-1", "j-1", now + 1)), Reason::Expired, Removal::Changed).await?;
    check(seen(), Some(Token { expires: None, ..seen() }), Reason::Expired, Removal::Changed).await?;
    check(seen(), None, Reason::Expired, Removal::AlreadyGone).await
}
