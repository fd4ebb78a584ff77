//! Calls that are cancelled at any moment.

use std::{collections::BTreeMap, task::Poll};

use tidegate_tests::{client::calls, throttle::prelude::*};

/// More polls than an admission here needs.
const POLLS: usize = 60;

/// Polls a future so many times, a millisecond after another, and drops it. Returns whether it was ready.
async fn cancel_after<T>(polls: usize, scene: &ThrottleScene, future: impl Future<Output = T>) -> bool {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Poll::Ready(_done) = futures::poll!(&mut future) {
            return true;
        }
        scene.clock.advance(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
    false
}

/// Uses up the write units that the bucket holds.
async fn spend(scene: &ThrottleScene, units: f64) -> anyhow::Result<()> {
    Ok(scene.throttle.admit(Cost::write(units)?).await.settle(units)?)
}

#[tokio::test]
async fn a_call_that_leaves_passes_its_turn_on() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(10.0, 10.0).await?;
    spend(&scene, 1.0).await?;
    let mut tasks = Vec::new();
    for number in 0..3 {
        tasks.push(tokio::spawn(scene.put(&format!("item-{number}"), 0).send()));
        scene.waiting(number + 1).await?;
    }
    tasks[1].abort();
    scene.waiting(2).await?;
    let [first, _, last] = tasks.try_into().map_err(|_| anyhow::anyhow!("three tasks"))?;
    scene.clock.advance(Duration::from_millis(100));
    first.await??;
    scene.waiting(1).await?;
    scene.clock.advance(Duration::from_millis(100));
    last.await??;
    assert_eq!(scene.http.calls(), calls([("PutItem", 2)]));
    assert_eq!(scene.usage(), Account { read: 0.0, written: 3.0, waiting: 0, delayed: 3 });
    Ok(())
}

#[tokio::test]
async fn a_call_costs_only_what_was_sent() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(100.0, 100.0).await?;
    let (mut sent, mut done) = (0, 0);
    for polls in 0.. {
        // It waits for ten milliseconds.
        scene.clock.advance(Duration::from_secs(1));
        spend(&scene, 10.0).await?;
        let before = scene.usage();
        done += usize::from(cancel_after(polls, &scene, scene.put("item", 0).send()).await);
        let after = scene.usage();
        let calls: BTreeMap<_, _> = scene.http.calls();
        let calls = calls.get("PutItem").copied().unwrap_or_default();
        sent += calls;
        assert_eq!(after.written - before.written, f64::from(u32::try_from(calls)?), "after {polls} polls");
        assert_eq!(after.waiting, 0, "after {polls} polls");
        if done > 0 {
            // The first ones were cancelled in the line, and others after they were sent.
            assert!(sent > done && sent < polls, "{sent} sent after {polls} polls");
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_admission_that_is_not_used_costs_nothing() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(100.0, 100.0).await?;
    let mut done = 0;
    for polls in 0..POLLS {
        spend(&scene, 10.0).await?;
        let before = scene.usage().written;
        done += usize::from(cancel_after(polls, &scene, scene.throttle.admit(Cost::write(2.0)?)).await);
        assert_eq!((scene.usage().written - before, scene.usage().waiting), (0.0, 0), "after {polls} polls");
        scene.clock.advance(Duration::from_millis(100));
    }
    assert!(done > 0 && done < POLLS, "{done}");
    Ok(())
}
