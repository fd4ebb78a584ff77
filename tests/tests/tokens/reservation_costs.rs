//! What reservations cost: calls and consumed capacity, of our client and of rate-limiter-py 0.3.0, beside the same tokens.
//!
//! The capacity is what the embedded DynamoDB reports for each call. Without Python, only our side is checked.

use tidegate::reservation::ReservationsBuilder;
use tidegate_aws::client;
use tidegate_sandbox::gateway::{Gateway, Usage};
use tidegate_tests::{
    python::{interpreter, script},
    reservations::prelude::*,
};

/// Calls, read units, write units of the table, and write units of its index.
type Cost = (u64, f64, f64, f64);

fn cost(usage: &Usage) -> Cost {
    (usage.total_calls(), usage.read_units, usage.write_units, usage.index_write_units)
}

/// Tables with a limit of 100, 40 tokens of Python clients and 40 of ours.
async fn scene() -> anyhow::Result<(ReservationScene, Gateway)> {
    let scene = ReservationScene::new(100).await?;
    let ours = Reservations::builder(scene.services.dynamodb.clone(), TokenTables::of(BASE)).build();
    for number in 0..40 {
        ours.reserve(CLUSTER, ACCOUNT).await?.bind(format!("j-{number:013}"), LIFETIME).await?;
        let lasting = i64::try_from(Duration::from_hours(24 * 3650).as_secs())?;
        scene.put_python_token(&format!("{number:08x}-0000-4000-8000-000000000000"), lasting).await?;
    }
    let gateway = Gateway::start(&scene.services.endpoint).await?;
    Ok((scene, gateway))
}

/// The costs of a reservation, of its binding, of its release, and of a denial, after a first reservation.
async fn ours(settings: fn(ReservationsBuilder) -> ReservationsBuilder) -> anyhow::Result<[Cost; 4]> {
    let (scene, gateway) = scene().await?;
    let dynamodb = client::dynamodb(&sdk_config(&gateway.endpoint(), FaultyHttp::undisturbed()));
    let clock = ManualClock::new(tidegate_aws::clock::now()?.get());
    let builder = Reservations::builder(dynamodb, TokenTables::of(BASE)).clock(clock.clone());
    let reservations = settings(builder).build();
    // The client learns which slots are held.
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(reservations.reserve(CLUSTER, ACCOUNT).await?);
    }
    gateway.take_usage();
    let mut reservation = reservations.reserve(CLUSTER, ACCOUNT).await?;
    let reserved = gateway.take_usage();
    let token = reservation.bind("j-1", LIFETIME).await?;
    let bound = gateway.take_usage();
    token.release().await?;
    let released = gateway.take_usage();
    scene.set_limit(90).await?;
    clock.advance(Duration::from_secs(6));
    assert!(reservations.reserve(CLUSTER, ACCOUNT).await.is_err());
    gateway.take_usage();
    assert!(reservations.reserve(CLUSTER, ACCOUNT).await.is_err());
    Ok([reserved, bound, released, gateway.take_usage()].map(|usage| cost(&usage)))
}

#[tokio::test]
async fn each_step_has_its_cost() -> anyhow::Result<()> {
    let beside_python = ours(|builder| builder).await?;
    assert_eq!(beside_python, [(3, 6.0, 1.0, 0.0), (1, 0.0, 1.0, 1.0), (1, 0.0, 1.0, 1.0), (1, 5.0, 0.0, 0.0)]);
    let only_rust = ours(ReservationsBuilder::only_rust_clients).await?;
    assert_eq!(only_rust, [(1, 0.0, 1.0, 0.0), (1, 0.0, 1.0, 1.0), (1, 0.0, 1.0, 1.0), (1, 5.0, 0.0, 0.0)]);
    Ok(())
}

#[tokio::test]
async fn python_clients_cost_more() -> anyhow::Result<()> {
    let Some(python) = interpreter("limiter, boto3").await? else { return Ok(()) };
    let (scene, gateway) = scene().await?;
    let run = async |command: &[&str]| {
        let command = script(&python, "limiter_client.py", &gateway.endpoint())
            .args(command)
            .env("LIMITER_TABLES_BASE_NAME", BASE)
            .env("TZ", "UTC")
            .output();
        let output = command.await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(cost(&gateway.take_usage()))
    };
    let reserved = run(&["reserve"]).await?;
    let bound = run(&["start", "j-1"]).await?;
    scene.set_limit(80).await?;
    let denied = run(&["reserve"]).await?;
    assert_eq!(reserved, (3, 4.5, 1.0, 1.0));
    // With the binding, which moves the token in the index.
    assert_eq!(bound, (4, 4.5, 2.0, 3.0));
    assert_eq!(denied, (2, 4.5, 0.0, 0.0));
    Ok(())
}
