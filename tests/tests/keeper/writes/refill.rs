//! One write credits and trims a shard, on the condition that all that it was computed from is unchanged.

use tidegate_aws::{buckets::WriteOutcome, schema::bucket::attribute};
use tidegate_domain::{bucket::Limit, refill::Refill};
use tidegate_tests::keeper::prelude::*;

const UNTIL: i64 = START + 3_000;

/// A shard with 40 of 100 requests, no tokens, and all its write units.
fn drained() -> BucketState<'static> {
    let mut state = full(1);
    set_tokens(&mut state, "rpm", 40_000);
    set_tokens(&mut state, "tpm", 0);
    state
}

fn amounts(amounts: &[(&'static str, i64)]) -> BTreeMap<Limit<'static>, Millitokens> {
    amounts.iter().map(|(name, amount)| (limit(name), Millitokens::new(*amount))).collect()
}

/// Three seconds' worth for the drained shard.
fn credit() -> Refill<'static> {
    Refill { until: time(UNTIL), credits: amounts(&[("rpm", 5_000), ("tpm", 500_000)]), trims: BTreeMap::new() }
}

/// A refill of a shard that was `seen`.
struct Case<'a> {
    scene: &'a KeeperScene,
    seen: BucketState<'static>,
    refill: Refill<'static>,
}

impl Case<'_> {
    /// Writes the refill to an item that changed since it was seen. Asserts that it applies exactly, or not at all.
    async fn check(
        &self,
        meanwhile: impl FnOnce(&mut Item) -> anyhow::Result<()>,
        expect: WriteOutcome,
    ) -> anyhow::Result<()> {
        let Self { scene, seen, refill } = self;
        let mut found = item(&key("user"), seen);
        found.insert("unheard_of".to_owned(), text("kept"));
        meanwhile(&mut found)?;
        scene.put_item(found.clone()).await?;
        assert_eq!(scene.keeper.buckets.refill(&key("user"), seen, refill).await?, expect, "{found:?}");
        if expect == WriteOutcome::Written {
            found.insert("rf".to_owned(), number(refill.until.get()));
            for (limit, credit) in &refill.credits {
                add(&mut found, &attribute(limit.as_str(), "tk"), credit.get())?;
            }
            for (limit, share) in &refill.trims {
                found.insert(attribute(limit.as_str(), "tk"), number(share.get()));
            }
        }
        assert_eq!(scene.item(&key("user")).await?, found);
        Ok(())
    }

    async fn check_added(&self, name: &str, change: i64, expect: WriteOutcome) -> anyhow::Result<()> {
        self.check(|item| add(item, name, change), expect).await
    }
}

#[tokio::test]
async fn a_refill_stands_beside_debits() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let case = Case { scene: &scene, seen: drained(), refill: credit() };
    case.check(|_| Ok(()), WriteOutcome::Written).await?;
    assert_eq!(scene.http.writes(), 1, "all limits in one write");
    for limit in ["rpm", "tpm", "wcu"] {
        case.check_added(&format!("b_{limit}_tk"), -1, WriteOutcome::Written).await?;
        case.check_added(&format!("b_{limit}_tk"), -7_000_000, WriteOutcome::Written).await?;
        case.check_added(&format!("b_{limit}_tc"), 7_000_000, WriteOutcome::Written).await?;
    }
    case.check(insert("ttl", number(START)), WriteOutcome::Written).await?;

    // The item holds the credit of the last check. The same refill is not written twice.
    assert_eq!(scene.keeper.buckets.refill(&key("user"), &drained(), &credit()).await?, WriteOutcome::Lost);
    assert_eq!(
        scene.state(&key("user")).await?,
        BucketState { expires: Some(START), ..credit().applied_to(drained()) }
    );
    // A refill creates no item.
    assert_eq!(scene.keeper.buckets.refill(&key("missing"), &drained(), &credit()).await?, WriteOutcome::Lost);
    assert!(scene.item(&key("missing")).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_refill_is_lost_when_its_basis_changed() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let case = Case { scene: &scene, seen: drained(), refill: credit() };
    let terms = ["rpm", "tpm", "wcu"].into_iter().flat_map(|limit| ["cp", "ra", "rp"].map(|field| (limit, field)));
    let terms = terms.map(|(limit, field)| format!("b_{limit}_{field}"));
    for name in ["rf".to_owned(), "shard_count".to_owned()].into_iter().chain(terms) {
        for change in [-1, 1] {
            case.check_added(&name, change, WriteOutcome::Lost).await?;
        }
        let remove = |item: &mut Item| {
            item.remove(&name);
            Ok(())
        };
        case.check(remove, WriteOutcome::Lost).await?;
    }
    for limit in ["rpm", "tpm"] {
        // A refund, or the credit of somebody else.
        case.check_added(&format!("b_{limit}_tk"), 1, WriteOutcome::Lost).await?;
    }
    for valid_until in [-1, 0, START, UNTIL + 60_000] {
        case.check(insert("vu", number(valid_until)), WriteOutcome::Lost).await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_write_trims_and_credits() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let mut seen = drained();
    set_tokens(&mut seen, "rpm", 150_000);
    let refill = Refill { credits: amounts(&[("tpm", 500_000)]), trims: amounts(&[("rpm", 100_000)]), ..credit() };
    let case = Case { scene: &scene, seen, refill };
    for change in [0, -49_999, 10_000] {
        case.check_added("b_rpm_tk", change, WriteOutcome::Written).await?;
    }
    // A trim of what has fallen to the share or below would give tokens.
    for change in [-50_000, -60_000] {
        case.check_added("b_rpm_tk", change, WriteOutcome::Lost).await?;
    }
    Ok(())
}
