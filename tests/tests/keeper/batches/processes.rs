//! Any process may handle any batch.

use tidegate_aws::schema::system;
use tidegate_tests::keeper::prelude::*;

const WAVES: i64 = 24;

/// Which process handles a batch.
#[derive(Clone, Copy, Debug)]
enum Processes {
    One,
    TwoInTurn,
    NewForEachBatch,
}

/// What the function reports of each batch, and the table in the end.
type Outcome = (Vec<Report>, BTreeMap<String, Item>);

/// Clients draw from a bucket that runs dry, one that doubles, and one whose client has doubled it.
async fn run(processes: Processes) -> anyhow::Result<Outcome> {
    let mut scene = KeeperScene::new().await?;
    let mut other = scene.another_process()?;
    for entity in ["dry", "hot", "sharded"] {
        let mut state = full(1);
        set_tokens(&mut state, "rpm", 30_000);
        scene.put(&key(entity), &state).await?;
    }
    let mut reports = Vec::new();
    for wave in 0..WAVES {
        let now = START + wave * 1_500;
        for _ in 0..3 {
            scene.change(&key("dry"), |state| take(state, "rpm", 1_250)).await?;
        }
        scene.change(&key("hot"), |state| take(state, "wcu", 850_000)).await?;
        if wave == 3 {
            scene.change(&key("sharded"), |state| state.shards = count(2)).await?;
        }
        if wave > 3 {
            scene.change(&shard(&key("sharded"), 1), |state| take(state, "tpm", 450_000)).await?;
        }
        let batch = scene.event(now).await?;
        match processes {
            Processes::One => {}
            Processes::TwoInTurn => std::mem::swap(&mut scene.keeper, &mut other),
            Processes::NewForEachBatch => scene.keeper = scene.another_process()?,
        }
        reports.push(scene.keeper.handle(&batch, time(now + 1_000), in_time()).await.report);
    }
    Ok((reports, scene.table().await?))
}

#[tokio::test]
async fn any_process_handles_any_batch_alike() -> anyhow::Result<()> {
    let (reports, table) = run(Processes::One).await?;
    let mut sum = Report::default();
    for report in &reports {
        sum += report;
    }
    assert!(sum.refilled > 5 && sum.doubled > 0 && sum.split > 1 && sum.lost == 0, "{sum:?}");
    assert!(table.keys().any(|key| key.contains(system::SHARDED)));
    for processes in [Processes::TwoInTurn, Processes::NewForEachBatch] {
        assert_eq!(run(processes).await?, (reports.clone(), table.clone()), "{processes:?}");
    }
    Ok(())
}
