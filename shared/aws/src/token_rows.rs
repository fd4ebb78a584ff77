//! Reads and writes rows of fungible tokens.
//!
//! An `ADD` is not idempotent, so the SDK must not retry it. Each write stores its id in the attribute `#op`. After a lost
//! response, the caller reads the row and compares the id.

use aws_sdk_dynamodb::{Client, operation::update_item::builders::UpdateItemFluentBuilder, types::AttributeValue};
use tidegate_domain::{
    fungible::{EpochNanos, Ours, Refill, Row, Take},
    time::EpochMillis,
};

use crate::{
    acquires::outcome,
    dynamodb::{Item, WriteOutcome},
    error::StoreError,
    expression::{Expression, number, text},
    schema::tokens::{LAST_REFILL, LAST_TOKEN, LEFT, OPERATION, REFILLED, SEALED, TOKENS},
    token_limits::{corrupt, limit_key},
};
pub use crate::{
    acquires::{WriteError, Written},
    buckets::Consistency,
};

/// The table of fungible tokens.
#[derive(Clone, Debug)]
pub struct TokenRows {
    /// For reads and idempotent writes.
    client: Client,
    /// Sends each write once.
    once: Client,
    table: String,
}

/// The key of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowKey<'k> {
    pub resource: &'k str,
    pub account: &'k str,
}

/// A row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// `None` if the item has no `tokens`. Such an item is treated as missing.
    pub row: Option<Row>,
    /// The id of the last write of our clients.
    pub operation: Option<String>,
}

/// The parameters of a write.
#[derive(Clone, Copy, Debug)]
pub struct RowOperation<'o> {
    /// The id that is stored in the row. It is unique.
    pub id: &'o str,
    /// The present moment.
    pub now: EpochMillis,
    /// Whether writes set `lastRefill` so that rate-limiter-py does not refill.
    pub seals: bool,
}

impl TokenRows {
    /// The rows in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { once: outcome::without_retries(&client), client, table: table.into() }
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Reads a row. Returns `None` if it does not exist.
    pub async fn find(&self, key: RowKey<'_>, consistency: Consistency) -> Result<Option<TokenRow>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(item_key(key)));
        let request = request.consistent_read(consistency == Consistency::Strong);
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(token_row).transpose()
    }

    /// Takes stored tokens.
    pub async fn take(
        &self,
        key: RowKey<'_>,
        Take { tokens, at_most, since }: Take,
        operation: RowOperation<'_>,
    ) -> Result<Written<TokenRow>, WriteError> {
        let mut expression = Expression::default();
        stamp(&mut expression, operation, tokens);
        let change = -i128::from(tokens);
        expression.add(TOKENS, number(&change));
        expression.add(LEFT, number(&change));
        expression.compare(TOKENS, ">=", number(&tokens));
        expression.compare(TOKENS, "<=", number(&at_most));
        expression.compare(REFILLED, ">=", number(&since.get()));
        let (stored, left) = (expression.name(TOKENS), expression.name(LEFT));
        expression.require(&format!("{stored} = {left}"));
        if operation.seals {
            expression.compare(LAST_REFILL, "=", number(&SEALED));
        }
        self.send(key, expression).await
    }

    /// Creates a row, or refills one that was seen and takes from it, in one write.
    pub async fn refill(
        &self,
        key: RowKey<'_>,
        seen: Option<&Row>,
        Refill { change, left, until, tokens }: Refill,
        operation: RowOperation<'_>,
    ) -> Result<Written<TokenRow>, WriteError> {
        let mut expression = Expression::default();
        stamp(&mut expression, operation, tokens);
        expression.add(TOKENS, number(&change));
        expression.set(LEFT, number(&left));
        expression.set(REFILLED, number(&until.get()));
        if operation.seals {
            expression.set(LAST_REFILL, number(&SEALED));
        }
        require_seen(&mut expression, TOKENS, seen.map(|row| row.tokens.into()));
        if let Some(row) = seen {
            require_seen(&mut expression, REFILLED, row.ours.map(|ours| ours.refilled.get()));
            if row.ours.is_none() {
                require_seen(&mut expression, LAST_REFILL, row.last_refill.map(i128::from));
            }
        }
        self.send(key, expression).await
    }

    /// Lets rate-limiter-py refill a row again, and removes our attributes. A row without them does not change.
    pub async fn release(&self, key: RowKey<'_>, now: EpochMillis) -> Result<(), StoreError> {
        let mut expression = Expression::default();
        expression.set(LAST_REFILL, number(&now));
        let (refilled, left) = (expression.remove(REFILLED), expression.remove(LEFT));
        expression.remove(OPERATION);
        expression.require(&format!("(attribute_exists({refilled}) OR attribute_exists({left}))"));
        let update = self.update(key, expression, &self.client);
        WriteOutcome::of("UpdateItem", update.send().await).map(drop)
    }

    async fn send(&self, key: RowKey<'_>, expression: Expression) -> Result<Written<TokenRow>, WriteError> {
        outcome::send(self.update(key, expression, &self.once), token_row).await
    }

    fn update(&self, key: RowKey<'_>, expression: Expression, client: &Client) -> UpdateItemFluentBuilder {
        expression.applied_to(client.update_item()).table_name(&self.table).set_key(Some(item_key(key)))
    }
}

fn item_key(RowKey { resource, account }: RowKey<'_>) -> Item {
    limit_key(resource, account)
}

/// Stores the id of the write, and the time of a take.
fn stamp(expression: &mut Expression, operation: RowOperation<'_>, taken: u64) {
    expression.set(OPERATION, text(operation.id));
    if taken > 0 {
        expression.set(LAST_TOKEN, number(&operation.now));
    }
}

/// Requires the attribute to have this value, or to be absent.
fn require_seen(expression: &mut Expression, attribute: &str, seen: Option<i128>) {
    if let Some(seen) = seen {
        expression.compare(attribute, "=", number(&seen));
    } else {
        let name = expression.name(attribute);
        expression.require(&format!("attribute_not_exists({name})"));
    }
}

/// Reads an item of the table.
fn token_row(mut item: Item) -> Result<TokenRow, StoreError> {
    let refilled = integer::<i128>(&item, REFILLED)?.map(EpochNanos::new);
    let left = integer(&item, LEFT)?;
    let ours = match (refilled, left) {
        (Some(refilled), Some(left)) => Some(Ours { refilled, left }),
        (None, None) => None,
        (Some(_), None) => return Err(corrupt(&item, LEFT, "nothing")),
        (None, Some(_)) => return Err(corrupt(&item, REFILLED, "nothing")),
    };
    let last_refill = integer(&item, LAST_REFILL)?;
    let row = integer(&item, TOKENS)?.map(|tokens| {
        Ok(Row {
            tokens,
            last_refill,
            last_token: integer(&item, LAST_TOKEN)?,
            is_sealed: last_refill == Some(SEALED),
            ours,
        })
    });
    let row = row.transpose()?;
    let operation = item.remove(OPERATION).and_then(|id| if let AttributeValue::S(id) = id { Some(id) } else { None });
    Ok(TokenRow { row, operation })
}

fn integer<T: std::str::FromStr>(item: &Item, attribute: &str) -> Result<Option<T>, StoreError> {
    let Some(value) = item.get(attribute) else { return Ok(None) };
    let parsed = if let AttributeValue::N(digits) = value { digits.parse().ok() } else { None };
    parsed.map(Some).ok_or_else(|| corrupt(item, attribute, &format!("{value:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(attributes: &[(&str, AttributeValue)]) -> Result<Option<Row>, String> {
        let mut item = item_key(RowKey { resource: "emr-api", account: "1" });
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        token_row(item).map(|read| read.row).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_read_as_clients_write_them() {
        let python = Row { tokens: -1, last_refill: None, last_token: Some(5), is_sealed: false, ours: None };
        assert_eq!(read(&[(TOKENS, number(&-1)), (LAST_TOKEN, number(&5))]), Ok(Some(python.clone())));
        let written = [(TOKENS, -1), (LAST_TOKEN, 5), (LAST_REFILL, SEALED), (REFILLED, i64::MAX), (LEFT, 3)];
        let ours = Some(Ours { refilled: EpochNanos::new(i64::MAX.into()), left: 3 });
        let sealed = Row { last_refill: Some(SEALED), is_sealed: true, ours, ..python };
        assert_eq!(read(&written.map(|(name, value)| (name, number(&value)))), Ok(Some(sealed)));
        assert_eq!(read(&[(LAST_TOKEN, number(&5))]), Ok(None));
    }

    #[test]
    fn an_invalid_row_is_named_by_key() {
        let check = |attributes: &[_], expect: &str| assert_eq!(read(attributes), Err(expect.to_owned()));
        check(&[(TOKENS, number(&0.5))], "attribute tokens of emr-api 1 has the invalid value N(\"0.5\")");
        check(&[(TOKENS, text("1"))], "attribute tokens of emr-api 1 has the invalid value S(\"1\")");
        check(&[(REFILLED, number(&1))], "attribute #left of emr-api 1 has the invalid value nothing");
        check(&[(LEFT, number(&1))], "attribute #refilled of emr-api 1 has the invalid value nothing");
    }
}
