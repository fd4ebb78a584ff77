//! All of Tidegate on embedded services, in one process.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tidegate_aws::{
    clock,
    table::{self, TokenTables},
};
use tidegate_demo::{keeper, progress::Progress, rates, rollup, tokens, verdict};
use tidegate_sandbox::{
    s3::{EmbeddedS3, workers::Workers},
    services::Services,
};
use tokio::signal::ctrl_c;

/// Runs clients, table, stream and functions in one process, with faults on purpose, and compares
/// every usage snapshot with what the clients were granted. Exit code 1 when one token is off.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    rollup: rollup::Options,
    #[command(flatten)]
    place: Place,
}

/// Where the workers' files are that are there with `--serve`.
const FLEET: &str = "fleet/";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows the bucket keeper at work: the same clients without it, with one process, and with two, in simulated time
    Keeper(keeper::Options),
    /// Shows what the bucket keeper saves and costs: several loads with it and without it, in simulated time
    KeeperCosts(keeper::costs::Options),
    /// Shows the token sweeper at work: the same clients with it and without it, in simulated time
    Tokens(tokens::Options),
    /// Shows what workers make of the rate aggregator's summary, in simulated time: drawn, and in figures
    Rates(rates::Options),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// A DynamoDB that runs already, such as `http://127.0.0.1:8000`, instead of the embedded one
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    endpoint: Option<String>,
    /// Port of the embedded DynamoDB on 127.0.0.1; any free one if not given
    #[arg(long, conflicts_with = "endpoint")]
    port: Option<u16>,
    /// Name of the bucket table, which must not exist yet; a new one each time if not given
    #[arg(long, value_parser = table_name)]
    table: Option<String>,
    /// Leaves the services open after the run, until Ctrl-C
    #[arg(long)]
    serve: bool,
}

fn endpoint(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = host.filter(|host| !host.is_empty());
    host.map(|_| text.to_owned()).ok_or_else(|| "expected http://HOST:PORT".to_owned())
}

fn table_name(text: &str) -> Result<String, String> {
    let error = "expected 3 to 255 letters, digits, `_`, `.` or `-`";
    if table::is_name(text) { Ok(text.to_owned()) } else { Err(error.to_owned()) }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = tokio::select! {
        // A run that waits for Ctrl-C itself ends as it means to.
        biased;
        ended = run(cli) => ended,
        // Whatever was under way is dropped with the runtime, the embedded services with it.
        stopped = ctrl_c() => stopped.context("waiting for Ctrl-C").map(|()| {
            eprintln!("stopped");
            ExitCode::from(130)
        }),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Some(Command::Keeper(options)) => keeper::demonstrate(&options).await.map(ExitCode::from),
        Some(Command::KeeperCosts(options)) => keeper::costs::demonstrate(options).map(ExitCode::from),
        Some(Command::Tokens(options)) => Box::pin(tokens::demonstrate(&options)).await.map(ExitCode::from),
        Some(Command::Rates(options)) => rates::demonstrate(&options).map(ExitCode::from),
        None => roll_up(cli.rollup, cli.place).await,
    }
}

async fn roll_up(options: rollup::Options, place: Place) -> anyhow::Result<ExitCode> {
    let table = match place.table {
        Some(table) => table,
        None => format!("tidegate-local-{}", clock::now()?),
    };
    let services = match &place.endpoint {
        Some(endpoint) => Services::external(endpoint, &table).await?,
        None => Services::embedded(place.port, &table).await?,
    };
    println!("DynamoDB at {}, table {table}, seed {}", services.endpoint, options.seed);
    let outcome = rollup::run(&options, &services, &Progress::new(options.records)?).await?;
    println!("{}", verdict::table(&outcome));
    for problem in outcome.problems().iter().take(20) {
        eprintln!("{problem}");
    }
    println!("{}", verdict::line(&outcome));
    if place.serve {
        table::create_token_tables(&services.dynamodb, &TokenTables::of(&services.table))
            .await
            .context("the token tables")?;
        let s3 = EmbeddedS3::start(None).await?;
        let _workers = Workers::start(s3.bucket(), FLEET, 3);
        println!("{}", verdict::invitation(&services, &s3, FLEET));
        ctrl_c().await.context("waiting for Ctrl-C")?;
    }
    Ok(ExitCode::from(outcome.exit_code()))
}
