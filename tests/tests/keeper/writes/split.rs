//! One transaction gives a bucket all its shards, or nothing happens.

use std::{cell::Cell, collections::HashMap};

use aws_sdk_dynamodb::{
    error::SdkError,
    operation::update_item::UpdateItemError,
    types::{AttributeValue, Get, TransactGetItem},
};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join, stream};
use tidegate_aws::{
    buckets::{Shards, WriteOutcome},
    image::image_of,
};
use tidegate_domain::split::{self, Plan};
use tidegate_tests::keeper::prelude::*;

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

/// What the bucket is missing until it has so many shards, and the shards that were read.
async fn plan(scene: &KeeperScene, shards: u32) -> anyhow::Result<(Shards, Plan<'static>)> {
    let read = scene.shards(&key("user"), shards).await?;
    let plan = split::plan(&read.states, count(shards));
    Ok((read, plan.ok_or_else(|| anyhow::anyhow!("nothing is missing"))?))
}

async fn increase(scene: &KeeperScene, (shards, plan): (Shards, Plan<'static>)) -> anyhow::Result<WriteOutcome> {
    Ok(scene.keeper.buckets.increase_shards(&key("user"), &shards, &plan).await?)
}

/// The sum of a limit over all shards of the bucket.
async fn sum(scene: &KeeperScene, name: &'static str) -> anyhow::Result<i64> {
    Ok(scene.held(&key("user"), name).await?.into_iter().sum())
}

#[tokio::test]
async fn a_new_shard_copies_shard_0() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut zero = State { expires: Some(START / 1_000 + 3_600), ..full(1) };
    take(&mut zero, "rpm", 9_999);
    take(&mut zero, "tpm", 10_003_001);
    take(&mut zero, "wcu", 2_000);
    let before = with_strangers(&zero);
    scene.put_item(before.clone()).await?;
    let sums = (sum(&scene, "rpm").await?, sum(&scene, "tpm").await?);
    scene.writes().await?;
    assert_eq!(increase(&scene, plan(&scene, 2).await?).await?, WriteOutcome::Written);
    assert_eq!(scene.writes().await?, 2);

    let mut donor = before.clone();
    donor.insert("shard_count".to_owned(), number(2));
    donor.insert("b_rpm_tk".to_owned(), number(90_001 - 45_000));
    donor.insert("b_tpm_tk".to_owned(), number(-3_001 + 1_500));
    assert_eq!(scene.item(&key("user")).await?, donor);

    let mut clone = before;
    for (name, value) in [
        ("PK", text("TQ5vSMvQTm4/BUCKET#user#api#1")),
        ("GSI2SK", text("BUCKET#user#1")),
        ("GSI3SK", text("BUCKET#api#1")),
        ("GSI4SK", text("BUCKET#user#api#1")),
        ("shard_count", number(2)),
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

/// A bucket of four shards. The last is missing, and the others know different numbers of shards.
async fn with_three_shards(scene: &KeeperScene) -> anyhow::Result<State> {
    scene.put_item(with_strangers(&State { expires: Some(START), ..full(4) })).await?;
    let mut one = State { last_refill: time(START + 777), expires: Some(7), ..full(2) };
    set_tokens(&mut one, "rpm", 40_001);
    set_tokens(&mut one, "tpm", 0);
    scene.put(&shard(&key("user"), 1), &one).await?;
    scene.put(&shard(&key("user"), 2), &State { shards: count(2), ..full(4) }).await?;
    Ok(one)
}

#[tokio::test]
async fn the_nearest_shard_gives_and_others_learn() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut one = with_three_shards(&scene).await?;
    assert_eq!(increase(&scene, plan(&scene, 4).await?).await?, WriteOutcome::Written);
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
    assert_eq!(scene.state(&shard(&key("user"), 2)).await?, full(4));
    assert_eq!(split::plan(&scene.shards(&key("user"), 4).await?.states, count(4)), None);
    Ok(())
}

/// Completes the bucket after a change `meanwhile`: it must be lost, and no item may be touched.
async fn check_lost(meanwhile: impl AsyncFnOnce(&KeeperScene) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    with_three_shards(&scene).await?;
    let plan = plan(&scene, 4).await?;
    meanwhile(&scene).await?;
    scene.writes().await?;
    let before = scene.table().await?;
    assert_eq!(increase(&scene, plan).await?, WriteOutcome::Lost);
    assert_eq!((scene.writes().await?, scene.table().await?), (0, before));
    Ok(())
}

#[tokio::test]
async fn a_transaction_is_lost_whole() -> anyhow::Result<()> {
    let one = || shard(&key("user"), 1);
    let two = || shard(&key("user"), 2);
    // A client's clone is there: it is not overwritten, and the donor keeps what it has.
    check_lost(async |scene| scene.put(&shard(&key("user"), 3), &full(4)).await).await?;
    check_lost(async |scene| scene.change(&one(), |state| state.last_refill = time(START + 778)).await).await?;
    check_lost(async |scene| scene.change(&one(), |state| state.shards = count(4)).await).await?;
    // One millitoken less than the gift.
    check_lost(async |scene| scene.change(&one(), |state| take(state, "rpm", 20_002)).await).await?;
    check_lost(async |scene| scene.delete(&one()).await).await?;
    // Another shard has learned of as many.
    check_lost(async |scene| scene.change(&two(), |state| state.shards = count(4)).await).await?;
    let disabled = ("disabled", AttributeValue::Bool(true));
    for (marked, (name, value)) in
        [(one(), ("vu", number(0))), (two(), ("vu", number(0))), (one(), disabled), (one(), ("bypass", number(START)))]
    {
        check_lost(async |scene| scene.change_item(&marked, insert(name, value.clone())).await).await?;
    }
    // New terms of the donor.
    for name in ["b_rpm_cp", "b_rpm_ra", "b_tpm_rp"] {
        check_lost(async |scene| scene.change_item(&one(), |item| add(item, name, 1)).await).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_split_stands_beside_debits() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    with_three_shards(&scene).await?;
    let plan = plan(&scene, 4).await?;
    scene.change(&shard(&key("user"), 1), |state| take(state, "rpm", 20_001)).await?;
    assert_eq!(increase(&scene, plan).await?, WriteOutcome::Written);
    let now = scene.shards(&key("user"), 4).await?;
    let rpm = |number| tokens(&now.states[&Shard::new(number)], "rpm");
    assert_eq!((rpm(1), rpm(3)), (0, 20_000));
    Ok(())
}

/// The bucket as one moment shows it.
async fn snapshot(scene: &KeeperScene) -> anyhow::Result<Vec<State>> {
    let gets = (0..64).map(|number| {
        let key = tidegate_sandbox::item::key(&shard(&key("user"), number));
        let get = Get::builder().table_name(&scene.services.table).set_key(Some(key)).build()?;
        anyhow::Ok(TransactGetItem::builder().get(get).build())
    });
    let gets = gets.collect::<Result<_, _>>()?;
    let read = scene.services.dynamodb.transact_get_items().set_transact_items(Some(gets)).send().await?;
    let items = read.responses.unwrap_or_default().into_iter().filter_map(|response| response.item);
    items.map(|item| image_of(&item)?.plain().cloned().ok_or_else(|| anyhow::anyhow!("{item:?}"))).collect()
}

#[tokio::test]
async fn a_reader_sees_a_doubling_whole_or_not() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    scene.put(&key("user"), &full(1)).await?;
    let is_done = Cell::new(false);
    let double = async {
        for shards in [2, 4, 8, 16, 32, 64] {
            let plan = plan(&scene, shards).await?;
            drop(scene.http.calls());
            assert_eq!(increase(&scene, plan).await?, WriteOutcome::Written, "{shards}");
            assert_eq!(scene.http.calls(), [("TransactWriteItems".to_owned(), 1)].into());
        }
        is_done.set(true);
        anyhow::Ok(())
    };
    let watch = async {
        let mut seen = BTreeSet::new();
        while !is_done.get() {
            let states = snapshot(&scene).await?;
            assert!(states.iter().all(|state| state.shards.get() as usize == states.len()), "{states:?}");
            assert_eq!(states.iter().map(|state| tokens(state, "tpm")).sum::<i64>(), 10_000_000);
            seen.insert(states.len());
        }
        anyhow::Ok(seen)
    };
    let ((), seen) = try_join(double, watch).await?;
    assert!(seen.len() > 2, "{seen:?}");
    assert_eq!(snapshot(&scene).await?.len(), 64);
    Ok(())
}

#[tokio::test]
async fn clients_draw_while_shards_double() -> anyhow::Result<()> {
    const TAKEN: i64 = 1_000;
    let scene = KeeperScene::new().await?;
    scene.put_all((0..32).map(|number| item(&shard(&key("user"), number), &full(32)))).await?;
    let draw = async |at: u32| {
        let update = scene.services.dynamodb.update_item().table_name(&scene.services.table);
        let update = update
            .set_key(Some(tidegate_sandbox::item::key(&shard(&key("user"), at % 32))))
            .update_expression("ADD b_tpm_tk :given, b_tpm_tc :taken")
            .condition_expression("b_tpm_tk >= :taken")
            .expression_attribute_values(":given", number(-TAKEN))
            .expression_attribute_values(":taken", number(TAKEN));
        match update.send().await.map_err(SdkError::into_service_error) {
            Ok(_) => anyhow::Ok(TAKEN),
            Err(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(0),
            Err(error) => Err(error.into()),
        }
    };
    let draws = stream::iter(0..1_000).map(draw).buffer_unordered(64);
    let draws = draws.try_fold(0, async |sum, taken| Ok(sum + taken));
    let double = async {
        while increase(&scene, plan(&scene, 64).await?).await? == WriteOutcome::Lost {}
        Ok(())
    };
    let (taken, ()) = try_join(draws, double).await?;
    let states = scene.shards(&key("user"), 64).await?.states;
    assert_eq!(states.len(), 64);
    let consumed: i64 = states.values().map(|state| state.limits[&limit("tpm")].consumed.get()).sum();
    assert_eq!((consumed, sum(&scene, "tpm").await?), (taken, 10_000_000 - taken));
    Ok(())
}
