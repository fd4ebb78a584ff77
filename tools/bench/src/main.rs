//! Benchmarks: the functions' binaries, the client crate beside zae-limiter, and a load generator.
//!
//! | module | holds |
//! |---|---|
//! | `functions` | the commands `function` and `fleet` |
//! | `function`, `measure`, `meter` | the process of a function, the order of its invocations, CPU time and memory of a process |
//! | `events`, `hot_bucket`, `fleet` | what functions receive: stream records, ends of clusters, reports of workers |
//! | `aws_stub` | an AWS endpoint that accepts and counts every call |
//! | `client` | the command `client`: the client crate's figures beside those of zae-limiter |
//! | `load` | the command `load`: an open loop of acquires |
//! | `throttle` | the command `throttle`: what the throttle costs a call, and how well it keeps its limit |
//! | `endpoint` | a DynamoDB in another process, whose CPU time is not the client's, and its table |
//! | `python` | zae-limiter in another process |
//! | `report` | tables |

#![cfg(target_os = "linux")]

mod aws_stub;
mod client;
mod endpoint;
mod events;
mod fleet;
mod function;
mod functions;
mod hot_bucket;
mod load;
mod measure;
mod meter;
mod python;
mod report;
mod throttle;

use std::io;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// Measures the functions and the client crate, and generates load.
#[derive(Debug, clap::Parser)]
#[command(version)]
enum Command {
    Function(Box<functions::FunctionOptions>),
    Fleet(functions::FleetOptions),
    Client(client::ClientOptions),
    Load(load::LoadOptions),
    Throttle(throttle::ThrottleOptions),
    #[command(hide = true)]
    Serve(endpoint::ServeOptions),
}

/// Fails if a measurement fails, and if it is stopped. Whatever happens, the processes that it started are killed.
fn main() -> anyhow::Result<()> {
    let command = Command::parse();
    let mut runtime = match command {
        // On one thread, CPU time is what one core spends, without wake-ups of another.
        Command::Client(_) | Command::Throttle(_) => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(async {
        // Dropping the measurement is what kills its processes, so it must not outlive a signal.
        tokio::select! {
            biased;
            stopped = stop_requested() => {
                stopped.context("cannot wait for signals")?;
                bail!("stopped before the measurement was complete")
            }
            measured = run(command) => measured,
        }
    })
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Function(options) => functions::measure(&options).await,
        Command::Fleet(options) => functions::measure_fleet(&options).await,
        Command::Client(options) => client::measure(&options).await,
        Command::Load(options) => load::run(&options).await,
        Command::Throttle(options) => throttle::measure(&options).await,
        Command::Serve(options) => endpoint::serve(&options).await,
    }
}

/// Returns once the process is asked to end.
async fn stop_requested() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}
