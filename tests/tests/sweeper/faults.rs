//! Whatever goes wrong with deliveries and calls: exactly the live tokens stay.

use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use tidegate_tests::sweeper::prelude::*;

/// Between two deliveries of a message: the queue's visibility timeout.
const STEP: i64 = 20_000;
/// One call after the other, so that a crash is between two of them.
const ONE_BY_ONE: [(&str, &str); 1] = [("WRITE_CONCURRENCY", "1")];
const BATCH: usize = 10;

/// Delivers events from the moment of the end on, until no message is left. If the process dies, its batch is delivered again
/// to another process.
async fn deliver(scene: &mut SweeperScene, mut queue: Vec<Value>, mut now: i64) -> anyhow::Result<()> {
    while !queue.is_empty() {
        let mut again = Vec::new();
        for events in queue.chunks(BATCH) {
            let messages = batch(events)?;
            let handled = tokio::select! {
                handled = scene.sweeper.handle(&messages, time(now), in_time()) => Some(handled),
                () = scene.http.crashed() => None,
            };
            if let Some(handled) = handled {
                let failed: BTreeSet<_> = failures(&handled).into_iter().collect();
                let failed = |number: &usize| failed.contains(format!("m-{number}").as_str());
                again.extend((0..events.len()).filter(failed).map(|number| events[number].clone()));
            } else {
                scene.http.heal();
                scene.sweeper = scene.another_process(&[])?;
                again.extend_from_slice(events);
            }
        }
        anyhow::ensure!(now < GRACE_OVER + 10 * STEP, "{again:?} is delivered for ever");
        queue = again;
        now += STEP;
    }
    Ok(())
}

/// Tokens of ended and of live resources, several of each and mixed.
fn tokens() -> Vec<Token> {
    (0..12).map(|number| token(&format!("r-{number}"), &format!("j-{}", number % 4))).collect()
}

fn live(tokens: &[Token]) -> BTreeMap<String, String> {
    let live = tokens.iter().filter(|token| ["j-2", "j-3"].contains(&token.resource.as_str()));
    live.map(|token| (token.key.reservation.clone(), token.resource.clone())).collect()
}

#[tokio::test]
async fn a_redelivery_finishes_a_crashed_batch() -> anyhow::Result<()> {
    let tokens = tokens();
    for deletions in 0..=6 {
        let mut scene = SweeperScene::new().await?;
        scene.sweeper = scene.another_process(&ONE_BY_ONE)?;
        for token in &tokens {
            scene.put(token).await?;
        }
        scene.http.crash_after(deletions);
        let events = [ended("j-0"), ended("j-1")];
        tokio::select! {
            handled = scene.invoke(&events, END) => panic!("{handled:?}"),
            () = scene.http.crashed() => {}
        }
        assert_eq!(scene.left().await?.len(), 12 - deletions);
        scene.http.heal();
        deliver(&mut scene, events.into(), END).await?;
        assert_eq!(scene.held().await?, live(&tokens), "a crash after {deletions} deletions");
    }
    Ok(())
}

#[tokio::test]
async fn the_next_reconcile_finishes_a_crashed_one() -> anyhow::Result<()> {
    for deletions in 0..=8 {
        let mut scene = SweeperScene::new().await?;
        for number in 0..16 {
            scene.put(&expiring(&format!("r-{number:02}"), "j-1", END / 1000 + number % 2)).await?;
        }
        scene.sweeper = scene.another_process(&ONE_BY_ONE)?;
        scene.http.crash_after(deletions);
        tokio::select! {
            run = scene.reconcile(END) => panic!("{run:?}"),
            () = scene.http.crashed() => {}
        }
        scene.http.heal();
        scene.sweeper = scene.another_process(&[])?;
        let run = scene.reconcile(END).await;
        assert_eq!((run.complete, run.report.deleted), (true, 8 - deletions), "a crash after {deletions} deletions");
        let expect: Vec<_> = (0..16).filter(|number| number % 2 == 1).map(|number| format!("r-{number:02}")).collect();
        assert_eq!(scene.left().await?, expect, "a crash after {deletions} deletions");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_throttled_until_the_deadline_comes_again() -> anyhow::Result<()> {
    let mut scene = SweeperScene::new().await?;
    scene.http.on_call(|operation, _| (operation == "DeleteItem").then_some(Fault::Throttled));
    for token in tokens() {
        scene.put(&token).await?;
    }
    let mut limit = Duration::from_millis(100);
    let handled = loop {
        let deadline = Instant::now() + limit;
        let handled = scene.sweeper.handle(&batch(&[ended("j-0"), ended("j-9")])?, time(GRACE_OVER), deadline).await;
        // On a slow machine, not even the query is answered.
        if handled.report.not_deleted > 0 && handled.report.untracked > 0 {
            break handled;
        }
        limit *= 2;
    };
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["failed", "untracked"], vec!["m-0"]));
    assert_eq!((handled.report.failed, handled.report.not_deleted), (1, 3));
    assert_eq!(scene.left().await?.len(), 12);
    // Once the throttling is over, the same message is done with.
    scene.http = FaultyHttp::undisturbed();
    scene.sweeper = scene.another_process(&[])?;
    let handled = scene.invoke(&[ended("j-0")], GRACE_OVER).await?;
    assert_eq!((decisions(&handled), handled.report.deleted), (vec!["deleted"], 3));
    Ok(())
}

/// A call whose answer was lost is made again, and then finds the token gone: it is as good as deleted.
#[tokio::test]
async fn a_deletion_that_was_not_acknowledged_is_done() -> anyhow::Result<()> {
    let scene = SweeperScene::new().await?;
    let deletions = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        let is_first = operation == "DeleteItem" && deletions.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then_some(Fault::DroppedAfter)
    });
    scene.put(&token("r-1", "j-1")).await?;
    let handled = scene.invoke(&[ended("j-1")], END).await?;
    assert_eq!((decisions(&handled), failures(&handled)), (vec!["already-gone"], vec![]));
    assert!(scene.left().await?.is_empty() && scene.http.counts().unacknowledged() == 1);
    Ok(())
}

/// A resource as clients and EventBridge show it.
#[derive(Clone, Debug)]
struct Life {
    tokens: usize,
    /// Whether they are written after the first delivery of its end.
    is_late: bool,
    /// How many events report its end. A live resource has none.
    ends: usize,
}

fn life() -> impl Strategy<Value = Life> {
    (0..4_usize, any::<bool>(), 0..4_usize).prop_map(|(tokens, is_late, ends)| Life { tokens, is_late, ends })
}

/// Runs lives of resources under faults. Resources whose end no event reported must stay.
async fn live_through(lives: &[Life], seed: u64, crashes: &[usize]) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut scene = SweeperScene::with_faults(FaultRates::spread(0.4), seed).await?;
    let (mut early, mut late, mut queue, mut expect) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
    for (number, life) in lives.iter().enumerate() {
        let resource = format!("j-{number}");
        for count in 0..life.tokens {
            let token = token(&format!("r-{number}-{count}"), &resource);
            // Until then, there is its reservation.
            early.push(if life.is_late {
                Token { resource: token.key.reservation.clone(), ..token.clone() }
            } else {
                token.clone()
            });
            if life.ends == 0 {
                expect.insert(token.key.reservation.clone(), resource.clone());
            }
            if life.is_late {
                late.push(token);
            }
        }
        queue.extend((0..life.ends).map(|_| ended(&resource)));
        queue.push(changed(ended(&resource), "/detail/state", json!("RUNNING")));
    }
    for token in &early {
        scene.put(token).await?;
    }
    queue.shuffle(&mut rng);
    for events in queue.chunks(rng.random_range(1..BATCH)) {
        scene.invoke(events, END).await?;
    }
    for token in &late {
        scene.put(token).await?;
    }
    for deletions in crashes {
        scene.http.crash_after(*deletions);
        queue.shuffle(&mut rng);
        deliver(&mut scene, queue.clone(), END + STEP).await?;
    }
    anyhow::ensure!(scene.held().await? == expect, "{:?} is left, not {expect:?}", scene.held().await?);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_deliveries_leave_exactly_the_live_tokens(
        lives in prop::collection::vec(life(), 1..12),
        seed: u64,
        crashes in prop::collection::vec(1..12_usize, 1..4),
    ) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let done = runtime.block_on(live_through(&lives, seed, &crashes));
        prop_assert!(done.is_ok(), "{done:?}");
    }
}
