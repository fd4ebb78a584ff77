//! The coordinator's table: announcements, and a record of each target that they are for.
//!
//! A target's record has a version. Whoever plans reads the record first and the announcements afterwards, and writes the
//! record on the condition that it still has the version. A new announcement takes a version of each of its targets, so
//! that no plan misses it and no limit is exceeded.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    capacity::{
        Capacity, Target,
        announcement::{Announcement, Need},
        minimum::MinimumRecord,
    },
    throttle::CapacityKind,
    time::EpochMillis,
};

pub use crate::dynamodb::WriteOutcome;
use crate::{
    dynamodb::{Item, query_all, through_conflicts},
    error::StoreError,
    expression::{Expression, Parts, number, text},
    schema::capacity::{
        ANNOUNCEMENT, CALLER, CALLS, DIMENSION, ID, INDEX, KIND, NEEDS, ON_DEMAND, OTHER, OWNER, PLANNED, READY,
        RELEASED, RELEASED_RUNS, SINCE, TABLE, TARGET, TTL, UNITS, UNTIL, VERSION,
    },
    transaction::Transaction,
};

/// How long an announcement is kept after its end, in seconds, if the coordinator does not delete it.
const KEPT: i64 = 3_600;

/// The coordinator's table.
#[derive(Clone, Debug)]
pub struct Announcements {
    client: Client,
    table: String,
}

/// The record of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    pub target: Target,
    /// The table was on demand when it was announced to: it has no minimum.
    pub is_on_demand: bool,
    /// `None` until the minimum is planned.
    pub minimum: Option<MinimumRecord>,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTarget {
    pub record: TargetRecord,
    version: i64,
}

/// A write of a target's record.
#[derive(Clone, Copy, Debug)]
pub struct TargetWrite<'a> {
    /// The record as it was read. `None` if there was none.
    pub seen: Option<&'a StoredTarget>,
    pub record: &'a TargetRecord,
}

impl Announcements {
    /// The announcements in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Reads the record of a target.
    pub async fn find_target(&self, target: &Target) -> Result<Option<StoredTarget>, StoreError> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key(TARGET, target.to_string())));
        let output = get.consistent_read(true).send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(|item| stored_target(&item)).transpose()
    }

    /// Reads the records of all targets, and counts those that cannot be read. They are logged, and do not hold up the others.
    pub async fn targets(&self) -> Result<(Vec<StoredTarget>, usize), StoreError> {
        let items = self.partition(TARGET).await?;
        let read = readable(&items, stored_target);
        let unreadable = items.len() - read.len();
        Ok((read, unreadable))
    }

    /// Reads all announcements, in force or not. One that cannot be read is logged and left out.
    pub async fn all(&self) -> Result<Vec<Announcement>, StoreError> {
        Ok(readable(&self.partition(ANNOUNCEMENT).await?, announcement))
    }

    /// Reads an announcement.
    pub async fn find(&self, id: &str) -> Result<Option<Announcement>, StoreError> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key(ANNOUNCEMENT, id)));
        let output = get.consistent_read(true).send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(|item| announcement(&item)).transpose()
    }

    async fn partition(&self, kind: &str) -> Result<Vec<Item>, StoreError> {
        let query = self.client.query().table_name(&self.table).consistent_read(true);
        let query = query
            .key_condition_expression("#kind = :kind")
            .expression_attribute_names("#kind", KIND)
            .expression_attribute_values(":kind", text(kind));
        query_all(query).await
    }

    /// Writes an announcement, and a new version of the record of each of its targets: all of them, or nothing. `seen` is what
    /// was stored under its id.
    pub async fn announce(
        &self,
        seen: Option<&Announcement>,
        announcement: &Announcement,
        targets: &[TargetWrite<'_>],
        now: EpochMillis,
    ) -> Result<WriteOutcome, StoreError> {
        let mut transaction = Transaction::new(&self.table);
        transaction.put(announcement_item(announcement), unchanged(seen))?;
        for write in targets {
            transaction.put(write.item(now), write.condition())?;
        }
        transaction.send(&self.client).await
    }

    /// Writes the record of a target, if it is still as it was seen.
    pub async fn write_target(&self, write: TargetWrite<'_>, now: EpochMillis) -> Result<WriteOutcome, StoreError> {
        self.put(write.item(now), || write.condition()).await
    }

    /// Deletes the record of a target, if it is still as it was seen.
    pub async fn forget_target(&self, seen: &StoredTarget) -> Result<WriteOutcome, StoreError> {
        let key = key(TARGET, seen.record.target.to_string());
        self.delete_item(key, || TargetWrite { seen: Some(seen), record: &seen.record }.condition()).await
    }

    /// Ends the announcement with this id at the moment `now`, if it is still as it was `seen`. An unknown id is stored as
    /// released, too: its announcement may be on its way. If `run` is given, that run cannot announce it again.
    pub async fn release(
        &self,
        id: &str,
        seen: Option<&Announcement>,
        run: Option<&str>,
        now: EpochMillis,
    ) -> Result<WriteOutcome, StoreError> {
        let unknown = || Announcement {
            id: id.to_owned(),
            caller: String::new(),
            needs: Vec::new(),
            units: Capacity::ZERO,
            since: now,
            until: now,
            ready: None,
            released: None,
            released_runs: BTreeMap::new(),
        };
        let released = seen.cloned().unwrap_or_else(unknown).release(run, now);
        self.put(announcement_item(&released), || unchanged(seen)).await
    }

    /// Deletes an announcement, if it is still as it was seen.
    pub async fn delete(&self, seen: &Announcement) -> Result<WriteOutcome, StoreError> {
        self.delete_item(key(ANNOUNCEMENT, &seen.id), || unchanged(Some(seen))).await
    }

    /// Stores when the capacity of an announcement was provisioned, if it is still as it was seen.
    pub async fn mark_ready(&self, seen: &Announcement, ready: EpochMillis) -> Result<WriteOutcome, StoreError> {
        let ready = Announcement { ready: Some(ready), ..seen.clone() };
        self.put(announcement_item(&ready), || unchanged(Some(seen))).await
    }

    async fn put(&self, item: Item, condition: impl Fn() -> Expression) -> Result<WriteOutcome, StoreError> {
        let sent = through_conflicts(|| {
            let Parts { condition, names, values, .. } = condition().into_parts();
            self.client
                .put_item()
                .table_name(&self.table)
                .set_item(Some(item.clone()))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .send()
        });
        WriteOutcome::of("PutItem", sent.await)
    }

    async fn delete_item(&self, key: Item, condition: impl Fn() -> Expression) -> Result<WriteOutcome, StoreError> {
        let sent = through_conflicts(|| {
            let Parts { condition, names, values, .. } = condition().into_parts();
            self.client
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(key.clone()))
                .set_condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values)
                .send()
        });
        WriteOutcome::of("DeleteItem", sent.await)
    }
}

/// The condition that an announcement is still as it was seen.
fn unchanged(seen: Option<&Announcement>) -> Expression {
    let mut expression = Expression::default();
    if let Some(seen) = seen {
        expression.compare(UNTIL, "=", number(&seen.until));
        expression.compare(UNITS, "=", number(&seen.units));
        if let Some(released) = &seen.released {
            expression.compare(RELEASED, "=", number(released));
        } else {
            let name = expression.name(RELEASED);
            expression.require(&format!("attribute_not_exists({name})"));
        }
    } else {
        let name = expression.name(UNTIL);
        expression.require(&format!("attribute_not_exists({name})"));
    }
    expression
}

impl TargetWrite<'_> {
    /// The new version is above all earlier ones, also if the record was deleted meanwhile.
    fn item(&self, now: EpochMillis) -> Item {
        let version = self.seen.map_or(0, |seen| seen.version).saturating_add(1).max(now.get());
        let TargetRecord { target, is_on_demand, minimum } = self.record;
        let mut item = key(TARGET, target.to_string());
        item.extend(target_attributes(target));
        item.insert(VERSION.to_owned(), number(&version));
        item.insert(ON_DEMAND.to_owned(), AttributeValue::Bool(*is_on_demand));
        if let Some(MinimumRecord { owner, planned, calls }) = minimum {
            let calls = calls.iter().map(|(minimum, end)| (minimum.to_string(), number(end))).collect();
            item.insert(OWNER.to_owned(), number(owner));
            item.insert(PLANNED.to_owned(), number(planned));
            item.insert(CALLS.to_owned(), AttributeValue::M(calls));
        }
        item
    }

    fn condition(&self) -> Expression {
        let mut expression = Expression::default();
        if let Some(seen) = self.seen {
            expression.compare(VERSION, "=", number(&seen.version));
        } else {
            let name = expression.name(VERSION);
            expression.require(&format!("attribute_not_exists({name})"));
        }
        expression
    }
}

fn readable<T>(items: &[Item], read: fn(&Item) -> Result<T, StoreError>) -> Vec<T> {
    let read = |item| read(item).inspect_err(|error| tracing::error!(%error, "an item is left out")).ok();
    items.iter().filter_map(read).collect()
}

fn key(kind: &str, id: impl Into<String>) -> Item {
    HashMap::from([(KIND.to_owned(), text(kind)), (ID.to_owned(), text(id))])
}

fn target_attributes(target: &Target) -> Item {
    let mut attributes =
        HashMap::from([(TABLE.to_owned(), text(&target.table)), (DIMENSION.to_owned(), text(target.kind.to_string()))]);
    if let Some(index) = &target.index {
        attributes.insert(INDEX.to_owned(), text(index));
    }
    attributes
}

fn announcement_item(announcement: &Announcement) -> Item {
    let Announcement { id, caller, needs, units, since, until, ready, released, released_runs } = announcement;
    let need = |need: &Need| {
        let mut attributes = target_attributes(&need.target);
        attributes.insert(OTHER.to_owned(), number(&need.other));
        AttributeValue::M(attributes)
    };
    let mut item = key(ANNOUNCEMENT, id);
    item.extend([
        (CALLER.to_owned(), text(caller)),
        (NEEDS.to_owned(), AttributeValue::L(needs.iter().map(need).collect())),
        (UNITS.to_owned(), number(units)),
        (SINCE.to_owned(), number(since)),
        (UNTIL.to_owned(), number(until)),
        (TTL.to_owned(), number(&(until.get() / 1000 + KEPT))),
    ]);
    let moments = [(READY, ready), (RELEASED, released)];
    if !released_runs.is_empty() {
        let runs = released_runs.iter().map(|(run, released)| (run.clone(), number(released))).collect();
        item.insert(RELEASED_RUNS.to_owned(), AttributeValue::M(runs));
    }
    item.extend(moments.iter().filter_map(|(name, moment)| Some(((*name).to_owned(), number(&moment.as_ref()?)))));
    item
}

fn announcement(item: &Item) -> Result<Announcement, StoreError> {
    let reader = AttributeReader { item, attributes: item };
    let needs = item.get(NEEDS).and_then(|value| value.as_l().ok()).ok_or_else(|| reader.corrupt(NEEDS))?;
    let need = |value: &AttributeValue| {
        let attributes = value.as_m().map_err(|_| reader.corrupt(NEEDS))?;
        let need = AttributeReader { item, attributes };
        Ok(Need { target: need.target()?, other: need.capacity(OTHER)? })
    };
    Ok(Announcement {
        id: reader.text(ID)?,
        caller: reader.text(CALLER)?,
        needs: needs.iter().map(need).collect::<Result<_, StoreError>>()?,
        units: reader.capacity(UNITS)?,
        since: reader.moment(SINCE)?,
        until: reader.moment(UNTIL)?,
        ready: item.contains_key(READY).then(|| reader.moment(READY)).transpose()?,
        released: item.contains_key(RELEASED).then(|| reader.moment(RELEASED)).transpose()?,
        released_runs: released_runs(reader)?,
    })
}

fn released_runs(reader: AttributeReader<'_>) -> Result<BTreeMap<String, EpochMillis>, StoreError> {
    let Some(runs) = reader.attributes.get(RELEASED_RUNS) else { return Ok(BTreeMap::new()) };
    let run = |(run, released): (&String, &AttributeValue)| {
        let released = released.as_n().ok()?.parse().ok()?;
        Some((run.clone(), EpochMillis::new(released).ok()?))
    };
    let runs = runs.as_m().ok().and_then(|runs| runs.iter().map(run).collect());
    runs.ok_or_else(|| reader.corrupt(RELEASED_RUNS))
}

fn stored_target(item: &Item) -> Result<StoredTarget, StoreError> {
    let reader = AttributeReader { item, attributes: item };
    let is_on_demand = item.get(ON_DEMAND).and_then(|value| value.as_bool().ok()).copied();
    let record = TargetRecord {
        target: reader.target()?,
        is_on_demand: is_on_demand.ok_or_else(|| reader.corrupt(ON_DEMAND))?,
        minimum: item.contains_key(PLANNED).then(|| minimum(reader)).transpose()?,
    };
    Ok(StoredTarget { record, version: reader.number(VERSION)? })
}

fn minimum(reader: AttributeReader<'_>) -> Result<MinimumRecord, StoreError> {
    let corrupt = || reader.corrupt(CALLS);
    let calls = reader.attributes.get(CALLS).and_then(|value| value.as_m().ok()).ok_or_else(corrupt)?;
    let call = |(minimum, end): (&String, &AttributeValue)| {
        let end = end.as_n().ok()?.parse().ok()?;
        Some((Capacity::new(minimum.parse().ok()?), EpochMillis::new(end).ok()?))
    };
    let calls: Option<BTreeMap<_, _>> = calls.iter().map(call).collect();
    Ok(MinimumRecord {
        owner: reader.capacity(OWNER)?,
        planned: reader.capacity(PLANNED)?,
        calls: calls.ok_or_else(corrupt)?,
    })
}

/// Reads the attributes of an item, or of a map in it.
#[derive(Clone, Copy)]
struct AttributeReader<'i> {
    /// For errors.
    item: &'i Item,
    attributes: &'i Item,
}

impl AttributeReader<'_> {
    fn text(&self, name: &str) -> Result<String, StoreError> {
        let value = self.attributes.get(name).and_then(|value| value.as_s().ok());
        value.cloned().ok_or_else(|| self.corrupt(name))
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, StoreError> {
        let value = self.attributes.get(name).and_then(|value| value.as_n().ok()?.parse().ok());
        value.ok_or_else(|| self.corrupt(name))
    }

    fn capacity(&self, name: &str) -> Result<Capacity, StoreError> {
        self.number(name).map(Capacity::new)
    }

    fn moment(&self, name: &str) -> Result<EpochMillis, StoreError> {
        EpochMillis::new(self.number(name)?).map_err(|_| self.corrupt(name))
    }

    fn target(&self) -> Result<Target, StoreError> {
        let kind = match self.text(DIMENSION)?.as_str() {
            "read" => CapacityKind::Read,
            "write" => CapacityKind::Write,
            _ => return Err(self.corrupt(DIMENSION)),
        };
        let index = self.attributes.contains_key(INDEX).then(|| self.text(INDEX)).transpose()?;
        Ok(Target { table: self.text(TABLE)?, index, kind })
    }

    fn corrupt(&self, name: &str) -> StoreError {
        let key = |name| self.item.get(name).and_then(|value: &AttributeValue| value.as_s().ok());
        let [kind, id] = [KIND, ID].map(|name| key(name).map_or("?", String::as_str));
        let value = format!("{:?}", self.attributes.get(name));
        StoreError::Corrupt { item: format!("{kind} {id}"), attribute: name.to_owned(), value }
    }
}
