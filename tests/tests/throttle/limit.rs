//! What many tasks consume together, by the throttle's clock. Consumption is counted at the table.

use futures::future::join_all;
use tidegate_tests::throttle::prelude::*;

const TASKS: usize = 64;
const READS: f64 = 100.0;
const WRITES: f64 = 200.0;
/// How far the clock moves at once, in milliseconds.
const STEP: u64 = 10;
const STEPS_A_SECOND: usize = 100;

/// Lets half of the tasks write items of one to four kilobytes, and the others read them. Returns the units that were read
/// and written in each step.
async fn consume(scene: &ThrottleScene, seconds: usize) -> anyhow::Result<[Vec<f64>; 2]> {
    let tasks = (0..TASKS).map(async |number| {
        let key = format!("item-{number}");
        let (get, put) = (scene.get(&key).consistent_read(true), scene.put(&key, number * 60));
        loop {
            if number % 2 == 0 {
                drop(put.clone().send().await);
            } else {
                drop(get.clone().send().await);
            }
        }
    });
    let consumed = async {
        let mut steps = [Vec::new(), Vec::new()];
        for _ in 0..seconds * STEPS_A_SECOND {
            // All calls of this moment have been answered.
            scene.waiting(TASKS).await?;
            let usage = scene.gateway.take_usage();
            steps[0].push(usage.read_units);
            steps[1].push(usage.write_units);
            scene.clock.advance(Duration::from_millis(STEP));
        }
        anyhow::Ok(steps)
    };
    tokio::select! {
        _ = join_all(tasks) => unreachable!("tasks never end"),
        consumed = consumed => consumed,
    }
}

/// Units a second.
fn mean(steps: &[f64]) -> f64 {
    steps.iter().sum::<f64>() / f64::from(u32::try_from(steps.len() / STEPS_A_SECOND).expect("few seconds"))
}

fn worst_second(steps: &[f64]) -> f64 {
    steps.windows(STEPS_A_SECOND).map(|second| second.iter().sum()).fold(0.0, f64::max)
}

#[tokio::test]
async fn sixty_four_tasks_keep_the_limit() -> anyhow::Result<()> {
    let scene = ThrottleScene::new(READS, WRITES).await?;
    for (steps, limit) in consume(&scene, 20).await?.iter().zip([READS, WRITES]) {
        let (mean, worst) = (mean(steps), worst_second(steps));
        assert!((mean / limit - 1.0).abs() < 0.01, "{mean} of {limit}");
        // A burst is a tenth of a second's limit.
        assert!(worst <= limit * 1.1, "{worst} of {limit}");
    }
    Ok(())
}

#[tokio::test]
async fn faults_do_not_break_the_limit() -> anyhow::Result<()> {
    let scene = ThrottleScene::with_faults(READS, WRITES, FaultRates::spread(0.3)).await?;
    let consumed = consume(&scene, 10).await?;
    assert!(scene.http.counts().total() > 100, "{:?}", scene.http.counts());
    for (steps, limit) in consumed.iter().zip([READS, WRITES]) {
        let (mean, worst) = (mean(steps), worst_second(steps));
        // A sixth of the calls are charged although they do not reach the table.
        assert!(mean <= limit * 1.01 && mean >= limit * 0.8, "{mean} of {limit}");
        assert!(worst <= limit * 1.1, "{worst} of {limit}");
    }
    Ok(())
}
