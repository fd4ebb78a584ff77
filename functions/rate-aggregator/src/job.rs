//! The aggregation of one job: list, fetch, judge, sum up.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    concurrent::for_each,
    error::{CallError, causes},
    rates::{Cursor, Fetched, Page, RateFiles},
};
use tidegate_domain::{
    rates::{
        Cutoff, Judgement,
        reading::{Content, Listed, Memory, Step, judge_content},
        summary::Summary,
        tally::Tally,
    },
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{
    publication::{Seen, publish},
    report::Report,
    time::{Times, within},
};

/// How many rejected reports an aggregation names in the log.
const NAMED: usize = 5;

/// A report that takes longer, with all attempts, is given up, so that its place is another's.
const LONGEST_GET: Duration = Duration::from_secs(2);

/// What is remembered of a job. Nothing depends on it but the cost.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) memory: Memory,
    seen: Option<Seen>,
}

/// What the aggregation of a job needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub files: &'a RateFiles,
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
    /// It is there.
    Published {
        /// Its number.
        sequence: u64,
    },
    /// One that began no earlier is there.
    Superseded,
    /// Others wrote again and again in between; theirs are no older by much.
    Lost,
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
    /// How long it took.
    pub took: Duration,
    /// What became of the summary.
    pub outcome: Result<Outcome, CallError>,
}

impl Aggregated {
    /// The outcome's name.
    #[must_use]
    pub const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Ok(Outcome::Published { .. }) => "published",
            Ok(Outcome::Superseded) => "superseded",
            Ok(Outcome::Lost) => "lost",
            Err(_) => "failed",
        }
    }
}

/// Sums up the reports of a job, and writes the summary.
pub(crate) async fn aggregate(context: Context<'_>, prefix: &str, job: &mut Job) -> Aggregated {
    let started = Instant::now();
    let mut reading = Reading { context, prefix, tally: Tally::default(), report: Report::default(), named: 0 };
    let read = reading.read(&mut job.memory).await;
    job.memory.turn(read.is_ok());
    let Reading { tally, mut report, .. } = reading;
    report.count(&tally, context.began);
    let outcome = match read {
        Ok(()) => {
            let Context { files, cutoff, interval, began, times, .. } = context;
            let summary = Summary { began, tally, interval, sequence: 0 };
            Box::pin(publish(files, prefix, &mut job.seen, summary, cutoff, times)).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &outcome {
        tracing::error!(prefix, error = causes(error), "no new summary");
    }
    Aggregated { prefix: prefix.to_owned(), tally, report, took: started.elapsed(), outcome }
}

/// The reports of a job, read so far.
struct Reading<'a> {
    context: Context<'a>,
    prefix: &'a str,
    tally: Tally,
    report: Report,
    named: usize,
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

    /// Counts what need not be fetched, and returns the rest.
    fn known(&mut self, listed: Vec<Listed>, memory: &mut Memory) -> Vec<Listed> {
        let Context { began, cutoff, .. } = self.context;
        let mut fetch = Vec::new();
        for listed in listed {
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

    /// Counts what was fetched. If it did not come, what the worker said before may still count.
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
                let known = memory.keep(&listed.key);
                tracing::warn!(key = listed.key, known = known.is_some(), error = causes(&error), "no report");
                match known {
                    Some(content) => self.count_content(&listed.key, &content),
                    None => self.report.unknown += 1,
                }
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
    within(context.times.read_by, context.files.reports(prefix, after)).await
}

async fn get<'p>(context: Context<'_>, listed: &'p Listed, by: Instant) -> (&'p Listed, Result<Fetched, CallError>) {
    let by = by.min(Instant::now() + LONGEST_GET);
    (listed, within(by, context.files.report(&listed.key)).await)
}
