//! A process beside this one that answers commands: one JSON value a line, in and out.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// An answer that takes longer does not come.
const LIMIT: Duration = Duration::from_mins(1);

/// The process. Dropping it kills the process.
#[derive(Debug)]
pub struct Peer {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Peer {
    /// Starts the process.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let commands = process.stdin.take().context("the process has no input")?;
        let answers = BufReader::new(process.stdout.take().context("the process has no output")?).lines();
        Ok(Self { commands, answers, _process: process })
    }

    /// Sends a command, and returns its answer, which must come within a minute.
    pub async fn ask<A: DeserializeOwned>(&mut self, command: &impl Serialize) -> anyhow::Result<A> {
        self.ask_within(LIMIT, command).await
    }

    /// Sends a command, and returns its answer, which must come within `limit`.
    pub async fn ask_within<A: DeserializeOwned>(
        &mut self,
        limit: Duration,
        command: &impl Serialize,
    ) -> anyhow::Result<A> {
        let command = serde_json::to_string(command)?;
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        let answer = timeout(limit, self.answers.next_line()).await.context("the process hangs")??;
        let answer = answer.with_context(|| format!("the process ended on {command}"))?;
        serde_json::from_str(&answer).with_context(|| format!("the process answered {answer}"))
    }
}
