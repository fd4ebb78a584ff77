//! `tidegate capacity`: announces work to `capacity-coordinator`, and shows what is announced.

mod shown;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use aws_config::timeout::TimeoutConfig;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser as _};
use serde_json::json;
use tidegate::capacity::{Announcement, CapacityError, CapacityKind, Coordinator};
use tokio::signal;

use crate::{
    connection::{self, CONNECT_TIMEOUT},
    output::Output,
};

/// The status of a process that Ctrl-C stopped.
const INTERRUPTED: u8 = 130;

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The function capacity-coordinator, by its name or ARN
    #[arg(long, value_name = "NAME", env = "TIDEGATE_COORDINATOR", hide_env_values = true, global = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    function: Option<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Announces work, waits until the capacity is ready, and leaves the announcement in force
    #[command(after_help = "Example: tidegate capacity announce orders write 4000 --id load-42 --for 30m")]
    Announce(Announce),
    /// Releases an announcement
    Release {
        /// The announcement
        id: String,
    },
    /// Shows the announcements in force
    List,
    /// Shows what a table, or an index of it, provides and needs
    Status {
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// The table
    #[arg(id = "coordinated", value_name = "TABLE")]
    table: String,
    /// read or write
    #[arg(value_parser = PossibleValuesParser::new(["read", "write"]).map(|kind| kind_of(&kind)))]
    kind: CapacityKind,
    /// The index, instead of the table itself
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct Announce {
    #[command(flatten)]
    target: Target,
    /// The capacity units a second that the work needs, beside what the table serves now
    units: u64,
    /// The index and the table, because writes to an index come from writes to its table
    #[arg(long, requires = "index")]
    with_table: bool,
    /// The announcement's id; random if not given. The same id again is the same announcement
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Who announces, such as the name of a job
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// How long the announcement lasts once the capacity is ready, like 90s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = duration)]
    lasting: Duration,
    /// How long to wait until the capacity is ready
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    deadline: Duration,
    /// Raises the warm throughput of an on-demand table, which costs money and cannot be undone
    #[arg(long)]
    warm: bool,
}

impl Options {
    /// The function that the command invokes.
    pub fn function(&self) -> anyhow::Result<&str> {
        self.function.as_deref().context("expected --function NAME, or the variable TIDEGATE_COORDINATOR")
    }

    /// Returns the exit code.
    pub async fn run(self, endpoint: Option<&str>, as_json: bool) -> anyhow::Result<u8> {
        let function = self.function()?.to_owned();
        let coordinator = coordinator(&function, endpoint).await;
        let done = tokio::select! {
            // Ctrl-C is handled before anything is announced.
            biased;
            _ = signal::ctrl_c() => None,
            output = self.action.run(&coordinator) => Some(output),
        };
        let Some(output) = done else {
            // If the request is dropped, its announcement is released in the background.
            eprintln!("waiting for running invocations; press Ctrl-C again to stop at once");
            tokio::select! {
                () = coordinator.flush() => {}
                _ = signal::ctrl_c() => {}
            }
            return Ok(INTERRUPTED);
        };
        match output {
            Ok(output) => output.print(as_json)?,
            Err(error) => {
                // An announcement that may be in force is released in the background.
                coordinator.flush().await;
                return Err(explained(error, &function));
            }
        }
        Ok(0)
    }
}

impl Action {
    async fn run(self, coordinator: &Coordinator) -> Result<Output, CapacityError> {
        match self {
            Self::Announce(announce) => announce.run(coordinator).await,
            Self::Release { id } => {
                let released = coordinator.release(&id).await?;
                let is = if released { "is released" } else { "is not in force" };
                Ok(Output::new(format!("announcement {id:?} {is}"), json!({"id": id, "released": released})))
            }
            Self::List => {
                let announcements = coordinator.list().await?;
                Ok(Output::new(shown::list(&announcements), json!({ "announcements": announcements })))
            }
            Self::Status { target: Target { table, kind, index } } => {
                let status = coordinator.status(&table, index.as_deref(), kind).await?;
                Ok(Output::new(shown::status(&status), json!(status)))
            }
        }
    }
}

impl Announce {
    async fn run(self, coordinator: &Coordinator) -> Result<Output, CapacityError> {
        let Target { table, kind, index } = self.target;
        let mut request = coordinator.announce(table, kind, self.units).lasting(self.lasting).deadline(self.deadline);
        if let Some(index) = index {
            request = request.index(index);
        }
        if self.with_table {
            request = request.with_table();
        }
        if let Some(id) = self.id {
            request = request.id(id);
        }
        if let Some(caller) = self.caller {
            request = request.caller(caller);
        }
        if self.warm {
            request = request.warm();
        }
        let announcement = request.await?;
        let output = Output::new(shown::announcement(&announcement), json_of(&announcement));
        announcement.keep();
        Ok(output)
    }
}

fn json_of(announcement: &Announcement) -> serde_json::Value {
    json!({
        "id": announcement.id(), "ready": announcement.is_ready(), "provisioned": announcement.provisioned(),
        "until": shown::epoch_seconds(announcement.until()), "targets": announcement.targets(),
        "dry_run": announcement.is_dry_run(),
    })
}

async fn coordinator(function: &str, endpoint: Option<&str>) -> Coordinator {
    let sdk = connection::operator_config().await;
    let mut lambda = aws_sdk_lambda::config::Builder::from(&sdk)
        // An invocation takes up to a minute. The client of the function knows how long that is.
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).build());
    if let Some(endpoint) = endpoint {
        lambda = lambda.endpoint_url(endpoint);
    }
    Coordinator::new(aws_sdk_lambda::Client::from_conf(lambda.build()), function)
}

/// Says what to do about an error of AWS.
fn explained(error: CapacityError, function: &str) -> anyhow::Error {
    let is_missing = matches!(error, CapacityError::Rejected { .. });
    let error = anyhow::Error::from(error);
    let says = |code: &str| error.to_string().contains(code);
    if is_missing && says("ResourceNotFoundException") {
        return error
            .context(format!("function {function:?} does not exist: check --function, --endpoint and AWS_REGION"));
    }
    if is_missing && says("AccessDeniedException") {
        return error.context(format!("function {function:?}: your credentials do not allow lambda:InvokeFunction"));
    }
    error
}

fn kind_of(kind: &str) -> CapacityKind {
    if kind == "read" { CapacityKind::Read } else { CapacityKind::Write }
}

/// Reads a time like `90s`, `10m` or `2h`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let unit = |(unit, seconds): (char, u64)| Some((text.strip_suffix(unit)?, seconds));
    let time = [('s', 1), ('m', 60), ('h', 3600)].into_iter().find_map(unit).and_then(|(number, seconds)| {
        let number: u64 = number.parse().ok()?;
        number.checked_mul(seconds).map(Duration::from_secs)
    });
    time.ok_or_else(|| anyhow!("{text:?} is not a time like 90s, 10m or 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, expect) in [("0s", 0), ("90s", 90), ("10m", 600), ("2h", 7200)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(expect), "{text}");
        }
        for text in ["", "10", "m", "1.5h", "-1s", "1d", "18446744073709551615h"] {
            let error = duration(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("90s"), "{error}");
        }
    }
}
