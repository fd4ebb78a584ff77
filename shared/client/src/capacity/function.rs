//! One invocation of the function, and what it may have left behind if it fails.

use std::{error::Error, sync::Arc, time::Duration};

use aws_sdk_lambda::{
    Client,
    config::{StalledStreamProtectionConfig, http::HttpResponse, retry::RetryConfig, timeout::TimeoutConfig},
    error::SdkError,
    operation::invoke::InvokeError,
    primitives::Blob,
    types::InvocationType,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    error::{CapacityError, RefusalReason, Refused},
    request::Request,
};

/// The longest time for one invocation: the function's timeout in the template, a minute, and ten seconds for the network.
const LONGEST_INVOCATION: Duration = Duration::from_secs(70);

/// How much of a malformed answer an error quotes, in characters.
const QUOTED: usize = 200;

/// What the errors of Lambda itself begin with, such as `Sandbox.Timedout` and `Runtime.ExitError`.
const LAMBDA_ERRORS: [&str; 3] = ["Sandbox.", "Runtime.", "Extension."];

#[derive(Clone, Debug)]
pub(super) struct Function {
    client: Client,
    name: String,
}

/// An invocation that has returned no usable answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: CapacityError,
    /// Whether the same invocation may succeed later.
    pub(super) is_retryable: bool,
    pub(super) effect: PossibleEffect,
}

/// What an invocation that announces may have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PossibleEffect {
    /// It has changed nothing.
    Nothing,
    /// The id is in force for an announcement of another caller, or of other targets.
    IdTaken,
    /// Its announcement may be in force, or may be later if it still runs.
    Announcement,
}

/// What Lambda returns if a function fails.
///
/// AWS: [function errors](https://docs.aws.amazon.com/lambda/latest/dg/invocation-sync.html).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionError {
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error_message: String,
}

/// The function failed in an attempt that may be repeated.
#[derive(Debug, thiserror::Error)]
#[error("{error_type}: {message}")]
struct HasFailed {
    error_type: String,
    message: String,
}

impl Function {
    pub(super) fn new(client: &Client, name: String) -> Self {
        Self { client: for_invocations(client), name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn invoke<A: DeserializeOwned>(&self, request: &Request<'_>) -> Result<A, Failed> {
        let payload = serde_json::to_vec(request).map_err(|error| self.rejected(error))?;
        let invoke = self.client.invoke().function_name(&self.name).invocation_type(InvocationType::RequestResponse);
        let invoked = Box::pin(invoke.payload(Blob::new(payload)).send()).await;
        let output = invoked.map_err(|error| self.not_answered(error))?;
        let answer = output.payload.map(Blob::into_inner).unwrap_or_default();
        if output.function_error.is_some() {
            return Err(self.failed(&answer));
        }
        serde_json::from_slice(&answer).map_err(|error| self.malformed(&answer, error))
    }

    /// The error of an announcement whose task ended early.
    pub(super) fn ended(&self, error: impl Error + Send + Sync + 'static) -> Failed {
        let error = CapacityError::Unavailable { function: self.name.clone(), error: Arc::new(error) };
        Failed { error, is_retryable: false, effect: PossibleEffect::Announcement }
    }

    fn rejected(&self, error: impl Error + Send + Sync + 'static) -> Failed {
        let error = CapacityError::Rejected { function: self.name.clone(), error: Arc::new(error) };
        Failed { error, is_retryable: false, effect: PossibleEffect::Nothing }
    }

    fn malformed(&self, answer: &[u8], error: serde_json::Error) -> Failed {
        let answer = String::from_utf8_lossy(answer).chars().take(QUOTED).collect();
        let error = CapacityError::Malformed { function: self.name.clone(), answer, error: Arc::new(error) };
        Failed { error, is_retryable: false, effect: PossibleEffect::Announcement }
    }

    /// Judges an invocation without an answer of the function.
    fn not_answered(&self, error: SdkError<InvokeError, HttpResponse>) -> Failed {
        let effect = match &error {
            SdkError::ConstructionFailure(_) => return self.rejected(error),
            // Without a cause on the network, nothing was sent: credentials are missing, for instance.
            SdkError::DispatchFailure(failure)
                if !failure.is_io() && !failure.is_timeout() && failure.as_other().is_none() =>
            {
                return self.rejected(error);
            }
            SdkError::ServiceError(service) => match service.raw().status().as_u16() {
                // Too many invocations run, or the function is being deployed.
                409 | 429 => PossibleEffect::Nothing,
                // It may be the answer of a proxy.
                500.. => PossibleEffect::Announcement,
                _ => return self.rejected(error),
            },
            _ => PossibleEffect::Announcement,
        };
        let error = CapacityError::Unavailable { function: self.name.clone(), error: Arc::new(error) };
        Failed { error, is_retryable: true, effect }
    }

    /// Judges the error of the function, or of Lambda if the function has crashed or taken too long.
    fn failed(&self, answer: &[u8]) -> Failed {
        let FunctionError { error_type, error_message: message } = match serde_json::from_slice(answer) {
            Ok(error) => error,
            Err(error) => return self.malformed(answer, error),
        };
        let is_of_lambda = error_type.is_empty() || LAMBDA_ERRORS.iter().any(|prefix| error_type.starts_with(prefix));
        if is_of_lambda || ["Busy", "CallFailed", "ClockError"].contains(&&*error_type) {
            let error = Arc::new(HasFailed { error_type, message });
            let error = CapacityError::Unavailable { function: self.name.clone(), error };
            return Failed { error, is_retryable: true, effect: PossibleEffect::Announcement };
        }
        let refused = Refused::new(error_type, message);
        let effect = match refused.reason {
            RefusalReason::IdTaken => PossibleEffect::IdTaken,
            // A table may be deleted while the function waits for its capacity.
            RefusalReason::UnknownTable | RefusalReason::UnknownIndex | RefusalReason::Other => {
                PossibleEffect::Announcement
            }
            _ => PossibleEffect::Nothing,
        };
        Failed { error: refused.into(), is_retryable: false, effect }
    }
}

/// A client whose invocations end, and are sent once. This crate must know of each invocation that may still run.
fn for_invocations(client: &Client) -> Client {
    let own = client.config().timeout_config().cloned().unwrap_or_else(TimeoutConfig::disabled);
    let timeouts = if own.operation_attempt_timeout().or(own.operation_timeout()).is_some() {
        own
    } else {
        own.to_builder().operation_attempt_timeout(LONGEST_INVOCATION).build()
    };
    let config = client.config().to_builder().timeout_config(timeouts).retry_config(RetryConfig::disabled());
    // The function is silent while it waits for the capacity.
    let config = config.stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Client::from_conf(config.build())
}
