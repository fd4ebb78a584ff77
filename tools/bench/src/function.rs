//! A Lambda function as a process, with its services.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use axum::body::Bytes;
use serde::Deserialize;
use tidegate_sandbox::{
    process::{self, watched},
    runtime_api::{INVOCATION_LIMIT, RuntimeApi},
};
use tokio::process::{Child, Command};

use crate::{
    aws_stub::{AwsStub, Calls},
    meter::Meter,
};

/// How long a function may take to ask for its first event.
const START_LIMIT: Duration = Duration::from_mins(1);

/// A program that runs a function.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The executable and its arguments; one without a slash is looked up in `PATH`.
    pub(crate) command: Vec<OsString>,
    /// Variables beside those of every function, or in their place.
    pub(crate) variables: Vec<(String, String)>,
    /// Whether stdout and stderr are shown; they are discarded otherwise.
    pub(crate) show_output: bool,
}

/// A running function. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Function {
    process: Child,
    runtime_api: RuntimeApi,
    aws: AwsStub,
}

impl Function {
    /// Starts the program and waits until it asks for its first event; returns how long that took, too.
    pub(crate) async fn start(program: &Program) -> anyhow::Result<(Self, Duration)> {
        let (runtime_api, aws) = (RuntimeApi::start().await?, AwsStub::start().await?);
        let mut command = program.command(&runtime_api, &aws)?;
        let start = Instant::now();
        let process = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let mut function = Self { process, runtime_api, aws };
        let polled = function.runtime_api.polled();
        let polled = watched(&mut function.process, START_LIMIT, "before it asked for an event", polled).await?;
        Ok((function, polled - start))
    }

    /// Gives the function an event; returns how long it took, from the handing out to the answer.
    pub(crate) async fn invoke(&mut self, event: Bytes) -> anyhow::Result<Duration> {
        let answer = self.runtime_api.invoke(event);
        let answer = watched(&mut self.process, INVOCATION_LIMIT, "before it answered", answer).await?;
        let failures = failures(&answer.body);
        if failures > 0 {
            bail!("the function reported {failures} failed records: {}", String::from_utf8_lossy(&answer.body));
        }
        Ok(answer.took)
    }

    /// The AWS calls since this was last asked.
    pub(crate) fn take_calls(&self) -> Calls {
        self.aws.take_calls()
    }

    pub(crate) fn meter(&self) -> anyhow::Result<Meter> {
        Meter::new(self.process.id().context("the function has ended")?)
    }

    /// Kills the process and waits for its end, so that it disturbs nothing that is measured next.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("cannot kill the function")
    }
}

impl Program {
    /// The command with an environment like Lambda's, and nothing of ours in it but `PATH`.
    fn command(&self, runtime_api: &RuntimeApi, aws: &AwsStub) -> anyhow::Result<Command> {
        let (executable, arguments) = self.command.split_first().context("there is no command to run")?;
        let output = || if self.show_output { Stdio::inherit() } else { Stdio::null() };
        let mut command = process::command(executable, "bench", runtime_api.address());
        command
            .args(arguments)
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", format!("http://{}", aws.address()))
            .env("TABLE_NAME", "bench-buckets")
            .env("LIMITER_TABLES_BASE_NAME", "bench")
            .env("SNAPSHOT_WINDOWS", "hourly,daily")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(output())
            .stderr(output())
            // Ctrl-C then reaches only this program, which kills the process and does not report a failure of it.
            .process_group(0);
        Ok(command)
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, word) in self.command.iter().enumerate() {
            let word = if index == 0 { Path::new(word).file_name().unwrap_or(word) } else { word };
            write!(f, "{}{}", if index == 0 { "" } else { " " }, word.display())?;
        }
        Ok(())
    }
}

/// Number of records that an answer says have failed; 0 for answers that are not about records.
fn failures(answer: &[u8]) -> usize {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct BatchResponse {
        batch_item_failures: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<BatchResponse>(answer).unwrap_or_default().batch_item_failures.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program { command: ["sh", "-c", script].map(OsString::from).to_vec(), variables: vec![], show_output: false }
    }

    #[tokio::test]
    async fn a_process_that_ends_is_an_error() {
        let error = Function::start(&shell("exit 3")).await.unwrap_err();
        let expected = "the function ended before it asked for an event (exit status: 3)";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn failures_are_counted_in_batch_responses_only() {
        assert_eq!(failures(br#"{"batchItemFailures":[{"itemIdentifier":"1"}]}"#), 1);
        assert_eq!(failures(br#"{"batchItemFailures":[]}"#), 0);
        assert_eq!(failures(br#"{"statusCode":200}"#), 0);
        assert_eq!(failures(b"null"), 0);
    }
}
