//! Scalable targets of Application Auto Scaling.
//!
//! AWS: [DynamoDB and Application Auto Scaling](https://docs.aws.amazon.com/autoscaling/application/userguide/services-that-can-integrate-dynamodb.html).

use aws_sdk_applicationautoscaling::{
    Client,
    types::{MetricType, PolicyType, ScalableDimension, ServiceNamespace},
};
use tidegate_domain::{
    capacity::{Capacity, Target, Utilization},
    throttle::CapacityKind,
};

use crate::error::StoreError;

/// The scalable targets of an account.
#[derive(Clone, Debug)]
pub struct ScalableTargets {
    client: Client,
}

/// A scalable target as it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub minimum: Capacity,
    pub maximum: Capacity,
    /// Whether auto scaling may lower the capacity. The owner can suspend that.
    pub may_scale_in: bool,
}

/// A target's policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The target utilization.
    pub utilization: Utilization,
    /// Whether the policy may lower the capacity.
    pub may_scale_in: bool,
}

impl ScalableTargets {
    /// The targets that this client sees.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Finds a target. Returns `None` if it is not registered.
    pub async fn find(&self, target: &Target) -> Result<Option<Registered>, StoreError> {
        let request = self.client.describe_scalable_targets().service_namespace(ServiceNamespace::Dynamodb);
        let request = request.resource_ids(target.resource()).scalable_dimension(dimension(target));
        let found = request.into_paginator().items().send().next().await.transpose();
        let found = found.map_err(|error| StoreError::from_sdk("DescribeScalableTargets", error))?;
        Ok(found.map(|found| Registered {
            minimum: capacity(found.min_capacity),
            maximum: capacity(found.max_capacity),
            may_scale_in: !found
                .suspended_state
                .and_then(|state| state.dynamic_scaling_in_suspended)
                .unwrap_or_default(),
        }))
    }

    /// Finds a target's policy. Returns `None` if it has no target tracking policy for its utilization.
    pub async fn policy(&self, target: &Target) -> Result<Option<Policy>, StoreError> {
        let request = self.client.describe_scaling_policies().service_namespace(ServiceNamespace::Dynamodb);
        let request = request.resource_id(target.resource()).scalable_dimension(dimension(target));
        let policies = request.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let policies = policies.map_err(|error| StoreError::from_sdk("DescribeScalingPolicies", error))?;
        let metric = match target.kind {
            CapacityKind::Read => MetricType::DynamoDbReadCapacityUtilization,
            CapacityKind::Write => MetricType::DynamoDbWriteCapacityUtilization,
        };
        let tracked = policies.into_iter().filter(|policy| policy.policy_type == PolicyType::TargetTrackingScaling);
        let mut tracked = tracked.filter_map(|policy| policy.target_tracking_scaling_policy_configuration);
        let policy = tracked.find(|policy| {
            policy.predefined_metric_specification.as_ref().is_some_and(|of| of.predefined_metric_type == metric)
        });
        Ok(policy.and_then(|policy| {
            let utilization = Utilization::from_percent(policy.target_value)?;
            Some(Policy { utilization, may_scale_in: !policy.disable_scale_in.unwrap_or_default() })
        }))
    }

    /// Sets a target's minimum. The call has no condition.
    pub async fn set_minimum(&self, target: &Target, minimum: Capacity) -> Result<(), StoreError> {
        let request = self.client.register_scalable_target().service_namespace(ServiceNamespace::Dynamodb);
        let request = request.resource_id(target.resource()).scalable_dimension(dimension(target));
        let request = request.min_capacity(i32::try_from(minimum.get()).unwrap_or(i32::MAX));
        request.send().await.map(drop).map_err(|error| StoreError::from_sdk("RegisterScalableTarget", error))
    }
}

fn dimension(target: &Target) -> ScalableDimension {
    match (&target.index, target.kind) {
        (None, CapacityKind::Read) => ScalableDimension::DynamoDbTableReadCapacityUnits,
        (None, CapacityKind::Write) => ScalableDimension::DynamoDbTableWriteCapacityUnits,
        (Some(_), CapacityKind::Read) => ScalableDimension::DynamoDbIndexReadCapacityUnits,
        (Some(_), CapacityKind::Write) => ScalableDimension::DynamoDbIndexWriteCapacityUnits,
    }
}

fn capacity(units: i32) -> Capacity {
    Capacity::new(u64::try_from(units).unwrap_or_default())
}
