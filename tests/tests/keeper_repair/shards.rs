//! What a repair does about one bucket.

use bucket_keeper::report::Report;
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    state::{BucketState, ShardCount},
    tokens::Millitokens,
};
use tidegate_tests::keeper::{
    KeeperScene, START, a_minute, count, full, item, key, limit, limit_of, set_tokens, shard, take, text, time, tokens,
};

const SECOND: i64 = 1_000;

type State = BucketState<'static>;

/// A bucket with these shards, of which nothing but the registry tells.
async fn scene(shards: &[State], entered: u32) -> anyhow::Result<KeeperScene> {
    let mut scene = KeeperScene::new().await?;
    for (number, state) in (0..).zip(shards) {
        scene.put(&shard(&key("user"), number), state).await?;
    }
    scene.enter(&key("user"), entered, 0).await?;
    scene.writes().await?;
    Ok(scene)
}

/// Repairs once; the report must be `expect`.
async fn check(scene: &KeeperScene, now: i64, expect: Report) -> anyhow::Result<()> {
    let repaired = scene.repair(now).await?;
    assert!(repaired.complete?);
    assert_eq!(repaired.report, Report { buckets: 1, ..expect });
    Ok(())
}

fn one() -> BucketKey<'static> {
    shard(&key("user"), 1)
}

#[tokio::test]
async fn an_empty_registry_is_done() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let repaired = scene.repair(START).await?;
    assert!(repaired.complete?);
    assert_eq!(repaired.report, Report::default());
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn missing_shards_are_created() -> anyhow::Result<()> {
    let whole = State { shards: count(4), ..full(1) };
    let mut scene = scene(&[whole], 4).await?;
    check(&scene, START + SECOND, Report { shards: 4, split: 3, enough: 4, ..Report::default() }).await?;
    let expect = (0..4).map(|number| (Shard::new(number), full(4))).collect();
    assert_eq!(scene.shards(&key("user"), 8).await?.states, expect);
    scene.writes().await?;
    check(&scene, START + 9 * SECOND, Report { shards: 4, enough: 4, ..Report::default() }).await?;
    assert_eq!(scene.writes().await?, 0, "nothing is left to be done");
    Ok(())
}

#[tokio::test]
async fn more_shards_than_the_registry_knows_are_created_and_entered() -> anyhow::Result<()> {
    let mut zero = State { shards: count(8), ..full(2) };
    take(&mut zero, "wcu", 5_000);
    let scene = scene(&[zero, full(2)], 2).await?;
    let report = scene.repair(START + SECOND).await?.report;
    assert_eq!((report.split, report.unsettled), (6, 0));
    let entry = scene.keeper.registry.find(&key("user")).await?;
    assert_eq!(entry.map(|entry| (entry.shards, entry.written)), Some((count(8), Millitokens::new(5_000))));
    let shards = scene.shards(&key("user"), 16).await?.states;
    assert!(shards.len() == 8 && shards.values().all(|state| state.shards == count(8)));
    assert_eq!(shards.values().map(|state| tokens(state, "rpm")).sum::<i64>(), 100_000);
    Ok(())
}

#[tokio::test]
async fn a_drained_shard_is_full_again_a_while_after_it_was_first_seen() -> anyhow::Result<()> {
    let mut drained = full(2);
    take(&mut drained, "rpm", 50_000);
    let mut scene = scene(&[full(2), drained], 2).await?;
    let long_after = START + 3_600 * SECOND;
    // It may have been full until just now.
    check(&scene, long_after, Report { shards: 2, enough: 2, ..Report::default() }).await?;
    assert_eq!(scene.writes().await?, 0);

    let (mut held, mut last_write) = (0, 0);
    for look in 1..=30 {
        let now = long_after + look * 5 * SECOND;
        scene.repair(now).await?;
        let holds = tokens(&scene.state(&one()).await?, "rpm");
        // The repair's clock goes on while it works.
        let accrued = (now - long_after + SECOND) * 50_000 / 60_000;
        assert!((held..=accrued.min(50_000)).contains(&holds), "{look}: {holds} of {accrued}");
        held = holds;
        if scene.writes().await? > 0 {
            last_write = look;
        }
    }
    assert!(held >= 50_000 / 16 * 15, "{held}");
    assert!((1..=13).contains(&last_write), "filled up in a minute, and then left: {last_write}");
    assert_eq!(scene.state(&key("user")).await?, full(2), "a full shard is left");
    Ok(())
}

#[tokio::test]
async fn another_process_begins_anew() -> anyhow::Result<()> {
    let mut drained = full(2);
    take(&mut drained, "rpm", 50_000);
    let mut scene = scene(&[full(2), drained], 2).await?;
    for look in 1..=3 {
        scene.keeper = scene.another_process()?;
        let now = START + look * 60 * SECOND;
        check(&scene, now, Report { shards: 2, enough: 2, ..Report::default() }).await?;
    }
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_shard_that_a_client_draws_from_is_credited_from_then_on() -> anyhow::Result<()> {
    let mut drained = full(2);
    take(&mut drained, "rpm", 50_000);
    let scene = scene(&[full(2), drained], 2).await?;
    scene.repair(START + 60 * SECOND).await?;
    scene.change(&one(), |state| take(state, "rpm", -10_000)).await?;
    scene.repair(START + 120 * SECOND).await?;
    assert_eq!(tokens(&scene.state(&one()).await?, "rpm"), 10_000);
    scene.repair(START + 126 * SECOND).await?;
    let credited = tokens(&scene.state(&one()).await?, "rpm") - 10_000;
    // What accrues in six seconds, a second more or less: the repair's clock goes on while it works.
    assert!((4_200..=5_800).contains(&credited), "{credited}");
    Ok(())
}

/// Shard 0 says `zero`, shard 1 says `one`, and after a repair `expect`.
async fn check_told(zero: State, said: State, expect: State, aligned: usize) -> anyhow::Result<()> {
    let mut scene = scene(&[zero.clone(), said], 2).await?;
    for aligned in [aligned, 0] {
        // The clock stands still, so nothing accrues.
        check(&scene, START, Report { shards: 2, too_soon: 2, aligned, ..Report::default() }).await?;
        assert_eq!(scene.state(&one()).await?, expect);
        assert_eq!(scene.state(&key("user")).await?, zero);
        assert_eq!(scene.writes().await?, aligned);
    }
    Ok(())
}

#[tokio::test]
async fn shards_expire_no_sooner_than_shard_0() -> anyhow::Result<()> {
    let expiring = |expires: Option<i64>| State { expires: expires.map(|expires| START / SECOND + expires), ..full(2) };
    check_told(expiring(Some(100)), expiring(Some(40)), expiring(Some(100)), 1).await?;
    // Shard 0's is put off again and again: half of its time is enough.
    check_told(expiring(Some(100)), expiring(Some(60)), expiring(Some(60)), 0).await?;
    check_told(expiring(Some(50)), expiring(Some(100)), expiring(Some(100)), 0).await?;
    check_told(expiring(None), expiring(Some(100)), expiring(None), 1).await?;
    check_told(expiring(Some(100)), expiring(None), expiring(None), 0).await
}

#[tokio::test]
async fn shards_have_the_limits_of_shard_0() -> anyhow::Result<()> {
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(120);
    limit_of(&mut zero, "tpm").terms.period = 30_000;
    let mut told = full(2);
    limit_of(&mut told, "rpm").terms = a_minute(120);
    limit_of(&mut told, "tpm").terms.period = 30_000;
    check_told(zero, full(2), told, 1).await
}

#[tokio::test]
async fn a_new_limit_comes_with_a_share_of_its_tokens() -> anyhow::Result<()> {
    let mut zero = full(2);
    let mut daily = zero.limits[&limit("rpm")];
    daily.terms = a_minute(10);
    daily.tokens = Millitokens::new(123);
    zero.limits.insert(limit("rpd"), daily);
    let mut told = full(2);
    daily.tokens = Millitokens::new(5_000);
    told.limits.insert(limit("rpd"), daily);
    check_told(zero, full(2), told, 1).await
}

#[tokio::test]
async fn a_shrunken_limit_is_trimmed_on_every_shard() -> anyhow::Result<()> {
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(40);
    let scene = scene(&[zero, full(2)], 2).await?;
    check(&scene, START + SECOND, Report { shards: 2, aligned: 1, refilled: 2, trimmed: 2, ..Report::default() })
        .await?;
    for number in 0..2 {
        assert_eq!(tokens(&scene.state(&shard(&key("user"), number)).await?, "rpm"), 20_000);
    }
    Ok(())
}

/// The bucket of an entry is `found` (or gone): whether the entry is dropped. No item may be touched.
async fn check_entry(found: Option<&State>, expect: Report) -> anyhow::Result<()> {
    let mut scene = scene(found.map(std::slice::from_ref).unwrap_or_default(), 2).await?;
    let before = scene.item(&key("user")).await?;
    check(&scene, START + 100 * SECOND, expect.clone()).await?;
    assert_eq!(scene.keeper.registry.find(&key("user")).await?.is_none(), expect.dropped == 1);
    assert_eq!(scene.item(&key("user")).await?, before);
    assert_eq!(scene.writes().await?, expect.dropped);
    Ok(())
}

#[tokio::test]
async fn an_entry_is_dropped_when_its_bucket_is_gone() -> anyhow::Result<()> {
    let expiring = |shards, expires: i64| State { expires: Some(START / SECOND + expires), ..full(shards) };
    let dropped = Report { dropped: 1, ..Report::default() };
    check_entry(None, dropped.clone()).await?;
    // It was deleted, and created anew.
    check_entry(Some(&full(1)), dropped).await?;
    let expired = Report { expired: 1, ..Report::default() };
    check_entry(Some(&expiring(2, 50)), expired.clone()).await?;
    check_entry(Some(&expiring(2, 100)), expired).await
}

#[tokio::test]
async fn unfamiliar_shards_are_left_alone() -> anyhow::Result<()> {
    for strange in 0..2 {
        let mut dry = full(2);
        set_tokens(&mut dry, "rpm", 0);
        let old = State { expires: Some(1), last_refill: time(START - 1), shards: ShardCount::ONE, ..dry.clone() };
        let mut scene = scene(&[dry.clone(), old.clone()], 2).await?;
        let mut scheduled = if strange == 0 { item(&key("user"), &dry) } else { item(&one(), &old) };
        scheduled.insert("b_rpm_sched".to_owned(), text("0 9 * * 1-5"));
        scene.put_item(scheduled).await?;
        scene.writes().await?;
        for look in 1..4 {
            let report = scene.repair(START + look * 60 * SECOND).await?.report;
            assert_eq!(report, Report { buckets: 1, unfamiliar: 1, ..Report::default() });
        }
        assert_eq!(scene.writes().await?, 0, "shard {strange}");
    }
    Ok(())
}
