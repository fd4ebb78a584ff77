//! A function that answers, fails or panics as its event says. It runs on `tidegate_lambda`, so its errors and panics are
//! handled like those of every function.

use std::io;

use metrique::{unit::Count, unit_of_work::metrics};
use serde::Deserialize;
use tidegate_lambda::{
    process::{self, Diagnostic, Invocation, diagnostic},
    telemetry::Telemetry,
};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Answer(String),
    Fail(String),
    Panic(String),
}

#[metrics(rename_all = "PascalCase")]
struct Report {
    #[metrics(unit = Count)]
    letters: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    process::run(&Telemetry::start("scripted", &[]), handle).await
}

async fn handle(invocation: Invocation<'_, Event>) -> Result<String, Diagnostic> {
    let (event, .., emitter) = invocation.into_parts();
    match event {
        Event::Answer(answer) => {
            emitter.emit("answer", Report { letters: answer.len() });
            Ok(answer)
        }
        Event::Fail(message) => Err(diagnostic("ToldTo", &io::Error::other(message))),
        Event::Panic(message) => panic!("{message}"),
    }
}
