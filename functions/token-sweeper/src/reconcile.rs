//! The reconcile: tokens that no event told of. It goes through all of them, deletes those that have expired
//! and that TTL has not taken, and asks EMR for clusters that have ended without a word.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde::Serialize;
use tidegate_aws::{
    concurrent::for_each,
    emr::{Clusters, is_cluster_id},
    error::{CallError, causes},
    tokens::{Cursor, Page},
};
use tidegate_domain::{
    sweep::{self, Reason, Removal, Removals, Resource, Token},
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{
    event::Answer,
    handler::{TokenSweeper, within},
    report::Report,
};

/// The most clusters that one reconcile asks for, one after the other: EMR answers few calls a second.
///
/// AWS: [EMR quotas](https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-service-limits-what-are-they.html).
const CLUSTERS: usize = 300;

/// The most tokens that an answer tells of: an answer may have 6 MB.
///
/// AWS: [Lambda quotas](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const TOLD: usize = 1_000;

/// What a process remembers from one reconcile to the next: behind which token the last one stopped. If it is
/// forgotten, the next one starts over.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Option<Cursor>>);

/// What a reconcile came to.
#[derive(Debug)]
pub struct Reconciled {
    /// What was done.
    pub report: Report,
    /// Whether the reconcile came to the end of the table, with all its questions answered.
    pub complete: bool,
    /// The tokens that do not stay; the first 1,000.
    pub decided: Vec<TokenTold>,
    /// Why the table could not be read on.
    pub error: Option<CallError>,
}

/// What was decided on a token that does not stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenTold {
    /// What it is for, and whose it is.
    pub coordinate: String,
    /// The reservation that became the token.
    pub reservation: String,
    /// The resource that holds it.
    pub resource: String,
    /// `deleted`, `already-gone`, `changed`, `would-delete` or `failed`.
    pub decision: &'static str,
    /// Why.
    pub why: String,
}

/// What EMR has said in this run.
struct Inquiry<'a> {
    /// `None` once it is asked no more.
    clusters: Option<&'a Clusters>,
    answers: HashMap<String, Resource>,
    until: Instant,
    /// Behind which token the questions stopped, if they did.
    stopped: Option<Stop>,
}

/// Where the next reconcile goes on: `None` is the beginning.
type Stop = Option<Cursor>;

impl TokenSweeper {
    /// Goes through the tokens at the moment `now`, from where the last reconcile stopped, until the end or the
    /// `deadline`. Each token is deleted on the condition that the reason holds still: a reconcile may
    /// run beside another, and stop anywhere.
    pub async fn reconcile(&self, now: EpochMillis, deadline: Instant) -> Reconciled {
        let mut run = Reconciled { report: Report::default(), complete: false, decided: Vec::new(), error: None };
        let began = Instant::now();
        // Questions leave time for the deletions.
        let until = began + deadline.saturating_duration_since(began) / 2;
        let mut inquiry = Inquiry { clusters: self.clusters.as_ref(), answers: HashMap::new(), until, stopped: None };
        let mut after = self.memory.take();
        let stopped = loop {
            let page = match within(deadline, self.tokens.page(after.clone())).await {
                Ok(page) => page,
                Err(CallError::Deadline) => break Some(after),
                Err(error) => {
                    run.error = Some(error);
                    break Some(after);
                }
            };
            self.reconcile_page(&page, after.as_ref(), now, deadline, &mut inquiry, &mut run).await;
            if Instant::now() >= deadline {
                break Some(after);
            }
            after = page.next;
            if after.is_none() {
                break None;
            }
        };
        // The earlier of the two: whatever was not asked for lies before what was not read.
        let stopped = inquiry.stopped.or(stopped);
        run.complete = stopped.is_none();
        self.memory.put(stopped.flatten());
        run
    }

    async fn reconcile_page(
        &self,
        page: &Page,
        after: Option<&Cursor>,
        now: EpochMillis,
        deadline: Instant,
        inquiry: &mut Inquiry<'_>,
        run: &mut Reconciled,
    ) {
        for error in &page.corrupt {
            run.report.corrupt += 1;
            tracing::error!(error = causes(error), "no token");
        }
        let mut doomed = Vec::new();
        let mut before = after.cloned();
        for token in &page.tokens {
            run.report.tokens += 1;
            run.report.undated += usize::from(token.expires.is_none());
            let resource = inquiry.ask(token, before.as_ref(), now, &mut run.report).await;
            match sweep::reconcile(token, resource, now) {
                Some(reason) => {
                    let count = match reason {
                        Reason::Expired => &mut run.report.expired,
                        Reason::Ended => &mut run.report.forgotten,
                    };
                    *count += 1;
                    doomed.push((token.clone(), reason));
                }
                None => run.report.kept += 1,
            }
            before = Some(Cursor::behind(&token.key));
        }
        if self.dry_run {
            run.report.would_delete += doomed.len();
            for (token, reason) in &doomed {
                run.tell(token, *reason, "would-delete");
            }
            return;
        }
        let mut removals = Removals::default();
        for ((token, reason), removal) in for_each((self, now), &doomed, Self::delete, deadline, self.concurrency).await
        {
            match removal {
                Ok(removal) => {
                    removals.count(removal);
                    run.tell(token, *reason, name(removal));
                }
                Err(error) => {
                    run.report.not_deleted += 1;
                    tracing::warn!(resource = token.resource, error = causes(&error), "token not deleted");
                    run.tell(token, *reason, "failed");
                }
            }
        }
        run.report.count_removals(&removals);
    }
}

impl Inquiry<'_> {
    /// What EMR says of a token's resource. A call that fails is the last one: whoever throttles is left alone.
    async fn ask(&mut self, token: &Token, before: Option<&Cursor>, now: EpochMillis, report: &mut Report) -> Resource {
        if token.is_expired(now) || !is_cluster_id(&token.resource) {
            return Resource::Unknown;
        }
        if let Some(answer) = self.answers.get(&token.resource) {
            return *answer;
        }
        let Some(clusters) = self.clusters else { return Resource::Unknown };
        if self.answers.len() >= CLUSTERS {
            self.stop(before);
            return Resource::Unknown;
        }
        report.clusters_asked += 1;
        match within(self.until, clusters.find(&token.resource)).await {
            Ok(answer) => {
                report.clusters_unknown += usize::from(answer == Resource::Unknown);
                self.answers.insert(token.resource.clone(), answer);
                answer
            }
            Err(error) => {
                report.clusters_failed += 1;
                tracing::warn!(cluster = token.resource, error = causes(&error), "EMR did not answer");
                self.stop(before);
                Resource::Unknown
            }
        }
    }

    fn stop(&mut self, before: Option<&Cursor>) {
        self.clusters = None;
        self.stopped = Some(before.cloned());
    }
}

impl Reconciled {
    /// As it is answered.
    #[must_use]
    pub fn told(&self) -> Answer {
        Answer::Reconcile {
            tokens: self.report.tokens,
            deleted: self.report.deleted,
            complete: self.complete,
            decided: self.decided.clone(),
        }
    }

    fn tell(&mut self, token: &Token, reason: Reason, decision: &'static str) {
        let why = match (reason, token.expires) {
            (Reason::Ended, _) => "EMR says that the cluster has ended".to_owned(),
            (Reason::Expired, Some(expires)) => format!("it expired {expires} seconds after the epoch"),
            (Reason::Expired, None) => "it expired".to_owned(),
        };
        let (coordinate, reservation) = (token.key.coordinate.clone(), token.key.reservation.clone());
        let resource = token.resource.clone();
        tracing::info!(coordinate, reservation, resource, decision, why, "token reconciled");
        if self.decided.len() < TOLD {
            self.decided.push(TokenTold { coordinate, reservation, resource, decision, why });
        }
    }
}

impl Memory {
    fn take(&self) -> Option<Cursor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, cursor: Option<Cursor>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cursor;
    }
}

const fn name(removal: Removal) -> &'static str {
    match removal {
        Removal::Deleted => "deleted",
        Removal::AlreadyGone => "already-gone",
        Removal::Changed => "changed",
    }
}
