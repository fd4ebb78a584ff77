//! Clients of non-fungible tokens, as rate-limiter-py writes them. They count before they write, in two
//! calls, and never look whether a reservation is still there.

use anyhow::Context as _;
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_aws::schema::tokens::{
    ACCOUNT_ID, EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, RESOURCE_NAME,
};
use tidegate_domain::sweep::{Token, TokenKey};

use super::event::Kind;
use tidegate_sandbox::item::{Item, number, read, text};

/// For how many seconds a reservation lives.
pub(super) const RESERVED: i64 = 300;

/// What an account may have of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) kind: Kind,
    pub(super) account: &'static str,
    pub(super) tokens: usize,
}

/// Whose tokens the clients reserve.
pub(super) const LIMITS: [Limit; 7] = [
    Limit { kind: Kind::Cluster, account: "111111111111", tokens: 6 },
    Limit { kind: Kind::Cluster, account: "222222222222", tokens: 5 },
    Limit { kind: Kind::Step, account: "111111111111", tokens: 8 },
    Limit { kind: Kind::ServerlessJob, account: "222222222222", tokens: 6 },
    Limit { kind: Kind::GlueJob, account: "111111111111", tokens: 8 },
    Limit { kind: Kind::ContainersJob, account: "222222222222", tokens: 5 },
    Limit { kind: Kind::Instance, account: "111111111111", tokens: 5 },
];

/// All tokens that there may be.
pub(super) fn capacity() -> usize {
    LIMITS.iter().map(|limit| limit.tokens).sum()
}

/// The table of non-fungible tokens, as its clients see it.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) dynamodb: Client,
    pub(super) table: String,
}

impl Limit {
    pub(super) fn coordinate(&self) -> String {
        format!("{}:{}", self.kind.name(), self.account)
    }
}

impl Clients {
    /// Reserves a token, if there are fewer than the limit has. Moments are in epoch seconds.
    pub(super) async fn reserve(&self, limit: &Limit, reservation: &str, now: i64) -> anyhow::Result<bool> {
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

    /// How many tokens and reservations have not expired.
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

    /// Writes a resource's id to a reservation: it is a token then. Where the reservation is gone, the
    /// token is a new item.
    pub(super) async fn create_token(&self, key: &TokenKey, resource: &str, expires: i64) -> anyhow::Result<()> {
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

    /// Whatever is in the table.
    pub(super) async fn all(&self) -> anyhow::Result<Vec<Token>> {
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
    Ok(Token { key, resource: read_text(RESOURCE_ID)?, expires: Some(read(item, EXPIRATION_TIME)?) })
}
