//! `tidegate bucket`: shows what the shards of a bucket hold.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tidegate_aws::{acquires::Acquires, bucket_item::BucketItem, namespaces::Namespaces};
use tidegate_domain::{
    admission,
    bucket::{BucketKey, Entity, Limit, Resource, Shard},
    state::{BucketImage, BucketState, LimitState},
    time::EpochMillis,
};

use crate::{
    connection::{Connection, NamespaceOptions, now},
    output::{Output, duration, table, tokens},
};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Shows what each shard holds now, and when it is full
    Show {
        /// The entity
        entity: String,
        /// The resource
        resource: String,
    },
}

/// What a shard has of a limit, in millitokens.
struct Holding {
    limit: Limit<'static>,
    available: i64,
    capacity: i64,
    /// How long it takes until the shard is full.
    full_in: Duration,
}

/// One shard.
struct ShownShard {
    shard: Shard,
    holdings: Vec<Holding>,
    expires: Option<EpochMillis>,
    notes: Vec<String>,
}

impl Action {
    pub async fn run(self, connection: &Connection, options: &NamespaceOptions) -> anyhow::Result<Output> {
        let Self::Show { entity, resource } = self;
        let dynamodb = connection.dynamodb(&connection.sdk().await);
        let name = &options.namespace;
        let namespace = Namespaces::new(dynamodb.clone(), &connection.table).find(name).await?;
        let namespace = namespace
            .with_context(|| format!("namespace {name:?} is not registered in table {:?}", connection.table))?;
        let key = BucketKey {
            namespace,
            entity: Entity::new(entity.clone())?,
            resource: Resource::new(resource.clone())?,
            shard: Shard::ZERO,
        };
        let buckets = Acquires::new(dynamodb, &connection.table);
        let unknown = || format!("entity {entity:?} has no bucket for resource {resource:?}: nothing was acquired yet");
        let zero = buckets.find(&key).await?.with_context(unknown)?;
        let count = zero.image.plain().map_or(1, |state| state.shards.get());
        let keys: Vec<_> = (1..count).map(|shard| key.at(Shard::new(shard))).collect();
        let others = try_join_all(keys.iter().map(|key| buckets.find(key))).await?;
        let items = (0..).map(Shard::new).zip([Some(zero)].into_iter().chain(others));
        let now = now()?;
        let shards: Vec<_> = items.map(|(shard, item)| shown(shard, item, now)).collect();
        Ok(Output::new(text(&shards), json_of(&shards)))
    }
}

fn shown(shard: Shard, item: Option<BucketItem>, now: EpochMillis) -> ShownShard {
    let mut shown = ShownShard { shard, holdings: Vec::new(), expires: None, notes: Vec::new() };
    let Some(item) = item else {
        shown.notes.push("not created yet".to_owned());
        return shown;
    };
    match &item.image {
        BucketImage::Plain(state) => {
            shown.holdings = state.limits.iter().map(|(limit, of)| holding(state, limit, of, now)).collect();
            shown.expires = state.expires.and_then(|at| EpochMillis::new(at.saturating_mul(1000)).ok());
            if state.is_expired(now) {
                shown.notes.push("expired: the next acquire fills it".to_owned());
            }
        }
        BucketImage::Unfamiliar(reason) => shown.notes.push(format!("only zae-limiter can read it: {reason:?}")),
        BucketImage::Absent => {}
    }
    for (is_so, note) in [
        (item.is_disabled, "disabled"),
        (item.is_soft, "has a soft limit"),
        (item.bypass_until.is_some_and(|until| until > now.get()), "admits all callers"),
    ] {
        if is_so {
            shown.notes.push(note.to_owned());
        }
    }
    shown
}

fn holding(state: &BucketState<'static>, limit: &Limit<'static>, of: &LimitState, now: EpochMillis) -> Holding {
    let share = state.share(limit, of);
    let missing = i128::from(share.capacity.get()) - i128::from(of.tokens.get());
    let needed = share.time_for(u128::try_from(missing).unwrap_or_default());
    let full_at = state.last_refill.after(Duration::from_millis(u64::try_from(needed).unwrap_or(u64::MAX)));
    Holding {
        limit: limit.clone(),
        available: admission::available(state, limit, of, now).get(),
        capacity: share.capacity.get(),
        full_in: full_at.since(now),
    }
}

/// What all shards have of each limit together: available, capacity, and the time until all are full.
fn totals(shards: &[ShownShard]) -> BTreeMap<&Limit<'static>, (i64, i64, Duration)> {
    let mut totals = BTreeMap::new();
    for holding in shards.iter().flat_map(|shard| &shard.holdings).filter(|of| !of.limit.is_write_units()) {
        let (available, capacity, full_in) = totals.entry(&holding.limit).or_insert((0_i64, 0_i64, Duration::ZERO));
        *available = available.saturating_add(holding.available);
        *capacity = capacity.saturating_add(holding.capacity);
        *full_in = holding.full_in.max(*full_in);
    }
    totals
}

fn text(shards: &[ShownShard]) -> String {
    let mut rows = Vec::new();
    let row = |shard: String, limit: &Limit<'_>, available, capacity, full_in, rest: [String; 2]| {
        let cells = [shard, limit.to_string(), tokens(available), tokens(capacity), duration(full_in)];
        cells.into_iter().chain(rest).collect::<Vec<_>>()
    };
    for ShownShard { shard, holdings, expires, notes } in shards {
        let expires = expires.map_or_else(|| "never".to_owned(), EpochMillis::rfc3339);
        for (place, Holding { limit, available, capacity, full_in }) in holdings.iter().enumerate() {
            let notes = if place == 0 { notes.join("\n") } else { String::new() };
            let rest = [expires.clone(), notes];
            rows.push(row(shard.to_string(), limit, *available, *capacity, *full_in, rest));
        }
        if holdings.is_empty() {
            let mut row = vec![String::new(); 6];
            row[0] = shard.to_string();
            row.push(notes.join("\n"));
            rows.push(row);
        }
    }
    if shards.len() > 1 {
        for (limit, (available, capacity, full_in)) in totals(shards) {
            rows.push(row("all".to_owned(), limit, available, capacity, full_in, [const { String::new() }; 2]));
        }
    }
    table(["shard", "limit", "holds", "capacity", "full in", "expires", "notes"], rows, 2..5).to_string()
}

fn json_of(shards: &[ShownShard]) -> Value {
    let of = |available: i64, capacity: i64, full_in: Duration| {
        json!({
            "available_millitokens": available, "capacity_millitokens": capacity, "full_in_seconds": full_in.as_secs_f64(),
        })
    };
    let listed = |ShownShard { shard, holdings, expires, notes }: &ShownShard| {
        let limits = holdings
            .iter()
            .map(|holding| (holding.limit.to_string(), of(holding.available, holding.capacity, holding.full_in)));
        json!({
            "shard": shard.get(), "limits": limits.collect::<Value>(), "expires": expires.map(EpochMillis::rfc3339),
            "notes": notes,
        })
    };
    let totals = totals(shards)
        .into_iter()
        .map(|(limit, (available, capacity, full_in))| (limit.to_string(), of(available, capacity, full_in)));
    json!({"shards": shards.iter().map(listed).collect::<Value>(), "total": totals.collect::<Value>()})
}
