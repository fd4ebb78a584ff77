//! The registry of sharded buckets.

use futures::{TryStreamExt as _, stream};
use tidegate_aws::registry::sort_key;
use tidegate_tests::keeper::prelude::*;

fn entry(entity: &str, shards: u32, written: i64) -> Entry {
    Entry { bucket: key(entity), shards: count(shards), check: Some(spread(START, written, written / 2)) }
}

#[tokio::test]
async fn an_entry_changes_only_with_more_shards() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    assert_eq!(registry.find(&key("user")).await?, None);
    for (entered, expect) in [((2, 10), (2, 10)), ((2, 11), (2, 10)), ((4, 12), (4, 12)), ((2, 13), (4, 12))] {
        registry.enter(&entry("user", entered.0, entered.1)).await?;
        assert_eq!(registry.find(&key("user")).await?, Some(entry("user", expect.0, expect.1)), "{entered:?}");
    }
    // A shard's key leads to its bucket.
    assert_eq!(registry.find(&shard(&key("user"), 3)).await?, Some(entry("user", 4, 12)));
    assert_eq!(scene.writes().await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_check_is_replaced_unless_shards_were_added() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    scene.enter(&key("user"), 2).await?;
    let unchecked = Entry { check: None, ..entry("user", 2, 0) };
    assert_eq!(registry.find(&key("user")).await?.as_ref(), Some(&unchecked));
    let check = spread(START + 1, 30, 20);
    registry.replace_check(&unchecked, &check).await?;
    let checked = Entry { check: Some(check), ..unchecked.clone() };
    assert_eq!(registry.find(&key("user")).await?, Some(checked));
    registry.enter(&entry("user", 4, 7)).await?;
    registry.replace_check(&unchecked, &check).await?;
    assert_eq!(registry.find(&key("user")).await?, Some(entry("user", 4, 7)));
    Ok(())
}

#[tokio::test]
async fn pages_hold_all_entries_in_order() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    let entries: Vec<_> = (0..250).map(|at| entry(&format!("user-{at:03}"), 2, at)).collect();
    stream::iter(entries.iter().rev().map(Ok)).try_for_each_concurrent(32, |entry| registry.enter(entry)).await?;
    // What else is in the partition is no entry.
    registry.stop(Some("somewhere")).await?;
    let version = [("PK", "_/SYSTEM#"), ("SK", "#VERSION")].map(|(name, value)| (name.to_owned(), text(value)));
    scene.put_item(version.into()).await?;

    let (mut read, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = registry.page(after.as_deref()).await?;
        assert!(page.corrupt.is_empty());
        read.extend(page.entries);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((read, pages), (entries.clone(), 3));

    // A place need not be an entry's own: that may have been removed meanwhile.
    let behind = sort_key(&entries[199].bucket);
    registry.remove(&entries[199]).await?;
    assert_eq!(registry.page(Some(&behind)).await?.entries, entries[200..]);
    Ok(())
}

#[tokio::test]
async fn an_entry_is_removed_as_it_was_seen() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    registry.enter(&entry("user", 4, 7)).await?;
    registry.remove(&entry("user", 2, 7)).await?;
    assert_eq!(registry.find(&key("user")).await?, Some(entry("user", 4, 7)));
    for _ in 0..2 {
        registry.remove(&entry("user", 4, 7)).await?;
        assert_eq!(registry.find(&key("user")).await?, None);
    }
    Ok(())
}

#[tokio::test]
async fn a_place_is_kept_until_removed() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    for place in [None, Some("here"), Some("there"), None, None] {
        registry.stop(place).await?;
        assert_eq!(registry.stopped().await?.as_deref(), place);
    }
    Ok(())
}

#[tokio::test]
async fn a_corrupt_entry_hides_no_other() -> anyhow::Result<()> {
    let scene = KeeperScene::new().await?;
    let registry = &scene.keeper.registry;
    for entity in ["a", "c"] {
        registry.enter(&entry(entity, 2, 0)).await?;
    }
    let write = async |sk: String, shards: Option<&str>| {
        let mut item = Item::from([("PK".to_owned(), text("_/SYSTEM#")), ("SK".to_owned(), text(sk))]);
        item.extend(shards.map(|shards| ("shards".to_owned(), number(shards))));
        scene.put_item(item).await
    };
    write(sort_key(&key("b-1")), Some("0")).await?;
    write(sort_key(&key("b-2")), Some("2.5")).await?;
    write(sort_key(&key("b-3")), None).await?;
    write("#TIDEGATE#SHARDED#no bucket".to_owned(), Some("2")).await?;
    write("#TIDEGATE#SHARDED#TQ5vSMvQTm4/BUCKET#a#b".to_owned(), Some("2")).await?;

    let page = registry.page(None).await?;
    assert_eq!(page.entries, [entry("a", 2, 0), entry("c", 2, 0)]);
    assert_eq!(page.corrupt.len(), 5);
    let message = page.corrupt.iter().find(|error| error.to_string().contains("2.5")).context("2.5 is not quoted")?;
    assert!(message.to_string().contains("b-2") && !message.is_retryable(), "{message}");
    assert!(registry.find(&key("b-2")).await.is_err());
    Ok(())
}
