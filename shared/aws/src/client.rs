//! SDK clients with the retry policy of a function that has a deadline.
//!
//! The caller has a deadline of its own and ends a call that outlives it, so the SDK may try often:
//! attempts are short, backoff is quick and jittered, and no quota of retries is shared between the
//! items of a batch, so that one throttled partition does not fail the others.

use std::time::Duration;

pub use aws_config::SdkConfig;
use aws_config::{BehaviorVersion, retry::RetryConfig, timeout::TimeoutConfig};
use aws_runtime::retries::classifiers::AwsErrorCodeClassifier;
pub use aws_sdk_applicationautoscaling::Client as ApplicationAutoScaling;
use aws_sdk_applicationautoscaling::operation::register_scalable_target::RegisterScalableTargetError;
pub use aws_sdk_cloudwatch::Client as CloudWatch;
pub use aws_sdk_dynamodb::Client as DynamoDb;
use aws_sdk_dynamodb::config::retry::{RetryPartition, TokenBucket};
use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
pub use aws_sdk_sqs::Client as Sqs;

/// More attempts than fit before any Lambda deadline.
const ATTEMPTS: u32 = 1000;
const FIRST_BACKOFF: Duration = Duration::from_millis(25);
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Far more than a write takes, and little enough that a function with AWS's default of 3 seconds can
/// try again after an attempt that hangs.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const PATIENT_ATTEMPTS: u32 = 4;
const PATIENT_BACKOFF: Duration = Duration::from_millis(500);
const PATIENT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The region, credentials and endpoint of the environment, with the policy of this module.
pub async fn config_from_env() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest()).retry_config(retries()).timeout_config(timeouts()).load().await
}

/// How calls are tried again.
pub fn retries() -> RetryConfig {
    RetryConfig::standard()
        .with_max_attempts(ATTEMPTS)
        .with_initial_backoff(FIRST_BACKOFF)
        .with_max_backoff(LONGEST_BACKOFF)
}

/// How long one attempt of a call may take.
pub fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build()
}

pub fn dynamodb(config: &SdkConfig) -> DynamoDb {
    let config = aws_sdk_dynamodb::config::Builder::from(config).retry_partition(no_shared_quota("dynamodb")).build();
    DynamoDb::from_conf(config)
}

pub fn sqs(config: &SdkConfig) -> Sqs {
    let config = aws_sdk_sqs::config::Builder::from(config).retry_partition(no_shared_quota("sqs")).build();
    Sqs::from_conf(config)
}

/// A client of S3; `force_path_style` is for endpoints where a bucket has no host name of its own. A checksum is
/// reckoned where S3 asks for one.
///
/// AWS: [data integrity protections](https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html).
pub fn s3(config: &SdkConfig, force_path_style: bool) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::config::Builder::from(config)
        .retry_partition(no_shared_quota("s3"))
        .force_path_style(force_path_style)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .build();
    aws_sdk_s3::Client::from_conf(config)
}

/// A client of EMR, which is asked for many clusters and throttles soon: it backs off for longer, all its
/// calls share a quota of retries, and what fails is left for another time.
pub fn emr(config: &SdkConfig) -> aws_sdk_emr::Client {
    let config = aws_sdk_emr::config::Builder::from(config);
    let config = config.retry_config(patient_retries()).timeout_config(patient_timeouts());
    aws_sdk_emr::Client::from_conf(config.build())
}

/// A client of DynamoDB's control plane, which is slower than its data plane, with the policy of [`emr`]'s.
pub fn control_plane(config: &SdkConfig) -> DynamoDb {
    let config = aws_sdk_dynamodb::config::Builder::from(config);
    DynamoDb::from_conf(config.retry_config(patient_retries()).timeout_config(patient_timeouts()).build())
}

/// A client of Application Auto Scaling, which throttles soon, like [`emr`]'s. It retries a registration while another update
/// of the target is pending, which the SDK does not.
pub fn application_auto_scaling(config: &SdkConfig) -> ApplicationAutoScaling {
    let pending = AwsErrorCodeClassifier::<RegisterScalableTargetError>::builder();
    let pending = pending.transient_errors(&["ConcurrentUpdateException"][..]).build();
    let config = aws_sdk_applicationautoscaling::config::Builder::from(config).retry_classifier(pending);
    let config = config.retry_config(patient_retries()).timeout_config(patient_timeouts());
    ApplicationAutoScaling::from_conf(config.build())
}

/// A client of CloudWatch, with the same policy.
pub fn cloudwatch(config: &SdkConfig) -> CloudWatch {
    let config = aws_sdk_cloudwatch::config::Builder::from(config);
    let config = config.retry_config(patient_retries()).timeout_config(patient_timeouts());
    CloudWatch::from_conf(config.build())
}

fn patient_retries() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(PATIENT_ATTEMPTS).with_initial_backoff(PATIENT_BACKOFF)
}

fn patient_timeouts() -> TimeoutConfig {
    timeouts().to_builder().operation_attempt_timeout(PATIENT_ATTEMPT_TIMEOUT).build()
}

fn no_shared_quota(service: &'static str) -> RetryPartition {
    RetryPartition::custom(service).token_bucket(TokenBucket::unlimited()).build()
}
