//! Roles and queue policies allow what the functions do, and nothing else.

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate_aws::schema::{self, system};
use tidegate_domain::bucket::{BucketKey, Entity, Namespace, Resource, Shard};

use crate::stack::{COORDINATED, Stack};

/// A value of a policy as a list.
fn all(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        value => vec![value.as_str().unwrap_or("*").to_owned()],
    }
}

/// The statement of a role with this `Sid`.
fn statement(stack: &Stack, role: &str, sid: &str) -> anyhow::Result<Value> {
    let role = stack.properties(role)?;
    let statements = role["Policies"][0]["PolicyDocument"]["Statement"].as_array().context("statements")?;
    statements.iter().find(|statement| statement["Sid"] == sid).cloned().with_context(|| sid.to_owned())
}

/// AWS lets no policy limit these to a resource.
const WITHOUT_RESOURCE: [&str; 3] = [
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "cloudwatch:GetMetricData",
];

/// A wildcard is for what is below a name that is exact: a prefix's files, EMR's clusters, stored failures, scalable
/// targets.
#[test]
fn roles_name_actions_and_resources() -> anyhow::Result<()> {
    let boundary = ("PermissionsBoundaryArn", "arn:aws:iam::123456789012:policy/b");
    let stack = Stack::new(&[("ReconcileEmr", "true"), boundary, COORDINATED])?;
    for (id, role) in stack.resources("AWS::IAM::Role")? {
        assert_eq!(role["PermissionsBoundary"], "arn:aws:iam::123456789012:policy/b", "{id}");
        let statements = role["Policies"][0]["PolicyDocument"]["Statement"].as_array().context("statements")?;
        for statement in statements {
            let actions = all(&statement["Action"]);
            for action in &actions {
                assert!(!action.contains('*'), "{id}: {action}");
            }
            let can_name_none = actions.iter().all(|action| WITHOUT_RESOURCE.contains(&action.as_str()));
            for resource in all(&statement["Resource"]) {
                let may_end_open = [":cluster/*", "/rates/*", "/aws/lambda/*", ":scalable-target/*"]
                    .iter()
                    .any(|end| resource.ends_with(end));
                assert!(!resource.contains('*') || may_end_open || can_name_none, "{id}: {resource}");
            }
        }
    }
    Ok(())
}

/// With `StringLikeIfExists`, the function could list an attached bucket without a prefix.
#[test]
fn the_aggregator_lists_its_prefix_only() -> anyhow::Result<()> {
    let stack = Stack::new(&[("RatesBucketName", "shared"), ("RatesPrefix", "fleet/rates/")])?;
    let list = statement(&stack, "RateAggregatorRole", "ListRates")?;
    assert_eq!(list["Condition"], json!({"StringLike": {"s3:prefix": "fleet/rates/*"}}));
    Ok(())
}

#[test]
fn the_aggregator_writes_summaries_only() -> anyhow::Result<()> {
    let check = |discovers: &str, expect: &str| {
        let stack = Stack::new(&[("RatesBucketName", "shared"), ("DiscoverJobs", discovers)])?;
        assert_eq!(statement(&stack, "RateAggregatorRole", "WriteSummaries")?["Resource"], expect);
        anyhow::Ok(())
    };
    check("false", "arn:aws:s3:::shared/rates/summary.json")?;
    check("true", "arn:aws:s3:::shared/rates/*/summary.json")
}

/// The function may register scalable targets of any table of the account, but only with the permission to update the
/// table.
#[test]
fn the_coordinator_scales_its_tables_only() -> anyhow::Result<()> {
    let [orders, users] =
        ["orders", "users"].map(|table| format!("arn:aws:dynamodb:us-east-1:123456789012:table/{table}"));
    let stack = Stack::new(&[("CoordinatedTableArns", &format!("{orders},{users}"))])?;
    let scale = statement(&stack, "CapacityCoordinatorRole", "ScaleTables")?;
    assert_eq!(scale["Action"], json!(["dynamodb:DescribeTable", "dynamodb:UpdateTable"]));
    assert_eq!(scale["Resource"], json!([orders, users]));
    let raise = statement(&stack, "CapacityCoordinatorRole", "RaiseMinimum")?;
    let condition = &raise["Condition"]["StringEquals"];
    assert_eq!(condition["application-autoscaling:service-namespace"], "dynamodb");
    let dimensions = all(&condition["application-autoscaling:scalable-dimension"]);
    let expect = ["table:Read", "table:Write", "index:Read", "index:Write"];
    assert_eq!(dimensions, expect.map(|dimension| format!("dynamodb:{dimension}CapacityUnits")));
    Ok(())
}

#[test]
fn the_coordinator_keeps_its_own_table_only() -> anyhow::Result<()> {
    let stack = Stack::new(&[COORDINATED])?;
    let keep = statement(&stack, "CapacityCoordinatorRole", "KeepState")?;
    assert_eq!(keep["Resource"], "arn:aws:any:us-east-1:123456789012:CapacityStateTable");
    let role = stack.properties("CapacityCoordinatorRole")?;
    let statements = role["Policies"][0]["PolicyDocument"]["Statement"].as_array().context("statements")?;
    let others =
        statements.iter().filter(|statement| !["KeepState", "ScaleTables"].iter().any(|sid| statement["Sid"] == *sid));
    for action in others.flat_map(|statement| all(&statement["Action"])) {
        assert!(!action.starts_with("dynamodb:"), "{action}");
    }
    Ok(())
}

/// A schedule that invokes a function that is not made could not be deployed.
#[test]
fn schedules_invoke_what_is_made() -> anyhow::Result<()> {
    for (parameters, expect) in [(&[][..], 3), (&[COORDINATED], 4)] {
        let stack = Stack::new(parameters)?;
        let invoked = all(&statement(&stack, "SchedulesRole", "InvokeScheduled")?["Resource"]);
        let mut targets = Vec::new();
        for schedule in stack.resources("AWS::Scheduler::Schedule")?.values() {
            targets.extend(all(&schedule["Target"]["Arn"]));
        }
        assert_eq!(invoked.len(), expect, "{invoked:?}");
        assert!(targets.len() == expect && targets.iter().all(|target| invoked.contains(target)), "{targets:?}");
    }
    Ok(())
}

/// Whether IAM's `StringLike` matches; `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| text.char_indices().any(|(at, _)| is_like(rest, &text[at..])) || is_like(rest, "")),
    }
}

#[test]
fn usage_rollup_writes_items_of_entities_only() -> anyhow::Result<()> {
    let condition = statement(&Stack::by_default()?, "UsageRollupRole", "WriteSnapshots")?["Condition"].clone();
    let keys = all(&condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]);
    let may_write = |key: &str| keys.iter().any(|pattern| is_like(pattern, key));
    let (namespace, entity) = (Namespace::new("dGlkZWdhdGU")?, Entity::new("tenant/7")?);
    let bucket = BucketKey {
        namespace: namespace.clone(),
        entity: entity.clone(),
        resource: Resource::new("api")?,
        shard: Shard::new(0),
    };
    assert!(may_write(&schema::entity_pk(&namespace, &entity)));
    for key in [
        schema::bucket_pk(&bucket),
        schema::redriven_pk(&bucket),
        format!("{namespace}/SYSTEM#"),
        format!("{namespace}/AUDIT#{entity}"),
        system::PARTITION.to_owned(),
    ] {
        assert!(!may_write(&key), "{key}");
    }
    Ok(())
}

/// A policy for several queues would allow EventBridge to send to all of them.
#[test]
fn each_queue_has_a_policy_of_its_own() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for id in stack.resources("AWS::SQS::Queue")?.keys() {
        let policy = stack.properties(&format!("{id}Policy"))?;
        assert_eq!(policy["Queues"].as_array().map(Vec::len), Some(1), "{id}");
        for statement in policy["PolicyDocument"]["Statement"].as_array().context("statements")? {
            assert_eq!(statement["Resource"], format!("arn:aws:any:us-east-1:123456789012:{id}"));
            let is_of_events = ["TokenEvents", "TokenSweeperDeadLetters"].contains(&id.as_str());
            assert!(statement["Effect"] == "Deny" || is_of_events, "{id}: {statement}");
        }
    }
    Ok(())
}

/// An event source mapping stores discarded batches with the role of its function.
#[test]
fn stream_functions_store_failures_only() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for role in ["UsageRollupRole", "BucketKeeperRole"] {
        let store = statement(&stack, role, "StoreFailures")?;
        assert_eq!(store["Action"], "s3:PutObject", "{role}");
        assert_eq!(store["Resource"], "arn:aws:any:us-east-1:123456789012:FailuresBucket/aws/lambda/*", "{role}");
    }
    Ok(())
}
