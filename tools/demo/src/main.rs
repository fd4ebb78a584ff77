//! Demonstrations: each function at work on embedded services, compared with its requirements.
//!
//! | module | holds |
//! |---|---|
//! | `rollup`, `traffic` | clients, the stream, `usage-rollup` under faults, and the comparison of every snapshot |
//! | `client` | Rust and Python clients on the same buckets, with the functions beside them |
//! | `keeper` | the same clients without `bucket-keeper`, with one process of it, and with two |
//! | `costs` | what `bucket-keeper` saves and costs, load by load |
//! | `tokens` | clients that start resources, with `token-sweeper` and without it |
//! | `rates`, `fleet` | simulated workers and `rate-aggregator`: AWS's rule and leases against the cap |
//! | `spikes` | a table under the eight designs of AWS's article on traffic spikes, one of them the capacity coordinator |
//! | `clock`, `print`, `random`, `exact_bucket` | what the demonstrations share |

mod client;
mod clock;
mod costs;
mod exact_bucket;
mod fleet;
mod keeper;
mod print;
mod random;
mod rates;
mod rollup;
mod spikes;
#[cfg(test)]
mod tests;
mod tokens;
mod traffic;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tidegate_aws::{table, token_tables::TokenTables};
use tidegate_sandbox::{
    s3::{self, EmbeddedS3, workers::Workers},
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

/// The prefix of the workers' reports that `--serve` provides.
const FLEET: &str = "fleet/";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows Rust and Python clients on the same buckets, with the functions that the table's stream feeds
    Client(client::Options),
    /// Shows the bucket keeper at work: the same clients without it, with one process, and with two, in simulated time
    Keeper(keeper::Options),
    /// Shows what the bucket keeper saves and costs: several loads with it and without it, in simulated time
    KeeperCosts(costs::Options),
    /// Shows the token sweeper at work: the same clients with it and without it, in simulated time, and callers of our client beside others
    Tokens(tokens::Options),
    /// Shows fleets of workers at the rate aggregator, under AWS's rule and with leases, in simulated time: drawn, and in figures
    Rates(rates::Options),
    /// Shows when the capacity coordinator helps: a simulated table under eight designs for a traffic spike, drawn and in figures
    Spikes(spikes::Options),
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
        // First, so that a run that waits for Ctrl-C itself returns its own exit code.
        biased;
        ended = run(cli) => ended,
        // The runtime drops the run and the embedded services.
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
        Some(Command::Client(options)) => client::demonstrate(&options).await,
        Some(Command::Keeper(options)) => keeper::demonstrate(&options).await,
        Some(Command::KeeperCosts(options)) => costs::demonstrate(options),
        Some(Command::Tokens(options)) => Box::pin(tokens::demonstrate(&options)).await,
        Some(Command::Rates(options)) => rates::demonstrate(&options),
        Some(Command::Spikes(options)) => Ok(spikes::demonstrate(&options)),
        None => roll_up(cli.rollup, cli.place).await,
    }
}

async fn roll_up(options: rollup::Options, place: Place) -> anyhow::Result<ExitCode> {
    let table = match place.table {
        Some(table) => table,
        None => format!("tidegate-demo-{}", tidegate_aws::clock::now()?),
    };
    let services = match &place.endpoint {
        Some(endpoint) => Services::external(endpoint, &table).await?,
        None => Services::embedded(place.port, &table).await?,
    };
    println!("DynamoDB at {}, table {table}, seed {}", services.endpoint, options.seed);
    let run = rollup::run(&options, &services).await?;
    println!("{}", run.table());
    let code = run.outcome().print();
    if place.serve {
        table::create_token_tables(&services.dynamodb, &TokenTables::of(&services.table))
            .await
            .context("the token tables")?;
        let s3 = EmbeddedS3::start(None).await?;
        let _workers = Workers::start(s3.bucket(), FLEET, 3);
        println!("{}", instructions(&services, &s3));
        ctrl_c().await.context("waiting for Ctrl-C")?;
    }
    Ok(code)
}

/// How to run a function against the services.
fn instructions(services: &Services, s3: &EmbeddedS3) -> String {
    format!(
        "The services stay open until Ctrl-C. To run a function against them:\n\n  \
         export AWS_ENDPOINT_URL_DYNAMODB={} AWS_ENDPOINT_URL_SQS={}\n  \
         export AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test\n  \
         export TABLE_NAME={} DEAD_LETTER_QUEUE_URL={}\n  \
         export LIMITER_TABLES_BASE_NAME={}\n  \
         export AWS_ENDPOINT_URL_S3={} S3_FORCE_PATH_STYLE=true BUCKET={} PREFIX={FLEET}",
        services.endpoint,
        services.queue.endpoint(),
        services.table,
        services.queue.url(),
        services.table,
        s3.endpoint(),
        s3::BUCKET,
    )
}
