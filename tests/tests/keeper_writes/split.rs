//! A split gives half of a shard to a new one, or nothing happens.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::buckets::{Outcome, Shards};
use tidegate_domain::{
    bucket::Shard,
    split::{self, Split, Step},
    state::BucketState,
};
use tidegate_tests::keeper::{
    Item, KeeperScene, START, count, full, item, key, number, set_tokens, shard, take, text, time, tokens,
};

type State = BucketState<'static>;

/// Shard 0 with attributes that only its clients understand.
fn with_strangers(state: &State) -> Item {
    let mut item = item(&key("user"), state);
    let map = HashMap::from([("deep".to_owned(), AttributeValue::L(vec![number("1.5"), AttributeValue::Null(true)]))]);
    for (name, value) in [
        ("parent_id", text("org")),
        ("unheard_of", AttributeValue::M(map)),
        ("b_rpm_soft", number(START + 60_000)),
        ("tags", AttributeValue::Ss(vec!["a".to_owned(), "b".to_owned()])),
    ] {
        item.insert(name.to_owned(), value);
    }
    item
}

/// The next step for the bucket, which must be a split, and the shards that it was decided on.
async fn next(scene: &KeeperScene, below: u32) -> anyhow::Result<(Shards, Split<'static>)> {
    let shards = scene.shards(&key("user"), below).await?;
    match split::next(&shards.states) {
        Some(Step::Split(split)) => Ok((shards, split)),
        step => anyhow::bail!("no split: {step:?}"),
    }
}

/// The sum of a limit over all shards of the bucket.
async fn sum(scene: &KeeperScene, name: &'static str) -> anyhow::Result<i64> {
    Ok(scene.shards(&key("user"), 8).await?.states.values().map(|state| tokens(state, name)).sum())
}

#[tokio::test]
async fn a_new_shard_is_shard_0_under_its_own_keys() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut zero = State { expires: Some(START / 1_000 + 3_600), ..full(1) };
    zero.shards = count(2);
    take(&mut zero, "rpm", 9_999);
    take(&mut zero, "tpm", 10_003_001);
    take(&mut zero, "wcu", 2_000);
    let before = with_strangers(&zero);
    scene.put_item(before.clone()).await?;
    let sums = (sum(&scene, "rpm").await?, sum(&scene, "tpm").await?);

    let (shards, split) = next(&scene, 2).await?;
    assert_eq!((split.donor.get(), split.target.get()), (0, 1));
    scene.writes().await?;
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Written);
    assert_eq!(scene.writes().await?, 2, "one transaction of two items");

    let mut donor = before.clone();
    donor.insert("b_rpm_tk".to_owned(), number(90_001 - 45_000));
    donor.insert("b_tpm_tk".to_owned(), number(-3_001 + 1_500));
    assert_eq!(scene.item(&key("user")).await?, donor);

    let mut clone = before;
    for (name, value) in [
        ("PK", text("TQ5vSMvQTm4/BUCKET#user#api#1")),
        ("GSI2SK", text("BUCKET#user#1")),
        ("GSI3SK", text("BUCKET#api#1")),
        ("GSI4SK", text("BUCKET#user#api#1")),
        ("b_rpm_tk", number(45_000)),
        ("b_tpm_tk", number(-1_500)),
        ("b_wcu_tk", number(1_000_000)),
        ("b_rpm_tc", number(0)),
        ("b_tpm_tc", number(0)),
        ("b_wcu_tc", number(0)),
    ] {
        assert!(clone.insert(name.to_owned(), value).is_some(), "{name}");
    }
    assert_eq!(scene.item(&shard(&key("user"), 1)).await?, clone);
    assert_eq!((sum(&scene, "rpm").await?, sum(&scene, "tpm").await?), sums, "debt is shared, too");
    Ok(())
}

/// A bucket of four shards, of which the last is missing: it is to come from shard 1.
async fn with_three_shards(scene: &KeeperScene) -> anyhow::Result<State> {
    scene.put_item(with_strangers(&State { expires: Some(START), ..full(4) })).await?;
    let mut one = State { last_refill: time(START + 777), expires: Some(7), ..full(2) };
    set_tokens(&mut one, "rpm", 40_001);
    set_tokens(&mut one, "tpm", 0);
    scene.put(&shard(&key("user"), 1), &one).await?;
    scene.put(&shard(&key("user"), 2), &full(4)).await?;
    Ok(one)
}

#[tokio::test]
async fn a_donor_learns_the_number_of_shards_and_gives_its_time() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut one = with_three_shards(&scene).await?;
    let (shards, split) = next(&scene, 4).await?;
    assert_eq!((split.donor.get(), split.target.get()), (1, 3));
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Written);

    let three = scene.item(&shard(&key("user"), 3)).await?;
    assert_eq!(three["rf"], number(START + 777), "the donor's time");
    assert_eq!(three["ttl"], number(START), "shard 0's expiry");
    assert_eq!(three["unheard_of"], scene.item(&key("user")).await?["unheard_of"], "shard 0's attributes");
    assert_eq!(
        (&three["shard_count"], &three["b_rpm_tk"], &three["b_tpm_tk"]),
        (&number(4), &number(20_000), &number(0))
    );
    one.shards = count(4);
    set_tokens(&mut one, "rpm", 20_001);
    assert_eq!(scene.item(&shard(&key("user"), 1)).await?, item(&shard(&key("user"), 1), &one));
    assert_eq!(split::next(&scene.shards(&key("user"), 4).await?.states), None);
    Ok(())
}

/// Splits shard 1 after a change `meanwhile`: it must be lost, and no item may be touched.
async fn check_lost(meanwhile: impl AsyncFnOnce(&KeeperScene) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    with_three_shards(&scene).await?;
    let (shards, split) = next(&scene, 4).await?;
    meanwhile(&scene).await?;
    scene.writes().await?;
    let before = scene.table().await?;
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Lost);
    assert_eq!((scene.writes().await?, scene.table().await?), (0, before));
    Ok(())
}

#[tokio::test]
async fn a_split_is_lost_whole() -> anyhow::Result<()> {
    let one = || shard(&key("user"), 1);
    // A client's clone is there: it is not overwritten, and the donor keeps what it has.
    check_lost(async |scene| scene.put(&shard(&key("user"), 3), &full(4)).await).await?;
    check_lost(async |scene| scene.change(&one(), |state| state.last_refill = time(START + 778)).await).await?;
    check_lost(async |scene| scene.change(&one(), |state| state.shards = count(4)).await).await?;
    check_lost(async |scene| scene.change(&one(), |state| state.valid_until = Some(0)).await).await?;
    // One millitoken less than the gift.
    check_lost(async |scene| scene.change(&one(), |state| take(state, "rpm", 20_002)).await).await?;
    check_lost(async |scene| scene.delete(&one()).await).await?;
    Ok(())
}

#[tokio::test]
async fn a_split_stands_beside_debits_that_leave_the_gift() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    with_three_shards(&scene).await?;
    let (shards, split) = next(&scene, 4).await?;
    scene.change(&shard(&key("user"), 1), |state| take(state, "rpm", 20_001)).await?;
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Written);
    let now = scene.shards(&key("user"), 4).await?;
    let rpm = |number| tokens(&now.states[&Shard::new(number)], "rpm");
    assert_eq!((rpm(1), rpm(3)), (0, 20_000));
    Ok(())
}

#[tokio::test]
async fn shard_0_with_nothing_to_give_is_only_checked() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut zero = full(2);
    set_tokens(&mut zero, "rpm", 1);
    set_tokens(&mut zero, "tpm", -1);
    scene.put(&key("user"), &zero).await?;
    let (shards, split) = next(&scene, 2).await?;
    assert!(split.gifts.is_empty());

    scene.change(&key("user"), |state| state.last_refill = time(START + 1)).await?;
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Lost);
    assert!(scene.item(&shard(&key("user"), 1)).await?.is_empty());

    scene.put(&key("user"), &zero).await?;
    scene.writes().await?;
    assert_eq!(scene.keeper.buckets.split(&key("user"), &shards, &split).await?, Outcome::Written);
    assert_eq!(scene.writes().await?, 1);
    let one = scene.state(&shard(&key("user"), 1)).await?;
    assert_eq!(["rpm", "tpm", "wcu"].map(|name| tokens(&one, name)), [0, 0, 1_000_000]);
    assert_eq!(scene.state(&key("user")).await?, zero);
    Ok(())
}
