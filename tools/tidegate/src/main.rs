//! The operator's command: works on your account, with the credentials, the region and the endpoints of the environment.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_command::redrive;

/// Operates Tidegate.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Counts what usage-rollup parked, or what its event source mapping discarded, once
    Redrive(redrive::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { command: Command::Redrive(options) } = Cli::parse();
    match Box::pin(redrive::command(options)).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
