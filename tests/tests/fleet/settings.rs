//! What a worker is built from, and what its file says.

use tidegate::fleet::{BuildError, WorkerBuilder};
use tidegate_tests::{announcements::AnnouncementScene, fleet::prelude::*};

#[tokio::test]
async fn invalid_settings_are_errors_that_quote_them() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let check = |builder: WorkerBuilder, expect: &str| {
        let error = builder.start().unwrap_err().to_string();
        assert!(error.contains(expect), "{error:?} does not contain {expect:?}");
    };
    let prefix = |prefix: &str| Worker::builder(scene.s3().clone(), "rates", prefix);
    check(scene.worker().caps(-1.0, 5.0), "invalid read cap -1: expected 0 to 10000000 capacity units a second");
    check(scene.worker().caps(5.0, f64::NAN), "invalid write cap NaN");
    check(scene.worker().caps(5.0, 0.0), "the write cap is 0: expected what all workers of the fleet may use together");
    check(scene.worker().caps(0.0, 5.0), "the read cap is 0");
    check(prefix(""), r#"the prefix is """#);
    check(scene.worker().max(1e9, 5.0), "invalid read maximum 1000000000");
    check(scene.worker().name("a/b"), r#"the worker's name is "a/b""#);
    check(scene.worker().name(""), r#"the worker's name is """#);
    check(scene.worker().name("x".repeat(201)), "expected 1 to 200");
    check(prefix("/fleet"), r#"the prefix is "/fleet""#);
    check(prefix("s3://rates/fleet"), r#"the prefix is "s3://rates/fleet""#);
    check(prefix("fleet").slow_start(Duration::from_secs(1)), "slow_start or announce is set without max");
    let announcements = AnnouncementScene::new().await?;
    check(prefix("fleet").announce(announcements.announce()), "slow_start or announce is set without max");
    let outside = std::thread::spawn(move || scene.worker().start().map(drop)).join();
    assert!(matches!(outside, Ok(Err(BuildError::NoRuntime))));
    Ok(())
}

#[tokio::test]
async fn the_file_has_pythons_keys_and_ours() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().max(300.0, 100.0).start()?;
    scene.pass_alone(1, 1).await?;
    let mut first = scene.file(&worker).context("no file")?;
    let at = first["timestamp"].as_f64().context("a time")?;
    assert!((1_767_225_600.0..=1_767_225_601.0).contains(&at), "{at}");
    first["timestamp"] = json!(0);
    let capacity = |cap, wants| json!({"cap": cap, "has": 0.0, "safe": 0.0, "wants": wants});
    let expect = json!({
        "worker_id": worker.id(), "timestamp": 0, "read_rate": 0.0, "write_rate": 0.0,
        "report": 1, "follows": null, "weight": 1, "read": capacity(1_000.0, 300.0), "write": capacity(100.0, 100.0),
    });
    assert_eq!(first, expect);

    let _reader = Reader::start(&worker)?;
    scene.pass(30, 2).await?;
    let file = scene.file(&worker).context("no file")?;
    let rate = file["read_rate"].as_f64().context("a rate")?;
    assert!((290.0..=305.0).contains(&rate), "{file}");
    assert!(file["follows"].as_u64() >= Some(2) && file["report"].as_u64() > file["follows"].as_u64(), "{file}");
    assert_eq!(file["read"], json!({"cap": 1_000.0, "has": 300.0, "safe": 300.0, "wants": 300.0}));
    Ok(())
}
