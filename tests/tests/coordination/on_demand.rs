//! On-demand tables: what is missing, what it costs, and raising it.

use tidegate_tests::coordinator::{invoke, prelude::*};

async fn scene() -> anyhow::Result<CoordinatorScene> {
    let scene = CoordinatorScene::new().await?;
    scene.account().create_on_demand("customers", 12_000, 4_000);
    scene.account().consumes("table/customers", Write, 1_000.0);
    Ok(scene)
}

/// The owner changes the table to provisioned capacity.
fn switch(account: &Account) -> anyhow::Result<()> {
    account.create_provisioned("customers", 100, 1_000);
    account.register("table/customers", Write, OWNERS, 40_000)?;
    account.put_policy("table/customers", Write, 50.0)?;
    Ok(())
}

fn request(units: u64, warm: bool) -> Value {
    announce("sale", &json!({"table": "customers", "units": units, "warm": warm}))
}

#[tokio::test]
async fn a_warm_table_is_ready() -> anyhow::Result<()> {
    let scene = scene().await?;
    let answer = scene.invoke(request(3_000, false), 0).await?;
    let target = json!({
        "resource": "table/customers", "mode": "on-demand", "warm": 4_000, "needed": 4_000, "missing": 0,
        "price_usd": 0.0,
    });
    assert_eq!((&answer["ready"], &answer["provisioned"]), (&json!(true), &Value::Null));
    assert_eq!(answer["targets"], json!([target]));
    // A second announcement needs more.
    let second = announce("more", &json!({"table": "customers", "units": 1}));
    assert_eq!(scene.invoke(second, 1).await?["targets"][0]["missing"], 1);
    scene.restore(1_300).await?;
    scene.restore(1_360).await?;
    assert_eq!(scene.items().await?, 0);
    Ok(())
}

#[tokio::test]
async fn missing_warm_throughput_has_a_price() -> anyhow::Result<()> {
    let scene = scene().await?;
    let answer = scene.invoke(request(17_000, false), 0).await?;
    assert_eq!((&answer["ready"], &answer["retry_after_seconds"]), (&json!(false), &Value::Null));
    let target = &answer["targets"][0];
    assert_eq!((&target["missing"], &target["price_usd"]), (&json!(14_000), &json!(9.1)));
    assert_eq!(scene.account().warm("table/customers", Write), Some(4_000));
    Ok(())
}

#[tokio::test]
async fn warm_throughput_is_raised_on_request_only() -> anyhow::Result<()> {
    let scene = scene().await?;
    let process = scene.process(&[("ALLOW_WARM", "true")])?;
    scene.account().set_update_polls(3);
    let answer = invoke(&process, request(17_000, true), 0, in_time()).await?;
    assert_eq!((&answer["ready"], &answer["targets"][0]["warm"]), (&json!(true), &json!(18_000)), "{answer}");
    assert_eq!(scene.account().warm("table/customers", Write), Some(18_000));
    // It is raised once.
    let again = invoke(&process, request(17_000, true), 1, in_time()).await?;
    assert_eq!(again["ready"], true);
    let calls = scene.account().take_calls();
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::UpdateTable { .. })).count(), 1, "{calls:#?}");
    Ok(())
}

#[tokio::test]
async fn a_slow_rise_is_waited_for() -> anyhow::Result<()> {
    let scene = scene().await?;
    let process = scene.process(&[("ALLOW_WARM", "true")])?;
    scene.account().set_update_polls(1_000_000);
    let soon = Instant::now() + Duration::from_secs(2);
    let answer = invoke(&process, request(17_000, true), 0, soon).await?;
    assert_eq!((&answer["ready"], &answer["retry_after_seconds"]), (&json!(false), &json!(20)), "{answer}");
    scene.account().settle();
    assert_eq!(invoke(&process, request(17_000, false), 20, in_time()).await?["ready"], true);
    Ok(())
}

/// The owner changes the table to on-demand mode while its minimum is raised.
#[tokio::test]
async fn a_table_that_becomes_on_demand_gets_its_owners_minimum() -> anyhow::Result<()> {
    let scene = CoordinatorScene::new().await?;
    scene.announce("load-42", 0).await?;
    scene.account().create_on_demand("orders", 40_000, 40_000);
    let answer = scene.announce("load-42", 60).await?;
    assert_eq!((&answer["ready"], &answer["targets"][0]["mode"]), (&json!(true), &json!("on-demand")), "{answer}");
    scene.restore(120).await?;
    assert_eq!(scene.minimum(), Some(OWNERS));
    Ok(())
}

/// A raise for a smaller announcement is under way. AWS takes no second one meanwhile.
#[tokio::test]
async fn a_raise_follows_another() -> anyhow::Result<()> {
    let scene = scene().await?;
    let process = scene.process(&[("ALLOW_WARM", "true")])?;
    scene.account().set_update_polls(1_000_000);
    let soon = Instant::now() + Duration::from_secs(1);
    assert_eq!(invoke(&process, request(7_000, true), 0, soon).await?["ready"], false);
    let more = announce("more", &json!({"table": "customers", "units": 10_000, "warm": true}));
    let looks = AtomicUsize::new(0);
    scene.account().on_call(move |account, call| {
        if matches!(call, Call::DescribeTable { .. }) && looks.fetch_add(1, Ordering::Relaxed) == 3 {
            account.settle();
            account.set_update_polls(2);
        }
        None
    });
    let answer = invoke(&process, more, 10, in_time()).await?;
    assert_eq!((&answer["ready"], &answer["targets"][0]["warm"]), (&json!(true), &json!(18_000)), "{answer}");
    Ok(())
}

/// The owner changes the table to provisioned capacity while work is announced.
#[tokio::test]
async fn a_table_that_becomes_provisioned_is_raised() -> anyhow::Result<()> {
    let scene = scene().await?;
    scene.invoke(request(3_000, false), 0).await?;
    let account = scene.account();
    switch(account)?;
    scene.restore(60).await?;
    assert_eq!(account.minimum("table/customers", Write), Some(8_000));
    scene.restore(660).await?;
    assert_eq!(account.minimum("table/customers", Write), Some(OWNERS));
    Ok(())
}

/// AWS refuses an update of a table while another one is pending.
#[tokio::test]
async fn a_refused_raise_is_made_again() -> anyhow::Result<()> {
    let scene = scene().await?;
    let process = scene.process(&[("ALLOW_WARM", "true")])?;
    let pending = AtomicUsize::new(3);
    scene.account().on_call(move |_, call| {
        let is_pending = matches!(call, Call::UpdateTable { .. })
            && pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        is_pending.then_some(CallFault::Conflict)
    });
    assert_eq!(invoke(&process, request(17_000, true), 0, in_time()).await?["ready"], true);
    assert_eq!(scene.account().warm("table/customers", Write), Some(18_000));
    Ok(())
}

/// An operator releases the announcement while it waits for another raise. Its own could never be lowered again.
#[tokio::test]
async fn nothing_is_raised_for_a_released_announcement() -> anyhow::Result<()> {
    let scene = scene().await?;
    let process = scene.process(&[("ALLOW_WARM", "true")])?;
    scene.account().set_update_polls(1_000_000);
    let soon = Instant::now() + Duration::from_secs(1);
    assert_eq!(invoke(&process, request(7_000, true), 0, soon).await?["ready"], false);
    // Another caller wants none to be raised.
    let soon = Instant::now() + Duration::from_secs(1);
    let plain = announce("plain", &json!({"table": "customers", "units": 6_000}));
    assert_eq!(invoke(&process, plain, 5, soon).await?["ready"], false);
    let more = announce("more", &json!({"table": "customers", "units": 10_000, "warm": true}));
    let gate = Gate::closed();
    let (held, looks) = (gate.clone(), AtomicUsize::new(0));
    scene.account().on_call(move |_, call| {
        let is_third = matches!(call, Call::DescribeTable { .. }) && looks.fetch_add(1, Ordering::Relaxed) == 2;
        is_third.then(|| CallFault::Held(held.clone()))
    });
    let release = async {
        gate.holds(1).await;
        scene.invoke(release("more"), 11).await?;
        scene.account().settle();
        gate.open().await;
        anyhow::Ok(())
    };
    let (refused, released) = tokio::join!(invoke(&process, more, 10, in_time()), release);
    released?;
    assert_eq!(refused.unwrap_err().error_type(), "Released");
    assert_eq!(scene.account().warm("table/customers", Write), Some(8_000));
    Ok(())
}

#[tokio::test]
async fn a_switched_table_without_scale_in_is_not_raised() -> anyhow::Result<()> {
    let scene = scene().await?;
    scene.invoke(request(3_000, false), 0).await?;
    let account = scene.account();
    switch(account)?;
    account.disable_scale_in("table/customers", Write, true, false)?;
    scene.restore(60).await?;
    account.disable_scale_in("table/customers", Write, false, false)?;
    invoke(&scene.process(&[("DRY_RUN", "true")])?, restore(), 120, in_time()).await?;
    assert_eq!(account.minimum("table/customers", Write), Some(OWNERS));
    scene.restore(180).await?;
    assert_eq!(account.minimum("table/customers", Write), Some(8_000));
    Ok(())
}
