//! One write credits and trims a shard, on the condition that it is as it was seen.

use std::collections::BTreeMap;

use tidegate_aws::buckets::{Freshness, Outcome};
use tidegate_domain::{bucket::Limit, refill::Refill, state::BucketState, tokens::Millitokens};
use tidegate_tests::keeper::{
    KeeperScene, START, attribute, count, full, item, key, limit, limit_of, number, set_tokens, shard, take, text,
    time, tokens,
};

type State = BucketState<'static>;

const UNTIL: i64 = START + 3_000;

/// A shard with 40 of 100 requests, no tokens, and most of its write units.
fn drained() -> State {
    let mut state = full(1);
    for (name, left) in [("rpm", 40_000), ("tpm", 0), ("wcu", 900_000)] {
        set_tokens(&mut state, name, left);
    }
    state
}

fn amounts(amounts: &[(&'static str, i64)]) -> BTreeMap<Limit<'static>, Millitokens> {
    amounts.iter().map(|(name, amount)| (limit(name), Millitokens::new(*amount))).collect()
}

/// Three seconds' worth for the drained shard.
fn credit() -> Refill<'static> {
    let credits = amounts(&[("rpm", 5_000), ("tpm", 500_000), ("wcu", 100_000)]);
    Refill { until: time(UNTIL), credits, trims: BTreeMap::new() }
}

/// Writes a refill of a shard that was `seen` and changed `meanwhile`; if the outcome is `expect`, what
/// the shard is then must be, too.
struct Case<'a> {
    seen: State,
    refill: Refill<'static>,
    scene: &'a KeeperScene,
}

impl Case<'_> {
    async fn check(&self, meanwhile: impl Fn(&mut State), expect: Option<&dyn Fn(&mut State)>) -> anyhow::Result<()> {
        let Self { seen, refill, scene } = self;
        let mut found = seen.clone();
        meanwhile(&mut found);
        scene.put(&key("user"), &found).await?;
        let outcome = scene.keeper.buckets.refill(&key("user"), seen, refill).await?;
        if let Some(change) = expect {
            change(&mut found);
        }
        let expect = if expect.is_some() { Outcome::Written } else { Outcome::Lost };
        assert_eq!(outcome, expect, "{found:?}");
        assert_eq!(scene.item(&key("user")).await?, item(&key("user"), &found));
        Ok(())
    }

    async fn lost(&self, meanwhile: impl Fn(&mut State)) -> anyhow::Result<()> {
        self.check(meanwhile, None).await
    }
}

#[tokio::test]
async fn a_refill_credits_every_limit_and_moves_the_time() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let case = Case { seen: drained(), refill: credit(), scene: &scene };
    let credited = |state: &mut State| *state = credit().applied_to(state.clone());
    case.check(|_| (), Some(&credited)).await?;
    let written = scene.state(&key("user")).await?;
    assert_eq!(written.last_refill, time(UNTIL));
    assert_eq!(["rpm", "tpm", "wcu"].map(|name| tokens(&written, name)), [45_000, 500_000, 1_000_000]);
    assert_eq!(scene.http.writes(), 1);
    Ok(())
}

#[tokio::test]
async fn a_refill_stands_beside_debits_and_a_renewed_expiry() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let case = Case { seen: drained(), refill: credit(), scene: &scene };
    let credited = |state: &mut State| *state = credit().applied_to(state.clone());
    case.check(|state| take(state, "rpm", 40_000), Some(&credited)).await?;
    case.check(|state| take(state, "tpm", 7_000_000), Some(&credited)).await?;
    case.check(|state| state.expires = Some(START / 1_000 + 60), Some(&credited)).await?;
    // Only what is credited must not have grown: the other terms are no matter of tokens.
    case.check(|state| limit_of(state, "rpm").terms.refill = Millitokens::new(1), Some(&credited)).await?;
    Ok(())
}

#[tokio::test]
async fn a_refill_is_lost_when_the_shard_is_another() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let plain = Case { seen: drained(), refill: credit(), scene: &scene };
    plain.lost(|state| state.last_refill = time(START + 1)).await?;
    plain.lost(|state| state.last_refill = time(START - 1)).await?;
    plain.lost(|state| state.shards = count(2)).await?;
    plain.lost(|state| state.valid_until = Some(0)).await?;
    plain.lost(|state| limit_of(state, "rpm").terms.capacity = Millitokens::new(99_999)).await?;
    plain.lost(|state| limit_of(state, "wcu").terms.capacity = Millitokens::new(1_000_001)).await?;
    // A refund, or somebody else's credit, of a single millitoken.
    plain.lost(|state| take(state, "rpm", -1)).await?;
    plain.lost(|state| take(state, "wcu", -1)).await?;
    // A limit that was removed.
    plain.lost(|state| _ = state.limits.remove(&limit("tpm"))).await?;

    let scheduled = State { valid_until: Some(START), ..drained() };
    let marked = Case { seen: scheduled, refill: credit(), scene: &scene };
    marked.check(|_| (), Some(&|state: &mut State| *state = credit().applied_to(state.clone()))).await?;
    marked.lost(|state| state.valid_until = Some(0)).await?;
    marked.lost(|state| state.valid_until = None).await?;
    Ok(())
}

#[tokio::test]
async fn a_refill_creates_no_item() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let outcome = scene.keeper.buckets.refill(&key("nobody"), &drained(), &credit()).await?;
    assert_eq!(outcome, Outcome::Lost);
    assert!(scene.item(&key("nobody")).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_refill_is_written_once() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    scene.put(&key("user"), &drained()).await?;
    for expect in [Outcome::Written, Outcome::Lost] {
        assert_eq!(scene.keeper.buckets.refill(&key("user"), &drained(), &credit()).await?, expect);
    }
    assert_eq!(scene.state(&key("user")).await?, credit().applied_to(drained()));
    Ok(())
}

#[tokio::test]
async fn one_write_trims_and_credits() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut seen = drained();
    set_tokens(&mut seen, "rpm", 150_000);
    let refill = Refill {
        until: time(UNTIL),
        credits: amounts(&[("tpm", 500_000), ("wcu", 100_000)]),
        trims: amounts(&[("rpm", 100_000)]),
    };
    let case = Case { seen, refill: refill.clone(), scene: &scene };
    let trimmed = |state: &mut State| *state = refill.applied_to(state.clone());
    case.check(|_| (), Some(&trimmed)).await?;
    case.check(|state| take(state, "rpm", 49_999), Some(&trimmed)).await?;
    // More tokens than were seen are too many all the same.
    case.check(|state| take(state, "rpm", -10_000), Some(&trimmed)).await?;
    // To trim to the share what has fallen under it would give tokens.
    case.lost(|state| take(state, "rpm", 50_000)).await?;
    case.lost(|state| take(state, "rpm", 60_000)).await?;
    case.lost(|state| limit_of(state, "rpm").terms.capacity = Millitokens::new(200_000)).await?;
    Ok(())
}

#[tokio::test]
async fn a_refill_leaves_everything_else() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let third = shard(&key("user"), 3);
    let mut before = item(&third, &drained());
    before.insert("unheard_of".to_owned(), text("kept"));
    before.insert("b_rpm_soft".to_owned(), number(START));
    scene.put_item(before.clone()).await?;
    let read = scene.keeper.buckets.read(&third, 3..4, Freshness::Eventual).await?;
    assert_eq!(read.states[&third.shard], drained());
    assert_eq!(scene.keeper.buckets.refill(&third, &drained(), &credit()).await?, Outcome::Written);
    for (name, value) in item(&third, &credit().applied_to(drained())) {
        before.insert(name, value);
    }
    assert_eq!(scene.item(&third).await?, before);
    assert!(before.contains_key(&attribute(&limit("rpm"), "soft")));
    Ok(())
}
