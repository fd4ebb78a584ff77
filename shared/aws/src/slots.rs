//! Takes, binds, renews and frees slots by conditional writes, and counts the tokens of all clients.

use aws_sdk_dynamodb::{
    Client,
    operation::{query::builders::QueryFluentBuilder, update_item::UpdateItemError},
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_domain::{
    reservation::Occupancy,
    slot::{Slot, SlotChange, SlotOutcome, SlotWrite},
    sweep::seconds,
    time::EpochMillis,
};

use crate::{
    dynamodb::{Item, query_all},
    error::StoreError,
    expression::{Expression, number, text},
    schema::tokens::{
        EXPIRATION_TIME, FENCE, HOLDER, OWNER, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, SINCE, coordinate,
        slot_key, slot_number,
    },
};

/// The table of non-fungible tokens, for a client.
#[derive(Clone, Debug)]
pub struct Slots {
    client: Client,
    table: String,
}

/// The tokens of an account on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinate<'a> {
    pub resource: &'a str,
    pub account: &'a str,
}

/// A live token or reservation of any client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldToken {
    /// Its range key.
    pub reservation: String,
    /// The slot's number, if it is a slot.
    pub slot: Option<u32>,
    /// The resource that it is bound to.
    pub resource: Option<String>,
    /// Who made the reservation. Only slots have this.
    pub owner: Option<String>,
    /// When it was made. Only slots have this.
    pub since: Option<EpochMillis>,
    /// In epoch seconds.
    pub expires: i64,
}

impl Slots {
    /// The tokens in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Writes to a slot, if the write's condition holds. The SDK may retry the call. The change is made at most once.
    ///
    /// `owner` is stored with a slot that is taken, for people to read.
    pub async fn write(
        &self,
        of: Coordinate<'_>,
        slot: u32,
        write: &SlotWrite<'_>,
        owner: Option<&str>,
        now: EpochMillis,
    ) -> Result<SlotOutcome, StoreError> {
        let key = [
            (RESOURCE_COORDINATE.to_owned(), text(coordinate(of.resource, of.account))),
            (RESERVATION_ID.to_owned(), text(slot_key(slot))),
        ];
        let mut expression = expression(write, seconds(now));
        if let SlotChange::Take { .. } = write.change {
            expression.set(SINCE, number(&now));
            match owner {
                Some(owner) => drop(expression.set(OWNER, text(owner))),
                None => drop(expression.remove(OWNER)),
            }
        }
        let sent = expression
            .applied_to(self.client.update_item())
            .table_name(&self.table)
            .set_key(Some(key.into()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let expires = match write.change {
            SlotChange::Take { expires, .. }
            | SlotChange::Bind { expires, .. }
            | SlotChange::Renew { expires }
            | SlotChange::Free { expires } => expires,
        };
        match sent {
            Ok(_) => Ok(SlotOutcome::Done(expires)),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    let slot = failed.item().map(read).unwrap_or_default();
                    Ok(slot.explain(write, seconds(now)))
                }
                _ => Err(StoreError::from_sdk("UpdateItem", error)),
            },
        }
    }

    /// Counts the slots from `from` on and all tokens of other clients that are live, with a consistent query over all
    /// pages.
    pub async fn occupancy(&self, of: Coordinate<'_>, from: u32, now: EpochMillis) -> Result<Occupancy, StoreError> {
        let query = self
            .live(of, now)
            .key_condition_expression("#coordinate = :coordinate AND #reservation >= :from")
            .expression_attribute_values(":from", text(if from == 0 { " ".to_owned() } else { slot_key(from) }))
            .expression_attribute_names("#reservation", RESERVATION_ID)
            .projection_expression("#reservation, #expires");
        let mut occupancy = Occupancy { from, ..Occupancy::default() };
        for item in query_all(query).await? {
            let reservation = string(&item, RESERVATION_ID).unwrap_or_default();
            match slot_number(&reservation) {
                Some(slot) => drop(occupancy.slots.insert(slot, integer(&item, EXPIRATION_TIME).unwrap_or(i64::MAX))),
                None => occupancy.others += 1,
            }
        }
        Ok(occupancy)
    }

    /// Lists the live tokens of an account, consistently and over all pages.
    pub async fn list(&self, of: Coordinate<'_>, now: EpochMillis) -> Result<Vec<HeldToken>, StoreError> {
        let query = self.live(of, now).key_condition_expression("#coordinate = :coordinate");
        let read = |item: &Item| {
            let reservation = string(item, RESERVATION_ID)?;
            Some(HeldToken {
                slot: slot_number(&reservation),
                resource: string(item, RESOURCE_ID).filter(|resource| *resource != reservation),
                owner: string(item, OWNER),
                since: integer(item, SINCE).and_then(|millis| EpochMillis::new(millis).ok()),
                expires: integer(item, EXPIRATION_TIME).unwrap_or(i64::MAX),
                reservation,
            })
        };
        Ok(query_all(query).await?.iter().filter_map(read).collect())
    }

    /// Builds a query for tokens whose expiry is later than `now`: the rule of all clients.
    fn live(&self, of: Coordinate<'_>, now: EpochMillis) -> QueryFluentBuilder {
        self.client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .filter_expression("#expires > :now")
            .expression_attribute_names("#coordinate", RESOURCE_COORDINATE)
            .expression_attribute_names("#expires", EXPIRATION_TIME)
            .expression_attribute_values(":coordinate", text(coordinate(of.resource, of.account)))
            .expression_attribute_values(":now", number(&seconds(now)))
    }
}

/// The write as an expression, on the condition of [`Slot::allows`].
fn expression(write: &SlotWrite<'_>, now: i64) -> Expression {
    let mut expression = Expression::default();
    match write.change {
        SlotChange::Take { fence, expires } => {
            let (name, _) = expression.set(EXPIRATION_TIME, number(&expires));
            let now = expression.value(number(&now));
            expression.require(&format!("(attribute_not_exists({name}) OR {name} <= {now})"));
            let (name, value) = expression.set(FENCE, number(&fence));
            expression.require(&format!("(attribute_not_exists({name}) OR {name} < {value})"));
            expression.set(HOLDER, text(write.holder));
            expression.remove(RESOURCE_ID);
        }
        SlotChange::Bind { resource, expires } => {
            require_held(&mut expression, write.holder, expires, now);
            let (name, _) = expression.set(RESOURCE_ID, text(resource));
            expression.require(&format!("attribute_not_exists({name})"));
        }
        SlotChange::Renew { expires } => {
            let (name, value) = require_held(&mut expression, write.holder, expires, now);
            expression.require(&format!("{name} < {value}"));
        }
        SlotChange::Free { expires } => {
            expression.compare(HOLDER, "=", text(write.holder));
            expression.set(EXPIRATION_TIME, number(&expires));
            for attribute in [HOLDER, OWNER, SINCE, RESOURCE_ID] {
                expression.remove(attribute);
            }
        }
    }
    expression
}

/// Sets the expiry, on the condition that the holder still holds the slot. Returns the placeholders of the attribute and of
/// the new expiry.
fn require_held(expression: &mut Expression, holder: &str, expires: i64, now: i64) -> (String, String) {
    expression.compare(HOLDER, "=", text(holder));
    let (name, value) = expression.set(EXPIRATION_TIME, number(&expires));
    let now = expression.value(number(&now));
    expression.require(&format!("{name} > {now}"));
    (name, value)
}

fn read(item: &Item) -> Slot {
    Slot {
        holder: string(item, HOLDER),
        resource: string(item, RESOURCE_ID),
        expires: integer(item, EXPIRATION_TIME),
        fence: integer(item, FENCE).unwrap_or_default(),
    }
}

fn string(item: &Item, attribute: &str) -> Option<String> {
    item.get(attribute)?.as_s().ok().cloned()
}

fn integer(item: &Item, attribute: &str) -> Option<i64> {
    match item.get(attribute)? {
        AttributeValue::N(digits) => digits.parse().ok(),
        _ => None,
    }
}
