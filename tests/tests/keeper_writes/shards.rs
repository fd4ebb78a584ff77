//! Numbers of shards, what shards are told, and reads of shards.

use futures::future::try_join_all;
use tidegate_aws::buckets::{Freshness, Outcome};
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    repair::{self, Alignment, Expiry},
    state::{BucketState, Unfamiliar},
    tokens::Millitokens,
};
use tidegate_tests::keeper::{
    KeeperScene, START, a_minute, count, full, item, key, limit, limit_of, number, set_tokens, shard, take, text, time,
};

type State = BucketState<'static>;

const NOBODY: &str = "nobody";

/// Gives shard 0 that was seen with 2 shards another number of shards.
async fn check_spread(scene: &KeeperScene, found: &State, expect: Outcome) -> anyhow::Result<()> {
    scene.put(&key("user"), found).await?;
    assert_eq!(scene.keeper.buckets.spread(&key("user"), &full(2), count(4)).await?, expect);
    let shards = if expect == Outcome::Written { count(4) } else { found.shards };
    assert_eq!(scene.item(&key("user")).await?, item(&key("user"), &State { shards, ..found.clone() }));
    Ok(())
}

#[tokio::test]
async fn shards_are_doubled_once() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    check_spread(&scene, &full(2), Outcome::Written).await?;
    check_spread(&scene, &full(4), Outcome::Lost).await?;
    check_spread(&scene, &full(1), Outcome::Lost).await?;
    check_spread(&scene, &State { valid_until: Some(0), ..full(2) }, Outcome::Lost).await?;
    // Tokens and refills are no matter.
    let mut busy = State { last_refill: time(START + 9), ..full(2) };
    take(&mut busy, "rpm", 30_000);
    check_spread(&scene, &busy, Outcome::Written).await?;

    assert_eq!(scene.keeper.buckets.spread(&key(NOBODY), &full(2), count(4)).await?, Outcome::Lost);
    assert!(scene.item(&key(NOBODY)).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn doubling_is_of_shard_0_whichever_shard_is_named() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let first = shard(&key("user"), 1);
    scene.put(&key("user"), &full(2)).await?;
    scene.put(&first, &full(2)).await?;
    assert_eq!(scene.keeper.buckets.spread(&first, &full(2), count(4)).await?, Outcome::Written);
    assert_eq!((scene.state(&key("user")).await?.shards, scene.state(&first).await?.shards), (count(4), count(2)));
    Ok(())
}

/// Tells shard 1, which was seen with 1 shard, that there are 4.
async fn check_raise(scene: &KeeperScene, found: &State, expect: Outcome) -> anyhow::Result<()> {
    let first = shard(&key("user"), 1);
    scene.put(&first, found).await?;
    assert_eq!(scene.keeper.buckets.raise(&first, &full(1), count(4)).await?, expect);
    let shards = if expect == Outcome::Written { count(4) } else { found.shards };
    assert_eq!(scene.item(&first).await?, item(&first, &State { shards, ..found.clone() }));
    Ok(())
}

#[tokio::test]
async fn a_number_of_shards_only_grows() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    check_raise(&scene, &full(1), Outcome::Written).await?;
    check_raise(&scene, &full(2), Outcome::Written).await?;
    check_raise(&scene, &full(4), Outcome::Lost).await?;
    check_raise(&scene, &full(8), Outcome::Lost).await?;
    check_raise(&scene, &State { valid_until: Some(0), ..full(1) }, Outcome::Lost).await?;
    let nobody = shard(&key(NOBODY), 1);
    assert_eq!(scene.keeper.buckets.raise(&nobody, &full(1), count(4)).await?, Outcome::Lost);
    assert!(scene.item(&nobody).await?.is_empty());
    Ok(())
}

/// Tells shard 1, which was `seen`, what `zero` says; shard 1 was `found` instead.
struct Align<'a> {
    scene: &'a KeeperScene,
    zero: State,
    seen: State,
}

impl Align<'_> {
    fn alignment(&self) -> anyhow::Result<Alignment<'static>> {
        repair::align(&self.zero, &self.seen, time(START)).ok_or_else(|| anyhow::anyhow!("nothing to tell"))
    }

    async fn check(&self, meanwhile: impl Fn(&mut State), expect: Outcome) -> anyhow::Result<()> {
        let (first, alignment) = (shard(&key("user"), 1), self.alignment()?);
        let mut found = self.seen.clone();
        meanwhile(&mut found);
        put_stranger(self.scene, &first, &found).await?;
        assert_eq!(self.scene.keeper.buckets.align(&first, &self.seen, &alignment).await?, expect, "{found:?}");
        if expect == Outcome::Written {
            repair::apply(&alignment, &mut found);
        }
        assert_eq!(self.scene.state(&first).await?, found);
        assert_eq!(self.scene.item(&first).await?["unheard_of"], text("kept"));
        Ok(())
    }
}

/// Writes a shard with an attribute that only its clients understand.
async fn put_stranger(scene: &KeeperScene, key: &BucketKey<'static>, state: &State) -> anyhow::Result<()> {
    let mut item = item(key, state);
    item.insert("unheard_of".to_owned(), text("kept"));
    scene.put_item(item).await
}

#[tokio::test]
async fn a_shard_is_told_new_terms() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(70);
    limit_of(&mut zero, "tpm").terms.period = 1_234;
    let align = Align { scene: &scene, zero, seen: full(2) };
    align.check(|_| (), Outcome::Written).await?;
    // They are right whatever the shard holds.
    align.check(|state| take(state, "rpm", 30_000), Outcome::Written).await?;
    align.check(|state| state.last_refill = time(START + 1), Outcome::Written).await?;
    align.check(|state| state.valid_until = Some(0), Outcome::Lost).await?;
    Ok(())
}

#[tokio::test]
async fn a_shard_gets_a_new_limit_once() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut seen = full(2);
    seen.limits.remove(&limit("tpm"));
    let align = Align { scene: &scene, zero: full(2), seen };
    assert_eq!(align.alignment()?.added[&limit("tpm")].1, Millitokens::new(5_000_000), "half of the limit");
    align.check(|_| (), Outcome::Written).await?;
    let mut theirs = full(2).limits[&limit("tpm")];
    theirs.tokens = Millitokens::new(17);
    align.check(|state| _ = state.limits.insert(limit("tpm"), theirs), Outcome::Lost).await?;
    Ok(())
}

#[tokio::test]
async fn a_shard_is_told_when_it_expires() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let expiring = |expires| State { expires, ..full(2) };
    let renew = Align { scene: &scene, zero: expiring(Some(2_000)), seen: expiring(Some(1_000)) };
    assert_eq!(renew.alignment()?.expiry, Some(Expiry::At(2_000)));
    renew.check(|_| (), Outcome::Written).await?;
    // A client has renewed the shard meanwhile, and for longer.
    renew.check(|state| state.expires = Some(3_000), Outcome::Lost).await?;
    let keep = Align { scene: &scene, zero: expiring(None), seen: expiring(Some(1_000)) };
    assert_eq!(keep.alignment()?.expiry, Some(Expiry::Never));
    keep.check(|_| (), Outcome::Written).await?;
    Ok(())
}

#[tokio::test]
async fn a_shard_that_is_gone_is_told_nothing() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let nobody = shard(&key(NOBODY), 1);
    let alignment = Alignment { expiry: Some(Expiry::Never), ..Alignment::default() };
    assert_eq!(scene.keeper.buckets.align(&nobody, &full(2), &alignment).await?, Outcome::Lost);
    assert!(scene.item(&nobody).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn more_shards_than_a_read_takes_are_read() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let state = |number: u32| {
        let mut state = full(256);
        set_tokens(&mut state, "tpm", number.into());
        state
    };
    // One in ten is missing.
    let numbers: Vec<_> = (0..256).filter(|number| number % 10 != 7).collect();
    let scene_ref = &scene;
    try_join_all(numbers.iter().map(async |number| {
        let shard = shard(&key("user"), *number);
        scene_ref.put(&shard, &state(*number)).await
    }))
    .await?;
    for freshness in [Freshness::Consistent, Freshness::Eventual] {
        let read = scene.keeper.buckets.read(&key("user"), 0..256, freshness).await?;
        let expect = numbers.iter().map(|number| (Shard::new(*number), state(*number))).collect();
        assert_eq!((read.states, read.unfamiliar), (expect, None));
    }
    let some = scene.keeper.buckets.read(&key("user"), 5..8, Freshness::Consistent).await?;
    assert_eq!(some.states.keys().map(|shard| shard.get()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(some.zero(), None);
    let none = scene.keeper.buckets.read(&key(NOBODY), 0..300, Freshness::Eventual).await?;
    assert!(none.states.is_empty() && none.unfamiliar.is_none());
    Ok(())
}

#[tokio::test]
async fn an_unfamiliar_shard_is_told_of() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let first = shard(&key("user"), 1);
    let mut scheduled = item(&first, &full(2));
    scheduled.insert("b_rpm_sched".to_owned(), text("0 9 * * 1-5"));
    scene.put(&key("user"), &full(2)).await?;
    scene.put_item(scheduled).await?;
    let read = scene.shards(&key("user"), 2).await?;
    assert_eq!((read.unfamiliar, read.zero()), (Some(Unfamiliar::Schedule), Some(&full(2))));
    Ok(())
}

#[tokio::test]
async fn a_shard_that_is_corrupt_makes_its_bucket_unfamiliar() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    scene.put(&key("user"), &full(2)).await?;
    let first = shard(&key("user"), 1);
    let mut corrupt = item(&first, &full(2));
    corrupt.insert("b_rpm_tk".to_owned(), number("0.5"));
    scene.put_item(corrupt).await?;
    let read = scene.shards(&key("user"), 2).await?;
    assert_eq!((read.unfamiliar, read.zero()), (Some(Unfamiliar::OutOfRange), Some(&full(2))));
    Ok(())
}
