//! The function, and events: read, sweep each resource once, decide, answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    slice,
    time::Duration,
};

use serde_json::Value;
use tidegate_aws::{
    concurrent::{for_each, within},
    emr::Clusters,
    error::{CallError, causes},
    event::BusEvent,
    processors::{self, Processors},
    tokens::Tokens,
};
use tidegate_domain::{
    sweep::{self, Reason, Removal, Removals, Token},
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{
    config::Config,
    decision::{Decision, EventDecision, Failure},
    event::{BatchAnswer, Message, NoEvent, Unreportable},
    report::Report,
};

/// The function: what it reads and deletes, and when.
#[derive(Debug)]
pub struct TokenSweeper {
    pub tokens: Tokens,
    /// Who knows which clusters have ended; nobody is asked if there is none.
    pub clusters: Option<Clusters>,
    /// Which events are ends.
    pub processors: Processors,
    /// How long after a resource's end its token may still be written.
    pub grace: Duration,
    /// Whether nothing is deleted.
    pub dry_run: bool,
    /// How many resources are dealt with at the same time.
    pub concurrency: NonZeroUsize,
}

/// The most tokens of one resource that are deleted at the same time. It has one, as a rule.
const TOKENS: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// What one batch came to.
#[derive(Debug)]
pub struct Handled {
    pub report: Report,
    pub decided: Vec<EventDecision>,
    /// The messages that come again.
    pub answer: Result<BatchAnswer, Unreportable>,
}

/// An end that an event tells of.
struct End {
    /// What is known of the event.
    decided: EventDecision,
    resource: String,
    time: Option<EpochMillis>,
}

/// The end that an event tells of, or what is decided on it without one.
type Read = Result<End, Box<EventDecision>>;

/// What became of the tokens of each resource.
type Sweeps = BTreeMap<String, Swept>;

/// What became of one resource's tokens.
#[derive(Default)]
struct Swept {
    removals: Removals,
    /// How many a dry run leaves.
    found: usize,
    /// How many of them could not be deleted.
    not_deleted: usize,
    corrupt: usize,
    /// Why not all of it is done.
    error: Option<CallError>,
}

impl TokenSweeper {
    /// The function as it is configured. `clusters` are asked only if the configuration says so.
    pub fn new(config: Config, tokens: Tokens, clusters: Clusters) -> Self {
        let Config { processors, grace, reconcile_emr, dry_run, concurrency, .. } = config;
        let clusters = reconcile_emr.then_some(clusters);
        Self { tokens, clusters, processors, grace, dry_run, concurrency }
    }

    /// Handles the messages of a queue at the moment `now`. What is not done by `deadline` has failed. Each token is
    /// deleted on the condition that it still is the resource's, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, messages: &[Message], now: EpochMillis, deadline: Instant) -> Handled {
        let mut report = Report::default();
        let read: Vec<_> = messages.iter().map(|message| self.read(message.event())).collect();
        let swept = self.sweep_each(&read, now, deadline, &mut report).await;
        let decided: Vec<_> = read.into_iter().map(|read| self.decide(read, &swept, now, &mut report)).collect();
        for (message, decided) in messages.iter().zip(&decided) {
            decided.log(message.id());
        }
        let failed = messages.iter().zip(&decided).filter(|(_, decided)| !decided.decision.is_done());
        let answer = BatchAnswer::of(failed.map(|(message, _)| message));
        Handled { report, decided, answer }
    }

    /// Handles one event at the moment `now`.
    pub async fn handle_event(&self, event: Value, now: EpochMillis, deadline: Instant) -> (EventDecision, Report) {
        let mut report = Report::default();
        let read = self.read(BusEvent::from_json(event).map_err(NoEvent::from));
        let swept = self.sweep_each(slice::from_ref(&read), now, deadline, &mut report).await;
        let decided = self.decide(read, &swept, now, &mut report);
        decided.log(None);
        (decided, report)
    }

    /// Sweeps each resource once: what one event has found, the others need not look for.
    async fn sweep_each(&self, read: &[Read], now: EpochMillis, deadline: Instant, report: &mut Report) -> Sweeps {
        let mut resources = BTreeSet::new();
        for end in read.iter().flatten() {
            report.repeated += usize::from(!resources.insert(&end.resource));
        }
        let resources: Vec<_> = resources.into_iter().cloned().collect();
        let swept = for_each((self, now), &resources, Self::sweep, deadline, self.concurrency).await;
        for (_, swept) in &swept {
            report.count_removals(&swept.removals);
            report.would_delete += swept.found;
            report.not_deleted += swept.not_deleted;
            report.corrupt += swept.corrupt;
        }
        swept.into_iter().map(|(resource, swept)| (resource.clone(), swept)).collect()
    }

    fn decide(&self, read: Read, sweeps: &Sweeps, now: EpochMillis, report: &mut Report) -> EventDecision {
        let decided = match read {
            Ok(End { decided, resource, time }) => {
                EventDecision { decision: sweeps[&resource].decide(time, now, self.grace), ..decided }
            }
            Err(decided) => *decided,
        };
        report.count(&decided.decision);
        decided
    }

    /// The end that an event tells of, or what is decided on it without one.
    fn read(&self, event: Result<BusEvent, NoEvent>) -> Read {
        let event = event.map_err(|error| EventDecision::on(None, Decision::Failed(error.into())))?;
        let mut decided = EventDecision::on(Some(&event), Decision::NoEnd);
        match self.processors.read(&event) {
            Ok(processors::Reading::Ended { processor, resource }) => {
                decided.processor = Some(processor.to_owned());
                decided.resource = Some(resource.to_owned());
                Ok(End { decided, resource: resource.to_owned(), time: event.time() })
            }
            Ok(processors::Reading::NotAnEnd { processor }) => {
                decided.processor = Some(processor.to_owned());
                Err(Box::new(decided))
            }
            Err(error) => Err(Box::new(EventDecision { decision: Decision::Failed(error.into()), ..decided })),
        }
    }

    /// Deletes all tokens of a resource that has ended: page by page, so that what is done stays done.
    async fn sweep<'p>(
        (this, now): (&Self, EpochMillis),
        resource: &'p String,
        deadline: Instant,
    ) -> (&'p String, Swept) {
        let mut swept = Swept::default();
        let mut after = None;
        loop {
            let page = match within(deadline, this.tokens.of_resource(resource, after)).await {
                Ok(page) => page,
                Err(error) => {
                    swept.error = Some(error);
                    break;
                }
            };
            for error in &page.corrupt {
                swept.corrupt += 1;
                tracing::error!(resource, error = causes(error), "item is not a valid token");
            }
            if this.dry_run {
                swept.found += page.tokens.len();
            } else {
                let tokens: Vec<_> = page.tokens.into_iter().map(|token| (token, Reason::Ended)).collect();
                for (_, removal) in
                    for_each((this, now), &tokens, Self::delete, deadline, this.concurrency.min(TOKENS)).await
                {
                    swept.count(removal);
                }
            }
            after = page.next;
            if after.is_none() || swept.error.is_some() {
                break;
            }
        }
        (resource, swept)
    }

    /// Deletes a token for a reason.
    pub(crate) async fn delete<'p>(
        (this, now): (&Self, EpochMillis),
        token: &'p (Token, Reason),
        deadline: Instant,
    ) -> (&'p (Token, Reason), Result<Removal, CallError>) {
        (token, within(deadline, this.tokens.delete(&token.0, token.1, now)).await)
    }
}

impl Swept {
    fn count(&mut self, removal: Result<Removal, CallError>) {
        match removal {
            Ok(removal) => self.removals.count(removal),
            Err(error) => {
                self.not_deleted += 1;
                // One that may succeed later must bring the event again.
                if self.error.as_ref().is_none_or(|first| !first.is_retryable()) {
                    self.error = Some(error);
                }
            }
        }
    }

    /// What is decided on an event of the resource.
    fn decide(&self, ended: Option<EpochMillis>, now: EpochMillis, grace: Duration) -> Decision {
        match (&self.error, ended) {
            (Some(error), _) => Decision::Failed(error.into()),
            (None, _) if self.found > 0 => Decision::Found(self.found),
            (None, None) if self.removals.found() == 0 => Decision::Failed(Failure::Timeless),
            (None, ended) => {
                let age = ended.map_or(Duration::ZERO, |ended| now.since(ended));
                Decision::Decided(sweep::decide(&self.removals, age, grace), self.removals)
            }
        }
    }
}
