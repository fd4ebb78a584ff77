//! The order of starts and invocations, and what was measured.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;

use crate::{
    events::Events,
    function::{Function, Program},
    meter::{CpuTime, Meter},
};

/// How the programs take turns.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) starts: u32,
    /// Rounds that the measured invocations are split into.
    pub(crate) rounds: u32,
}

/// A program and what it is given.
#[derive(Debug)]
pub(crate) struct Subject {
    /// What its column is called.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) events: Events,
    /// Invocations before the measured ones.
    pub(crate) warm_up: u32,
    pub(crate) invocations: u32,
}

/// What a program costs.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// From the start of the process to its first request for an event.
    pub(crate) start: Spread,
    /// CPU time of one invocation: the mean.
    pub(crate) cpu: Duration,
    /// From the handing out of an event to the answer.
    pub(crate) wall: Spread,
    /// The most memory ever resident, in KiB.
    pub(crate) peak_memory_kib: u64,
    /// AWS calls of one invocation by target: the mean.
    pub(crate) calls: BTreeMap<String, f64>,
}

/// Durations that should be alike.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// The one in the middle; of an even number, the later of the two.
    pub(crate) median: Duration,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

/// Measures the subjects, which take turns, so that other load on the machine affects all of them.
pub(crate) async fn measure(plan: &Plan, subjects: &mut [Subject]) -> anyhow::Result<Vec<Measurement>> {
    let mut starts = vec![Vec::new(); subjects.len()];
    for _ in 0..plan.starts {
        for (subject, starts) in subjects.iter().zip(&mut starts) {
            let (function, took) = Function::start(&subject.program).await.with_context(|| measuring(subject.name))?;
            function.stop().await?;
            starts.push(took);
        }
    }

    let mut runs = Vec::new();
    for subject in subjects {
        let name = subject.name;
        runs.push(Run::warmed_up(subject).await.with_context(|| measuring(name))?);
    }
    for round in 0..plan.rounds {
        for run in &mut runs {
            run.round(round, plan.rounds).await.with_context(|| measuring(run.subject.name))?;
        }
    }
    let finished = runs.iter().zip(starts);
    finished.map(|(run, starts)| run.measurement(starts).with_context(|| measuring(run.subject.name))).collect()
}

fn measuring(name: &str) -> String {
    format!("measuring the program of the column {name:?} (--show-output shows what it writes)")
}

/// The measured invocations of one process.
struct Run<'a> {
    subject: &'a mut Subject,
    function: Function,
    meter: Meter,
    cpu_before: CpuTime,
    walls: Vec<Duration>,
}

impl<'a> Run<'a> {
    async fn warmed_up(subject: &'a mut Subject) -> anyhow::Result<Self> {
        let (mut function, _) = Function::start(&subject.program).await?;
        for _ in 0..subject.warm_up {
            function.invoke(subject.events.next()?).await?;
        }
        wait_until_idle().await;
        function.take_calls();
        let meter = function.meter()?;
        let cpu_before = meter.cpu()?;
        Ok(Self { subject, function, meter, cpu_before, walls: Vec::new() })
    }

    /// This round's share of the invocations.
    async fn round(&mut self, round: u32, rounds: u32) -> anyhow::Result<()> {
        for _ in 0..share(self.subject.invocations, round, rounds) {
            self.walls.push(self.function.invoke(self.subject.events.next()?).await?);
        }
        wait_until_idle().await;
        Ok(())
    }

    /// What was measured since the warm-up. Waiting for its turn costs a process no CPU time, so the
    /// whole run's is taken at once: threads that end in one round are then not missed.
    fn measurement(&self, starts: Vec<Duration>) -> anyhow::Result<Measurement> {
        let invocations = self.subject.invocations;
        let calls = self.function.take_calls();
        Ok(Measurement {
            start: Spread::of(starts).context("nothing was started")?,
            cpu: self.meter.cpu()?.since(&self.cpu_before) / invocations,
            wall: Spread::of(self.walls.clone()).context("nothing was invoked")?,
            peak_memory_kib: self.meter.peak_memory_kib()?,
            calls: calls.into_iter().map(|(target, n)| (target, f64::from(n) / f64::from(invocations))).collect(),
        })
    }
}

/// Lets a process that has just asked for its next event fall idle, so that its CPU time is complete.
async fn wait_until_idle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// How many of `invocations` fall to a round: evenly, and all of them in all rounds together.
fn share(invocations: u32, round: u32, rounds: u32) -> u64 {
    let until = |round: u64| u64::from(invocations) * round / u64::from(rounds);
    until(u64::from(round) + 1) - until(u64::from(round))
}

impl Spread {
    /// `None` if there are no durations.
    fn of(mut durations: Vec<Duration>) -> Option<Self> {
        durations.sort_unstable();
        let (&min, &max) = (durations.first()?, durations.last()?);
        Some(Self { median: durations[durations.len() / 2], min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_share_all_invocations() {
        for (invocations, rounds) in [(300, 10), (20, 10), (7, 3), (3, 10), (1, 1)] {
            let shares: Vec<_> = (0..rounds).map(|round| share(invocations, round, rounds)).collect();
            assert_eq!(shares.iter().sum::<u64>(), u64::from(invocations), "{shares:?}");
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn a_spread_is_the_middle_and_the_ends() {
        let ms = Duration::from_millis;
        let spread = Spread { median: ms(3), min: ms(1), max: ms(9) };
        assert_eq!(Spread::of(vec![ms(9), ms(1), ms(3)]), Some(spread));
        assert_eq!(Spread::of(vec![]), None);
    }
}
