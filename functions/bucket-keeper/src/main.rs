//! The Lambda function `bucket-keeper`.

use bucket_keeper::{config::Config, event::Event, handler::BucketKeeper, memory::Memory};
use lambda_runtime::{LambdaEvent, service_fn};
use tidegate_aws::{
    buckets::Buckets,
    client,
    dead_letters::DeadLetterQueue,
    registry::Registry,
    telemetry::{self, Metrics},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    telemetry::init_logs();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let dynamodb = client::dynamodb(&sdk);
    let keeper = &BucketKeeper {
        buckets: Buckets::new(dynamodb.clone(), &config.table),
        registry: Registry::new(dynamodb, &config.table),
        dead_letters: config.dead_letter_queue.map(|url| DeadLetterQueue::new(client::sqs(&sdk), url)),
        refill: config.refill,
        pressure: config.pressure,
        concurrency: config.concurrency,
        memory: Memory::default(),
    };
    let metrics = &Metrics::to_stdout();
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Event>| keeper.invoke(event, metrics).await))
        .await
        .map_err(anyhow::Error::from_boxed)
}
