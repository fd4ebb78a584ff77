//! Changed limits and switches reach the buckets that exist.
//!
//! Each bucket gets what applies to its own entity and resource after the change. A write changes terms, the expiry and the
//! switch. It never changes the tokens of a limit that stays, nor the time of the last refill. It also sets `vu` to 0,
//! which asks the next client to clamp the tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    bucket::{BucketKey, Limit, Namespace, Shard},
    configuration::{Configuration, Scope},
    time::EpochMillis,
};

use crate::{
    buckets::{Consistency, attribute, item_key, set_terms},
    concurrent::concurrently,
    configurations::{Configurations, Configured},
    dynamodb::{Item, WriteOutcome, query_all, through_conflicts},
    error::StoreError,
    expression::{Expression, number, text},
    schema::{self, GSI2PK, GSI2SK, GSI3PK, GSI3SK, PK, TTL, bucket},
};

/// What writes to the buckets of a scope.
#[derive(Clone, Debug)]
pub struct Fanout {
    client: Client,
    table: String,
    configurations: Configurations,
}

/// What of a configuration has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The limits were replaced.
    Limits,
    /// Callers are refused, or are not any more.
    Switch,
    /// The configuration is gone, so limits that no other level defines are gone, too.
    Deleted,
}

/// How many bucket items were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Items that have what applies now.
    pub written: usize,
    /// Items that keep their terms, because a schedule or a quota applies to them. Only zae-limiter can write these.
    pub left: usize,
}

/// A fan-out that has not reached all buckets.
#[derive(Debug, thiserror::Error)]
#[error("only {} bucket items were reached", reached.written)]
pub struct FanoutError {
    pub reached: Reached,
    pub source: StoreError,
}

/// What became of one item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Done,
    Left,
    Gone,
}

/// How many buckets are written at the same time.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// A second look finds buckets that clients created, with what applied before, during the first one.
const PASSES: usize = 2;

impl Fanout {
    /// The buckets in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        let table = table.into();
        Self { configurations: Configurations::new(client.clone(), table.clone()), client, table }
    }

    /// Brings all shards of all buckets in a scope in line with what applies to them now. The scope must have an entity or a
    /// resource. It can be called again after an error.
    pub async fn run(
        &self,
        namespace: &Namespace<'_>,
        scope: &Scope<'_>,
        changed: Changed,
        now: EpochMillis,
    ) -> Result<Reached, FanoutError> {
        let mut reached = Reached::default();
        let mut seen = BTreeSet::new();
        for _ in 0..PASSES {
            let found = self.find(namespace, scope).await.map_err(|source| FanoutError { reached, source })?;
            let mut buckets: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for key in found.into_iter().filter(|key| seen.insert(key.clone())) {
                buckets.entry(key.at(Shard::ZERO)).or_default().push(key);
            }
            let written = concurrently(buckets, CONCURRENCY, |(bucket, shards)| async move {
                self.write_all(&bucket, &shards, changed, now).await
            });
            let mut failure = None;
            for written in written.await {
                let (of, error) = match written {
                    Ok(of) => (of, None),
                    Err(FanoutError { reached, source }) => (reached, Some(source)),
                };
                reached.written += of.written;
                reached.left += of.left;
                failure = error.or(failure);
            }
            if let Some(source) = failure {
                return Err(FanoutError { reached, source });
            }
        }
        Ok(reached)
    }

    /// Writes the shards of one bucket.
    async fn write_all(
        &self,
        bucket: &BucketKey<'_>,
        shards: &[BucketKey<'_>],
        changed: Changed,
        now: EpochMillis,
    ) -> Result<Reached, FanoutError> {
        let mut reached = Reached::default();
        let BucketKey { namespace, entity, resource, .. } = bucket;
        let configured = self.configurations.resolve(namespace, entity, resource, Consistency::Strong).await;
        let configured = configured.map_err(|source| FanoutError { reached, source })?;
        for key in shards {
            match self.write(key, &configured, changed, now).await {
                Ok(Write::Done) => reached.written += 1,
                Ok(Write::Left) => reached.left += 1,
                Ok(Write::Gone) => {}
                Err(source) => return Err(FanoutError { reached, source }),
            }
        }
        Ok(reached)
    }

    /// Finds all bucket items of an entity, of a resource, or of both.
    async fn find(&self, namespace: &Namespace<'_>, scope: &Scope<'_>) -> Result<Vec<BucketKey<'static>>, StoreError> {
        let request = self.client.query().table_name(&self.table).projection_expression(PK);
        let (request, pk, prefix) = match (&scope.entity, &scope.resource) {
            (Some(entity), resource) => {
                let request = request.index_name("GSI3").expression_attribute_names("#pk", GSI3PK);
                let prefix = resource.as_ref().map_or_else(String::new, |resource| format!("{resource}#"));
                let request = request.expression_attribute_names("#sk", GSI3SK);
                (request, schema::entity_pk(namespace, entity), prefix)
            }
            (None, Some(resource)) => {
                let request = request.index_name("GSI2").expression_attribute_names("#pk", GSI2PK);
                let request = request.expression_attribute_names("#sk", GSI2SK);
                (request, schema::resource_pk(namespace, resource), String::new())
            }
            (None, None) => return Ok(Vec::new()),
        };
        let request = request
            .key_condition_expression("#pk = :pk AND begins_with(#sk, :prefix)")
            .expression_attribute_values(":pk", text(pk))
            .expression_attribute_values(":prefix", text(format!("{}{prefix}", schema::BUCKET)));
        let items = query_all(request).await?;
        let pks = items.iter().filter_map(|item| item.get(PK)?.as_s().ok());
        Ok(pks.filter_map(|pk| Some(schema::parse_bucket_pk(pk)?.ok()?.into_owned())).collect())
    }

    /// Writes one item, unless it is gone. If a limit of it has come or gone meanwhile, it looks again.
    async fn write(
        &self,
        key: &BucketKey<'_>,
        configured: &Configured,
        changed: Changed,
        now: EpochMillis,
    ) -> Result<Write, StoreError> {
        loop {
            let get = self.client.get_item().table_name(&self.table).set_key(Some(item_key(key))).consistent_read(true);
            let item = get.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?.item;
            let Some(item) = item else { return Ok(Write::Gone) };
            let mut expression = Expression::default();
            let exists = expression.name(PK);
            expression.require(&format!("attribute_exists({exists})"));
            let mut write = Write::Done;
            if matches!(changed, Changed::Limits | Changed::Deleted) {
                match &configured.configuration {
                    Some(configuration) if configuration.unsupported.is_none() => {
                        set_limits(&mut expression, &item, configuration, changed, now);
                    }
                    Some(_) => write = Write::Left,
                    // Nothing applies, so there is nothing to write.
                    None => {}
                }
            }
            if matches!(changed, Changed::Switch | Changed::Deleted) {
                if configured.is_disabled {
                    expression.set(bucket::DISABLED, AttributeValue::Bool(true));
                } else {
                    expression.remove(bucket::DISABLED);
                }
                expression.remove(bucket::BYPASS);
            }
            let update = self.client.update_item().table_name(&self.table).set_key(Some(item_key(key)));
            let update = expression.applied_to(update);
            if update.get_update_expression().is_none() {
                return Ok(write);
            }
            let sent = through_conflicts(|| update.clone().send()).await;
            if WriteOutcome::of("UpdateItem", sent)? == WriteOutcome::Written {
                return Ok(write);
            }
        }
    }
}

/// Writes the terms of the limits that an item has. Limits that it lacks are added when a client asks for them.
fn set_limits(
    expression: &mut Expression,
    item: &Item,
    configuration: &Configuration,
    changed: Changed,
    now: EpochMillis,
) {
    let names = item.keys().filter_map(|name| match bucket::limit_and_field(name) {
        Some((limit, bucket::TOKENS)) => Limit::new(limit.to_owned()).ok(),
        _ => None,
    });
    for limit in names.filter(|limit| !limit.is_write_units()) {
        let tokens = expression.name(attribute(&limit, bucket::TOKENS));
        expression.require(&format!("attribute_exists({tokens})"));
        if let Some(terms) = configuration.limits.get(&limit) {
            set_terms(expression, &limit, terms);
            for field in [bucket::SCHEDULE, bucket::RESET_SCHEDULE, bucket::SESSION_LENGTH, bucket::SOFT] {
                remove_present(expression, item, &attribute(&limit, field));
            }
        } else if changed == Changed::Deleted {
            let prefix = attribute(&limit, "");
            let is_own = |name: &&String| bucket::limit_and_field(name).is_some_and(|(of, _)| of == limit.as_str());
            for name in item.keys().filter(|name| name.starts_with(&prefix)).filter(is_own) {
                expression.remove(name);
            }
        }
    }
    for field in [bucket::DEFAULT_SCHEDULE, bucket::DEFAULT_RESET_SCHEDULE, bucket::TIME_ZONE] {
        remove_present(expression, item, field);
    }
    expression.set(bucket::VALID_UNTIL, number(&0));
    match configuration.expires(now) {
        Some(expires) => drop(expression.set(TTL, number(&expires))),
        None => drop(expression.remove(TTL)),
    }
}

fn remove_present(expression: &mut Expression, item: &Item, attribute: &str) {
    if item.contains_key(attribute) {
        expression.remove(attribute);
    }
}
