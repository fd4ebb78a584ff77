//! What one invocation did, in numbers.

use std::collections::BTreeMap;

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_domain::sweep::{Outcome, Removals};

use crate::{
    decision::{Decision, EventDecision, Failure},
    event::{BatchAnswer, Message, Unreportable},
    removal::Removed,
};

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 6] = ["Ended", "Early", "Untracked", "Failed", "Deleted", "Forgotten"];

tidegate_lambda::report! {
    /// The counts of one invocation, of events or of a reconcile.
    ///
    /// Every event is in exactly one of `malformed`, `unprocessable`, `no_end`, `ended`, `gone`, `early`,
    /// `untracked`, `dry_run`, `refused` and `failed`. Every token of a reconcile is in exactly one of
    /// `kept`, `expired` and `forgotten`. Every token that was to be deleted is in exactly one of `deleted`,
    /// `already_gone`, `changed`, `would_delete` and `not_deleted`.
    pub struct SweepReport {
        /// Events delivered.
        events,
        /// Malformed messages and events.
        malformed,
        /// Events from which no processor can tell what has ended.
        unprocessable,
        /// Events that are not ends, by their processor's pattern.
        no_end,
        /// Ends whose resource had tokens that were deleted.
        ended,
        /// Ends whose resource had tokens, which were gone or another's by then.
        gone,
        /// Ends without a token, too recent to rule out that one is still written: a queue delivers them again.
        early,
        /// Ends without a token that are old enough: no token of the resource counts.
        untracked,
        /// Ends whose resource has tokens that a dry run leaves.
        dry_run,
        /// Ends for which a call will never succeed.
        refused,
        /// Ends for which a call did not succeed.
        failed,
        /// Events of a resource that another event of the same batch names: they cost no call.
        repeated,
        /// Pages of the table that the reconcile read.
        pages,
        /// Tokens that it looked at.
        tokens,
        /// Of these, tokens that stay.
        kept,
        /// Of these, tokens that have expired.
        expired,
        /// Of these, tokens whose resource has ended without an event.
        forgotten,
        /// Of these, tokens without a readable expiry: only an end deletes them.
        undated,
        /// Items that are not valid tokens.
        corrupt,
        /// Tokens that were deleted.
        deleted,
        /// Tokens that another writer deleted first.
        already_gone,
        /// Tokens that were given another resource or extended since they were seen: they stay.
        changed,
        /// Tokens that a dry run leaves.
        would_delete,
        /// Tokens for which the call did not succeed.
        not_deleted,
        /// Clusters that EMR was asked for.
        clusters_asked,
        /// Clusters that it does not know: their tokens stay until they expire.
        clusters_unknown,
        /// Calls to EMR that failed. After three in a row, the reconcile asks for no more clusters.
        clusters_failed,
        /// Reconciles that did not finish: time was up, or a call failed.
        incomplete,
    }
}

/// How one batch ended.
#[derive(Debug)]
pub struct Handled {
    pub report: SweepReport,
    pub decided: Vec<EventDecision>,
    /// The messages to be delivered again.
    pub answer: Result<BatchAnswer, Unreportable>,
}

impl Handled {
    /// Logs and counts what was decided on the messages, and names those to be delivered again.
    pub(crate) fn of(messages: &[Message], decided: Vec<EventDecision>, removed: &BTreeMap<String, Removed>) -> Self {
        let failed = messages.iter().zip(&decided).filter(|(_, decided)| !decided.decision.is_done());
        Self {
            answer: BatchAnswer::of(failed.map(|(message, _)| message)),
            report: SweepReport::log_and_count(&decided, messages.iter().map(Message::id), removed),
            decided,
        }
    }
}

impl SweepReport {
    /// Logs and counts what was decided on events, and counts what became of the tokens of their resources. `messages` are
    /// the ids of the events' messages.
    pub(crate) fn log_and_count<'m>(
        decided: &[EventDecision],
        messages: impl IntoIterator<Item = Option<&'m str>>,
        removed: &BTreeMap<String, Removed>,
    ) -> Self {
        let ends = decided.iter().filter(|decided| decided.about.resource.is_some()).count();
        let mut report = Self { repeated: ends - removed.len(), ..Self::default() };
        for (decided, message) in decided.iter().zip(messages) {
            decided.log(message);
            report.count(&decided.decision);
        }
        for Removed { removals, kept, not_deleted, corrupt, .. } in removed.values() {
            report.count_removals(removals);
            report.would_delete += kept;
            report.not_deleted += not_deleted;
            report.corrupt += corrupt;
        }
        report
    }

    fn count(&mut self, decision: &Decision) {
        self.events += 1;
        match decision {
            Decision::NoEnd => self.no_end += 1,
            Decision::Decided(Outcome::Deleted, _) => self.ended += 1,
            Decision::Decided(Outcome::AlreadyGone, _) => self.gone += 1,
            Decision::Decided(Outcome::Early, _) => self.early += 1,
            Decision::Decided(Outcome::Untracked, _) => self.untracked += 1,
            Decision::Found(_) => self.dry_run += 1,
            Decision::Failed(Failure::Malformed(_) | Failure::Timeless) => self.malformed += 1,
            Decision::Failed(Failure::Unprocessable(_)) => self.unprocessable += 1,
            Decision::Failed(Failure::Call { is_retryable: true, .. }) => self.failed += 1,
            Decision::Failed(Failure::Call { is_retryable: false, .. }) => self.refused += 1,
        }
    }

    /// Counts what became of tokens.
    pub(crate) fn count_removals(&mut self, removals: &Removals) {
        self.deleted += removals.deleted;
        self.already_gone += removals.already_gone;
        self.changed += removals.changed;
    }
}
