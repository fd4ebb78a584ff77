//! Scalable targets and their policies, and the calls of Application Auto Scaling.
//!
//! AWS: [RegisterScalableTarget](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html),
//! [DescribeScalableTargets](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_DescribeScalableTargets.html),
//! [DescribeScalingPolicies](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_DescribeScalingPolicies.html).

use std::{collections::BTreeMap, ops::Bound};

use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_domain::throttle::CapacityKind;

use super::{protocol::ServiceError, tables::Tables};

/// The largest pages.
const TARGETS: usize = 50;
const POLICIES: usize = 10;

/// Scalable targets by resource and kind of capacity.
#[derive(Debug, Default)]
pub(super) struct Targets(BTreeMap<Key, Target>);

type Key = (String, CapacityKind);

/// What a registration sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) minimum: Option<u64>,
    pub(super) maximum: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) minimum: u64,
    pub(super) maximum: u64,
    /// All values that the minimum has had, in their order.
    pub(super) minimums: Vec<u64>,
    /// The target utilization of its policy, in percent.
    utilization: Option<f64>,
    /// Whether its policy may not scale in.
    is_disabled: bool,
    /// Whether the owner has suspended scaling in.
    is_suspended: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct RegisterScalableTarget {
    service_namespace: String,
    resource_id: String,
    scalable_dimension: String,
    min_capacity: Option<u64>,
    max_capacity: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct DescribeScalableTargets {
    service_namespace: String,
    resource_ids: Option<Vec<String>>,
    scalable_dimension: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct DescribeScalingPolicies {
    service_namespace: String,
    resource_id: Option<String>,
    scalable_dimension: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
}

impl RegisterScalableTarget {
    pub(super) fn parts(&self) -> Result<(&str, CapacityKind, Limits), ServiceError> {
        check_namespace(&self.service_namespace)?;
        let kind = kind_of(&self.resource_id, &self.scalable_dimension)?;
        Ok((&self.resource_id, kind, Limits { minimum: self.min_capacity, maximum: self.max_capacity }))
    }
}

impl DescribeScalableTargets {
    pub(super) fn resources(&self) -> &[String] {
        self.resource_ids.as_deref().unwrap_or_default()
    }

    pub(super) fn answer(&self, targets: &Targets) -> Result<Value, ServiceError> {
        check_namespace(&self.service_namespace)?;
        let is_asked = |(resource, kind): &Key| {
            self.resource_ids.as_ref().is_none_or(|asked| asked.contains(resource))
                && self.scalable_dimension.as_ref().is_none_or(|asked| *asked == dimension(resource, *kind))
        };
        let describe = |(key, target): (&Key, &Target)| is_asked(key).then(|| target.describe(key));
        let (page, next) = targets.page(self.next_token.as_deref(), self.max_results, TARGETS, describe)?;
        Ok(answer("ScalableTargets", &page, next))
    }
}

impl DescribeScalingPolicies {
    pub(super) fn resource(&self) -> Option<&str> {
        self.resource_id.as_deref()
    }

    pub(super) fn answer(&self, targets: &Targets) -> Result<Value, ServiceError> {
        check_namespace(&self.service_namespace)?;
        let is_asked = |(resource, kind): &Key| {
            self.resource_id.as_ref().is_none_or(|asked| asked == resource)
                && self.scalable_dimension.as_ref().is_none_or(|asked| *asked == dimension(resource, *kind))
        };
        let describe = |(key, target): (&Key, &Target)| target.describe_policy(key).filter(|_| is_asked(key));
        let (page, next) = targets.page(self.next_token.as_deref(), self.max_results, POLICIES, describe)?;
        Ok(answer("ScalingPolicies", &page, next))
    }
}

impl Targets {
    pub(super) fn get(&self, resource: &str, kind: CapacityKind) -> Option<&Target> {
        self.0.get(&(resource.to_owned(), kind))
    }

    /// Registers a target or updates it, and moves the capacity of the resource into the target's range.
    pub(super) fn register(
        &mut self,
        tables: &mut Tables,
        resource: &str,
        kind: CapacityKind,
        limits: Limits,
    ) -> Result<(), ServiceError> {
        if tables.find(resource).is_none() {
            return Err(ServiceError::validation(format!("DynamoDB table does not exist: {resource}")));
        }
        let key = (resource.to_owned(), kind);
        let known = self.0.get(&key);
        let minimum = limits.minimum.or(known.map(|target| target.minimum));
        let maximum = limits.maximum.or(known.map(|target| target.maximum));
        let (Some(minimum), Some(maximum)) = (minimum, maximum) else {
            let message = "MinCapacity and MaxCapacity must be specified when you register a new scalable target";
            return Err(ServiceError::validation(message));
        };
        if minimum == 0 {
            return Err(ServiceError::validation("Minimum capacity cannot be less than 1"));
        }
        if minimum > maximum {
            return Err(ServiceError::validation("Maximum capacity cannot be less than minimum capacity"));
        }
        let target = self.0.entry(key).or_insert_with(|| Target {
            minimum: 0,
            maximum,
            minimums: Vec::new(),
            utilization: None,
            is_disabled: false,
            is_suspended: false,
        });
        if target.minimum != minimum {
            target.minimums.push(minimum);
        }
        (target.minimum, target.maximum) = (minimum, maximum);
        tables.move_into(resource, kind, minimum, maximum);
        Ok(())
    }

    pub(super) fn deregister(&mut self, resource: &str, kind: CapacityKind) {
        self.0.remove(&(resource.to_owned(), kind));
    }

    /// Puts a target tracking policy with this utilization, in percent, or removes the policy.
    pub(super) fn put_policy(
        &mut self,
        resource: &str,
        kind: CapacityKind,
        utilization: Option<f64>,
    ) -> Result<(), ServiceError> {
        self.registered(resource, kind)?.utilization = utilization;
        Ok(())
    }

    /// Sets whether the policy may not scale in, and whether the owner has suspended scaling in.
    pub(super) fn disable_scale_in(
        &mut self,
        resource: &str,
        kind: CapacityKind,
        is_disabled: bool,
        is_suspended: bool,
    ) -> Result<(), ServiceError> {
        let target = self.registered(resource, kind)?;
        (target.is_disabled, target.is_suspended) = (is_disabled, is_suspended);
        Ok(())
    }

    fn registered(&mut self, resource: &str, kind: CapacityKind) -> Result<&mut Target, ServiceError> {
        self.0.get_mut(&(resource.to_owned(), kind)).ok_or_else(|| {
            let dimension = dimension(resource, kind);
            let message = format!(
                "No scalable target registered for service namespace: dynamodb, resource ID: {resource}, scalable \
                 dimension: {dimension}"
            );
            ServiceError::new(400, "ObjectNotFoundException", message)
        })
    }

    /// A page of what `describe` returns for targets, from the one that follows `token`, and the next token.
    fn page<T>(
        &self,
        token: Option<&str>,
        limit: Option<usize>,
        largest: usize,
        describe: impl Fn((&Key, &Target)) -> Option<T>,
    ) -> Result<(Vec<T>, Option<String>), ServiceError> {
        let limit = limit.unwrap_or(largest);
        if !(1..=largest).contains(&limit) {
            let message = format!("Value '{limit}' at 'maxResults' must be between 1 and {largest}");
            return Err(ServiceError::validation(message));
        }
        let invalid = || ServiceError::new(400, "InvalidNextTokenException", "Invalid next token".to_owned());
        let after = token.map(|token| key_of(token).ok_or_else(invalid)).transpose()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.0.range((from, Bound::Unbounded));
        let mut found = found.filter_map(|(key, target)| Some((key, describe((key, target))?))).peekable();
        let (mut page, mut last) = (Vec::new(), None);
        while page.len() < limit {
            let Some((key, described)) = found.next() else { break };
            page.push(described);
            last = Some(key);
        }
        let next = last.filter(|_| found.peek().is_some());
        Ok((page, next.map(|(resource, kind)| format!("{resource}#{}", dimension(resource, *kind)))))
    }
}

impl Target {
    fn describe(&self, (resource, kind): &Key) -> Value {
        json!({
            "ServiceNamespace": "dynamodb",
            "ResourceId": resource,
            "ScalableDimension": dimension(resource, *kind),
            "MinCapacity": self.minimum,
            "MaxCapacity": self.maximum,
            "RoleARN": "arn:aws:iam::000000000000:role/AWSServiceRoleForApplicationAutoScaling_DynamoDBTable",
            "CreationTime": 1_767_225_600,
            "SuspendedState": {
                "DynamicScalingInSuspended": self.is_suspended,
                "DynamicScalingOutSuspended": false,
                "ScheduledScalingSuspended": false,
            },
        })
    }

    fn describe_policy(&self, (resource, kind): &Key) -> Option<Value> {
        let utilization = self.utilization?;
        let name = format!("{resource}#{}", dimension(resource, *kind));
        let metric = match kind {
            CapacityKind::Read => "DynamoDBReadCapacityUtilization",
            CapacityKind::Write => "DynamoDBWriteCapacityUtilization",
        };
        Some(json!({
            "PolicyARN": format!("arn:aws:autoscaling:us-east-1:000000000000:scalingPolicy:{name}"),
            "PolicyName": name,
            "ServiceNamespace": "dynamodb",
            "ResourceId": resource,
            "ScalableDimension": dimension(resource, *kind),
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": utilization,
                "DisableScaleIn": self.is_disabled,
                "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
            },
            "CreationTime": 1_767_225_600,
        }))
    }
}

fn answer(list: &str, page: &[Value], next: Option<String>) -> Value {
    let mut answer = json!({list: page});
    if let Some(next) = next {
        answer["NextToken"] = next.into();
    }
    answer
}

fn check_namespace(namespace: &str) -> Result<(), ServiceError> {
    if namespace == "dynamodb" {
        return Ok(());
    }
    Err(ServiceError::validation(format!("The embedded Application Auto Scaling has no namespace {namespace}")))
}

/// AWS's name of a kind of capacity of a resource.
fn dimension(resource: &str, kind: CapacityKind) -> String {
    let of = if resource.contains("/index/") { "index" } else { "table" };
    format!("dynamodb:{of}:{kind:?}CapacityUnits")
}

fn kind_of(resource: &str, asked: &str) -> Result<CapacityKind, ServiceError> {
    let kinds = [CapacityKind::Read, CapacityKind::Write];
    let unsupported = || ServiceError::validation(format!("Unsupported scalable dimension {asked} for {resource}"));
    kinds.into_iter().find(|kind| dimension(resource, *kind) == asked).ok_or_else(unsupported)
}

/// The key that a token holds.
fn key_of(token: &str) -> Option<Key> {
    let (resource, dimension) = token.rsplit_once('#')?;
    Some((resource.to_owned(), kind_of(resource, dimension).ok()?))
}
