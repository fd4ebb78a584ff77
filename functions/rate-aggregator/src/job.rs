//! The aggregation of one job: list, fetch, judge, sum up.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    concurrent::{concurrently, within},
    error::{CallError, causes},
    rates::{Fetched, RateFiles},
    schema::rates::worker_of,
};
use tidegate_domain::{
    lease::fleet::Fleet,
    rates::{
        Cutoff, Field, Judgement, Rates, Report, moment,
        reading::{Content, Listed, Memory, Step, is_complete_enough, judge_content},
        rest::{LastWrites, Rest},
        summary::Summary,
        tally::Tally,
    },
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{
    outcome::{Aggregated, AggregationError, AggregationReport, Headline, SummaryOutcome},
    publication::{LastSummary, Publication, Times, longest},
};

/// How many rejected reports an aggregation names in the log, and how many that could not be read.
const NAMED: usize = 5;

/// A read that takes longer, with all attempts, is abandoned, so that another read can start.
const LONGEST_GET: Duration = Duration::from_secs(2);

/// What the process remembers of a job. Without it, the function fetches unchanged reports, does not count reports that it
/// cannot read, lists an idle job, grants no growth for a lease's time, and logs a line that says nothing new.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) memory: Memory,
    last_summary: Option<LastSummary>,
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
    pub(crate) files: &'a RateFiles,
    /// Whether the job is one of several, which end. The summary of the only job is always new.
    pub(crate) may_rest: bool,
    /// How many calls may be under way.
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) cutoff: Cutoff,
    /// The configured cap of leasing workers.
    pub(crate) cap: Option<Rates>,
    pub(crate) interval: Duration,
    pub(crate) began: EpochMillis,
    pub(crate) times: Times,
}

/// Sums up the reports of a job, and writes the summary.
pub(crate) async fn aggregate(context: Context<'_>, prefix: &str, job: &mut Job) -> Aggregated {
    let started = Instant::now();
    let (tally, report) = (Tally::default(), AggregationReport::default());
    let writes = LastWrites::default();
    let fleet = Fleet::new(context.cap);
    let mut reader = JobReader { context, prefix, tally, fleet, report, writes, named: 0, first_error: None };
    let read = reader.read(&mut job.memory).await;
    job.memory.end_listing(read.is_ok());
    let Context { files, may_rest, cutoff, interval, began, times, .. } = context;
    let writes = reader.writes;
    job.rest = (may_rest && read.is_ok()).then(|| writes.rest(began, cutoff, longest(interval))).flatten();
    let outcome = match read.map_err(AggregationError::from).and_then(|()| reader.sum()) {
        Ok(_) if writes.report.is_none() || job.rest.is_some() => Ok(SummaryOutcome::Idle),
        Ok(tally) => {
            let summary = Summary::new(began, tally, interval);
            let publication = Publication { files, prefix, fleet: &reader.fleet, summary, cutoff, times };
            Box::pin(publication.publish(&mut job.last_summary)).await.map_err(Into::into)
        }
        Err(error) => Err(error),
    };
    let JobReader { tally, report, fleet, .. } = reader;
    if let Err(error) = &outcome {
        tracing::error!(prefix, error = causes(error), "no new summary");
    }
    let mut aggregated =
        Aggregated { prefix: prefix.to_owned(), tally, report, took: started.elapsed(), outcome, is_news: true };
    let headline = Headline::of(&aggregated);
    let is_new = job.headline.replace(headline) != Some(headline);
    if is_new && fleet.lacks_cap() {
        tracing::warn!(prefix, "leasing workers get no leases, because neither they nor the configuration name a cap");
    }
    aggregated.is_news = is_new || aggregated.outcome.is_err();
    aggregated
}

/// The reports of a job, read so far.
struct JobReader<'a> {
    context: Context<'a>,
    prefix: &'a str,
    tally: Tally,
    fleet: Fleet,
    report: AggregationReport,
    /// When the reports and the summary that are there were written.
    writes: LastWrites,
    named: usize,
    /// The error of the first report that could not be read.
    first_error: Option<CallError>,
}

impl JobReader<'_> {
    /// Reads all reports. All are listed before the first is fetched: one that hangs delays no listing.
    async fn read(&mut self, memory: &mut Memory) -> Result<(), CallError> {
        let Context { files, times, concurrency, .. } = self.context;
        let (mut fetch, mut after) = (Vec::new(), None);
        loop {
            let page = within(times.read_by, files.objects(self.prefix, after)).await?;
            self.report.pages += 1;
            fetch.extend(self.count_known(page.entries, memory));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let reports = concurrently(&fetch, concurrency, |listed| async move {
            let by = times.read_by.min(Instant::now() + LONGEST_GET);
            (listed, within(by, files.report(&listed.key)).await)
        });
        for (listed, fetched) in reports.await {
            self.fetched(listed, fetched, memory);
        }
        Ok(())
    }

    /// Returns the sums. Fails if too many reports could not be read.
    fn sum(&mut self) -> Result<Tally, AggregationError> {
        self.report.judged(&self.tally);
        let (active, unknown) = (self.tally.active, self.report.unknown);
        match self.first_error.take() {
            Some(source) if !is_complete_enough(active, unknown) => {
                Err(AggregationError::Unread { unknown, workers: active + unknown, source })
            }
            _ => {
                self.report.summed(&self.tally, self.context.began);
                self.report.leasing = Some(self.tally.active - self.fleet.others().active);
                Ok(self.tally)
            }
        }
    }

    /// Counts reports whose content is known. Returns those to fetch.
    fn count_known(&mut self, listed: Vec<Listed>, memory: &mut Memory) -> Vec<Listed> {
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
                Step::Judged(judgement) => {
                    self.count(&listed.key, judgement);
                    if judgement != Judgement::Stale {
                        self.see_unreadable(&listed);
                    }
                }
                Step::Known(content) => {
                    memory.keep(&listed.key);
                    self.count_content(&listed, &content);
                }
            }
            self.report.gets_saved += 1;
        }
        fetch
    }

    /// Counts a report that was fetched. If the read failed, the last known report counts while it is fresh. If that is
    /// stale, the worker counts as unknown.
    fn fetched(&mut self, listed: &Listed, fetched: Result<Fetched, CallError>, memory: &mut Memory) {
        self.report.gets += 1;
        match fetched {
            Ok(Fetched::Found { tag, written, content }) => {
                let content = memory.complete(&listed.key, content, written.unwrap_or(self.context.began));
                self.count_content(listed, &content);
                if let Some(tag) = tag {
                    memory.remember(listed.key.clone(), tag, content);
                }
            }
            Ok(Fetched::Vanished) => self.report.vanished += 1,
            Err(error) => {
                self.report.gets_failed += 1;
                let known = memory.keep(&listed.key).filter(|content| self.is_fresh(content));
                if self.report.gets_failed <= NAMED {
                    tracing::warn!(key = listed.key, known = known.is_some(), error = causes(&error), "no report");
                }
                if let Some(content) = known {
                    self.count_content(listed, &content);
                } else {
                    self.report.unknown += 1;
                }
                // The file may be newer than what is known of it.
                self.see_unreadable(listed);
                self.first_error.get_or_insert(error);
            }
        }
    }

    /// Counts a report whose content is known.
    fn count_content(&mut self, listed: &Listed, content: &Content) {
        let Context { began, cutoff, .. } = self.context;
        let judgement = judge_content(content, began, cutoff);
        self.count(&listed.key, judgement);
        match (content, worker_of(self.prefix, &listed.key)) {
            (Ok(Report { lease: Some(keys), timestamp: Field::Number(written), .. }), Some(worker)) => {
                self.fleet.see(worker, moment(*written).unwrap_or(began), *keys);
            }
            (Ok(report), _) => self.fleet.count_other(judgement, report.is_first),
            (Err(_), _) => self.see_unreadable(listed),
        }
    }

    /// A leasing worker keeps its lease while its report is there.
    fn see_unreadable(&mut self, listed: &Listed) {
        if let Some(worker) = worker_of(self.prefix, &listed.key) {
            self.fleet.see_unreadable(worker, listed.modified.unwrap_or(self.context.began));
        }
    }

    fn is_fresh(&self, content: &Content) -> bool {
        let Context { began, cutoff, .. } = self.context;
        matches!(judge_content(content, began, cutoff), Judgement::Fresh { .. })
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
