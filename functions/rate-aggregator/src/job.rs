//! The aggregation of one job: list, fetch, judge, sum up.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    concurrent::{for_each, within},
    error::{CallError, causes},
    rates::{Cursor, Fetched, Page, RateFiles},
};
use tidegate_domain::{
    rates::{
        Cutoff, Judgement,
        reading::{Content, Listed, Memory, Step, is_complete_enough, judge_content},
        rest::{LastWrites, Rest},
        summary::Summary,
        tally::Tally,
    },
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{
    publication::{LastSummary, publish},
    report::{Headline, Report},
    time::{Times, longest},
};

/// How many rejected reports an aggregation names in the log, and how many that could not be read.
const NAMED: usize = 5;

/// A report that takes longer, with all attempts, is given up, so that its place is another's.
const LONGEST_GET: Duration = Duration::from_secs(2);

/// What the process remembers of a job. Without it, the function fetches unchanged reports, does not count reports that it
/// cannot read, lists an idle job, and logs a line that says nothing new.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) memory: Memory,
    seen: Option<LastSummary>,
    rest: Option<Rest>,
    headline: Option<Headline>,
}

impl Job {
    /// Whether the job is idle and is not to be listed at this moment.
    pub(crate) fn rests(&self, now: EpochMillis) -> bool {
        self.rest.is_some_and(|rest| rest.covers(now))
    }
}

/// What the aggregation of a job needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub files: &'a RateFiles,
    /// Whether the job is one of several, which end. The summary of the only job is always new.
    pub may_rest: bool,
    /// How many calls may be under way.
    pub concurrency: NonZeroUsize,
    pub cutoff: Cutoff,
    pub interval: Duration,
    pub began: EpochMillis,
    pub times: Times,
}

/// What became of a job's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Published {
        sequence: u64,
    },
    /// One that began no earlier is there.
    Superseded,
    /// Others wrote again and again in between; theirs are no older by much.
    Lost,
    /// There are no reports, or all are stale and the summary says so: the summaries of finished jobs stay as they are.
    Idle,
}

/// Why there is no new summary of a job.
#[derive(Debug, thiserror::Error)]
pub enum AggregationError {
    /// A call failed without which there is none.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Too many reports could not be read for the sums to stand for all workers.
    #[error("{unknown} of {workers} workers' reports could not be read; the first error")]
    Unread {
        /// Workers of which nothing is known that counts.
        unknown: usize,
        /// These, and those that count.
        workers: usize,
        /// Why the first one could not be read.
        source: CallError,
    },
}

impl AggregationError {
    /// Whether the same aggregation may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Call(error) | Self::Unread { source: error, .. } => error.is_retryable(),
        }
    }
}

/// What the aggregation of a job came to.
#[derive(Debug)]
pub struct Aggregated {
    /// The job's prefix.
    pub prefix: String,
    /// What its reports come to, if they could be listed.
    pub tally: Tally,
    /// The same and what it cost, in numbers.
    pub report: Report,
    pub took: Duration,
    /// What became of the summary.
    pub outcome: Result<Outcome, AggregationError>,
    /// Whether this differs from the job's last aggregation, or failed.
    pub is_news: bool,
}

impl Aggregated {
    pub const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Ok(Outcome::Published { .. }) => "published",
            Ok(Outcome::Superseded) => "superseded",
            Ok(Outcome::Lost) => "lost",
            Ok(Outcome::Idle) => "idle",
            Err(_) => "failed",
        }
    }
}

/// Sums up the reports of a job, and writes the summary.
pub(crate) async fn aggregate(context: Context<'_>, prefix: &str, job: &mut Job) -> Aggregated {
    let started = Instant::now();
    let (tally, report) = (Tally::default(), Report::default());
    let writes = LastWrites::default();
    let mut reading = Reading { context, prefix, tally, report, writes, named: 0, unread: None };
    let read = reading.read(&mut job.memory).await;
    job.memory.end_listing(read.is_ok());
    let Context { files, may_rest, cutoff, interval, began, times, .. } = context;
    let writes = reading.writes;
    job.rest = (may_rest && read.is_ok()).then(|| writes.rest(began, cutoff, longest(interval))).flatten();
    let outcome = match read.map_err(AggregationError::from).and_then(|()| reading.sum()) {
        Ok(_) if writes.report.is_none() || job.rest.is_some() => Ok(Outcome::Idle),
        Ok(tally) => {
            let summary = Summary { began, tally, interval, sequence: 0 };
            Box::pin(publish(files, prefix, &mut job.seen, summary, cutoff, times)).await.map_err(Into::into)
        }
        Err(error) => Err(error),
    };
    let Reading { tally, report, .. } = reading;
    if let Err(error) = &outcome {
        tracing::error!(prefix, error = causes(error), "no new summary");
    }
    let mut aggregated =
        Aggregated { prefix: prefix.to_owned(), tally, report, took: started.elapsed(), outcome, is_news: true };
    let headline = Headline::of(&aggregated);
    aggregated.is_news = job.headline.replace(headline) != Some(headline) || aggregated.outcome.is_err();
    aggregated
}

/// The reports of a job, read so far.
struct Reading<'a> {
    context: Context<'a>,
    prefix: &'a str,
    tally: Tally,
    report: Report,
    /// When the reports and the summary that are there were written.
    writes: LastWrites,
    named: usize,
    /// Why the first report that could not be read could not.
    unread: Option<CallError>,
}

impl Reading<'_> {
    /// Reads all reports. All are listed before the first is fetched: one that hangs delays no listing.
    async fn read(&mut self, memory: &mut Memory) -> Result<(), CallError> {
        let (mut fetch, mut after) = (Vec::new(), None);
        loop {
            let page = list(self.context, self.prefix, after).await?;
            self.report.pages += 1;
            fetch.extend(self.known(page.entries, memory));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let Context { times, concurrency, .. } = self.context;
        for (listed, fetched) in for_each(self.context, &fetch, get, times.read_by, concurrency).await {
            self.fetched(listed, fetched, memory);
        }
        Ok(())
    }

    /// What all of them come to, now that they are read, unless too many are not.
    fn sum(&mut self) -> Result<Tally, AggregationError> {
        self.report.judged(&self.tally);
        let (active, unknown) = (self.tally.active, self.report.unknown);
        match self.unread.take() {
            Some(source) if !is_complete_enough(active, unknown) => {
                Err(AggregationError::Unread { unknown, workers: active + unknown, source })
            }
            _ => {
                self.report.summed(&self.tally, self.context.began);
                Ok(self.tally)
            }
        }
    }

    /// Counts what need not be fetched, and returns the rest.
    fn known(&mut self, listed: Vec<Listed>, memory: &mut Memory) -> Vec<Listed> {
        let Context { files, began, cutoff, .. } = self.context;
        let summary = files.summary_key(self.prefix);
        let mut fetch = Vec::new();
        for listed in listed {
            if listed.key == summary {
                self.writes.summary = listed.modified;
                continue;
            }
            // A report whose time the listing does not tell may be new.
            self.writes.report = self.writes.report.max(Some(listed.modified.unwrap_or(began)));
            match memory.step(&listed, began, cutoff) {
                Step::Fetch => {
                    fetch.push(listed);
                    continue;
                }
                Step::Judged(judgement) => self.count(&listed.key, judgement),
                Step::Known(content) => {
                    memory.keep(&listed.key);
                    self.count_content(&listed.key, &content);
                }
            }
            self.report.gets_saved += 1;
        }
        fetch
    }

    /// Counts what was fetched. If it did not come, what the worker said before may still count; if that is stale, it
    /// is not known whether the worker is.
    fn fetched(&mut self, listed: &Listed, fetched: Result<Fetched, CallError>, memory: &mut Memory) {
        self.report.gets += 1;
        match fetched {
            Ok(Fetched::Found { tag, content }) => {
                self.count_content(&listed.key, &content);
                if let Some(tag) = tag {
                    memory.remember(listed.key.clone(), tag, content);
                }
            }
            Ok(Fetched::Vanished) => self.report.vanished += 1,
            Err(error) => {
                self.report.gets_failed += 1;
                let Context { began, cutoff, .. } = self.context;
                let known = memory.keep(&listed.key).map(|content| judge_content(&content, began, cutoff));
                let known = known.filter(|judgement| matches!(judgement, Judgement::Fresh { .. }));
                if self.report.gets_failed <= NAMED {
                    tracing::warn!(key = listed.key, known = known.is_some(), error = causes(&error), "no report");
                }
                match known {
                    Some(judgement) => self.count(&listed.key, judgement),
                    None => self.report.unknown += 1,
                }
                self.unread.get_or_insert(error);
            }
        }
    }

    fn count_content(&mut self, key: &str, content: &Content) {
        self.count(key, judge_content(content, self.context.began, self.context.cutoff));
    }

    fn count(&mut self, key: &str, judgement: Judgement) {
        if let Judgement::Rejected(reason) = judgement {
            if self.named < NAMED {
                tracing::warn!(key, reason = reason.to_string(), "a report is rejected");
            }
            self.named += 1;
        }
        self.tally.count(judgement);
    }
}

async fn list(context: Context<'_>, prefix: &str, after: Option<Cursor>) -> Result<Page<Listed>, CallError> {
    within(context.times.read_by, context.files.objects(prefix, after)).await
}

async fn get<'p>(context: Context<'_>, listed: &'p Listed, by: Instant) -> (&'p Listed, Result<Fetched, CallError>) {
    let by = by.min(Instant::now() + LONGEST_GET);
    (listed, within(by, context.files.report(&listed.key)).await)
}
