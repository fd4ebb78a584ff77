use aws_sdk_applicationautoscaling::types::{
    MetricType, PolicyType, PredefinedMetricSpecification, ScalableDimension, ServiceNamespace,
    TargetTrackingScalingPolicyConfiguration,
};
use aws_sdk_cloudwatch::{
    error::ProvideErrorMetadata as _,
    primitives::DateTime,
    types::{Dimension, Metric, MetricDataQuery, MetricDatum, MetricStat},
};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, KeySchemaElement, KeyType, ProvisionedThroughput, Put, ScalarAttributeType,
    TransactWriteItem,
};

use super::*;
use crate::faults::{FaultyHttp, sdk_config};

const TABLE: &str = "table/orders";
const WRITE: ScalableDimension = ScalableDimension::DynamoDbTableWriteCapacityUnits;

async fn create_table(dynamodb: &aws_sdk_dynamodb::Client) {
    let throughput = ProvisionedThroughput::builder().read_capacity_units(5).write_capacity_units(1000);
    let attribute = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let create = dynamodb.create_table().table_name("orders").provisioned_throughput(throughput.build().unwrap());
    let create = create.attribute_definitions(attribute.build().unwrap()).key_schema(key.build().unwrap());
    create.send().await.unwrap();
}

#[tokio::test]
async fn metrics_pass_in_both_directions() {
    let Some(moto) = Moto::start().await.unwrap() else { return };
    let cloudwatch = aws_sdk_cloudwatch::Client::new(&sdk_config(&moto.endpoint(), FaultyHttp::undisturbed()));
    let minute = tidegate_aws::clock::now().unwrap().get() / 60_000 * 60;
    let table = Dimension::builder().name("TableName").value("orders").build();
    for (minutes_ago, sum) in [(2, 240_000.0), (1, 1200.5)] {
        let datum = MetricDatum::builder().metric_name("ConsumedWriteCapacityUnits").dimensions(table.clone());
        let datum = datum.timestamp(DateTime::from_secs(minute - minutes_ago * 60)).value(sum).build();
        cloudwatch.put_metric_data().namespace("AWS/DynamoDB").metric_data(datum).send().await.unwrap();
    }
    let metric = Metric::builder().namespace("AWS/DynamoDB").metric_name("ConsumedWriteCapacityUnits");
    let stat = MetricStat::builder().metric(metric.dimensions(table).build()).period(60).stat("Sum").build();
    let query = MetricDataQuery::builder().id("consumed").metric_stat(stat).build();
    let call = cloudwatch.get_metric_data().start_time(DateTime::from_secs(minute - 600));
    let call = call.end_time(DateTime::from_secs(minute));
    let answer = call.clone().metric_data_queries(query).send().await.unwrap();
    let [result] = answer.metric_data_results.unwrap().try_into().unwrap();
    assert_eq!(result.timestamps().iter().map(DateTime::secs).collect::<Vec<_>>(), [minute - 60, minute - 120]);
    assert_eq!(result.values(), [1200.5, 240_000.0]);

    // An error keeps its code.
    let broken = MetricDataQuery::builder().id("consumed").build();
    let error = call.metric_data_queries(broken).send().await.unwrap_err();
    assert_eq!(error.code(), Some("ValidationException"), "{error:?}");
}

#[tokio::test]
async fn targets_and_policies_are_kept() {
    let Some(moto) = Moto::start().await.unwrap() else { return };
    let config = sdk_config(&moto.endpoint(), FaultyHttp::undisturbed());
    let scaling = aws_sdk_applicationautoscaling::Client::new(&config);
    create_table(&aws_sdk_dynamodb::Client::new(&config)).await;
    let register = scaling.register_scalable_target().service_namespace(ServiceNamespace::Dynamodb);
    let register = register.resource_id(TABLE).scalable_dimension(WRITE);
    register.clone().min_capacity(5).max_capacity(40_000).send().await.unwrap();
    register.min_capacity(18_000).send().await.unwrap();
    let targets = scaling.describe_scalable_targets().service_namespace(ServiceNamespace::Dynamodb).resource_ids(TABLE);
    let [target] = targets.send().await.unwrap().scalable_targets.unwrap().try_into().unwrap();
    assert_eq!((target.min_capacity, target.max_capacity), (18_000, 40_000));

    let metric = PredefinedMetricSpecification::builder();
    let metric = metric.predefined_metric_type(MetricType::DynamoDbWriteCapacityUtilization).build().unwrap();
    let tracking = TargetTrackingScalingPolicyConfiguration::builder().target_value(70.0);
    let tracking = tracking.predefined_metric_specification(metric).build().unwrap();
    let put = scaling.put_scaling_policy().policy_name("writes").service_namespace(ServiceNamespace::Dynamodb);
    let put = put.resource_id(TABLE).scalable_dimension(WRITE).policy_type(PolicyType::TargetTrackingScaling);
    put.target_tracking_scaling_policy_configuration(tracking).send().await.unwrap();
    let policies = scaling.describe_scaling_policies().service_namespace(ServiceNamespace::Dynamodb);
    let policies = policies.resource_id(TABLE).scalable_dimension(WRITE).send().await.unwrap();
    let [policy] = policies.scaling_policies.unwrap().try_into().unwrap();
    let tracking = policy.target_tracking_scaling_policy_configuration.unwrap();
    assert_eq!(tracking.target_value.to_bits(), 70.0_f64.to_bits());
}

#[tokio::test]
async fn transactions_say_why_they_fail() {
    let Some(moto) = Moto::start().await.unwrap() else { return };
    let dynamodb = aws_sdk_dynamodb::Client::new(&sdk_config(&moto.endpoint(), FaultyHttp::undisturbed()));
    create_table(&dynamodb).await;
    let put = Put::builder().table_name("orders").item("id", AttributeValue::S("a".to_owned()));
    let put = put.condition_expression("attribute_not_exists(id)").build().unwrap();
    let write = dynamodb.transact_write_items().transact_items(TransactWriteItem::builder().put(put).build());
    write.clone().send().await.unwrap();
    let error = write.send().await.unwrap_err().into_service_error();
    assert!(error.is_transaction_canceled_exception(), "{error:?}");
}
