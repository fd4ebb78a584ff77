//! Clients that draw from a few buckets, and what they are granted.

use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rand::{RngExt as _, rngs::StdRng};
use tidegate_sandbox::{item, services::Services};
use tidegate_tests::keeper::prelude::*;

pub const ENTITIES: [&str; 4] = ["hot", "warm", "parent", "cold"];
pub const LIMITS: [&str; 2] = ["rpm", "tpm"];

/// How many clients act at the same time.
const AT_ONCE: usize = 8;
/// The most shards to which a client doubles.
const SHARDS: i64 = 8;

/// Net consumption by entity and limit, in millitokens.
pub type Ledger = BTreeMap<(&'static str, &'static str), i64>;

#[derive(Clone, Copy, Debug)]
enum ClientAction {
    /// Takes tokens from a shard if it has them, and so many write units.
    Acquire { shard: i64, taken: [i64; 2], units: i64 },
    /// Takes more from shard 0, or gives back, because real use differed.
    Adjust { taken: [i64; 2] },
    /// Doubles the shards of a bucket.
    Bump,
    /// Writes a fractional number to a bucket of its own.
    Poison { number: u64 },
}

/// Performs so many random actions, and enters the granted tokens.
pub async fn draw(services: &Services, rng: &mut StdRng, actions: usize, ledger: &mut Ledger) -> anyhow::Result<()> {
    let actions: Vec<_> = (0..actions).map(|_| random_action(rng)).collect();
    let granted = stream::iter(actions)
        .map(async |(entity, action)| anyhow::Ok((entity, perform(services, entity, action).await?)))
        .buffer_unordered(AT_ONCE);
    let granted: Vec<_> = granted.try_collect().await?;
    for (entity, granted) in granted {
        for (limit, taken) in LIMITS.into_iter().zip(granted) {
            *ledger.entry((entity, limit)).or_default() += taken;
        }
    }
    Ok(())
}

/// Takes a little from every bucket's shard 0, whatever it has.
pub async fn touch(services: &Services, ledger: &mut Ledger) -> anyhow::Result<()> {
    for entity in ENTITIES {
        perform(services, entity, ClientAction::Adjust { taken: [1, 0] }).await?;
        *ledger.entry((entity, LIMITS[0])).or_default() += 1;
    }
    Ok(())
}

fn random_action(rng: &mut StdRng) -> (&'static str, ClientAction) {
    let entity = ENTITIES[rng.random_range(0..10_usize).saturating_sub(6)];
    let action = match rng.random_range(0..100) {
        0..80 => ClientAction::Acquire {
            // The parent of a cascade is written on shard 0 only.
            shard: if entity == "parent" { 0 } else { rng.random_range(0..64) },
            taken: [rng.random_range(1..4_000), rng.random_range(0..300_000)],
            units: if rng.random_bool(0.25) { 400_000 } else { 1_000 },
        },
        80..97 => {
            ClientAction::Adjust { taken: [rng.random_range(-40_000..10_000), rng.random_range(-900_000..300_000)] }
        }
        97..98 => ClientAction::Bump,
        _ => ClientAction::Poison { number: rng.random() },
    };
    (entity, action)
}

async fn perform(services: &Services, entity: &'static str, action: ClientAction) -> anyhow::Result<[i64; 2]> {
    let zero = key(entity);
    match action {
        ClientAction::Acquire { shard: drawn, taken, units } => {
            let shards = shard_count(services, &zero).await?;
            let shard = shard(&zero, u32::try_from(drawn % shards)?);
            let conditions = "attribute_exists(PK) AND b_rpm_tk >= :rpm AND b_tpm_tk >= :tpm";
            take(update(services, &shard).condition_expression(conditions), taken, units, true).await
        }
        ClientAction::Adjust { taken } => {
            take(update(services, &zero).condition_expression("attribute_exists(PK)"), taken, 1_000, false).await
        }
        ClientAction::Bump => {
            let shards = shard_count(services, &zero).await?;
            if shards < SHARDS {
                let bump = update(services, &zero)
                    .update_expression("SET shard_count = :doubled")
                    .condition_expression("shard_count = :shards")
                    .expression_attribute_values(":doubled", number(shards * 2))
                    .expression_attribute_values(":shards", number(shards));
                send(bump).await?;
            }
            Ok([0, 0])
        }
        ClientAction::Poison { number: poison } => {
            let put = services.dynamodb.put_item().table_name(&services.table);
            let pk = format!("TQ5vSMvQTm4/BUCKET#poison-{poison}#api#0");
            put.item("PK", text(pk)).item("SK", text("#STATE")).item("b_rpm_tk", number("1000.5")).send().await?;
            Ok([0, 0])
        }
    }
}

/// Takes tokens. A condition may refer to their number.
async fn take(
    update: UpdateItemFluentBuilder,
    taken: [i64; 2],
    units: i64,
    is_conditional: bool,
) -> anyhow::Result<[i64; 2]> {
    let mut update = update.update_expression(
        "ADD b_rpm_tk :rpm_given, b_rpm_tc :rpm_taken, b_tpm_tk :tpm_given, b_tpm_tc :tpm_taken, \
         b_wcu_tk :wcu_given, b_wcu_tc :wcu_taken",
    );
    for (limit, taken) in [("rpm", taken[0]), ("tpm", taken[1]), ("wcu", units)] {
        update = update
            .expression_attribute_values(format!(":{limit}_given"), number(-taken))
            .expression_attribute_values(format!(":{limit}_taken"), number(taken));
    }
    if is_conditional {
        update = update
            .expression_attribute_values(":rpm", number(taken[0]))
            .expression_attribute_values(":tpm", number(taken[1]));
    }
    Ok(if send(update).await? { taken } else { [0, 0] })
}

/// Returns whether the condition of the write held.
async fn send(update: UpdateItemFluentBuilder) -> anyhow::Result<bool> {
    match update.send().await.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
        Ok(_) => Ok(true),
        Err(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
        Err(error) => Err(error).context("a client could not write a bucket"),
    }
}

fn update(services: &Services, bucket: &BucketKey<'static>) -> UpdateItemFluentBuilder {
    let update = services.dynamodb.update_item().table_name(&services.table);
    update.set_key(Some(item::key(bucket)))
}

async fn shard_count(services: &Services, zero: &BucketKey<'static>) -> anyhow::Result<i64> {
    let get = services.dynamodb.get_item().table_name(&services.table).set_key(Some(item::key(zero)));
    let zero = get.send().await?.item.context("shard 0 is gone")?;
    item::read(&zero, "shard_count")
}
