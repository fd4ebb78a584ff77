//! One invocation as Lambda makes it: its batch, its metrics, its answer.

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::stream::StreamEvent;
use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};

use crate::handler::UsageRollup;

impl UsageRollup {
    /// Handles the batch, and tells what it came to.
    ///
    /// # Errors
    /// [`Diagnostic`], Lambda's own kind, if nothing can be said of single records.
    pub async fn invoke(&self, invocation: Invocation<'_, StreamEvent>) -> Result<DynamoDbEventResponse, Diagnostic> {
        let (batch, now, deadline, teller) = invocation.into_parts();
        let handled = self.handle(&batch, now, deadline).await;
        teller.tell("batch", handled.report);
        handled.answer.map_err(|error| diagnostic("Unreportable", &error))
    }
}
