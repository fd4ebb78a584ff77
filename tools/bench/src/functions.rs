//! Benchmark of a Lambda function's binary, as the process that Lambda would run.
//!
//! The function is started with a clean environment against a small [Lambda Runtime API][api] and a stub of
//! AWS, both on 127.0.0.1, and is given batches of one hot bucket's stream records, or of ends of clusters. What it costs is read
//! from outside the process, so that nothing in the function knows that it is being measured, and any
//! other program that speaks the Runtime API can be measured beside it: the two take turns, on the
//! same events.
//!
//! CPU time and memory are the process's alone. Wall time includes what the two servers here take, and
//! the start is that of a process on this machine: Lambda's cold start also fetches and unpacks the
//! code, and its share of a CPU depends on the memory setting.
//!
//! [api]: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use crate::{
    events::Events,
    fleet,
    function::Program,
    measure::{self, Plan, Subject},
    report,
};

/// Measures a function's binary: start, CPU time, wall time, peak memory and AWS calls.
#[derive(Debug, clap::Args)]
pub(crate) struct FunctionOptions {
    /// The function's binary
    #[arg(long, value_name = "FILE", default_value = "target/release/usage-rollup")]
    binary: PathBuf,

    /// How often to start it: from the start of the process to its first request for an event
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,

    /// Invocations that are not measured, before those that are
    #[arg(long, value_name = "N", default_value_t = 20)]
    warm_up: u32,

    /// Invocations to measure
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    invocations: u32,

    /// Invocations of the other program to measure; its warm-up is shorter in the same proportion
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    other_invocations: u32,

    /// Rounds to split the measured invocations into; the two programs take turns, round by round
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// What the generated batches hold
    #[arg(long, value_enum, default_value_t = Kind::Stream)]
    events: Kind,

    /// Stream records or messages in a generated batch; Lambda's most is 10000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    records: u32,

    /// A JSON file to send as the event, every time, in place of generated batches
    #[arg(long, value_name = "FILE", conflicts_with_all = ["records", "events"])]
    event: Option<PathBuf>,

    /// A further environment variable of the measured programs; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Show what the measured programs write to stdout and stderr; writing costs them time
    #[arg(long)]
    show_output: bool,

    /// Another program to measure beside it, with its arguments, after `--`: `tidegate-bench function -- python -m
    /// awslambdaric zae_limiter_aggregator.handler.handler`
    #[arg(last = true, value_name = "OTHER")]
    other: Vec<OsString>,
}

/// What a generated batch holds.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Stream records of one hot bucket
    Stream,
    /// The same of a bucket that runs dry, for the bucket keeper to refill
    Dry,
    /// Messages of a queue, each with the end of an EMR cluster that has a token
    Emr,
    /// The same of clusters without a token
    EmrUntracked,
}

/// Measures the rate aggregator with fleets of 100 to 10000 workers.
#[derive(Debug, clap::Args)]
pub(crate) struct FleetOptions {
    /// The aggregator's binary
    #[arg(long, value_name = "FILE", default_value = "target/release/rate-aggregator")]
    binary: PathBuf,

    /// Limit the CPU time to that of functions with 256 to 3008 MB, and let S3 answer as late as AWS's. Needs root on
    /// Linux
    #[arg(long)]
    cpu_quota: bool,

    /// A further environment variable of the function; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

/// Measures, and prints a table. Fails if an invocation fails or any of its records does.
pub(crate) async fn measure(options: &FunctionOptions) -> anyhow::Result<()> {
    let plan = Plan { starts: options.starts, rounds: options.rounds };
    let mut subjects = options.subjects()?;
    println!("{}", report::headline(&plan, &subjects)?);
    let measurements = measure::measure(&plan, &mut subjects).await?;
    println!("{}", report::comparison(&subjects, &measurements));
    Ok(())
}

/// Measures the rate aggregator, and prints a table.
pub(crate) async fn measure_fleet(options: &FleetOptions) -> anyhow::Result<()> {
    let binary = existing(&options.binary)?;
    if options.cpu_quota {
        fleet::run_limited(&binary, &options.env).await
    } else {
        fleet::run(&binary, &options.env).await
    }
}

impl FunctionOptions {
    fn subjects(&self) -> anyhow::Result<Vec<Subject>> {
        let binary = existing(&self.binary)?;
        let events = match (&self.event, self.events) {
            (Some(file), _) => Events::read(file)?,
            (None, Kind::Stream) => Events::generated(self.records)?,
            (None, Kind::Dry) => Events::dry(self.records)?,
            (None, Kind::Emr) => Events::ends(self.records, true)?,
            (None, Kind::EmrUntracked) => Events::ends(self.records, false)?,
        };
        let mut subjects = vec![Subject {
            name: "ours",
            program: self.program(vec![binary.into()]),
            events: events.clone(),
            warm_up: self.warm_up,
            invocations: self.invocations,
        }];
        if !self.other.is_empty() {
            let warm_up = u64::from(self.warm_up) * u64::from(self.other_invocations);
            let warm_up = warm_up.div_ceil(u64::from(self.invocations)).min(u64::from(self.warm_up));
            subjects.push(Subject {
                name: "other",
                program: self.program(self.other.clone()),
                events,
                warm_up: u32::try_from(warm_up)?,
                invocations: self.other_invocations,
            });
        }
        Ok(subjects)
    }

    fn program(&self, command: Vec<OsString>) -> Program {
        Program { command, variables: self.env.clone(), show_output: self.show_output }
    }
}

/// Resolves the path of a binary: a bare file name would be looked up in `PATH`.
fn existing(binary: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        binary.is_file(),
        "{} does not exist: run `cargo build --release -p usage-rollup`, or name another with --binary",
        binary.display()
    );
    binary.canonicalize().context("cannot resolve the path of the binary")
}

fn variable(argument: &str) -> Result<(String, String), String> {
    match argument.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("expected NAME=VALUE, not {argument:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_split_at_first_equals_sign() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(variable("A="), Ok(("A".to_owned(), String::new())));
        assert!(variable("=b").unwrap_err().contains("NAME=VALUE"));
        assert!(variable("A").is_err());
    }
}
