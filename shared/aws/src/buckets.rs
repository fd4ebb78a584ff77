//! Bucket items, as the keeper reads and writes them. Each write is conditional on what was read.

use std::{collections::BTreeMap, ops::Range};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    bucket::{BucketKey, Limit, Shard},
    refill::Refill,
    repair::{Alignment, Expiry, Move},
    split::{Plan, Split},
    state::{BucketImage, BucketState, ShardCount, Terms, Unfamiliar},
};

use crate::{
    dynamodb::{Item, batch_get, is_transaction_conflict},
    error::{StoreError, causes},
    expression::{Expression, number, text},
    image::image_of,
    schema::{self, PK, SK, TTL, bucket},
    transaction::Transaction,
};

pub use crate::dynamodb::WriteOutcome;

/// The bucket items of a table.
#[derive(Clone, Debug)]
pub struct Buckets {
    client: Client,
    table: String,
}

/// The consistency of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// All writes that have succeeded are in it.
    Strong,
    /// It may be a second old, and costs half.
    Eventual,
}

/// The shards of a bucket, as they were read.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    /// Those that exist and are plain.
    pub states: BTreeMap<Shard, BucketState<'static>>,
    /// Those that are left to their clients, and why.
    pub unfamiliar: BTreeMap<Shard, Unfamiliar>,
    /// Shard 0 with all its attributes.
    zero: Option<Item>,
}

/// The most items of one read.
///
/// AWS: [BatchGetItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
const READ: usize = 100;

impl Buckets {
    /// The buckets in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Credits and trims a shard that was `seen`.
    pub async fn refill(
        &self,
        key: &BucketKey<'_>,
        seen: &BucketState<'_>,
        refill: &Refill<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut expression = require_unchanged(seen);
        for (limit, state) in &seen.limits {
            require_terms(&mut expression, limit, &state.terms);
        }
        expression.set(bucket::LAST_REFILL, number(&refill.until));
        for (limit, credit) in &refill.credits {
            let Some(state) = seen.limits.get(limit) else { continue };
            expression.add(attribute(limit, bucket::TOKENS), number(credit));
            // Another writer's credit must not be added twice.
            expression.compare(attribute(limit, bucket::TOKENS), "<=", number(&state.tokens));
        }
        for (limit, share) in &refill.trims {
            expression.set(attribute(limit, bucket::TOKENS), number(share));
            expression.compare(attribute(limit, bucket::TOKENS), ">", number(share));
        }
        self.update(key, expression).await
    }

    /// Writes what shard 0 says to a shard that was `seen`.
    pub async fn align(
        &self,
        key: &BucketKey<'_>,
        seen: &BucketState<'_>,
        alignment: &Alignment<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut expression = Expression::default();
        let exists = expression.name(PK);
        expression.require(&format!("attribute_exists({exists})"));
        require_no_valid_until(&mut expression);
        for (limit, terms) in &alignment.terms {
            // A client may have written newer terms since the read.
            if let Some(state) = seen.limits.get(limit) {
                require_terms(&mut expression, limit, &state.terms);
            }
            set_terms(&mut expression, limit, terms);
        }
        if !alignment.added.is_empty() {
            expression.compare(bucket::SHARD_COUNT, "=", number(&seen.shards.get()));
        }
        for (limit, (terms, tokens)) in &alignment.added {
            set_terms(&mut expression, limit, terms);
            expression.set(attribute(limit, bucket::CONSUMED), number(&0));
            let (name, _) = expression.set(attribute(limit, bucket::TOKENS), number(tokens));
            expression.require(&format!("attribute_not_exists({name})"));
        }
        match alignment.expiry {
            Some(Expiry::At(expires)) => {
                let (name, value) = expression.set(TTL, number(&expires));
                // A client may have renewed the shard for longer.
                expression.require(&format!("{name} < {value}"));
            }
            Some(Expiry::Never) => drop(expression.remove(TTL)),
            None => {}
        }
        self.update(key, expression).await
    }

    /// Gives a bucket all the shards of a plan, in one transaction. `shards` are those that were read.
    pub async fn increase_shards(
        &self,
        key: &BucketKey<'_>,
        shards: &Shards,
        plan: &Plan<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut transaction = Transaction::new(&self.table);
        for split in &plan.splits {
            let (Some(zero), Some(donor)) = (&shards.zero, shards.states.get(&split.donor)) else {
                return Ok(WriteOutcome::Lost);
            };
            let mut expression = require_unchanged(donor);
            // The new shards get what the donor and shard 0 said when they were read.
            for (limit, state) in &donor.limits {
                require_terms(&mut expression, limit, &state.terms);
            }
            require_switched_on(&mut expression);
            expression.set(bucket::SHARD_COUNT, number(&plan.shards.get()));
            for limit in split.gifts.keys() {
                let given = split.given(limit);
                expression.add(attribute(limit, bucket::TOKENS), number(&-given.get()));
                if given.get() > 0 {
                    expression.compare(attribute(limit, bucket::TOKENS), ">=", number(&given));
                }
            }
            transaction.update(item_key(&key.at(split.donor)), expression)?;
            for target in &split.targets {
                transaction.put_new(clone_of(zero, &key.at(*target), donor, split, plan.shards))?;
            }
        }
        for shard in &plan.raises {
            let mut expression = Expression::default();
            expression.set(bucket::SHARD_COUNT, number(&plan.shards.get()));
            expression.compare(bucket::SHARD_COUNT, "<", number(&plan.shards.get()));
            require_no_valid_until(&mut expression);
            transaction.update(item_key(&key.at(*shard)), expression)?;
        }
        transaction.send(&self.client).await
    }

    /// Moves tokens from one shard of a bucket to another, in one transaction. `states` are those that were read.
    pub async fn move_tokens(
        &self,
        key: &BucketKey<'_>,
        states: &BTreeMap<Shard, BucketState<'_>>,
        Move { limit, from, settled, forfeited, to, tokens }: &Move<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let (Some(giver), Some(taker)) = (states.get(from), states.get(to)) else { return Ok(WriteOutcome::Lost) };
        let mut give = require_unchanged(giver);
        if let Some(settled) = settled {
            give.set(bucket::LAST_REFILL, number(&settled.until));
        }
        for (name, state) in &giver.limits {
            require_terms(&mut give, name, &state.terms);
            let credit = settled.as_ref().and_then(|settled| settled.credits.get(name)).copied();
            let credit = credit.unwrap_or_default().get();
            let change = if name == limit { credit - tokens.get() - forfeited.get() } else { credit };
            if change != 0 {
                give.add(attribute(name, bucket::TOKENS), number(&change));
            }
            if change < 0 {
                give.compare(attribute(name, bucket::TOKENS), ">=", number(&-change));
            }
            if credit > 0 {
                give.compare(attribute(name, bucket::TOKENS), "<=", number(&state.tokens));
            }
        }
        let mut take = require_unchanged(taker);
        let Some(limit_state) = taker.limits.get(limit) else { return Ok(WriteOutcome::Lost) };
        require_terms(&mut take, limit, &limit_state.terms);
        take.add(attribute(limit, bucket::TOKENS), number(tokens));
        take.compare(attribute(limit, bucket::TOKENS), "<=", number(&limit_state.tokens));
        let mut transaction = Transaction::new(&self.table);
        transaction.update(item_key(&key.at(*from)), give)?;
        transaction.update(item_key(&key.at(*to)), take)?;
        transaction.send(&self.client).await
    }

    /// Reads some shards of a bucket.
    pub async fn read(
        &self,
        key: &BucketKey<'_>,
        shards: Range<u32>,
        consistency: Consistency,
    ) -> Result<Shards, StoreError> {
        let keys: Vec<_> = shards.map(|shard| item_key(&key.at(Shard::new(shard)))).collect();
        let mut read = Shards::default();
        for keys in keys.chunks(READ) {
            let is_consistent = consistency == Consistency::Strong;
            for item in batch_get(&self.client, &self.table, keys.to_vec(), is_consistent).await? {
                read.take(item);
            }
        }
        Ok(read)
    }

    async fn update(&self, key: &BucketKey<'_>, expression: Expression) -> Result<WriteOutcome, StoreError> {
        let update = expression.applied_to(self.client.update_item().table_name(&self.table));
        match update.set_key(Some(item_key(key))).send().await {
            Err(error) if is_transaction_conflict(&error) => Ok(WriteOutcome::Lost),
            sent => WriteOutcome::of("UpdateItem", sent),
        }
    }
}

impl Shards {
    /// The source of truth, if it is there.
    pub fn zero(&self) -> Option<&BucketState<'static>> {
        self.states.get(&Shard::ZERO)
    }

    fn take(&mut self, item: Item) {
        let image = image_of(&item).unwrap_or_else(|error| {
            tracing::error!(error = causes(&error), "a shard is not a valid bucket item");
            BucketImage::Unfamiliar(Unfamiliar::OutOfRange)
        });
        let shard = item.get(PK).and_then(|pk| pk.as_s().ok()).and_then(|pk| schema::parse_bucket_pk(pk)?.ok());
        let Some(BucketKey { shard, .. }) = shard else { return };
        match image {
            BucketImage::Plain(state) => drop(self.states.insert(shard, state)),
            BucketImage::Unfamiliar(reason) => drop(self.unfamiliar.insert(shard, reason)),
            BucketImage::Absent => {}
        }
        if shard == Shard::ZERO {
            self.zero = Some(item);
        }
    }
}

/// The condition that an item was neither refilled nor split since it was seen, and has no `vu`, with which its
/// clients mark it as theirs.
pub(crate) fn require_unchanged(seen: &BucketState<'_>) -> Expression {
    let mut expression = Expression::default();
    expression.compare(bucket::LAST_REFILL, "=", number(&seen.last_refill));
    expression.compare(bucket::SHARD_COUNT, "=", number(&seen.shards.get()));
    require_no_valid_until(&mut expression);
    expression
}

fn require_no_valid_until(expression: &mut Expression) {
    let name = expression.name(bucket::VALID_UNTIL);
    expression.require(&format!("attribute_not_exists({name})"));
}

fn require_switched_on(expression: &mut Expression) {
    let (disabled, off) = (expression.name(bucket::DISABLED), expression.value(AttributeValue::Bool(false)));
    expression.require(&format!("(attribute_not_exists({disabled}) OR {disabled} = {off})"));
    let bypass = expression.name(bucket::BYPASS);
    expression.require(&format!("attribute_not_exists({bypass})"));
}

pub(crate) fn require_terms(expression: &mut Expression, limit: &Limit<'_>, terms: &Terms) {
    expression.compare(attribute(limit, bucket::CAPACITY), "=", number(&terms.capacity));
    expression.compare(attribute(limit, bucket::REFILL_AMOUNT), "=", number(&terms.refill));
    expression.compare(attribute(limit, bucket::REFILL_PERIOD), "=", number(&terms.period));
}

pub(crate) fn set_terms(expression: &mut Expression, limit: &Limit<'_>, terms: &Terms) {
    expression.set(attribute(limit, bucket::CAPACITY), number(&terms.capacity));
    expression.set(attribute(limit, bucket::REFILL_AMOUNT), number(&terms.refill));
    expression.set(attribute(limit, bucket::REFILL_PERIOD), number(&terms.period));
}

/// Shard 0 under another shard's keys, with that shard's own tokens.
fn clone_of(zero: &Item, key: &BucketKey<'_>, donor: &BucketState<'_>, split: &Split<'_>, shards: ShardCount) -> Item {
    let mut clone = zero.clone();
    clone.extend(item_key(key));
    for (name, value) in [
        (schema::GSI2SK, text(schema::bucket_gsi2_sk(key))),
        (schema::GSI3SK, text(schema::bucket_gsi3_sk(key))),
        (schema::GSI4SK, text(schema::bucket_gsi4_sk(key))),
        (bucket::SHARD_COUNT, number(&shards.get())),
        (bucket::LAST_REFILL, number(&donor.last_refill)),
    ] {
        clone.insert(name.to_owned(), value);
    }
    for (limit, tokens) in &split.tokens {
        clone.insert(attribute(limit, bucket::TOKENS), number(tokens));
        clone.insert(attribute(limit, bucket::CONSUMED), number(&0));
    }
    for written_by_clients in [bucket::OPERATION, bucket::ACQUIRES] {
        clone.remove(written_by_clients);
    }
    clone
}

pub(crate) fn item_key(key: &BucketKey<'_>) -> Item {
    [(PK.to_owned(), text(schema::bucket_pk(key))), (SK.to_owned(), text(bucket::STATE))].into()
}

pub(crate) fn attribute(limit: &Limit<'_>, field: &str) -> String {
    bucket::attribute(limit.as_str(), field)
}
