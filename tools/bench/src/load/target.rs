//! The DynamoDB that a load is for, and what it consumes there.

use anyhow::Context as _;
use aws_sdk_dynamodb::Client;
use tidegate_aws::client;
use tidegate_sandbox::{
    faults::FaultyHttp,
    gateway::{Conditions, Usage},
};

use crate::{client::as_f64, endpoint::Endpoint};

pub(crate) enum Target {
    /// Behind a gateway.
    Local { endpoint: Box<Endpoint>, client: Client },
    /// Calls are signed for the endpoint, so no gateway can stand between.
    Remote { client: Client, http: FaultyHttp, write_units: u64, half_read_units: u64 },
}

/// Whether an endpoint checks signatures.
pub(crate) fn is_remote(url: &str) -> bool {
    url.starts_with("https://")
}

impl Target {
    /// The DynamoDB at `url`, or an embedded one.
    pub(crate) async fn start(url: Option<&str>) -> anyhow::Result<Self> {
        if let Some(url) = url.filter(|url| is_remote(url)) {
            let http = FaultyHttp::undisturbed();
            let config = client::config_from_env().await.into_builder().endpoint_url(url).http_client(http.clone());
            let client = client::dynamodb(&config.build());
            return Ok(Self::Remote { client, http, write_units: 0, half_read_units: 0 });
        }
        let mut endpoint = Endpoint::start(url).await?;
        endpoint.set(Conditions::default()).await?;
        Ok(Self::Local { client: endpoint.client(), endpoint: Box::new(endpoint) })
    }

    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::Local { client, .. } | Self::Remote { client, .. } => client,
        }
    }

    /// Where other clients find the gateway.
    pub(crate) fn url(&self) -> anyhow::Result<&str> {
        match self {
            Self::Local { endpoint, .. } => Ok(&endpoint.url),
            Self::Remote { .. } => None.context("there is no gateway in front of a remote endpoint"),
        }
    }

    /// The usage since the last time.
    pub(crate) async fn take_usage(&mut self) -> anyhow::Result<Usage> {
        match self {
            Self::Local { endpoint, .. } => endpoint.take_usage().await,
            Self::Remote { http, write_units, half_read_units, .. } => {
                let before = (*write_units, *half_read_units);
                (*write_units, *half_read_units) = (http.write_units(), http.half_read_units());
                Ok(Usage {
                    calls: http.calls().into_iter().map(|(operation, calls)| (operation, calls as u64)).collect(),
                    read_units: as_f64(*half_read_units - before.1) / 2.0,
                    write_units: as_f64(*write_units - before.0),
                    ..Usage::default()
                })
            }
        }
    }
}
