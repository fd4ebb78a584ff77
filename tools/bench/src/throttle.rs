//! What the throttle costs a call, and how well it keeps its limit in real time.
//!
//! A call of the SDK is answered in the process, so its CPU time is that of the SDK and the throttle.

use std::{process, time::Duration};

use anyhow::Context as _;
use aws_sdk_dynamodb::{
    Client, Config,
    config::{
        BehaviorVersion, Credentials, HttpClient, Region, RuntimeComponents,
        http::{HttpRequest, HttpResponse},
    },
    error::ConnectorError,
};
use aws_smithy_runtime_api::{
    client::http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use futures::future::join_all;
use tidegate::fleet::{Cost, Throttle};
use tidegate_sandbox::item::text;
use tokio::time::Instant;

use crate::{meter::Meter, report};

/// Measures the throttle: CPU time of a call, and what many tasks consume in real time.
#[derive(Debug, clap::Args)]
pub(crate) struct ThrottleOptions {
    /// Calls of a figure
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..))]
    calls: u32,

    /// How long tasks use the throttle in real time, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..))]
    seconds: u32,
}

const ROUNDS: u32 = 5;
const TASKS: u32 = 64;
/// A limit that no load exhausts.
const UNLIMITED: f64 = 1e7;
/// The limit in real time.
const LIMIT: f64 = 1_000.0;

/// Measures all figures, and prints them as a table.
pub(crate) async fn measure(options: &ThrottleOptions) -> anyhow::Result<()> {
    let meter = Meter::new(process::id())?;
    let (plain, limited) = sdk_call(&meter, options.calls).await?;
    let admission = admission(&meter, options.calls).await?;
    let (mean, worst) = real_time(options.seconds).await?;
    let rows = [
        ["CPU time of an admission".to_owned(), micros(admission), "2 us".to_owned()],
        ["CPU time of an SDK call without the throttle".to_owned(), micros(plain), String::new()],
        ["CPU time of an SDK call with the throttle".to_owned(), micros(limited), String::new()],
        ["The throttle's part".to_owned(), micros(limited - plain), "2 us".to_owned()],
        ["With / without".to_owned(), format!("{:.3}", limited / plain), String::new()],
        ["Mean of 64 tasks / limit".to_owned(), format!("{:.4}", mean / LIMIT), "0.99 to 1.01".to_owned()],
        ["Worst second / limit".to_owned(), format!("{:.4}", worst / LIMIT), "1.1".to_owned()],
    ];
    println!("{}", report::table(["", "measured", "target"], 1, rows));
    Ok(())
}

/// CPU seconds of a call without and with the throttle: the best of some rounds, which take turns.
async fn sdk_call(meter: &Meter, calls: u32) -> anyhow::Result<(f64, f64)> {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "local"))
        .http_client(Answering)
        .build();
    let plain = Client::from_conf(config.clone());
    let limited = Throttle::fixed(UNLIMITED, UNLIMITED)?.client(config);
    let mut best = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (client, best) in [&plain, &limited].into_iter().zip(&mut best) {
            let before = meter.cpu()?;
            for _ in 0..calls {
                client.get_item().table_name("measured").key("id", text("item")).send().await?;
            }
            *best = best.min(meter.cpu()?.since(&before).as_secs_f64() / f64::from(calls));
        }
    }
    Ok(best.into())
}

/// CPU seconds of an admission that does not wait.
async fn admission(meter: &Meter, calls: u32) -> anyhow::Result<f64> {
    let throttle = Throttle::fixed(UNLIMITED, UNLIMITED)?;
    let cost = Cost::read(1.0)?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let before = meter.cpu()?;
        for _ in 0..10 * calls {
            throttle.admit(cost).await.settle(1.5)?;
        }
        best = best.min(meter.cpu()?.since(&before).as_secs_f64() / f64::from(10 * calls));
    }
    Ok(best)
}

/// What many tasks use in a second: on average, and in the worst second of all that begin at a tenth of a second.
async fn real_time(seconds: u32) -> anyhow::Result<(f64, f64)> {
    let throttle = Throttle::fixed(LIMIT, 0.0)?;
    let cost = Cost::read(1.0)?;
    let start = Instant::now();
    let tasks = (0..TASKS).map(async |_| {
        while start.elapsed() < Duration::from_secs(seconds.into()) {
            throttle.admit(cost).await.settle(1.0)?;
        }
        anyhow::Ok(())
    });
    let samples = async {
        let mut samples = vec![(0.0, 0.0)];
        for tenth in 1..=seconds * 10 {
            tokio::time::sleep_until(start + Duration::from_millis(100) * tenth).await;
            samples.push((start.elapsed().as_secs_f64(), throttle.usage().reads.consumed));
        }
        samples
    };
    let (tasks, samples) = futures::join!(join_all(tasks), samples);
    tasks.into_iter().collect::<anyhow::Result<()>>()?;
    // A sample may be late, so each span is scaled to a second.
    let rate = |(first, last): (&(f64, f64), &(f64, f64))| (last.1 - first.1) / (last.0 - first.0);
    let worst = samples.iter().zip(samples.iter().skip(10)).map(rate).fold(0.0, f64::max);
    // The bucket is full at the start, so the mean begins after a second.
    let mean = samples.get(10).zip(samples.last()).map(rate).context("too few samples")?;
    Ok((mean, worst))
}

fn micros(seconds: f64) -> String {
    format!("{:.2} us", seconds * 1e6)
}

/// Answers each call at once.
#[derive(Debug)]
struct Answering;

impl HttpClient for Answering {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Self)
    }
}

impl HttpConnector for Answering {
    fn call(&self, _request: HttpRequest) -> HttpConnectorFuture {
        const ANSWER: &str = r#"{"ConsumedCapacity":{"TableName":"measured","CapacityUnits":0.5}}"#;
        let answer = StatusCode::try_from(200).map(|status| HttpResponse::new(status, SdkBody::from(ANSWER)));
        HttpConnectorFuture::ready(answer.map_err(|error| ConnectorError::other(error.into(), None)))
    }
}
