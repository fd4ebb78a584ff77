//! The reconcile: it goes through all tokens, deletes those that have expired and that TTL has not deleted yet, and asks
//! EMR for clusters that have ended without an event.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    time::Duration,
};

use serde::Serialize;
use tidegate_aws::{
    concurrent::{concurrently, within},
    emr::{Clusters, is_cluster_id},
    error::{CallError, causes},
    tokens::{Page, SEGMENTS},
};
use tidegate_domain::{
    sweep::{self, Reason, Removal, Removals, Resource, Token, turn},
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{TokenSweeper, report::SweepReport};

/// The most clusters that one reconcile asks for, one after the other: EMR answers few calls a second.
///
/// AWS: [EMR quotas](https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-service-limits-what-are.html).
const CLUSTERS: NonZeroUsize = NonZeroUsize::new(300).unwrap();

/// After so many failed calls in a row, a reconcile asks EMR for no more clusters.
const MOST_FAILED_IN_A_ROW: usize = 3;

/// The time from one reconcile to the next. The number of a run is computed from the clock, so that successive
/// runs cover different parts without shared state.
pub const INTERVAL: Duration = Duration::from_mins(15);

/// The most tokens that an answer lists, because a response may have 6 MB.
///
/// AWS: [Lambda quotas](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const MAX_DECISIONS: usize = 1_000;

#[derive(Debug)]
pub struct Reconciled {
    pub report: SweepReport,
    /// Whether the reconcile read the whole table, asked for all clusters that it found, and deleted every token that it
    /// selected.
    pub complete: bool,
    /// The tokens that do not stay; the first 1,000.
    pub decided: Vec<TokenDecision>,
    /// Why the table could not be read on.
    pub error: Option<CallError>,
}

/// The answer to the schedule's call.
#[derive(Debug, Serialize)]
pub struct ReconcileAnswer {
    /// Tokens that the reconcile looked at.
    pub tokens: usize,
    pub deleted: usize,
    /// Whether all was done. If not, the next reconciles, which start elsewhere, do the rest.
    pub complete: bool,
    /// The first 1,000 tokens that do not stay.
    pub decided: Vec<TokenDecision>,
}

/// What was decided on a token that does not stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenDecision {
    pub coordinate: String,
    /// The reservation that became the token.
    pub reservation: String,
    pub resource: String,
    /// `deleted`, `already-gone`, `changed`, `would-delete` or `failed`.
    pub decision: &'static str,
    pub why: String,
}

impl TokenSweeper {
    /// Goes through the tokens at the moment `now`, until the end or the `deadline`. Each token is deleted on the
    /// condition that the reason holds still: a reconcile may run beside another, and stop anywhere.
    pub async fn reconcile(&self, now: EpochMillis, deadline: Instant) -> Reconciled {
        let mut run = Reconciled { report: SweepReport::default(), complete: false, decided: Vec::new(), error: None };
        let began = Instant::now();
        // Reading gets half of the time, asking EMR three quarters of the rest, and deleting what is left.
        let until = match self.clusters {
            Some(_) => began + deadline.saturating_duration_since(began) / 2,
            None => deadline,
        };
        let clusters = self.read_table(now, until, &mut run).await;
        if let Some(emr) = &self.clusters {
            let began = Instant::now();
            let until = began + deadline.saturating_duration_since(began) / 4 * 3;
            let answers = self.ask(emr, &clusters, now, until, &mut run).await;
            let resource = |token: &Token| answers.get(&token.resource).copied().unwrap_or(Resource::Unknown);
            let to_delete = run.select_for_deletion(clusters, |token| sweep::reconcile(token, resource(token), now));
            self.delete_selected(&to_delete, now, deadline, &mut run).await;
        }
        run.complete &= run.report.not_deleted == 0;
        run.report.incomplete = usize::from(!run.complete);
        run
    }

    /// Reads the table segment by segment, and deletes the tokens that have expired. Returns the tokens of
    /// clusters, for which EMR is asked. Each reconcile starts with another segment, so a later one reads what this one
    /// has no time for.
    async fn read_table(&self, now: EpochMillis, deadline: Instant, run: &mut Reconciled) -> Vec<Token> {
        let mut clusters = Vec::new();
        for segment in turn((0..SEGMENTS).collect(), number(now), NonZeroUsize::MAX) {
            let mut after = None;
            loop {
                let page = match within(deadline, self.tokens.page(segment, after)).await {
                    Ok(page) => page,
                    Err(error) => {
                        // A deadline that passes after some pages is not an error.
                        let is_error = run.report.pages == 0 || !matches!(error, CallError::Deadline);
                        run.error = Some(error).filter(|_| is_error);
                        return clusters;
                    }
                };
                clusters.extend(self.reconcile_page(&page, now, deadline, run).await);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        run.complete = true;
        clusters
    }

    /// Deletes the tokens of a page that have expired, and returns those of clusters, for which EMR is asked.
    async fn reconcile_page(
        &self,
        page: &Page,
        now: EpochMillis,
        deadline: Instant,
        run: &mut Reconciled,
    ) -> Vec<Token> {
        for error in &page.corrupt {
            run.report.corrupt += 1;
            tracing::error!(error = causes(error), "item is not a valid token");
        }
        run.report.pages += 1;
        run.report.tokens += page.tokens.len();
        run.report.undated += page.tokens.iter().filter(|token| token.expires.is_none()).count();
        let asks = |token: &Token| self.clusters.is_some() && !token.is_expired(now) && is_cluster_id(&token.resource);
        let (clusters, others): (Vec<_>, Vec<_>) = page.tokens.iter().cloned().partition(asks);
        let to_delete = run.select_for_deletion(others, |token| sweep::reconcile(token, Resource::Unknown, now));
        self.delete_selected(&to_delete, now, deadline, run).await;
        clusters
    }

    /// Asks EMR for the state of the tokens' clusters. Each reconcile takes its turn of them.
    async fn ask(
        &self,
        emr: &Clusters,
        tokens: &[Token],
        now: EpochMillis,
        deadline: Instant,
        run: &mut Reconciled,
    ) -> HashMap<String, Resource> {
        let mut answers = HashMap::new();
        let mut failed_in_a_row = 0;
        let clusters: BTreeSet<_> = tokens.iter().map(|token| token.resource.as_str()).collect();
        run.complete &= clusters.len() <= CLUSTERS.get();
        for cluster in turn(Vec::from_iter(clusters), number(now), CLUSTERS) {
            run.report.clusters_asked += 1;
            match within(deadline, emr.find(cluster)).await {
                Ok(answer) => {
                    run.report.clusters_unknown += usize::from(answer == Resource::Unknown);
                    answers.insert(cluster.to_owned(), answer);
                    failed_in_a_row = 0;
                }
                Err(CallError::Deadline) => {
                    run.complete = false;
                    break;
                }
                Err(error) => {
                    run.report.clusters_failed += 1;
                    run.complete = false;
                    tracing::warn!(cluster, error = causes(&error), "EMR did not answer");
                    // One cluster may be forbidden. Several failures in a row mean that EMR throttles or is down.
                    failed_in_a_row += 1;
                    if failed_in_a_row == MOST_FAILED_IN_A_ROW {
                        break;
                    }
                }
            }
        }
        answers
    }

    async fn delete_selected(
        &self,
        to_delete: &[(Token, Reason)],
        now: EpochMillis,
        deadline: Instant,
        run: &mut Reconciled,
    ) {
        if self.dry_run {
            run.report.would_delete += to_delete.len();
            for (token, reason) in to_delete {
                run.record(token, *reason, "would-delete");
            }
            return;
        }
        let mut removals = Removals::default();
        let deletions = concurrently(to_delete, self.concurrency, |(token, reason)| async move {
            (token, *reason, self.delete(token, *reason, now, deadline).await)
        });
        for (token, reason, removal) in deletions.await {
            match removal {
                Ok(removal) => {
                    removals.count(removal);
                    run.record(token, reason, name(removal));
                }
                Err(error) => {
                    run.report.not_deleted += 1;
                    tracing::warn!(resource = token.resource, error = causes(&error), "token not deleted");
                    run.record(token, reason, "failed");
                }
            }
        }
        run.report.count_removals(&removals);
    }
}

impl Reconciled {
    pub fn answer(self) -> ReconcileAnswer {
        let Self { report, complete, decided, .. } = self;
        ReconcileAnswer { tokens: report.tokens, deleted: report.deleted, complete, decided }
    }

    /// Decides on tokens, counts them, and returns those to be deleted.
    fn select_for_deletion(
        &mut self,
        tokens: Vec<Token>,
        decide: impl Fn(&Token) -> Option<Reason>,
    ) -> Vec<(Token, Reason)> {
        let mut to_delete = Vec::new();
        for token in tokens {
            let reason = decide(&token);
            match reason {
                None => self.report.kept += 1,
                Some(Reason::Expired) => self.report.expired += 1,
                Some(Reason::Ended) => self.report.forgotten += 1,
            }
            to_delete.extend(reason.map(|reason| (token, reason)));
        }
        to_delete
    }

    fn record(&mut self, token: &Token, reason: Reason, decision: &'static str) {
        let why = match (reason, token.expires) {
            (Reason::Ended, _) => "EMR says that the cluster has ended".to_owned(),
            (Reason::Expired, Some(expires)) => format!("it expired at {expires}, in epoch seconds"),
            (Reason::Expired, None) => "it expired".to_owned(),
        };
        let (coordinate, reservation) = (token.key.coordinate.clone(), token.key.reservation.clone());
        let resource = token.resource.clone();
        tracing::info!(coordinate, reservation, resource, decision, why, "token reconciled");
        if self.decided.len() < MAX_DECISIONS {
            self.decided.push(TokenDecision { coordinate, reservation, resource, decision, why });
        }
    }
}

/// The number of the reconcile that runs at this moment.
fn number(now: EpochMillis) -> usize {
    let number = now.since(EpochMillis::EPOCH).as_secs() / INTERVAL.as_secs();
    usize::try_from(number).unwrap_or_default()
}

const fn name(removal: Removal) -> &'static str {
    match removal {
        Removal::Deleted => "deleted",
        Removal::AlreadyGone => "already-gone",
        Removal::Changed => "changed",
    }
}
