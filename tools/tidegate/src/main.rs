//! The operator's command: works on your account, with the credentials, the region and the endpoints of the environment.

use std::{io, process::ExitCode};

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind, parser::ValueSource};
use clap_complete::Shell;
use tidegate_command::{
    audit, bucket, capacity,
    connection::{Connection, NamespaceOptions},
    entity, limits, namespace,
    output::Output,
    redrive,
    switch::{self, Switch},
    tokens, usage,
};

/// Operates Tidegate.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version)]
struct Cli {
    /// The bucket table, by its name or ARN
    #[arg(long, value_name = "NAME", env = "TIDEGATE_TABLE", hide_env_values = true, global = true)]
    table: Option<String>,
    /// Where DynamoDB is, if not at AWS; for `capacity`, where Lambda is
    #[arg(long, value_name = "URL", global = true)]
    endpoint: Option<String>,
    /// Prints JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows and changes limits
    Limits(InNamespace<limits::Action>),
    /// Shows usage by hour, day or month
    Usage(InNamespaceWith<usage::Options>),
    /// Shows and changes entities
    Entity(InNamespace<entity::Action>),
    /// Refuses all acquires of an entity, of a resource, or of both
    Disable(InNamespaceWith<switch::Options>),
    /// Admits acquires, even if a less specific scope is disabled
    Enable(InNamespaceWith<switch::Options>),
    /// Undoes disable and enable: less specific scopes decide again
    Inherit(InNamespaceWith<switch::Options>),
    /// Shows buckets
    Bucket(InNamespace<bucket::Action>),
    /// Shows what operators have changed
    Audit(InNamespaceWith<audit::Options>),
    /// Registers namespaces
    Namespace {
        #[command(subcommand)]
        action: namespace::Action,
    },
    /// Counts what usage-rollup parked, or what its event source mapping discarded, once
    Redrive(redrive::Options),
    /// Changes the limits of the token tables, which rate-limiter-py uses too
    Tokens {
        #[command(subcommand)]
        action: tokens::Action,
    },
    /// Announces work to capacity-coordinator before it hits a table, and shows what is announced
    Capacity(capacity::Options),
    /// Prints a script that completes this command in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
struct InNamespace<A: Subcommand> {
    #[command(flatten)]
    namespace: NamespaceOptions,
    #[command(subcommand)]
    action: A,
}

#[derive(Debug, clap::Args)]
struct InNamespaceWith<O: clap::Args> {
    #[command(flatten)]
    namespace: NamespaceOptions,
    #[command(flatten)]
    options: O,
}

#[tokio::main]
async fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let Cli { table, endpoint, json, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Completions { shell } = command {
        clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut io::stdout());
        return ExitCode::SUCCESS;
    }
    let is_named = matches.value_source("table") == Some(ValueSource::CommandLine);
    let conflict = match &command {
        Command::Tokens { .. } => Some("name the token tables by --base or by variables"),
        Command::Capacity(_) => Some("name the coordinated table without an option"),
        _ => None,
    };
    if let Some(instead) = conflict.filter(|_| is_named) {
        let message = format!("--table is the bucket table: {instead}");
        Cli::command().error(ErrorKind::ArgumentConflict, message).exit();
    }
    if let Command::Capacity(options) = command {
        if let Err(error) = options.function() {
            Cli::command().error(ErrorKind::MissingRequiredArgument, error).exit();
        }
        return exit_code(Box::pin(options.run(endpoint.as_deref(), json)).await);
    }
    let named = match &command {
        Command::Tokens { action } => action.table().map(|table| (table, tokens::NAMED_BY)),
        _ => table.map(|table| (table, "--table")).context("expected --table NAME, or the variable TIDEGATE_TABLE"),
    };
    let (table, named_by) =
        named.unwrap_or_else(|error| Cli::command().error(ErrorKind::MissingRequiredArgument, error).exit());
    let connection = Connection { table, named_by, endpoint, json };
    exit_code(Box::pin(run(&connection, command)).await.map_err(|error| connection.explained(error)))
}

fn exit_code(ended: anyhow::Result<u8>) -> ExitCode {
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code.
async fn run(connection: &Connection, command: Command) -> anyhow::Result<u8> {
    let output: Output = match command {
        Command::Limits(limits) => limits.action.run(&connection.limiter(&limits.namespace).await?).await?,
        Command::Usage(usage) => usage.options.run(&connection.limiter(&usage.namespace).await?).await?,
        Command::Entity(entity) => entity.action.run(&connection.limiter(&entity.namespace).await?).await?,
        Command::Disable(of) => of.options.run(&connection.limiter(&of.namespace).await?, Switch::Disable).await?,
        Command::Enable(of) => of.options.run(&connection.limiter(&of.namespace).await?, Switch::Enable).await?,
        Command::Inherit(of) => of.options.run(&connection.limiter(&of.namespace).await?, Switch::Inherit).await?,
        Command::Bucket(bucket) => bucket.action.run(connection, &bucket.namespace).await?,
        Command::Audit(audit) => audit.options.run(&connection.limiter(&audit.namespace).await?).await?,
        Command::Namespace { action } => action.run(connection).await?,
        Command::Redrive(options) => return redrive::command(connection, options).await,
        Command::Tokens { action } => return action.run(connection).await,
        Command::Capacity(_) | Command::Completions { .. } => return Ok(0),
    };
    output.print(connection.json)?;
    Ok(0)
}
