//! Workers of Bulk Executor, themselves, on the prefix of a fleet. They ignore the keys of leases.
//!
//! The variable `TIDEGATE_BULK_EXECUTOR` names the folder `rate_limiter` of a checkout of
//! <https://github.com/awslabs/amazon-dynamodb-tools>, since Bulk Executor is no package. Without it, nothing is tested.

use std::{env, process::Stdio};

use tidegate_sandbox::s3::BUCKET;
use tidegate_tests::{
    fleet::prelude::*,
    python::{interpreter, script},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

/// What the fleet may read, and what one worker may, in capacity units a second.
const CAP: f64 = 400.0;
const MAXIMUM: f64 = 300.0;

/// Some workers of Bulk Executor in a process of Python.
struct PythonWorkers {
    _process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl PythonWorkers {
    /// `None` if Bulk Executor is not there.
    async fn start(scene: &FleetScene, count: usize) -> anyhow::Result<Option<Self>> {
        let Some(folder) = env::var_os("TIDEGATE_BULK_EXECUTOR").filter(|folder| !folder.is_empty()) else {
            println!("not tested: TIDEGATE_BULK_EXECUTOR names no folder");
            return Ok(None);
        };
        let Some(python) = interpreter("boto3").await? else { return Ok(None) };
        let mut command = script(python, "fleet_workers.py", &scene.aggregator.s3.endpoint());
        let mut process = command.arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().context("no input")?;
        let answers = BufReader::new(process.stdout.take().context("no output")?).lines();
        let mut workers = Self { _process: process, input, answers };
        let start = json!({
            "at": time(NOW).seconds(), "count": count, "bucket": BUCKET, "prefix": PREFIX, "cap": CAP, "maximum": MAXIMUM,
        });
        workers.ask(&json!({"start": start})).await?;
        Ok(Some(workers))
    }

    async fn ask(&mut self, command: &Value) -> anyhow::Result<Value> {
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        let answer = self.answers.next_line().await?.context("the workers have ended")?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// What each has read in the second that ends now.
    async fn second(&mut self, scene: &FleetScene) -> anyhow::Result<Vec<f64>> {
        let at = time(scene.clock.epoch_millis()).seconds();
        Ok(serde_json::from_value(self.ask(&json!({"second": {"at": at}})).await?)?)
    }
}

/// A fleet of busy workers of both kinds, after two minutes.
#[derive(Debug)]
struct Outcome {
    /// What was read above the cap, in capacity units.
    overshoot: f64,
    /// The share of the cap that was used in the last minute.
    used: f64,
    /// Jain's index of what the workers read in the last minute. 1 is fair.
    fairness: f64,
}

async fn run(python: usize, ours: usize) -> anyhow::Result<Option<Outcome>> {
    let scene = FleetScene::new().await?;
    let Some(mut theirs) = PythonWorkers::start(&scene, python).await? else { return Ok(None) };
    let start = |_| scene.worker().caps(CAP, 100.0).max(MAXIMUM, 100.0).start();
    let workers = (0..ours).map(start).collect::<Result<Vec<_>, _>>()?;
    let _readers = workers.iter().map(Reader::start).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut overshoot, mut last) = (0.0, vec![0.0; python + ours]);
    let mut before = vec![0.0; ours];
    for second in 0..120 {
        scene.pass(1, 2 * ours).await?;
        let mut read = theirs.second(&scene).await?;
        for (worker, before) in workers.iter().zip(&mut before) {
            let consumed = worker.throttle().usage().reads.consumed;
            read.push(consumed - *before);
            *before = consumed;
        }
        overshoot += (read.iter().sum::<f64>() - CAP).max(0.0);
        if second >= 60 {
            last.iter_mut().zip(read).for_each(|(sum, read)| *sum += read);
        }
    }
    let sum: f64 = last.iter().sum();
    let squares: f64 = last.iter().map(|read| read * read).sum();
    let count = f64::from(u32::try_from(last.len())?);
    Ok(Some(Outcome { overshoot, used: sum / 60.0 / CAP, fairness: sum * sum / count / squares }))
}

#[tokio::test]
async fn a_mixed_fleet_is_no_worse_than_one_of_python_workers() -> anyhow::Result<()> {
    let (Some(python), Some(mixed)) = (run(8, 0).await?, run(4, 4).await?) else { return Ok(()) };
    println!("Python only: {python:?}; mixed: {mixed:?}");
    // The workers of Bulk Executor settle as they do alone: in a minute.
    assert!((0.97..=1.03).contains(&python.used) && (0.93..=1.03).contains(&mixed.used), "{python:?} {mixed:?}");
    assert!(mixed.overshoot <= python.overshoot && mixed.fairness >= 0.98, "{python:?} {mixed:?}");
    Ok(())
}
