//! Clients of non-fungible tokens: ours, and clients that behave like rate-limiter-py. Those count before they write, in two
//! calls, and never check whether a reservation still exists.

use anyhow::Context as _;
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate::reservation::{Reservation, Reservations, ReserveError};
use tidegate_aws::schema::tokens::{
    ACCOUNT_ID, EXPIRATION_TIME, LIMIT, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, RESOURCE_NAME, slot_key,
    slot_number,
};
use tidegate_domain::sweep::{Token, TokenKey};

use super::resources::Kind;
use tidegate_sandbox::item::{Item, number, read, text};

/// Seconds after which a reservation expires.
pub(crate) const RESERVED: i64 = 300;

/// How many tokens of a resource an account may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) kind: Kind,
    pub(crate) account: &'static str,
    pub(crate) tokens: usize,
}

/// The limits of the accounts.
pub(crate) const LIMITS: [Limit; 7] = [
    Limit { kind: Kind::Cluster, account: "111111111111", tokens: 6 },
    Limit { kind: Kind::Cluster, account: "222222222222", tokens: 5 },
    Limit { kind: Kind::Step, account: "111111111111", tokens: 8 },
    Limit { kind: Kind::ServerlessJob, account: "222222222222", tokens: 6 },
    Limit { kind: Kind::GlueJob, account: "111111111111", tokens: 8 },
    Limit { kind: Kind::ContainersJob, account: "222222222222", tokens: 5 },
    Limit { kind: Kind::Instance, account: "111111111111", tokens: 5 },
];

/// The sum of all limits.
pub(crate) fn capacity() -> usize {
    LIMITS.iter().map(|limit| limit.tokens).sum()
}

/// The table of non-fungible tokens, as its clients see it.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) dynamodb: Client,
    pub(crate) table: String,
    pub(crate) ours: Reservations,
}

impl Limit {
    pub(crate) fn coordinate(&self) -> String {
        format!("{}:{}", self.kind.name(), self.account)
    }
}

impl Clients {
    /// Writes the limits, which our client reads.
    pub(crate) async fn put_limits(&self, table: &str) -> anyhow::Result<()> {
        for limit in &LIMITS {
            let put = self.dynamodb.put_item().table_name(table);
            let put = put
                .item(RESOURCE_NAME, text(limit.kind.name()))
                .item(ACCOUNT_ID, text(limit.account))
                .item(LIMIT, number(limit.tokens));
            put.send().await.context("a limit could not be written")?;
        }
        Ok(())
    }

    /// Reserves a token with our client. `None` if the limit does not allow it.
    pub(crate) async fn reserve_ours(&self, limit: &Limit) -> anyhow::Result<Option<(TokenKey, Reservation)>> {
        match self.ours.reserve(limit.kind.name(), limit.account).await {
            Ok(reservation) => {
                let slot = reservation.id().split('.').next().and_then(|slot| slot.parse().ok());
                let slot = slot.context("the id of a reservation begins with its slot")?;
                Ok(Some((TokenKey { coordinate: limit.coordinate(), reservation: slot_key(slot) }, reservation)))
            }
            Err(ReserveError::Denied(_)) => Ok(None),
            Err(error) => Err(error).context("our client could not reserve a token"),
        }
    }

    /// Reserves a token if there are fewer than the limit allows. Returns whether it did. Times are in epoch seconds.
    pub(crate) async fn reserve(&self, limit: &Limit, reservation: &str, now: i64) -> anyhow::Result<bool> {
        if self.count(limit, now).await? >= limit.tokens {
            return Ok(false);
        }
        let put = self.dynamodb.put_item().table_name(&self.table);
        let put = put
            .item(RESOURCE_COORDINATE, text(limit.coordinate()))
            .item(RESERVATION_ID, text(reservation))
            .item(RESOURCE_ID, text(reservation))
            .item(RESOURCE_NAME, text(limit.kind.name()))
            .item(ACCOUNT_ID, text(limit.account))
            .item(EXPIRATION_TIME, number(now + RESERVED));
        put.send().await.context("a client could not reserve a token")?;
        Ok(true)
    }

    /// Counts the tokens and reservations that have not expired.
    async fn count(&self, limit: &Limit, now: i64) -> anyhow::Result<usize> {
        let query = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("#coordinate = :coordinate")
            .filter_expression("#expires > :now")
            .expression_attribute_names("#coordinate", RESOURCE_COORDINATE)
            .expression_attribute_names("#expires", EXPIRATION_TIME)
            .expression_attribute_values(":coordinate", text(limit.coordinate()))
            .expression_attribute_values(":now", number(now));
        let pages = query.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        Ok(pages.context("a client could not count tokens")?.len())
    }

    /// Turns a reservation into a token by writing the resource's id. If the reservation is gone, the token is a new item.
    pub(crate) async fn create_token(&self, key: &TokenKey, resource: &str, expires: i64) -> anyhow::Result<()> {
        let update = self
            .dynamodb
            .update_item()
            .table_name(&self.table)
            .key(RESOURCE_COORDINATE, text(&key.coordinate))
            .key(RESERVATION_ID, text(&key.reservation))
            .update_expression("SET #resource = :resource, #expires = :expires")
            .expression_attribute_names("#resource", RESOURCE_ID)
            .expression_attribute_names("#expires", EXPIRATION_TIME)
            .expression_attribute_values(":resource", text(resource))
            .expression_attribute_values(":expires", number(expires));
        update.send().await.context("a client could not create a token")?;
        Ok(())
    }

    /// Reads the whole table.
    pub(crate) async fn all(&self) -> anyhow::Result<Vec<Token>> {
        let scan = self.dynamodb.scan().table_name(&self.table).consistent_read(true);
        let items: Vec<_> = scan.into_paginator().items().send().collect::<Result<_, _>>().await?;
        items.iter().map(token).collect()
    }
}

fn token(item: &Item) -> anyhow::Result<Token> {
    let read_text = |name: &str| {
        let value = item.get(name).map(AttributeValue::as_s);
        value.and_then(Result::ok).cloned().with_context(|| format!("{name} is {value:?}"))
    };
    let key = TokenKey { coordinate: read_text(RESOURCE_COORDINATE)?, reservation: read_text(RESERVATION_ID)? };
    // A slot has no resource until it is bound.
    let is_reserved = slot_number(&key.reservation).is_some() && !item.contains_key(RESOURCE_ID);
    let resource = if is_reserved { key.reservation.clone() } else { read_text(RESOURCE_ID)? };
    Ok(Token { key, resource, expires: Some(read(item, EXPIRATION_TIME)?) })
}
