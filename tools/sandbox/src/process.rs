//! A function's binary as Lambda runs it: a process with an environment, on the Runtime API.

use std::{
    ffi::OsStr,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    runtime_api::{Answer, RuntimeApi},
    services::Services,
};

/// A process that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// A command with Lambda's environment and nothing else. Its input and output are closed.
pub fn command(executable: impl AsRef<OsStr>, function: &str, runtime_api: SocketAddr) -> Command {
    let mut command = Command::new(executable);
    command
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", runtime_api.to_string())
        .env("AWS_LAMBDA_FUNCTION_NAME", function)
        .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{function}"))
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "2026/01/01/[$LATEST]0123456789abcdef0123456789abcdef")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Awaits `work` of a function's process, which must neither end nor take longer than `limit`. `moment` is for the error,
/// like "before it answered".
pub async fn watched<T>(
    child: &mut Child,
    limit: Duration,
    moment: &str,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let watch = async {
        tokio::select! {
            // First what the process reported: it may have ended because of that.
            biased;
            done = work => done,
            status = child.wait() => bail!("the function ended {moment} ({})", status?),
        }
    };
    timeout(limit, watch).await.with_context(|| format!("{} s passed {moment}", limit.as_secs()))?
}

/// A function's binary.
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    pub name: &'static str,
    pub path: &'static str,
}

/// A function that waits for events, and its services. It has no dead-letter queue. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    pub services: Services,
    child: Child,
    runtime_api: RuntimeApi,
}

impl Binary {
    /// Starts the function with these variables beside Lambda's, and waits until it asks for its first event.
    pub async fn start(&self, runtime_api: RuntimeApi, variables: &[(&str, &str)]) -> anyhow::Result<Process> {
        let services = Services::embedded(None, "binary").await?;
        let child = self
            .command(runtime_api.address())
            .env("AWS_ENDPOINT_URL_DYNAMODB", &services.endpoint)
            .env("TABLE_NAME", &services.table)
            .envs(variables.iter().copied())
            .spawn()
            .with_context(|| format!("{} cannot be started", self.path))?;
        let mut process = Process { services, child, runtime_api };
        process.asks_for_the_next_event().await?;
        Ok(process)
    }

    /// Runs the function with these variables only, and returns its start-up error.
    pub async fn refusal(&self, variables: &[(&str, &str)]) -> anyhow::Result<String> {
        // Nothing listens on port 1, so asking for an event fails with another message.
        let mut command = self.command((Ipv4Addr::LOCALHOST, 1).into());
        let output =
            timeout(LIMIT, command.envs(variables.iter().copied()).output()).await.context("it does not end")??;
        let message = String::from_utf8(output.stderr)?;
        ensure!(output.status.code().is_some_and(|code| code != 0), "{}: {message}", output.status);
        Ok(message)
    }

    /// With these variables only, the function must fail to start, with an error that holds each part of `expect`.
    pub async fn check_refusal(&self, variables: &[(&str, &str)], expect: &[&str]) {
        check_message(&self.refusal(variables).await.expect("an error at the start"), expect);
    }

    /// Reads one of the function's payloads in `events`.
    pub fn payload(&self, name: &str) -> anyhow::Result<Value> {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events");
        Ok(serde_json::from_slice(&fs::read(events.join(self.name).join(name))?)?)
    }

    fn command(&self, runtime_api: SocketAddr) -> Command {
        let mut command = command(self.path, self.name, runtime_api);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Process {
    /// Sends the function an event. Returns its answer.
    pub async fn invoke(&mut self, event: &Value) -> anyhow::Result<(Answer, Value)> {
        let Self { child, runtime_api, .. } = self;
        let answer = watched(child, LIMIT, "before it answered", runtime_api.invoke(event.to_string().into())).await?;
        let body = serde_json::from_slice(&answer.body)?;
        Ok((answer, body))
    }

    /// Sends the function an event that must fail. Returns the error that it reports, after which it must ask for an event.
    pub async fn failure(&mut self, event: &Value) -> anyhow::Result<String> {
        let message = match self.invoke(event).await {
            Ok((_, body)) => bail!("the function answered {body}"),
            Err(error) => error.to_string(),
        };
        let message = message.strip_prefix("the function reported an error: ").context(message.clone())?.to_owned();
        self.asks_for_the_next_event().await?;
        Ok(message)
    }

    /// The function must answer an event with `expect`.
    pub async fn check(&mut self, event: &Value, expect: Value) -> Answer {
        let (answer, body) = self.invoke(event).await.expect("an answer");
        assert_eq!(body, expect);
        answer
    }

    /// An event must fail with a message that holds each part of `expect`, and the process must live.
    pub async fn check_failure(&mut self, event: &Value, expect: &[&str]) {
        check_message(&self.failure(event).await.expect("a failure"), expect);
    }

    /// Sends SIGTERM, on which the process must exit with status 0. Returns its [log](Self::log).
    pub async fn terminate(mut self) -> anyhow::Result<Vec<Value>> {
        let id = self.child.id().context("it has ended")?;
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &id.to_string()]).status().await?;
        ensure!(sent.success(), "the signal could not be sent: {sent}");
        let status = timeout(LIMIT, self.child.wait()).await.context("it does not end")??;
        ensure!(status.success(), "{status}");
        self.log().await
    }

    async fn asks_for_the_next_event(&mut self) -> anyhow::Result<()> {
        let Self { child, runtime_api, .. } = self;
        watched(child, LIMIT, "before it asked for an event", runtime_api.polled()).await.map(drop)
    }

    /// Kills the process. Returns what it wrote to stdout, which must be lines of JSON objects; stderr must be empty.
    pub async fn log(mut self) -> anyhow::Result<Vec<Value>> {
        // It may have ended by itself.
        if self.child.try_wait()?.is_none() {
            self.child.start_kill()?;
        }
        let output = timeout(LIMIT, self.child.wait_with_output()).await.context("it does not end")??;
        ensure!(output.stderr.is_empty(), "stderr: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout)?;
        let lines = lines.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
        let lines: Vec<Value> = lines.collect::<anyhow::Result<_>>()?;
        ensure!(lines.iter().all(Value::is_object), "{lines:?}");
        Ok(lines)
    }
}

fn check_message(message: &str, expect: &[&str]) {
    for part in expect {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}
