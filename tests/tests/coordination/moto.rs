//! The same rules on moto's server, which others wrote. Its scalable targets do not change the capacity of their tables, so
//! the tests do that as Application Auto Scaling does.

use aws_sdk_applicationautoscaling::types::{
    MetricType, PolicyType, PredefinedMetricSpecification, ScalableDimension, ServiceNamespace,
    TargetTrackingScalingPolicyConfiguration,
};
use aws_sdk_cloudwatch::{primitives::DateTime, types::Dimension};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, ProvisionedThroughput, ScalarAttributeType,
};
use capacity_coordinator::Services;
use futures::future::join_all;
use tidegate_aws::{clock, table};
use tidegate_sandbox::moto::Moto;
use tidegate_tests::coordinator::{invoke_at, prelude::*, process_on};

const WRITE: ScalableDimension = ScalableDimension::DynamoDbTableWriteCapacityUnits;

/// The function on moto's server, with a table like that of [`CoordinatorScene`].
struct MotoScene {
    _moto: Moto,
    services: Services,
    coordinator: CapacityCoordinator,
    /// The present moment, whose last minute has a metric.
    now: EpochMillis,
}

impl MotoScene {
    /// `None` if there is no moto.
    async fn new() -> anyhow::Result<Option<Self>> {
        let Some(moto) = Moto::start().await? else { return Ok(None) };
        let services = Services::new(&sdk_config(&moto.endpoint(), FaultyHttp::undisturbed()));
        table::create_announcements(&services.state, "tidegate-test-announcements").await?;
        let attribute = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
        let create = services.tables.create_table().table_name("orders").attribute_definitions(attribute.build()?);
        create.key_schema(key.build()?).provisioned_throughput(throughput(8_000)?).send().await?;

        let register = services.scaling.register_scalable_target().service_namespace(ServiceNamespace::Dynamodb);
        let register = register.resource_id(TABLE).scalable_dimension(WRITE);
        register.min_capacity(i32::try_from(OWNERS)?).max_capacity(40_000).send().await?;
        let metric = PredefinedMetricSpecification::builder();
        let metric = metric.predefined_metric_type(MetricType::DynamoDbWriteCapacityUtilization).build()?;
        let tracking = TargetTrackingScalingPolicyConfiguration::builder().target_value(70.0);
        let tracking = tracking.predefined_metric_specification(metric).build()?;
        let put = services.scaling.put_scaling_policy().policy_name("writes");
        let put = put.service_namespace(ServiceNamespace::Dynamodb).resource_id(TABLE).scalable_dimension(WRITE);
        let put = put.policy_type(PolicyType::TargetTrackingScaling);
        put.target_tracking_scaling_policy_configuration(tracking).send().await?;

        let now = clock::now()?;
        let dimension = Dimension::builder().name("TableName").value("orders").build();
        let datum = aws_sdk_cloudwatch::types::MetricDatum::builder().metric_name("ConsumedWriteCapacityUnits");
        let datum = datum.timestamp(DateTime::from_secs(now.get() / 60_000 * 60 - 60)).value(240_000.0);
        let put = services.metrics.put_metric_data().namespace("AWS/DynamoDB");
        put.metric_data(datum.dimensions(dimension).build()).send().await?;
        let coordinator = process_on(&services, &[])?;
        Ok(Some(Self { _moto: moto, services, coordinator, now }))
    }

    /// Invokes the function so many seconds from now.
    async fn invoke(&self, event: Value, seconds: u64) -> anyhow::Result<Value> {
        let deadline = Instant::now() + Duration::from_secs(5);
        Ok(invoke_at(&self.coordinator, event, self.now.after(Duration::from_secs(seconds)), deadline).await?)
    }

    async fn minimum(&self) -> anyhow::Result<u64> {
        let describe = self.services.scaling.describe_scalable_targets().service_namespace(ServiceNamespace::Dynamodb);
        let output = describe.resource_ids(TABLE).scalable_dimension(WRITE).send().await?;
        let target = output.scalable_targets.unwrap_or_default().into_iter().next().context("a target")?;
        Ok(target.min_capacity.try_into()?)
    }

    async fn set_minimum(&self, minimum: u64) -> anyhow::Result<()> {
        let register = self.services.scaling.register_scalable_target().service_namespace(ServiceNamespace::Dynamodb);
        let register = register.resource_id(TABLE).scalable_dimension(WRITE);
        register.min_capacity(i32::try_from(minimum)?).send().await?;
        Ok(())
    }

    /// Does what Application Auto Scaling does when the minimum is above the capacity.
    async fn scale(&self) -> anyhow::Result<()> {
        let update = self.services.tables.update_table().table_name("orders");
        update.provisioned_throughput(throughput(self.minimum().await?)?).send().await?;
        Ok(())
    }

    async fn items(&self) -> anyhow::Result<usize> {
        let scan = self.services.state.scan().table_name("tidegate-test-announcements").consistent_read(true);
        Ok(scan.send().await?.items.unwrap_or_default().len())
    }
}

fn throughput(writes: u64) -> anyhow::Result<ProvisionedThroughput> {
    let throughput = ProvisionedThroughput::builder().read_capacity_units(100);
    Ok(throughput.write_capacity_units(i64::try_from(writes)?).build()?)
}

#[tokio::test]
async fn an_announcement_is_ready_when_its_capacity_is_there() -> anyhow::Result<()> {
    let Some(scene) = MotoScene::new().await? else { return Ok(()) };
    let scale = async {
        while scene.minimum().await? == OWNERS {}
        scene.scale().await
    };
    let (answer, scaled) = tokio::join!(scene.invoke(announce("load-42", &json!({})), 0), scale);
    scaled?;
    let answer = answer?;
    assert_eq!((&answer["ready"], &answer["provisioned"]), (&json!(true), &json!(NEEDED)), "{answer}");
    assert_eq!(scene.minimum().await?, NEEDED);
    let restored = scene.invoke(restore(), 660).await?;
    assert_eq!((&restored["expired"], &restored["restored"]), (&json!(1), &json!(1)), "{restored}");
    assert_eq!(scene.minimum().await?, OWNERS);
    scene.invoke(restore(), 1_300).await?;
    scene.invoke(restore(), 1_360).await?;
    assert_eq!(scene.items().await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_owner_that_changes_the_minimum_keeps_it() -> anyhow::Result<()> {
    let Some(scene) = MotoScene::new().await? else { return Ok(()) };
    let answer = scene.invoke(announce("load-42", &json!({"units": 1_000})), 0).await?;
    assert_eq!(answer["ready"], true, "{answer}");
    assert_eq!(scene.minimum().await?, 7_143);
    scene.set_minimum(50).await?;
    let restored = scene.invoke(restore(), 60).await?;
    assert_eq!((&restored["owner_changes"][0]["to"], scene.minimum().await?), (&json!(50), 7_143), "{restored}");
    assert_eq!(scene.invoke(release("load-42"), 61).await?["released"], true);
    assert_eq!(scene.minimum().await?, 50);
    Ok(())
}

#[tokio::test]
async fn announcements_at_the_same_time_add_up() -> anyhow::Result<()> {
    let Some(scene) = MotoScene::new().await? else { return Ok(()) };
    let announced = (0..4).map(|number| {
        let request = announce(&format!("load-{number}"), &json!({"units": 400}));
        scene.invoke(request, 0)
    });
    for answer in join_all(announced).await {
        assert_eq!(answer?["ready"], true);
    }
    assert_eq!(scene.minimum().await?, 8_000);
    let released = (0..4).map(|number| scene.invoke(release(&format!("load-{number}")), 1));
    for answer in join_all(released.collect::<Vec<_>>()).await {
        assert_eq!(answer?["released"], true);
    }
    assert_eq!(scene.minimum().await?, OWNERS);
    Ok(())
}

#[tokio::test]
async fn requests_that_cannot_be_met_are_refused() -> anyhow::Result<()> {
    let Some(scene) = MotoScene::new().await? else { return Ok(()) };
    let check = async |changes: Value, expect: &str| {
        let message = scene.invoke(announce("refused", &changes), 0).await.unwrap_err().to_string();
        assert!(message.contains(expect), "{message:?} does not say {expect:?}");
    };
    check(json!({"table": "gone"}), "\"gone\" does not exist").await;
    check(json!({"index": "by-name"}), "\"by-name\"").await;
    check(json!({"dimension": "read"}), "is no scalable target").await;
    check(json!({"units": 36_001}), "too low by 1").await;
    assert_eq!((scene.minimum().await?, scene.items().await?), (OWNERS, 0));
    Ok(())
}
