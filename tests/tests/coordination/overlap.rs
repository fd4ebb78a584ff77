//! Processes that overlap, end in the middle, or whose calls arrive late.

use futures::future::join_all;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_tests::coordinator::{invoke, prelude::*};

/// Holds the calls that set this minimum.
fn hold(account: &Account, held: u64) -> Gate {
    let gate = Gate::closed();
    let shared = gate.clone();
    account.on_call(move |_, call| {
        let is_held = matches!(call, Call::RegisterScalableTarget { minimum, .. } if *minimum == Some(held));
        is_held.then(|| CallFault::Held(shared.clone()))
    });
    gate
}

/// The call that raises the minimum takes effect after the announcement is released.
#[tokio::test]
async fn a_late_call_is_corrected_by_its_process() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let gate = hold(scene.account(), NEEDED);
    let other = scene.process(&[])?;
    let release_late = async {
        gate.holds(1).await;
        invoke(&other, release("load-42"), 1, in_time()).await?;
        assert_eq!(scene.minimum(), Some(OWNERS));
        gate.open().await;
        anyhow::Ok(())
    };
    let soon = Instant::now() + Duration::from_secs(3);
    let (answer, released) =
        tokio::join!(invoke(&scene.coordinator, announce("load-42", &json!({})), 0, soon), release_late);
    released?;
    assert_eq!(answer.expect_err("a refusal").error_type(), "Released");
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

/// The same, but the process ends before its call takes effect.
#[tokio::test]
async fn a_late_call_of_a_dead_process_is_repaired() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let gate = hold(scene.account(), NEEDED);
    let dead = scene.process(&[])?;
    tokio::select! {
        done = invoke(&dead, announce("load-42", &json!({})), 0, in_time()) => panic!("{done:?}"),
        () = gate.holds(1) => {}
    }
    scene.invoke(release("load-42"), 1).await?;
    gate.open().await;
    assert_eq!(scene.minimum(), Some(NEEDED));
    let answer = scene.restore(60).await?;
    assert_eq!((&answer["restored"], &answer["owner_changes"]), (&json!(1), &json!([])));
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

#[tokio::test]
async fn processes_that_announce_together_add_up() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let processes: Vec<_> = (0..8).map(|_| scene.process(&[])).collect::<Result<_, _>>()?;
    let announced = processes.iter().enumerate().map(|(number, process)| {
        let request = announce(&format!("load-{number}"), &json!({"units": 1_000}));
        invoke(process, request, 0, in_time())
    });
    for answer in join_all(announced).await {
        assert_eq!(answer?["ready"], true);
    }
    assert_eq!(scene.minimum(), Some(17_143));
    let released = processes.iter().enumerate().map(|(number, process)| {
        let request = release(&format!("load-{number}"));
        invoke(process, request, 1, in_time())
    });
    for answer in join_all(released).await {
        assert_eq!(answer?["released"], true);
    }
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

/// A process ends after each number of its writes to the state table, and before each of its calls.
#[tokio::test]
async fn the_schedule_repairs_what_a_crash_leaves() -> anyhow::Result<()> {
    for writes in 0..=4 {
        let scene = CoordinatorScene::new().await?;
        scene.http.crash_after(writes);
        let crashed = tokio::select! {
            _ = scene.announce("load-42", 0) => false,
            () = scene.http.crashed() => true,
        };
        assert_eq!(crashed, writes < 4, "{writes} writes");
        scene.http.heal();
        scene.restore(60).await?;
        let list = scene.invoke(json!({"action": "list"}), 60).await?;
        let is_in_force = list["announcements"] != json!([]);
        assert_eq!(scene.minimum(), Some(if is_in_force { NEEDED } else { OWNERS }), "{writes} writes");
        for second in [660, 1_300, 1_360] {
            scene.restore(second).await?;
        }
        assert_eq!((scene.minimum(), scene.items().await?), (Some(OWNERS), 0), "{writes} writes");
    }
    Ok(())
}

#[tokio::test]
async fn a_lost_response_is_repeated() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let lost = AtomicUsize::new(0);
    scene.account().on_call(move |_, call| {
        let is_first = matches!(call, Call::RegisterScalableTarget { .. }) && lost.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then_some(CallFault::LostResponse)
    });
    assert_eq!(scene.announce("load-42", 0).await?["ready"], true);
    assert_eq!(scene.minimum(), Some(NEEDED));
    Ok(())
}

/// Requests of four processes in any order, with faults of every kind; some processes end in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_raised_after_any_faults() -> anyhow::Result<()> {
    for seed in 0..4 {
        let scene = CoordinatorScene::with_faults(FaultRates::spread(0.1), seed).await?;
        let faults = std::sync::Mutex::new(StdRng::seed_from_u64(seed));
        scene.account().on_call(move |_, call| {
            let mut faults = faults.lock().ok()?;
            let fault = match faults.random_range(0..20) {
                0 => CallFault::LostResponse,
                1 => CallFault::Internal,
                2 => CallFault::Throttled,
                3 => CallFault::Conflict,
                _ => return None,
            };
            matches!(call, Call::RegisterScalableTarget { .. }).then_some(fault)
        });
        let mut rng = StdRng::seed_from_u64(seed);
        for second in 0..12 {
            let requests: Vec<_> = (0..4)
                .map(|_| match rng.random_range(0..4) {
                    0 => release(&format!("load-{}", rng.random_range(0..3))),
                    1 => restore(),
                    _ => announce(
                        &format!("load-{}", rng.random_range(0..3)),
                        &json!({"units": rng.random_range(1..9_000)}),
                    ),
                })
                .collect();
            let ends: Vec<_> = (0..4).map(|_| rng.random_range(5..400)).collect();
            let run = requests.into_iter().zip(ends).map(|(request, end)| {
                let deadline = Instant::now() + Duration::from_millis(end);
                tokio::time::timeout_at(deadline, invoke(&scene.coordinator, request, second, in_time()))
            });
            join_all(run).await;
        }
        scene.account().undisturbed();
        scene.http.heal();
        let calm = scene.process(&[])?;
        invoke(&calm, restore(), 60, in_time()).await?;
        let status = json!({"action": "status", "table": "orders", "dimension": "write"});
        let status = invoke(&calm, status, 60, in_time()).await?;
        let expect = if status["announced"] == 0 { json!(OWNERS) } else { status["needed"].clone() };
        assert_eq!(json!(scene.minimum()), expect, "seed {seed}: {status}");
        for second in [700, 1_400, 1_600] {
            invoke(&calm, restore(), second, in_time()).await?;
        }
        assert_eq!((scene.minimum(), scene.items().await?), (Some(OWNERS), 0), "seed {seed}");
    }
    Ok(())
}

/// One id for two targets at the same time: one of the requests is refused.
#[tokio::test]
async fn an_id_names_one_announcement() -> anyhow::Result<()> {
    for _ in 0..10 {
        let scene = CoordinatorScene::new().await?;
        let other = scene.process(&[])?;
        let of_index = announce("load-42", &json!({"index": "by-date"}));
        let (table, index) = tokio::join!(
            invoke(&scene.coordinator, announce("load-42", &json!({})), 0, in_time()),
            invoke(&other, of_index, 0, in_time())
        );
        let refused = match (table, index) {
            (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
            both => panic!("{both:?}"),
        };
        assert_eq!(refused.error_type(), "IdTaken");
        let minimums = [scene.minimum(), scene.account().minimum(INDEX, Write)];
        assert!(minimums.contains(&Some(OWNERS)) && minimums.contains(&Some(NEEDED)), "{minimums:?}");
    }
    Ok(())
}

/// Application Auto Scaling refuses a call while another update of the target is pending.
#[tokio::test]
async fn a_pending_update_is_waited_for() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let pending = AtomicUsize::new(2);
    scene.account().on_call(move |_, call| {
        let is_pending = matches!(call, Call::RegisterScalableTarget { .. })
            && pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        is_pending.then_some(CallFault::Conflict)
    });
    assert_eq!(scene.announce("load-42", 0).await?["ready"], true);
    assert_eq!(scene.minimum(), Some(NEEDED));
    // If it stays, the error names it, and the schedule goes on.
    scene
        .account()
        .on_call(|_, call| matches!(call, Call::RegisterScalableTarget { .. }).then_some(CallFault::Conflict));
    let failed = scene.invoke(announce("more", &json!({"units": 1})), 1).await.unwrap_err();
    assert!(failed.error_type() == "CallFailed" && failed.to_string().contains("ConcurrentUpdate"), "{failed}");
    scene.account().undisturbed();
    scene.restore(60).await?;
    assert_eq!(scene.minimum(), Some(NEEDED + 1));
    Ok(())
}

/// An invocation of a run that has given up reaches the function after the release.
#[tokio::test]
async fn a_run_that_has_released_announces_nothing() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    let of_run = |run: &str| announce("load-42", &json!({"run": run}));
    let release_of = |run: &str| json!({"action": "release", "id": "load-42", "run": run});
    for (first, second) in [("a", 1), ("b", 10)] {
        assert_eq!(scene.invoke(release_of(first), second).await?["released"], false);
        let refused = scene.invoke(of_run(first), second + 1).await.unwrap_err();
        assert_eq!((refused.error_type(), scene.minimum()), ("Released", Some(OWNERS)));
    }
    // Another run announces, and a release without a run ends it.
    assert_eq!(scene.invoke(of_run("c"), 20).await?["ready"], true);
    assert_eq!(scene.invoke(release("load-42"), 21).await?["released"], true);
    assert_eq!(scene.invoke(of_run("c"), 22).await?["ready"], true);
    // The release of another run was repeated, and its invocation is late.
    assert_eq!(scene.invoke(release_of("a"), 23).await?["released"], false);
    assert_eq!(scene.invoke(of_run("a"), 24).await.unwrap_err().error_type(), "Released");
    assert_eq!(scene.minimum(), Some(NEEDED));
    assert_eq!(scene.invoke(release_of("c"), 25).await?["released"], true);
    for run in ["a", "b", "c"] {
        assert_eq!(scene.invoke(of_run(run), 26).await.unwrap_err().error_type(), "Released");
    }
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}
