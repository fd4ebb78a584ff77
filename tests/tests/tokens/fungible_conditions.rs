//! The conditions of the writes of fungible rows, one by one.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::token_rows::{RowKey, RowOperation, TokenRows, Written};
use tidegate_domain::fungible::{EpochNanos, Ours, Refill, Row, Take};
use tidegate_tests::fungible::prelude::*;

const KEY: RowKey<'static> = RowKey { resource: RESOURCE, account: ACCOUNT };
const LATER: i64 = START + 1_000;

fn rows(scene: &FungibleScene) -> TokenRows {
    TokenRows::new(scene.services.dynamodb.clone(), TokenTables::of("prod").fungible)
}

fn operation(seals: bool) -> RowOperation<'static> {
    RowOperation { id: "w.1", now: time(LATER), seals }
}

fn nanos(millis: i64) -> EpochNanos {
    EpochNanos::from(time(millis))
}

fn item(attributes: &[(&'static str, i64)]) -> Vec<(&'static str, AttributeValue)> {
    attributes.iter().map(|(name, value)| (*name, number(*value))).collect()
}

/// A take of two tokens is written to these rows, or not.
#[tokio::test]
async fn a_take_depends_on_the_row() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let rows = rows(&scene);
    let refilled = START * 1_000_000;
    let take = Take { tokens: 2, at_most: 5, since: nanos(START) };
    let check = async |seals, attributes: &[(&'static str, i64)], expect: bool| {
        scene.put_row(&item(attributes)).await?;
        let written = rows.take(KEY, take, operation(seals)).await?;
        assert_eq!(matches!(written, Written::Applied(_)), expect, "{attributes:?}");
        anyhow::Ok(())
    };
    check(false, &[(TOKENS, 5), (LEFT, 5), (REFILLED, refilled)], true).await?;
    assert_eq!((scene.tokens().await?, scene.number(LEFT).await?), (3, Some(3)));
    assert_eq!((scene.number(LAST_TOKEN).await?, scene.number(LAST_REFILL).await?), (Some(LATER), None));
    check(false, &[(TOKENS, 2), (LEFT, 2), (REFILLED, refilled + 1)], true).await?;
    check(false, &[(TOKENS, 1), (LEFT, 1), (REFILLED, refilled)], false).await?;
    check(false, &[(TOKENS, 6), (LEFT, 6), (REFILLED, refilled)], false).await?;
    check(false, &[(TOKENS, 5), (LEFT, 5), (REFILLED, refilled - 1)], false).await?;
    check(false, &[(TOKENS, 4), (LEFT, 5), (REFILLED, refilled)], false).await?;
    check(false, &[(TOKENS, 5)], false).await?;
    check(false, &[], false).await?;
    let sealed = [(TOKENS, 5), (LEFT, 5), (REFILLED, refilled), (LAST_REFILL, SEALED)];
    check(false, &sealed, true).await?;
    check(true, &sealed, true).await?;
    check(true, &sealed[..3], false).await?;
    Ok(())
}

/// A refill of a row that was seen is written to these rows, or not.
#[tokio::test]
async fn a_refill_depends_on_the_row() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let rows = rows(&scene);
    let refill = Refill { change: 3, left: 8, until: nanos(LATER), tokens: 1 };
    let check = async |seen: Option<&Row>, attributes: &[(&'static str, i64)], expect: bool| {
        scene.put_row(&item(attributes)).await?;
        let written = rows.refill(KEY, seen, refill, operation(false)).await?;
        assert_eq!(matches!(written, Written::Applied(_)), expect, "{seen:?} {attributes:?}");
        anyhow::Ok(())
    };
    let refilled = START * 1_000_000;
    let python = Row { tokens: 5, last_refill: Some(START), last_token: None, is_sealed: false, ours: None };
    let ours = Row { ours: Some(Ours { refilled: nanos(START), left: 6 }), ..python.clone() };

    check(Some(&ours), &[(TOKENS, 5), (LEFT, 6), (REFILLED, refilled)], true).await?;
    assert_eq!((scene.tokens().await?, scene.number(LEFT).await?), (8, Some(8)));
    assert_eq!(scene.number(REFILLED).await?, Some(LATER * 1_000_000));
    assert_eq!((scene.number(LAST_TOKEN).await?, scene.number(LAST_REFILL).await?), (Some(LATER), None));
    check(Some(&ours), &[(TOKENS, 4), (LEFT, 6), (REFILLED, refilled)], false).await?;
    check(Some(&ours), &[(TOKENS, 6), (LEFT, 6), (REFILLED, refilled)], false).await?;
    check(Some(&ours), &[(TOKENS, 5), (LEFT, 6), (REFILLED, refilled + 1)], false).await?;
    check(Some(&ours), &[(TOKENS, 5), (LAST_REFILL, START)], false).await?;

    check(Some(&python), &[(TOKENS, 5), (LAST_REFILL, START)], true).await?;
    check(Some(&python), &[(TOKENS, 4), (LAST_REFILL, START)], false).await?;
    check(Some(&python), &[(TOKENS, 5), (LAST_REFILL, START + 1)], false).await?;
    check(Some(&python), &[(TOKENS, 5)], false).await?;
    check(Some(&python), &[(TOKENS, 5), (LEFT, 5), (REFILLED, refilled), (LAST_REFILL, START)], false).await?;
    let never = Row { last_refill: None, ..python };
    check(Some(&never), &[(TOKENS, 5)], true).await?;
    check(Some(&never), &[(TOKENS, 5), (LAST_REFILL, START)], false).await?;

    check(None, &[], true).await?;
    assert_eq!(scene.tokens().await?, 3);
    check(None, &[(TOKENS, 0)], false).await?;
    Ok(())
}

#[tokio::test]
async fn a_refill_seals() -> anyhow::Result<()> {
    let scene = FungibleScene::new().await?;
    let rows = rows(&scene);
    let refill = Refill { change: 3, left: 3, until: nanos(LATER), tokens: 0 };
    rows.refill(KEY, None, refill, operation(true)).await?;
    assert_eq!((scene.number(LAST_REFILL).await?, scene.number(LAST_TOKEN).await?), (Some(SEALED), None));
    let row = scene.row().await?.context("the row")?;
    assert_eq!(row.get(OPERATION), Some(&text("w.1")));
    Ok(())
}
