//! Deletes the tokens of resources that have ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use tidegate_aws::{
    concurrent::{concurrently, within},
    error::{CallError, causes},
};
use tidegate_domain::{
    sweep::{Reason, Removal, Removals, Token},
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::TokenSweeper;

/// The most tokens of one resource that are deleted at the same time. A resource usually has one.
const TOKENS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// What became of the tokens of one resource.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) removals: Removals,
    /// Tokens that a dry run leaves.
    pub(crate) kept: usize,
    /// Tokens that could not be deleted.
    pub(crate) not_deleted: usize,
    /// Items that are not valid tokens.
    pub(crate) corrupt: usize,
    /// Why a part of the work is not done.
    pub(crate) error: Option<CallError>,
}

impl TokenSweeper {
    /// Deletes the tokens of some resources. Each resource is looked for once, however many events tell of it.
    pub(crate) async fn remove_tokens(
        &self,
        resources: BTreeSet<&str>,
        now: EpochMillis,
        deadline: Instant,
    ) -> BTreeMap<String, Removed> {
        let remove = |resource: &str| {
            let resource = resource.to_owned();
            async move {
                let removed = self.remove_tokens_of(&resource, now, deadline).await;
                (resource, removed)
            }
        };
        concurrently(resources, self.concurrency, remove).await.into_iter().collect()
    }

    /// Deletes the tokens of a resource page by page, so that what is done stays done.
    async fn remove_tokens_of(&self, resource: &str, now: EpochMillis, deadline: Instant) -> Removed {
        let mut removed = Removed::default();
        let mut after = None;
        loop {
            let page = match within(deadline, self.tokens.of_resource(resource, after)).await {
                Ok(page) => page,
                Err(error) => {
                    removed.error = Some(error);
                    return removed;
                }
            };
            for error in &page.corrupt {
                removed.corrupt += 1;
                tracing::error!(resource, error = causes(error), "item is not a valid token");
            }
            if self.dry_run {
                removed.kept += page.tokens.len();
            } else {
                let delete = |token| self.delete(token, Reason::Ended, now, deadline);
                let concurrency = self.concurrency.min(TOKENS);
                for removal in concurrently(&page.tokens, concurrency, delete).await {
                    removed.count(removal);
                }
            }
            after = page.next;
            if after.is_none() || removed.error.is_some() {
                return removed;
            }
        }
    }

    /// Deletes a token for a reason.
    pub(crate) async fn delete(
        &self,
        token: &Token,
        reason: Reason,
        now: EpochMillis,
        deadline: Instant,
    ) -> Result<Removal, CallError> {
        within(deadline, self.tokens.delete(token, reason, now)).await
    }
}

impl Removed {
    fn count(&mut self, removal: Result<Removal, CallError>) {
        match removal {
            Ok(removal) => self.removals.count(removal),
            Err(error) => {
                self.not_deleted += 1;
                // If any call may succeed later, the event must be retried.
                if self.error.as_ref().is_none_or(|first| !first.is_retryable()) {
                    self.error = Some(error);
                }
            }
        }
    }
}
