//! Shards are aligned with shard 0, tokens move between them, and many are read.

use futures::future::try_join_all;
use tidegate_aws::buckets::{Consistency, WriteOutcome};
use tidegate_domain::{
    repair::{self, Alignment, Expiry, Move},
    state::{Terms, Unfamiliar},
};
use tidegate_tests::keeper::prelude::*;

type State = BucketState<'static>;

const MISSING: &str = "missing";

/// An alignment of shard 1, which was `seen`, with `zero`.
struct Align<'a> {
    scene: &'a KeeperScene,
    zero: State,
    seen: State,
}

impl Align<'_> {
    fn alignment(&self) -> anyhow::Result<Alignment<'static>> {
        repair::align(&self.zero, &self.seen, time(START)).ok_or_else(|| anyhow::anyhow!("nothing to tell"))
    }

    async fn check(&self, meanwhile: impl Fn(&mut State), expect: WriteOutcome) -> anyhow::Result<()> {
        let (first, alignment) = (shard(&key("user"), 1), self.alignment()?);
        let mut found = self.seen.clone();
        meanwhile(&mut found);
        let mut put = item(&first, &found);
        put.insert("unheard_of".to_owned(), text("kept"));
        self.scene.put_item(put).await?;
        assert_eq!(self.scene.keeper.buckets.align(&first, &self.seen, &alignment).await?, expect, "{found:?}");
        if expect == WriteOutcome::Written {
            repair::apply(&alignment, &mut found);
        }
        assert_eq!(self.scene.state(&first).await?, found);
        assert_eq!(self.scene.item(&first).await?["unheard_of"], text("kept"));
        Ok(())
    }
}

#[tokio::test]
async fn a_shard_gets_the_new_terms() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(70);
    limit_of(&mut zero, "tpm").terms.period = 1_234;
    let align = Align { scene: &scene, zero, seen: full(2) };
    align.check(|_| (), WriteOutcome::Written).await?;
    // They are right whatever the shard holds.
    align.check(|state| take(state, "rpm", 30_000), WriteOutcome::Written).await?;
    align.check(|state| state.last_refill = time(START + 1), WriteOutcome::Written).await?;
    // A client has written newer ones.
    for name in ["rpm", "tpm"] {
        let newer = |change: fn(&mut Terms)| move |state: &mut State| change(&mut limit_of(state, name).terms);
        align.check(newer(|terms| terms.capacity = Millitokens::new(1)), WriteOutcome::Lost).await?;
        align.check(newer(|terms| terms.refill = Millitokens::new(1)), WriteOutcome::Lost).await?;
        align.check(newer(|terms| terms.period = 1), WriteOutcome::Lost).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_shard_with_vu_is_left_alone() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let first = shard(&key("user"), 1);
    let mut marked = item(&first, &full(2));
    marked.insert("vu".to_owned(), number(0));
    scene.put_item(marked.clone()).await?;
    let alignment = Alignment { terms: [(limit("rpm"), a_minute(70))].into(), ..Alignment::default() };
    assert_eq!(scene.keeper.buckets.align(&first, &full(2), &alignment).await?, WriteOutcome::Lost);
    assert_eq!(scene.item(&first).await?, marked);
    Ok(())
}

#[tokio::test]
async fn a_shard_gets_a_new_limit_once() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut seen = full(2);
    seen.limits.remove(&limit("tpm"));
    let align = Align { scene: &scene, zero: full(2), seen };
    assert_eq!(align.alignment()?.added[&limit("tpm")].1, Millitokens::new(5_000_000), "half of the limit");
    align.check(|_| (), WriteOutcome::Written).await?;
    let mut theirs = full(2).limits[&limit("tpm")];
    theirs.tokens = Millitokens::new(17);
    align.check(|state| _ = state.limits.insert(limit("tpm"), theirs), WriteOutcome::Lost).await?;
    // Its share is another.
    align.check(|state| state.shards = count(4), WriteOutcome::Lost).await?;
    Ok(())
}

#[tokio::test]
async fn a_shard_gets_the_new_expiry() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let expiring = |expires| State { expires, ..full(2) };
    let renew = Align { scene: &scene, zero: expiring(Some(2_000)), seen: expiring(Some(1_000)) };
    assert_eq!(renew.alignment()?.expiry, Some(Expiry::At(2_000)));
    renew.check(|_| (), WriteOutcome::Written).await?;
    // A client has renewed the shard meanwhile, and for longer.
    renew.check(|state| state.expires = Some(3_000), WriteOutcome::Lost).await?;
    let keep = Align { scene: &scene, zero: expiring(None), seen: expiring(Some(1_000)) };
    assert_eq!(keep.alignment()?.expiry, Some(Expiry::Never));
    keep.check(|_| (), WriteOutcome::Written).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_shard_is_not_created() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let missing = shard(&key(MISSING), 1);
    let alignment = Alignment { expiry: Some(Expiry::Never), ..Alignment::default() };
    assert_eq!(scene.keeper.buckets.align(&missing, &full(2), &alignment).await?, WriteOutcome::Lost);
    assert!(scene.item(&missing).await?.is_empty());
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
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        let read = scene.keeper.buckets.read(&key("user"), 0..256, consistency).await?;
        let expect = numbers.iter().map(|number| (Shard::new(*number), state(*number))).collect();
        let read_states = read.states.into_iter().map(|(shard, state)| (shard, State { bytes: 0, ..state }));
        assert_eq!((read_states.collect::<BTreeMap<_, _>>(), read.unfamiliar), (expect, BTreeMap::new()));
    }
    let some = scene.keeper.buckets.read(&key("user"), 5..8, Consistency::Strong).await?;
    assert_eq!(some.states.keys().map(|shard| shard.get()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(some.zero(), None);
    let none = scene.keeper.buckets.read(&key(MISSING), 0..300, Consistency::Eventual).await?;
    assert!(none.states.is_empty() && none.unfamiliar.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_read_says_which_shards_are_unfamiliar() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    scene.put(&key("user"), &full(4)).await?;
    for (place, name, value) in
        [(1, "b_rpm_sched", text("0 9 * * 1-5")), (2, "b_rpm_tk", number("0.5")), (3, "vu", number(0))]
    {
        let shard = shard(&key("user"), place);
        let mut unfamiliar = item(&shard, &full(4));
        unfamiliar.insert(name.to_owned(), value);
        scene.put_item(unfamiliar).await?;
    }
    let read = scene.shards(&key("user"), 4).await?;
    let reasons = [Unfamiliar::Schedule, Unfamiliar::OutOfRange, Unfamiliar::AwaitsClient];
    assert!(read.unfamiliar.values().eq(&reasons), "{:?}", read.unfamiliar);
    assert_eq!((read.states.len(), read.zero()), (1, Some(&full(4))));
    Ok(())
}

/// Moves 20 requests from shard 0 to shard 1, which were seen with 50 and 0, after a change of one of them.
async fn check_move(
    place: u32,
    meanwhile: impl FnOnce(&mut Item) -> anyhow::Result<()>,
    expect: WriteOutcome,
) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut dry = full(2);
    set_tokens(&mut dry, "rpm", 0);
    let states = [full(2), dry];
    for (number, state) in (0..).zip(&states) {
        scene.put(&shard(&key("user"), number), state).await?;
    }
    scene.change_item(&shard(&key("user"), place), meanwhile).await?;
    scene.writes().await?;
    let before = scene.held(&key("user"), "rpm").await?;
    let states = (0..).map(Shard::new).zip(states).collect();
    let transfer = Move {
        limit: limit("rpm"),
        from: Shard::ZERO,
        settled: None,
        forfeited: Millitokens::default(),
        to: Shard::new(1),
        tokens: Millitokens::new(20_000),
    };
    assert_eq!(scene.keeper.buckets.move_tokens(&key("user"), &states, &transfer).await?, expect, "shard {place}");
    let written = if expect == WriteOutcome::Written { 2 } else { 0 };
    assert_eq!(scene.writes().await?, written);
    if expect == WriteOutcome::Written {
        assert_eq!(scene.held(&key("user"), "rpm").await?, [before[0] - 20_000, before[1] + 20_000]);
    }
    Ok(())
}

#[tokio::test]
async fn tokens_move_beside_debits() -> anyhow::Result<()> {
    check_move(0, |_| Ok(()), WriteOutcome::Written).await?;
    check_move(0, |item| add(item, "b_rpm_tk", -30_000), WriteOutcome::Written).await?;
    check_move(1, |item| add(item, "b_rpm_tk", -1), WriteOutcome::Written).await
}

#[tokio::test]
async fn a_move_is_lost_when_its_basis_changed() -> anyhow::Result<()> {
    for place in 0..2 {
        for name in ["rf", "shard_count", "b_rpm_cp", "b_rpm_ra", "b_rpm_rp"] {
            check_move(place, |item| add(item, name, 1), WriteOutcome::Lost).await?;
        }
        check_move(place, insert("vu", number(0)), WriteOutcome::Lost).await?;
    }
    // The tokens that were to move are gone, or the other shard has got some.
    check_move(0, |item| add(item, "b_rpm_tk", -30_001), WriteOutcome::Lost).await?;
    check_move(1, |item| add(item, "b_rpm_tk", 1), WriteOutcome::Lost).await
}

/// A shard that has been full for a minute gives half, and does not get it back at once.
#[tokio::test]
async fn a_full_giver_forfeits_what_did_not_fit() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let now = time(START + 60_000);
    let mut dry = State { last_refill: now, ..full(2) };
    set_tokens(&mut dry, "rpm", 0);
    for (number, state) in [(0, full(2)), (1, dry)] {
        scene.put(&shard(&key("user"), number), &state).await?;
    }
    let states = scene.shards(&key("user"), 2).await?.states;
    let [transfer] = &repair::rebalance(&states, now)[..] else { panic!("one move") };
    assert_eq!(scene.keeper.buckets.move_tokens(&key("user"), &states, transfer).await?, WriteOutcome::Written);
    assert_eq!(scene.held(&key("user"), "rpm").await?, [25_000, 25_000]);
    let states = scene.shards(&key("user"), 2).await?.states;
    assert!(states.values().all(|state| state.last_refill == now), "{states:?}");
    assert_eq!(repair::rebalance(&states, now), []);
    Ok(())
}
