//! Reservations of the client crate on embedded token tables, and tokens as Python clients write them.

use std::collections::BTreeMap;

use tidegate::{
    ManualClock, TokenTables,
    reservation::{Reservations, ReservationsBuilder},
};
use tidegate_aws::{
    client,
    schema::tokens::{
        ACCOUNT_ID, EXPIRATION_TIME, LIMIT, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, RESOURCE_NAME,
    },
    table,
};
use tidegate_sandbox::{item::Item, services::Services};

use crate::prelude::*;

/// What the scenarios of reservations use.
pub mod prelude {
    pub use tidegate::{
        ManualClock, TokenTables,
        reservation::{Reservation, Reservations, ReserveError, Token, TokenError},
    };

    pub use super::{ACCOUNT, BASE, CLUSTER, COORDINATE, LIFETIME, ReservationScene, START};
    pub use crate::prelude::*;
}

/// 2026-01-01T00:00:00Z.
pub const START: i64 = 1_767_225_600_000;
pub const BASE: &str = "prod";
/// The limited resource.
pub const CLUSTER: &str = "emr-cluster";
pub const ACCOUNT: &str = "123456789012";
pub const COORDINATE: &str = "emr-cluster:123456789012";
/// For how long tokens are bound.
pub const LIFETIME: Duration = Duration::from_hours(8);

/// A client on embedded tables, with a clock that stands still.
#[derive(Debug)]
pub struct ReservationScene {
    /// The tables, undisturbed.
    pub services: Services,
    /// The client's connection to the tables.
    pub http: FaultyHttp,
    pub clock: ManualClock,
    /// Counts the tokens of Python clients.
    pub reservations: Reservations,
}

impl ReservationScene {
    /// The account has this limit.
    pub async fn new(limit: i64) -> anyhow::Result<Self> {
        Self::with_faults(limit, FaultRates::default(), 0).await
    }

    /// The same; the client's calls meet faults at these rates.
    pub async fn with_faults(limit: i64, rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        table::create_token_tables(&services.dynamodb, &TokenTables::of(BASE)).await?;
        let (http, clock) = (FaultyHttp::new(rates, seed), ManualClock::new(START));
        let reservations = builder(&services, &http, &clock).build();
        let scene = Self { services, http, clock, reservations };
        scene.set_limit(limit).await?;
        Ok(scene)
    }

    /// Another process's client with the same clock.
    pub fn another(&self, settings: impl FnOnce(ReservationsBuilder) -> ReservationsBuilder) -> Reservations {
        settings(builder(&self.services, &self.http, &self.clock)).build()
    }

    /// Another process's client that counts no tokens of Python clients.
    pub fn only_rust(&self) -> Reservations {
        self.another(ReservationsBuilder::only_rust_clients)
    }

    pub async fn reserve(&self) -> Result<tidegate::reservation::Reservation, tidegate::reservation::ReserveError> {
        self.reservations.reserve(CLUSTER, ACCOUNT).await
    }

    /// Writes the account's limit.
    pub async fn set_limit(&self, limit: i64) -> anyhow::Result<()> {
        let row = [(RESOURCE_NAME, text(CLUSTER)), (ACCOUNT_ID, text(ACCOUNT)), (LIMIT, number(limit))];
        self.put(&TokenTables::of(BASE).limits, row).await
    }

    /// Writes a token as a Python client does. It expires after some seconds.
    pub async fn put_python_token(&self, reservation: &str, expires_in: i64) -> anyhow::Result<()> {
        let row = [
            (RESOURCE_COORDINATE, text(COORDINATE)),
            (RESERVATION_ID, text(reservation)),
            (RESOURCE_ID, text(reservation)),
            (RESOURCE_NAME, text(CLUSTER)),
            (ACCOUNT_ID, text(ACCOUNT)),
            (EXPIRATION_TIME, number(self.clock.epoch_millis() / 1000 + expires_in)),
        ];
        self.put(&TokenTables::of(BASE).non_fungible, row).await
    }

    /// Writes an item.
    pub async fn put<const N: usize>(
        &self,
        table: &str,
        item: [(&str, aws_sdk_dynamodb::types::AttributeValue); N],
    ) -> anyhow::Result<()> {
        let item: Item = item.map(|(name, value)| (name.to_owned(), value)).into();
        self.services.dynamodb.put_item().table_name(table).set_item(Some(item)).send().await?;
        Ok(())
    }

    /// All items of the table of tokens, by range key.
    pub async fn items(&self) -> anyhow::Result<BTreeMap<String, Item>> {
        let scan = self.services.dynamodb.scan().table_name(TokenTables::of(BASE).non_fungible).consistent_read(true);
        let items = scan.into_paginator().items().send().try_collect().await?;
        let key = |item: &Item| item[RESERVATION_ID].as_s().cloned().unwrap_or_default();
        Ok(items.into_iter().map(|item| (key(&item), item)).collect())
    }

    /// How many tokens count now, by the rule of all clients.
    pub async fn live(&self) -> anyhow::Result<usize> {
        let now = self.clock.epoch_millis() / 1000;
        let expires = |item: &Item| item.get(EXPIRATION_TIME)?.as_n().ok()?.parse::<i64>().ok();
        Ok(self.items().await?.values().filter(|item| expires(item).is_some_and(|expires| expires > now)).count())
    }
}

fn builder(services: &Services, http: &FaultyHttp, clock: &ManualClock) -> ReservationsBuilder {
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http.clone()));
    Reservations::builder(dynamodb, TokenTables::of(BASE)).owner("test").clock(clock.clone())
}
