//! The protocols of the three services: which call a request is, and how it is answered.

use std::{error::Error, fmt};

use axum::{
    body::{Body, Bytes},
    extract,
    http::{HeaderMap, Response, Uri},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Account, Call, Fault, State,
    control_plane::{DescribeTable, UpdateTable},
    metrics::GetMetricData,
    scaling::{DescribeScalableTargets, DescribeScalingPolicies, Limits, RegisterScalableTarget},
};
use crate::{
    cbor::{self, CLOUDWATCH},
    loopback::{broken_body, response},
};

/// What the header `X-Amz-Target` begins with. CloudWatch has its operations in the path instead.
const DYNAMODB: &str = "DynamoDB_20120810.";
const AUTO_SCALING: &str = "AnyScaleFrontendService.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    DynamoDb,
    AutoScaling,
    CloudWatch,
}

enum Request {
    DescribeTable(DescribeTable),
    UpdateTable(UpdateTable),
    DescribeScalableTargets(DescribeScalableTargets),
    RegisterScalableTarget(RegisterScalableTarget),
    DescribeScalingPolicies(DescribeScalingPolicies),
    GetMetricData(GetMetricData),
}

/// An error of a service, as its client receives it.
#[derive(Debug)]
pub(super) struct ServiceError {
    status: u16,
    kind: &'static str,
    message: String,
}

/// How a request ends.
enum Outcome {
    Answered(Result<Value, ServiceError>),
    /// The connection breaks.
    Lost,
}

impl ServiceError {
    pub(super) const fn new(status: u16, kind: &'static str, message: String) -> Self {
        Self { status, kind, message }
    }

    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new(400, "ValidationException", message.into())
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl Error for ServiceError {}

impl Service {
    const fn content_type(self) -> &'static str {
        match self {
            Self::DynamoDb => "application/x-amz-json-1.0",
            Self::AutoScaling => "application/x-amz-json-1.1",
            Self::CloudWatch => "application/cbor",
        }
    }

    fn throttled(self) -> ServiceError {
        let kind = if self == Self::CloudWatch { "Throttling" } else { "ThrottlingException" };
        ServiceError::new(400, kind, "Rate exceeded".to_owned())
    }

    fn access_denied(self) -> ServiceError {
        let (status, kind) =
            if self == Self::CloudWatch { (403, "AccessDenied") } else { (400, "AccessDeniedException") };
        ServiceError::new(status, kind, "The caller is not authorized to perform this operation".to_owned())
    }

    fn internal(self) -> ServiceError {
        let kind = match self {
            Self::DynamoDb => "InternalServerError",
            Self::AutoScaling => "InternalServiceException",
            Self::CloudWatch => "InternalServiceFault",
        };
        ServiceError::new(500, kind, "The service failed".to_owned())
    }

    fn conflict(self) -> ServiceError {
        let (status, kind) = match self {
            Self::DynamoDb => (400, "ResourceInUseException"),
            Self::AutoScaling => (400, "ConcurrentUpdateException"),
            Self::CloudWatch => (409, "ConcurrentModificationException"),
        };
        ServiceError::new(status, kind, "Another update of the resource is pending".to_owned())
    }

    /// Reads the fields of a request.
    fn read<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, ServiceError> {
        let invalid = |error: &dyn Error| ServiceError::new(400, "SerializationException", error.to_string());
        match self {
            Self::CloudWatch => {
                let request = cbor::to_json(body).map_err(|error| invalid(&error))?;
                serde_json::from_value(request).map_err(|error| invalid(&error))
            }
            Self::DynamoDb | Self::AutoScaling => serde_json::from_slice(body).map_err(|error| invalid(&error)),
        }
    }

    fn encode(self, answer: &Value) -> Vec<u8> {
        match self {
            Self::CloudWatch => cbor::from_json(answer),
            Self::DynamoDb | Self::AutoScaling => answer.to_string().into_bytes(),
        }
    }
}

impl Request {
    fn parse(service: Service, operation: &str, body: &[u8]) -> Result<Self, ServiceError> {
        Ok(match (service, operation) {
            (Service::DynamoDb, "DescribeTable") => Self::DescribeTable(service.read(body)?),
            (Service::DynamoDb, "UpdateTable") => Self::UpdateTable(service.read(body)?),
            (Service::AutoScaling, "DescribeScalableTargets") => Self::DescribeScalableTargets(service.read(body)?),
            (Service::AutoScaling, "RegisterScalableTarget") => Self::RegisterScalableTarget(service.read(body)?),
            (Service::AutoScaling, "DescribeScalingPolicies") => Self::DescribeScalingPolicies(service.read(body)?),
            (Service::CloudWatch, "GetMetricData") => Self::GetMetricData(service.read(body)?),
            _ => {
                let message = format!("The embedded services have no operation {operation}");
                return Err(ServiceError::new(400, "UnknownOperationException", message));
            }
        })
    }

    fn call(&self) -> Result<Call, ServiceError> {
        Ok(match self {
            Self::DescribeTable(request) => Call::DescribeTable { table: request.table().to_owned() },
            Self::UpdateTable(request) => Call::UpdateTable { table: request.table().to_owned() },
            Self::DescribeScalableTargets(request) => {
                Call::DescribeScalableTargets { resources: request.resources().to_vec() }
            }
            Self::RegisterScalableTarget(request) => {
                let (resource, kind, Limits { minimum, maximum }) = request.parts()?;
                Call::RegisterScalableTarget { resource: resource.to_owned(), kind, minimum, maximum }
            }
            Self::DescribeScalingPolicies(request) => {
                Call::DescribeScalingPolicies { resource: request.resource().map(str::to_owned) }
            }
            Self::GetMetricData(request) => Call::GetMetricData { queries: request.queries() },
        })
    }

    fn perform(&self, state: &mut State) -> Result<Value, ServiceError> {
        let State { tables, targets, metrics, .. } = state;
        match self {
            Self::DescribeTable(request) => to_json(&request.answer(tables)?),
            Self::UpdateTable(request) => to_json(&request.answer(tables)?),
            Self::DescribeScalableTargets(request) => to_json(&request.answer(targets)?),
            Self::RegisterScalableTarget(request) => {
                let (resource, kind, limits) = request.parts()?;
                targets.register(tables, resource, kind, limits)?;
                to_json(&json!({}))
            }
            Self::DescribeScalingPolicies(request) => to_json(&request.answer(targets)?),
            Self::GetMetricData(request) => to_json(&request.answer(metrics)?),
        }
    }
}

pub(super) async fn answer(
    extract::State(account): extract::State<Account>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let (service, operation) = if let Some(operation) = uri.path().strip_prefix(CLOUDWATCH) {
        (Service::CloudWatch, operation)
    } else if let Some(operation) = target.strip_prefix(AUTO_SCALING) {
        (Service::AutoScaling, operation)
    } else {
        (Service::DynamoDb, target.strip_prefix(DYNAMODB).unwrap_or(target))
    };
    // A call that is held takes effect even if its client has hung up, so it needs a task of its own.
    let done = tokio::spawn(handle(account, service, operation.to_owned(), body)).await;
    let (status, body) = match done {
        Ok(Outcome::Answered(Ok(answer))) => (200, Body::from(service.encode(&answer))),
        Ok(Outcome::Answered(Err(error))) => {
            let answer = json!({"__type": error.kind, "message": error.message});
            (error.status, Body::from(service.encode(&answer)))
        }
        Ok(Outcome::Lost) => (200, broken_body()),
        Err(panic) => (500, Body::from(panic.to_string())),
    };
    response(status, &[("content-type", service.content_type()), ("smithy-protocol", "rpc-v2-cbor")], body)
}

async fn handle(account: Account, service: Service, operation: String, body: Bytes) -> Outcome {
    let (request, call) = match Request::parse(service, &operation, &body).and_then(|request| {
        let call = request.call()?;
        Ok((request, call))
    }) {
        Ok(parsed) => parsed,
        Err(error) => return Outcome::Answered(Err(error)),
    };
    match account.fault_of(&call) {
        None => Outcome::Answered(request.perform(&mut account.state())),
        Some(Fault::Throttled) => Outcome::Answered(Err(service.throttled())),
        Some(Fault::AccessDenied) => Outcome::Answered(Err(service.access_denied())),
        Some(Fault::Internal) => Outcome::Answered(Err(service.internal())),
        Some(Fault::Conflict) => Outcome::Answered(Err(service.conflict())),
        Some(Fault::LostResponse) => match request.perform(&mut account.state()) {
            Ok(_) => Outcome::Lost,
            Err(error) => Outcome::Answered(Err(error)),
        },
        Some(Fault::Held(gate)) => {
            let _passing = gate.pass().await;
            Outcome::Answered(request.perform(&mut account.state()))
        }
    }
}

fn to_json(answer: &impl Serialize) -> Result<Value, ServiceError> {
    serde_json::to_value(answer).map_err(|error| ServiceError::new(500, "SerializationException", error.to_string()))
}
