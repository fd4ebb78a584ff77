//! The buckets as the stream shows them, and the invariants that they keep.

use serde_json::Map;
use tidegate_aws::{schema, stream};
use tidegate_domain::state::BucketImage;
use tidegate_tests::keeper::limit;
use tidegate_tests::keeper::prelude::*;

use super::clients::{ENTITIES, LIMITS, Ledger};

/// The items of the buckets, as the stream leaves them.
#[derive(Debug, Default)]
pub struct StreamedBuckets {
    buckets: BTreeMap<String, BTreeMap<Shard, BucketState<'static>>>,
    /// The attributes of the items that the clients created.
    attributes: BTreeSet<String>,
    /// Records that no one can decode.
    pub poison: BTreeSet<String>,
}

impl StreamedBuckets {
    /// Applies records. Each must leave a plain bucket.
    pub fn take(&mut self, records: &[StreamRecord]) -> anyhow::Result<()> {
        for StreamRecord { json, .. } in records {
            let record: Value = serde_json::from_str(json)?;
            let image = record["dynamodb"]["NewImage"].as_object().cloned().unwrap_or_default();
            match stream::decode::<BucketImage<'_>>(json) {
                Ok(stream::Record::NotOurs) => {}
                Ok(stream::Record::Change(change)) => {
                    let BucketImage::Plain(state) = change.new else { anyhow::bail!("{json} leaves no plain bucket") };
                    self.check_attributes(&image)?;
                    let shards = self.buckets.entry(change.bucket.entity.as_str().to_owned()).or_default();
                    shards.insert(change.bucket.shard, state.into_owned());
                }
                Err(_) => _ = self.poison.insert(json.to_string()),
            }
        }
        Ok(())
    }

    /// An item has the attributes that clients gave it, and every number of a limit is an integer.
    fn check_attributes(&mut self, image: &Map<String, Value>) -> anyhow::Result<()> {
        if self.attributes.is_empty() {
            self.attributes = image.keys().cloned().collect();
        }
        ensure!(image.keys().eq(self.attributes.iter()), "{image:?} has other attributes");
        for (name, value) in image.iter().filter(|(name, _)| name.starts_with("b_")) {
            let number = value["N"].as_str().and_then(|number| number.parse::<i64>().ok());
            number.with_context(|| format!("{name} is {value}"))?;
        }
        let pk = image[schema::PK]["S"].as_str().unwrap_or_default();
        let key = schema::parse_bucket_pk(pk).context("no bucket")??;
        for (name, expect) in [
            (schema::GSI2SK, schema::bucket_gsi2_sk(&key)),
            (schema::GSI3SK, schema::bucket_gsi3_sk(&key)),
            (schema::GSI4SK, schema::bucket_gsi4_sk(&key)),
        ] {
            ensure!(image[name]["S"] == *expect, "{name} of {pk} is {}", image[name]);
        }
        Ok(())
    }

    /// What was consumed and what is left is no more than the capacity and what has accrued.
    pub fn check_bound(&self, elapsed: i64) -> anyhow::Result<()> {
        for (entity, shards) in &self.buckets {
            for name in LIMITS {
                let terms = full(1).limits[&limit(name)].terms;
                let sum: i64 = shards.values().map(|state| tokens(state, name) + consumed(state, name)).sum();
                let bound = terms.capacity.get() + terms.refill.get() * elapsed / terms.period;
                ensure!(sum <= bound, "{entity} has had {sum} of {name} after {elapsed} ms, more than {bound}");
            }
        }
        Ok(())
    }

    /// All shards are there, know their number, and are at least half full.
    pub fn check_shards(&self) -> anyhow::Result<()> {
        ensure!(self.buckets.keys().map(String::as_str).collect::<BTreeSet<_>>() == ENTITIES.into(), "other buckets");
        for (entity, shards) in &self.buckets {
            let count = shards.get(&Shard::ZERO).context("no shard 0")?.shards;
            ensure!(shards.keys().map(|shard| shard.get()).eq(0..count.get()), "{entity}: {:?}", shards.keys());
            for (shard, state) in shards {
                ensure!(state.shards == count, "{entity} {shard} knows {:?} of {count:?}", state.shards);
                for name in LIMITS {
                    let share = state.share(&limit(name), &state.limits[&limit(name)]).capacity.get();
                    let held = tokens(state, name);
                    ensure!(held <= share, "{entity} {shard} holds {held} of {name}, its share is {share}");
                    // Neither a bucket of one shard without writes nor a half full shard is refilled.
                    let is_filled = count.get() == 1 || held * 2 >= share;
                    ensure!(is_filled, "{entity} {shard} holds {held} of {name}, its share is {share}");
                }
            }
        }
        Ok(())
    }

    /// What the shards count as consumed is what clients were granted.
    pub fn check_ledger(&self, ledger: &Ledger) -> anyhow::Result<()> {
        for ((entity, name), granted) in ledger {
            let sum: i64 = self.buckets[*entity].values().map(|state| consumed(state, name)).sum();
            ensure!(sum == *granted, "{entity} counts {sum} of {name}, granted were {granted}");
        }
        Ok(())
    }
}

fn consumed(state: &BucketState<'static>, name: &'static str) -> i64 {
    state.limits[&limit(name)].consumed.get()
}
