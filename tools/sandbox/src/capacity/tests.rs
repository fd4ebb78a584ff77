use std::ops::Range;

use aws_sdk_applicationautoscaling::{
    Client as AutoScaling,
    error::ProvideErrorMetadata,
    types::{ScalableDimension, ScalableTarget, ServiceNamespace},
};
use aws_sdk_cloudwatch::{
    Client as CloudWatch,
    primitives::DateTime,
    types::{Dimension, Metric, MetricDataQuery, MetricStat, ScanBy, builders::MetricBuilder},
};
use aws_sdk_dynamodb::{
    Client as DynamoDb,
    types::{
        GlobalSecondaryIndexUpdate, IndexStatus, ProvisionedThroughput, TableDescription, TableStatus,
        UpdateGlobalSecondaryIndexAction, WarmThroughput,
    },
};
use tidegate_domain::throttle::CapacityKind::{Read, Write};

use super::*;
use crate::faults::{FaultyHttp, sdk_config};

const TABLE: &str = "table/orders";
const INDEX: &str = "table/orders/index/by-date";

/// The code and the message of an error.
type Refusal = (String, String);

struct Services {
    embedded: EmbeddedCapacity,
    dynamodb: DynamoDb,
    scaling: AutoScaling,
    metrics: CloudWatch,
}

impl Services {
    async fn start() -> Self {
        let embedded = EmbeddedCapacity::start().await.unwrap();
        let config = sdk_config(embedded.endpoint(), FaultyHttp::undisturbed());
        Self {
            dynamodb: DynamoDb::new(&config),
            scaling: AutoScaling::new(&config),
            metrics: CloudWatch::new(&config),
            embedded,
        }
    }

    /// With a table of 100 read and 1,000 write units, whose owner lets the writes scale from 5 to 40,000.
    async fn with_table() -> Self {
        let services = Self::start().await;
        let account = services.embedded.account();
        account.create_provisioned("orders", 100, 1000);
        account.register(TABLE, Write, 5, 40_000).unwrap();
        account.put_policy(TABLE, Write, 70.0).unwrap();
        services
    }

    fn account(&self) -> &Account {
        self.embedded.account()
    }

    async fn describe(&self) -> TableDescription {
        self.dynamodb.describe_table().table_name("orders").send().await.unwrap().table.unwrap()
    }

    async fn register(&self, resource: &str, minimum: Option<i32>, maximum: Option<i32>) -> Result<(), Refusal> {
        let dimension = if resource.contains("/index/") {
            ScalableDimension::DynamoDbIndexWriteCapacityUnits
        } else {
            ScalableDimension::DynamoDbTableWriteCapacityUnits
        };
        let call = self.scaling.register_scalable_target().service_namespace(ServiceNamespace::Dynamodb);
        let call = call.resource_id(resource).scalable_dimension(dimension);
        let done = call.set_min_capacity(minimum).set_max_capacity(maximum).send().await;
        done.map(|_| ()).map_err(|error| code_and_message(&error))
    }

    async fn targets(
        &self,
        resources: &[&str],
        max_results: Option<i32>,
        token: Option<String>,
    ) -> (Vec<ScalableTarget>, Option<String>) {
        let call = self.scaling.describe_scalable_targets().service_namespace(ServiceNamespace::Dynamodb);
        let resources: Vec<String> = resources.iter().map(ToString::to_string).collect();
        let call = call.set_resource_ids((!resources.is_empty()).then_some(resources));
        let call = call.set_max_results(max_results).set_next_token(token);
        let page = call.send().await.unwrap();
        (page.scalable_targets.unwrap(), page.next_token)
    }

    /// The minutes and sums of the table's writes in `minutes`, newest first.
    async fn consumed(&self, index: Option<&str>, minutes: Range<i64>) -> Vec<(i64, f64)> {
        let dimension = |name: &str, value: &str| Dimension::builder().name(name).value(value).build();
        let metric = Metric::builder().namespace("AWS/DynamoDB").metric_name("ConsumedWriteCapacityUnits");
        let metric = metric.dimensions(dimension("TableName", "orders"));
        let index = index.map(|index| dimension("GlobalSecondaryIndexName", index));
        let metric = index.into_iter().fold(metric, MetricBuilder::dimensions);
        let stat = MetricStat::builder().metric(metric.build()).period(60).stat("Sum").build();
        let query = MetricDataQuery::builder().id("consumed").metric_stat(stat).build();
        let call = self.metrics.get_metric_data().metric_data_queries(query);
        let [from, to] = [minutes.start, minutes.end].map(|minute| DateTime::from_secs(minute * 60));
        let call = call.start_time(from).end_time(to);
        let answer = call.scan_by(ScanBy::TimestampDescending).send().await.unwrap();
        let [result] = answer.metric_data_results.unwrap().try_into().unwrap();
        assert_eq!(result.id(), Some("consumed"));
        let minutes = result.timestamps().iter().map(|time| time.secs() / 60);
        minutes.zip(result.values().iter().copied()).collect()
    }
}

fn code_and_message(error: &impl ProvideErrorMetadata) -> Refusal {
    (error.code().unwrap_or_default().to_owned(), error.message().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_raised_minimum_raises_the_capacity_at_once() {
    let services = Services::with_table().await;
    let account = services.account();
    account.set_update_polls(2);
    services.register(TABLE, Some(18_000), None).await.unwrap();
    assert_eq!((account.minimum(TABLE, Write), account.maximum(TABLE, Write)), (Some(18_000), Some(40_000)));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let table = services.describe().await;
        let provisioned = table.provisioned_throughput.unwrap();
        assert_eq!(provisioned.read_capacity_units, Some(100));
        seen.push((table.table_status.unwrap(), provisioned.write_capacity_units.unwrap()));
    }
    let expect = [
        (TableStatus::Updating, 1000),
        (TableStatus::Updating, 1000),
        (TableStatus::Active, 18_000),
        (TableStatus::Active, 18_000),
    ];
    assert_eq!(seen, expect);
    // The capacity is inside of the range of the owner, so it stays.
    services.register(TABLE, Some(5), None).await.unwrap();
    assert_eq!(account.provisioned(TABLE, Write), Some(18_000));
    assert_eq!(account.minimums(TABLE, Write), [5, 18_000, 5]);
}

#[tokio::test]
async fn a_lowered_maximum_lowers_the_capacity() {
    let services = Services::with_table().await;
    services.register(TABLE, None, Some(600)).await.unwrap();
    let provisioned = services.describe().await.provisioned_throughput.unwrap();
    assert_eq!((provisioned.write_capacity_units, provisioned.number_of_decreases_today), (Some(600), Some(1)));
}

/// AWS says so of targets whose resource is not active.
#[tokio::test]
async fn a_table_that_is_updating_keeps_its_capacity() {
    let services = Services::with_table().await;
    let account = services.account();
    account.set_update_polls(1);
    services.register(TABLE, Some(2000), None).await.unwrap();
    services.register(TABLE, Some(3000), None).await.unwrap();
    account.settle();
    assert_eq!((account.minimum(TABLE, Write), account.provisioned(TABLE, Write)), (Some(3000), Some(2000)));
    // Any registration moves the capacity into the range.
    services.register(TABLE, None, None).await.unwrap();
    account.settle();
    assert_eq!(account.provisioned(TABLE, Write), Some(3000));
}

#[tokio::test]
async fn an_index_has_a_capacity_of_its_own() {
    let services = Services::with_table().await;
    let account = services.account();
    account.create_index("orders", "by-date", 50, 500).unwrap();
    account.register(INDEX, Write, 1, 1000).unwrap();
    account.set_update_polls(1);
    services.register(INDEX, Some(900), None).await.unwrap();
    let table = services.describe().await;
    let [index] = table.global_secondary_indexes.unwrap().try_into().unwrap();
    assert_eq!((table.table_status, index.index_status), (Some(TableStatus::Active), Some(IndexStatus::Updating)));
    account.settle();
    assert_eq!((account.provisioned(INDEX, Write), account.provisioned(TABLE, Write)), (Some(900), Some(1000)));
}

#[tokio::test]
async fn impossible_registrations_are_refused() {
    let services = Services::with_table().await;
    for (resource, minimum, maximum, expect) in [
        (TABLE, Some(40_001), None, "Maximum capacity cannot be less than minimum capacity"),
        (TABLE, Some(0), None, "Minimum capacity cannot be less than 1"),
        ("table/missing", Some(1), Some(2), "DynamoDB table does not exist: table/missing"),
        (INDEX, Some(1), Some(2), "DynamoDB table does not exist: table/orders/index/by-date"),
    ] {
        let (code, message) = services.register(resource, minimum, maximum).await.unwrap_err();
        assert_eq!((code.as_str(), message.as_str()), ("ValidationException", expect));
    }
    services.account().create_index("orders", "by-date", 1, 1).unwrap();
    let (code, message) = services.register(INDEX, Some(1), None).await.unwrap_err();
    assert_eq!(code, "ValidationException");
    assert!(message.contains("MinCapacity and MaxCapacity"), "{message}");
    assert_eq!(services.account().minimums(TABLE, Write), [5]);
}

#[tokio::test]
async fn targets_are_found_by_page_and_resource() {
    let services = Services::start().await;
    let account = services.account();
    for number in 0..60 {
        let table = format!("t{number:02}");
        account.create_provisioned(&table, 5, 5);
        account.register(&format!("table/{table}"), Write, number + 1, 100).unwrap();
    }
    let (first, next) = services.targets(&[], None, None).await;
    assert_eq!(first.len(), 50);
    let (second, end) = services.targets(&[], None, next).await;
    assert_eq!((second.len(), end), (10, None));
    let ids: Vec<&str> = first.iter().chain(&second).map(ScalableTarget::resource_id).collect();
    assert!(ids.is_sorted() && ids.len() == 60, "{ids:?}");

    // A page that is full at the last target is the last page.
    let (found, end) = services.targets(&["table/t07", "table/t59"], Some(2), None).await;
    assert_eq!((found[0].min_capacity(), found[1].min_capacity(), end), (8, 60, None));
    let (found, next) = services.targets(&["table/t07", "table/t59"], Some(1), None).await;
    assert_eq!(found[0].resource_id(), "table/t07");
    let (found, end) = services.targets(&["table/t07", "table/t59"], Some(1), next).await;
    assert_eq!((found[0].resource_id(), end), ("table/t59", None));

    let calls = services.scaling.describe_scalable_targets().service_namespace(ServiceNamespace::Dynamodb);
    let too_many = calls.clone().max_results(51).send().await.unwrap_err();
    let wrong_token = calls.next_token("nonsense").send().await.unwrap_err();
    let codes = [too_many.code(), wrong_token.code()];
    assert_eq!(codes, [Some("ValidationException"), Some("InvalidNextTokenException")]);
}

#[tokio::test]
async fn a_policy_has_its_target_utilization() {
    let services = Services::with_table().await;
    let account = services.account();
    account.register(TABLE, Read, 1, 10).unwrap();
    let call = services.scaling.describe_scaling_policies().service_namespace(ServiceNamespace::Dynamodb);
    let call = call.resource_id(TABLE).scalable_dimension(ScalableDimension::DynamoDbTableWriteCapacityUnits);
    let [policy] = call.clone().send().await.unwrap().scaling_policies.unwrap().try_into().unwrap();
    let tracking = policy.target_tracking_scaling_policy_configuration.unwrap();
    assert_eq!(tracking.target_value.to_bits(), 70.0_f64.to_bits());
    let metric = tracking.predefined_metric_specification.unwrap().predefined_metric_type;
    assert_eq!(metric.as_str(), "DynamoDBWriteCapacityUtilization");
    let reads = call.clone().scalable_dimension(ScalableDimension::DynamoDbTableReadCapacityUnits).send();
    assert_eq!(reads.await.unwrap().scaling_policies.unwrap(), []);
    account.delete_policy(TABLE, Write).unwrap();
    assert_eq!(call.send().await.unwrap().scaling_policies.unwrap(), []);
    assert!(account.put_policy("table/other", Write, 50.0).is_err());
}

#[tokio::test]
async fn consumption_is_read_by_complete_minute() {
    let services = Services::with_table().await;
    let account = services.account();
    assert_eq!(services.consumed(None, 100..105).await, []);
    account.consumes(TABLE, Write, 10.0);
    account.consume(TABLE, Write, 103 * 60, 240_000.0);
    account.consume(INDEX, Write, 104 * 60 + 59, 6.0);
    assert_eq!(services.consumed(None, 102..105).await, [(104, 600.0), (103, 240_000.0), (102, 600.0)]);
    assert_eq!(services.consumed(Some("by-date"), 0..105).await, [(104, 6.0)]);
    account.hold_back_minutes(2);
    assert_eq!(services.consumed(None, 102..105).await, [(102, 600.0)]);
}

#[tokio::test]
async fn other_statistics_are_errors() {
    let services = Services::with_table().await;
    let metric = Metric::builder().namespace("AWS/DynamoDB").metric_name("ConsumedWriteCapacityUnits").build();
    let stat = MetricStat::builder().metric(metric).period(300).stat("Sum").build();
    let query = MetricDataQuery::builder().id("consumed").metric_stat(stat).build();
    let call = services.metrics.get_metric_data().metric_data_queries(query);
    let call = call.start_time(DateTime::from_secs(0)).end_time(DateTime::from_secs(60));
    let error = call.send().await.unwrap_err();
    assert_eq!(error.message(), Some("The embedded CloudWatch has sums of 60 seconds only"), "{error:?}");
}

#[tokio::test]
async fn warm_throughput_rises_and_never_falls() {
    let services = Services::start().await;
    let account = services.account();
    account.create_on_demand("orders", 12_000, 4000);
    account.create_index("orders", "by-date", 12_000, 4000).unwrap();
    account.set_update_polls(1);
    let warm = |units: i64| WarmThroughput::builder().write_units_per_second(units).build();
    let index = |units: i64| {
        let update = UpdateGlobalSecondaryIndexAction::builder().index_name("by-date").warm_throughput(warm(units));
        GlobalSecondaryIndexUpdate::builder().update(update.build().unwrap()).build()
    };
    let update = services.dynamodb.update_table().table_name("orders").warm_throughput(warm(18_000));
    let started = update.global_secondary_index_updates(index(5000)).send().await.unwrap().table_description.unwrap();
    let warming = started.warm_throughput.unwrap();
    // The table is active all the time.
    assert_eq!((started.table_status, warming.status), (Some(TableStatus::Active), Some(TableStatus::Updating)));
    assert_eq!((warming.read_units_per_second, warming.write_units_per_second), (Some(12_000), Some(4000)));
    services.describe().await;
    let table = services.describe().await;
    assert_eq!(table.billing_mode_summary.unwrap().billing_mode.unwrap().as_str(), "PAY_PER_REQUEST");
    let warm_now = table.warm_throughput.unwrap();
    assert_eq!((warm_now.write_units_per_second, warm_now.status), (Some(18_000), Some(TableStatus::Active)));
    assert_eq!((account.warm(INDEX, Write), account.warm(INDEX, Read)), (Some(5000), Some(12_000)));

    for update in [
        services.dynamodb.update_table().table_name("orders").warm_throughput(warm(17_999)),
        services.dynamodb.update_table().table_name("orders").global_secondary_index_updates(index(4999)),
    ] {
        let (code, message) = code_and_message(&update.send().await.unwrap_err());
        assert_eq!(code, "ValidationException");
        assert!(message.contains("decreasing WarmThroughput is not supported"), "{message}");
    }
    // The same value again is accepted.
    services.dynamodb.update_table().table_name("orders").warm_throughput(warm(18_000)).send().await.unwrap();
}

#[tokio::test]
async fn owners_change_the_provisioned_throughput_of_active_tables() {
    let services = Services::with_table().await;
    let account = services.account();
    account.set_update_polls(1);
    let throughput = |write: i64| {
        ProvisionedThroughput::builder().read_capacity_units(100).write_capacity_units(write).build().unwrap()
    };
    let update =
        |write: i64| services.dynamodb.update_table().table_name("orders").provisioned_throughput(throughput(write));
    update(4000).send().await.unwrap();
    assert_eq!(update(5000).send().await.unwrap_err().code(), Some("ResourceInUseException"));
    account.settle();
    assert_eq!(update(4000).send().await.unwrap_err().code(), Some("ValidationException"));
    assert_eq!(account.provisioned(TABLE, Write), Some(4000));
}

#[tokio::test]
async fn tables_are_found_by_name_and_arn() {
    let services = Services::with_table().await;
    let arn = services.describe().await.table_arn.unwrap();
    let table = services.dynamodb.describe_table().table_name(arn).send().await.unwrap().table.unwrap();
    assert_eq!((table.table_name.as_deref(), table.billing_mode_summary), (Some("orders"), None));
    services.account().delete_table("orders");
    let error = services.dynamodb.describe_table().table_name("orders").send().await.unwrap_err();
    assert!(error.into_service_error().is_resource_not_found_exception());
}

#[tokio::test]
async fn faults_meet_the_calls_that_the_hook_picks() {
    let services = Services::with_table().await;
    let account = services.account();
    // The SDK makes each of these calls again.
    let faults = Mutex::new(vec![Fault::Throttled, Fault::Internal]);
    account.on_call(move |_, _| faults.lock().unwrap().pop());
    services.register(TABLE, Some(6), None).await.unwrap();
    assert_eq!(account.take_calls().len(), 3);
    let faults = Mutex::new(vec![Fault::Throttled, Fault::Internal]);
    account.on_call(move |_, _| faults.lock().unwrap().pop());
    assert_eq!(services.consumed(None, 0..1).await, []);
    assert_eq!(account.take_calls(), vec![Call::GetMetricData { queries: 1 }; 3]);
    // It does not repeat this one.
    account.on_call(|_, _| Some(Fault::Conflict));
    let (code, _) = services.register(TABLE, Some(7), None).await.unwrap_err();
    assert_eq!((&*code, account.take_calls().len()), ("ConcurrentUpdateException", 1));

    account.on_call(|_, call| matches!(call, Call::RegisterScalableTarget { .. }).then_some(Fault::AccessDenied));
    let (code, _) = services.register(TABLE, Some(7), None).await.unwrap_err();
    assert_eq!(code, "AccessDeniedException");
    services.describe().await;
    let register =
        Call::RegisterScalableTarget { resource: TABLE.to_owned(), kind: Write, minimum: Some(7), maximum: None };
    assert_eq!(account.take_calls(), [register, Call::DescribeTable { table: "orders".to_owned() }]);
    account.undisturbed();
    services.register(TABLE, Some(8), None).await.unwrap();
    assert_eq!(account.minimums(TABLE, Write), [5, 6, 8]);
}

#[tokio::test]
async fn a_lost_response_belongs_to_a_call_that_happened() {
    let services = Services::with_table().await;
    let account = services.account();
    // The SDK makes the call again.
    account.on_call(|account, _| (account.minimum(TABLE, Write) == Some(5)).then_some(Fault::LostResponse));
    services.register(TABLE, Some(18_000), None).await.unwrap();
    assert_eq!(account.take_calls().len(), 2);
    assert_eq!(account.minimums(TABLE, Write), [5, 18_000]);
}

#[tokio::test]
async fn a_held_call_takes_effect_late() {
    let services = Services::with_table().await;
    let account = services.account();
    let gate = Gate::closed();
    let held = gate.clone();
    account.on_call(move |_, call| match call {
        Call::RegisterScalableTarget { minimum: Some(18_000), .. } => Some(Fault::Held(held.clone())),
        _ => None,
    });
    // The client hangs up.
    tokio::select! {
        _ = services.register(TABLE, Some(18_000), None) => panic!("the call is not held"),
        () = gate.holds(1) => {}
    }
    services.register(TABLE, Some(50), None).await.unwrap();
    assert_eq!(account.minimums(TABLE, Write), [5, 50]);
    gate.open().await;
    assert_eq!(account.minimums(TABLE, Write), [5, 50, 18_000]);
}
