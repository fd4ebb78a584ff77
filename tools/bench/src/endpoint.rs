//! A DynamoDB behind a gateway, in a process of its own: what it costs is no part of what its clients cost.

use std::{collections::HashMap, env, time::Duration};

use anyhow::Context as _;
use aws_sdk_dynamodb::{
    Client, Config,
    config::{BehaviorVersion, Credentials, Region},
    types::AttributeValue,
};
use serde::{Deserialize, Serialize};
use tidegate_aws::{
    clock,
    namespaces::Namespaces,
    schema::{self, config},
    table,
};
use tidegate_domain::bucket::Resource;
use tidegate_sandbox::{
    dynamodb::EmbeddedDynamoDb,
    gateway::{Conditions, Gateway, Usage},
    item::{number, text},
    peer::Peer,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

/// The resource of all buckets.
pub(crate) const RESOURCE: &str = "gpt-4";

/// Serves a DynamoDB, and answers commands on its input.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeOptions {
    /// The DynamoDB to serve, in place of an embedded one
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Asks where clients find it.
    Endpoint,
    /// Changes how it answers. The answer is the usage since the last such command.
    Set(Conditions),
}

/// Serves until the input ends.
pub(crate) async fn serve(options: &ServeOptions) -> anyhow::Result<()> {
    let embedded = EmbeddedDynamoDb::start(None).await?;
    let gateway = Gateway::start(options.upstream.as_deref().unwrap_or(embedded.endpoint())).await?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(order) = orders.next_line().await? {
        match serde_json::from_str(&order)? {
            Order::Endpoint => println!("{}", serde_json::to_string(&gateway.endpoint())?),
            Order::Set(conditions) => {
                println!("{}", serde_json::to_string(&gateway.take_usage())?);
                gateway.set(conditions);
            }
        }
    }
    Ok(())
}

/// The process that [`serve`]s. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Endpoint {
    peer: Peer,
    pub(crate) url: String,
    conditions: Conditions,
}

impl Endpoint {
    /// Serves this DynamoDB, or an embedded one.
    pub(crate) async fn start(upstream: Option<&str>) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("serve").args(upstream.map(|url| format!("--upstream={url}")));
        // Ctrl-C then reaches only this program, which kills the process.
        let mut peer = Peer::start(command.process_group(0))?;
        let url = peer.ask(&Order::Endpoint).await?;
        Ok(Self { peer, url, conditions: Conditions::default() })
    }

    /// Changes how it answers, and forgets the usage so far.
    pub(crate) async fn set(&mut self, conditions: Conditions) -> anyhow::Result<()> {
        self.conditions = conditions;
        self.take_usage().await.map(drop)
    }

    /// The usage since the last time.
    pub(crate) async fn take_usage(&mut self) -> anyhow::Result<Usage> {
        self.peer.ask(&Order::Set(self.conditions)).await
    }

    /// A client with the SDK's own settings.
    pub(crate) fn client(&self) -> Client {
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "local"))
            .endpoint_url(&self.url);
        Client::from_conf(config.build())
    }
}

/// The limits of [`RESOURCE`], in whole tokens: the capacity, which also accrues in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: i64,
    pub(crate) tokens: i64,
    pub(crate) period: Duration,
}

/// Creates the bucket table if it does not exist, and configures [`RESOURCE`] in the namespace `default`.
pub(crate) async fn prepare_table(client: &Client, name: &str, limits: Limits) -> anyhow::Result<()> {
    if client.describe_table().table_name(name).send().await.is_err() {
        table::create(client, name).await.with_context(|| format!("cannot create table {name:?}"))?;
    }
    let namespace = Namespaces::new(client.clone(), name).register("default", clock::now()?).await?;
    let mut item = HashMap::from([
        (schema::PK.to_owned(), text(schema::resource_pk(&namespace, &Resource::new(RESOURCE)?))),
        (schema::SK.to_owned(), text(config::CONFIG)),
    ]);
    for (limit, capacity) in [("requests", limits.requests), ("tokens", limits.tokens)] {
        for (field, value) in [
            (config::CAPACITY, capacity),
            (config::REFILL_AMOUNT, capacity),
            (config::REFILL_PERIOD, i64::try_from(limits.period.as_secs())?),
        ] {
            item.insert(config::attribute(limit, field), number(value));
        }
    }
    client.put_item().table_name(name).set_item(Some(item)).send().await?;
    Ok(())
}

/// What was charged to all buckets of a table, in whole requests.
pub(crate) async fn charged(client: &Client, table: &str) -> anyhow::Result<i64> {
    let mut sum = 0;
    let mut pages = client.scan().table_name(table).into_paginator().items().send();
    while let Some(item) = pages.next().await {
        let consumed = item?.remove("b_requests_tc");
        let consumed = consumed.as_ref().and_then(|consumed: &AttributeValue| consumed.as_n().ok());
        sum += consumed.map_or(Ok(0), |consumed| consumed.parse::<i64>())?;
    }
    Ok(sum / 1_000)
}
