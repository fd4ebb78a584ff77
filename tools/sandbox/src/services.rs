//! The services that a run needs: embedded ones, or a DynamoDB that runs already.

use std::sync::Arc;

use anyhow::Context as _;
use aws_config::{SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use tidegate_aws::{client, table};

use crate::{
    dynamodb::EmbeddedDynamoDb,
    faults::{FaultRates, FaultyHttp, sdk_config},
    queue::EmbeddedQueue,
};

/// A bucket table and a dead-letter queue, with undisturbed clients of both.
#[derive(Debug)]
pub struct Services {
    /// Where DynamoDB listens.
    pub endpoint: String,
    /// The bucket table's name.
    pub table: String,
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// A client of DynamoDB Streams.
    pub streams: aws_sdk_dynamodbstreams::Client,
    /// The dead-letter queue.
    pub queue: Arc<EmbeddedQueue>,
    /// Stops when it is dropped.
    _embedded: Option<EmbeddedDynamoDb>,
}

impl Services {
    /// Starts an embedded DynamoDB, on a free port if none is given, and makes the table.
    pub async fn embedded(port: Option<u16>, table: &str) -> anyhow::Result<Self> {
        let embedded = EmbeddedDynamoDb::start(port).await?;
        let endpoint = embedded.endpoint().to_owned();
        Self::at(endpoint, table, Some(embedded)).await
    }

    /// Uses the DynamoDB at `endpoint`, and makes the table there.
    pub async fn external(endpoint: &str, table: &str) -> anyhow::Result<Self> {
        Self::at(endpoint.to_owned(), table, None).await
    }

    async fn at(endpoint: String, name: &str, embedded: Option<EmbeddedDynamoDb>) -> anyhow::Result<Self> {
        let config = client_config(&endpoint, FaultyHttp::new(FaultRates::default(), 0));
        let dynamodb = client::dynamodb(&config);
        table::create(&dynamodb, name).await.with_context(|| format!("table {name} at {endpoint}"))?;
        Ok(Self {
            table: name.to_owned(),
            dynamodb,
            streams: aws_sdk_dynamodbstreams::Client::new(&config),
            queue: Arc::new(EmbeddedQueue::start().await?),
            endpoint,
            _embedded: embedded,
        })
    }

    /// Returns a DynamoDB client that uses `http`.
    pub fn client(&self, http: FaultyHttp) -> aws_sdk_dynamodb::Client {
        client::dynamodb(&client_config(&self.endpoint, http))
    }

    /// The ARN of the table's stream.
    pub async fn stream_arn(&self) -> anyhow::Result<String> {
        let table = self.dynamodb.describe_table().table_name(&self.table).send().await?.table;
        table.and_then(|table| table.latest_stream_arn).with_context(|| format!("table {} has no stream", self.table))
    }
}

/// Client writes are not idempotent, so the SDK must not retry them.
fn client_config(endpoint: &str, http: FaultyHttp) -> SdkConfig {
    sdk_config(endpoint, http)
        .into_builder()
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::disabled())
        .build()
}
