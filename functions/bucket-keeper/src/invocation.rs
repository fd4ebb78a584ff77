//! One invocation as Lambda makes it: its event, its metrics, its answer.

use tidegate_aws::concurrent::within;
use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};

use crate::{
    event::{Answer, Event},
    handler::BucketKeeper,
};

impl BucketKeeper {
    /// Does what the event asks for, and tells what it came to.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, now, deadline, emitter) = invocation.into_parts();
        match event {
            Event::Batch(batch) => {
                let handled = Box::pin(self.handle(&batch, now, deadline)).await;
                emitter.emit("batch", handled.report);
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("BatchError", &error))
            }
            Event::Repair => {
                let version = within(deadline, Box::pin(self.registry.enter_version(self.own_table))).await;
                let repaired = Box::pin(self.repair(now, deadline)).await;
                let buckets = repaired.report.buckets;
                emitter.emit("repair", repaired.report);
                let complete = repaired.complete.map_err(|error| diagnostic("RepairError", &error))?;
                if version.map_err(|error| diagnostic("VersionError", &error))? {
                    tracing::info!("wrote the version record");
                }
                Ok(Answer::Repair { buckets, complete })
            }
        }
    }
}
