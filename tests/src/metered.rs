//! Clients behind a gateway that counts their calls and the capacity that they consume: ours, and zae-limiter 0.17.0.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use tidegate::{AcquireError, Lease, Limiter, ManualClock};
use tidegate_aws::{
    client,
    namespaces::Namespaces,
    schema::{self, bucket, config, entity},
};
use tidegate_domain::bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard};
use tidegate_sandbox::{
    faults::{FaultyHttp, sdk_config},
    gateway::{Gateway, Usage},
    item::{self, Item, number, text},
    peer::Peer,
    services::Services,
};

use crate::{
    client::{PER_MINUTE, RESOURCE, START},
    python, time,
};

/// The client whose calls are counted.
#[derive(Debug)]
pub enum Client {
    Ours {
        limiter: Limiter,
        clock: ManualClock,
    },
    /// zae-limiter 0.17.0.
    Theirs(Box<Peer>),
}

/// What becomes of a lease.
#[derive(Clone, Copy, Debug)]
pub enum Exit {
    /// It keeps its tokens.
    Keep,
    /// It takes so many tokens more; it gives tokens back if the number is below zero.
    Adjust(i64),
    /// It gives everything back.
    Refund,
}

/// A client on a table of its own, in simulated time. The resource has the limits of [`PER_MINUTE`].
#[derive(Debug)]
pub struct MeteredScene {
    services: Services,
    gateway: Gateway,
    client: Client,
    namespace: Namespace<'static>,
    now: i64,
}

impl MeteredScene {
    /// The scene of our client.
    pub async fn ours() -> anyhow::Result<Self> {
        let (services, gateway, namespace) = table().await?;
        let clock = ManualClock::new(START);
        let client = Client::Ours { limiter: limiter(&services, &gateway, &clock).await?, clock };
        gateway.take_usage();
        Ok(Self { services, gateway, client, namespace, now: START })
    }

    /// The scene of zae-limiter 0.17.0; `None` where Python does not have it.
    pub async fn theirs() -> anyhow::Result<Option<Self>> {
        let Some(python) = python::interpreter("zae_limiter").await? else { return Ok(None) };
        let (services, gateway, namespace) = table().await?;
        let peer = Peer::start(&mut python::script(python, "operations_client.py", &gateway.endpoint()))?;
        let mut scene = Self { services, gateway, client: Client::Theirs(Box::new(peer)), namespace, now: START };
        scene.restart().await?;
        Ok(Some(scene))
    }

    /// Replaces the client by one that knows nothing.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        match &mut self.client {
            Client::Ours { limiter: old, clock } => *old = limiter(&self.services, &self.gateway, clock).await?,
            Client::Theirs(peer) => {
                peer.ask::<()>(&json!({"open": {"table": self.services.table, "at": self.now}})).await?;
            }
        }
        self.gateway.take_usage();
        Ok(())
    }

    /// Our client, if the scene is its own.
    pub fn limiter(&self) -> Option<&Limiter> {
        match &self.client {
            Client::Ours { limiter, .. } => Some(limiter),
            Client::Theirs(_) => None,
        }
    }

    /// Lets time pass.
    pub fn advance(&mut self, millis: u64) {
        self.now = self.now.saturating_add_unsigned(millis);
        if let Client::Ours { clock, .. } = &self.client {
            clock.advance(Duration::from_millis(millis));
        }
    }

    /// Acquires a request and some tokens, and leaves the lease. Returns whether the acquire was granted.
    pub async fn acquire(&mut self, entity: &str, tokens: u64, exit: Exit) -> anyhow::Result<bool> {
        match &mut self.client {
            Client::Ours { limiter, .. } => {
                let acquired = limiter.acquire(entity, RESOURCE).take("requests", 1).take("tokens", tokens).await;
                match acquired {
                    Ok(lease) => leave(lease, exit).await.map(|()| true),
                    Err(AcquireError::Denied(_)) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Client::Theirs(peer) => {
                let adjust = if let Exit::Adjust(tokens) = exit { tokens } else { 0 };
                let refund = matches!(exit, Exit::Refund);
                let acquire =
                    json!({"at": self.now, "entity": entity, "tokens": tokens, "adjust": adjust, "refund": refund});
                peer.ask(&json!({ "acquire": acquire })).await
            }
        }
    }

    /// The usage since the last time.
    pub async fn take_usage(&self) -> Usage {
        if let Client::Ours { limiter, .. } = &self.client {
            limiter.flush().await;
        }
        self.gateway.take_usage()
    }

    /// Writes an entity, and the shards of its bucket as another client leaves them: refilled now, with so many tokens in
    /// each and so many write units.
    pub async fn put_bucket(
        &self,
        entity: &str,
        parent: Option<&str>,
        shards: u32,
        tokens: i64,
        write_units: i64,
    ) -> anyhow::Result<()> {
        self.put_entity(entity, parent).await?;
        for shard in 0..shards {
            let key = BucketKey {
                namespace: self.namespace.clone(),
                entity: Entity::new(entity)?,
                resource: Resource::new(RESOURCE)?,
                shard: Shard::new(shard),
            };
            let mut item = item::bucket(&key, time(self.now), shards);
            put_parent(&mut item, parent);
            item.insert(schema::TTL.to_owned(), number(self.now / 1_000 + 7 * 60));
            for (limit, [capacity, refill, period]) in PER_MINUTE {
                let tokens = if *limit == "tokens" { tokens } else { capacity / i64::from(shards) };
                let [tokens, capacity, refill, period] = [tokens, *capacity, *refill, *period].map(|of| of * 1_000);
                item::Limit { tokens, consumed: 0, capacity, refill, period }.put(limit, &mut item);
            }
            let tokens = write_units * 1_000;
            let units = item::Limit { tokens, consumed: 0, capacity: 1_000_000, refill: 1_000_000, period: 1_000 };
            units.put(Limit::WRITE_UNITS, &mut item);
            self.put(item).await?;
        }
        Ok(())
    }

    /// Writes the item of an entity.
    pub async fn put_entity(&self, id: &str, parent: Option<&str>) -> anyhow::Result<()> {
        let partition = schema::entity_pk(&self.namespace, &Entity::new(id)?);
        let mut meta = Item::from([
            (schema::PK.to_owned(), text(partition)),
            (schema::SK.to_owned(), text(entity::META)),
            (schema::ENTITY_ID.to_owned(), text(id)),
            ("name".to_owned(), text(id)),
            (bucket::CASCADE.to_owned(), AttributeValue::Bool(false)),
            ("metadata".to_owned(), AttributeValue::M(Item::new())),
            ("created_at".to_owned(), text("2026-01-01T00:00:00Z")),
        ]);
        put_parent(&mut meta, parent);
        self.put(meta).await
    }

    async fn put(&self, item: Item) -> anyhow::Result<()> {
        self.services.dynamodb.put_item().table_name(&self.services.table).set_item(Some(item)).send().await?;
        Ok(())
    }
}

async fn leave(mut lease: Lease, exit: Exit) -> anyhow::Result<()> {
    match exit {
        Exit::Keep => {}
        Exit::Adjust(tokens) => {
            lease.adjust("tokens", tokens);
            lease.commit().await?;
        }
        Exit::Refund => lease.refund().await?,
    }
    Ok(())
}

fn put_parent(item: &mut Item, parent: Option<&str>) {
    if let Some(parent) = parent {
        item.insert(bucket::CASCADE.to_owned(), AttributeValue::Bool(true));
        item.insert(bucket::PARENT_ID.to_owned(), text(parent));
    }
}

/// A table with the limits of the resource, and a gateway in front of it.
async fn table() -> anyhow::Result<(Services, Gateway, Namespace<'static>)> {
    let services = Services::embedded(None, "tidegate-test-buckets").await?;
    let gateway = Gateway::start(&services.endpoint).await?;
    let namespace =
        Namespaces::new(services.dynamodb.clone(), &services.table).register("default", time(START)).await?;
    let mut configuration = Item::from([
        (schema::PK.to_owned(), text(schema::resource_pk(&namespace, &Resource::new(RESOURCE)?))),
        (schema::SK.to_owned(), text(config::CONFIG)),
    ]);
    for (limit, values) in PER_MINUTE {
        let fields = [config::CAPACITY, config::REFILL_AMOUNT, config::REFILL_PERIOD];
        for (field, value) in fields.into_iter().zip(values) {
            configuration.insert(config::attribute(limit, field), number(*value));
        }
    }
    services.dynamodb.put_item().table_name(&services.table).set_item(Some(configuration)).send().await?;
    Ok((services, gateway, namespace))
}

async fn limiter(services: &Services, gateway: &Gateway, clock: &ManualClock) -> anyhow::Result<Limiter> {
    let dynamodb = client::dynamodb(&sdk_config(&gateway.endpoint(), FaultyHttp::undisturbed()));
    Ok(Limiter::builder(dynamodb, &services.table).clock(clock.clone()).build().await?)
}
