//! One invocation as Lambda makes it: its batch, its metrics, its answer.

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::stream::StreamEvent;
use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};

use crate::handler::UsageRollup;

impl UsageRollup {
    /// Handles the batch, and tells what it came to.
    pub async fn invoke(&self, invocation: Invocation<'_, StreamEvent>) -> Result<DynamoDbEventResponse, Diagnostic> {
        let (batch, _, deadline, emitter) = invocation.into_parts();
        let handled = self.handle(&batch, deadline).await;
        emitter.emit("batch", handled.report);
        handled.answer.map_err(|error| diagnostic("BatchError", &error))
    }
}
