//! The last step of an aggregation: the summary is written unless a newer one is there. And when each step must be done.

use std::time::Duration;

use tidegate_aws::{
    concurrent::within,
    error::CallError,
    rates::{RateFiles, Replaced, Stored, text},
};
use tidegate_domain::{
    lease::{
        fleet::Fleet,
        ledger::{Ledger, StoredSummary},
    },
    rates::{
        Cutoff, Field,
        summary::{Previous, Replacement, Summary, decide_replacement},
    },
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::outcome::SummaryOutcome;

/// An aggregation may take as long as the interval, or this long if that is shorter.
const LEAST: Duration = Duration::from_secs(5);

/// The time of one aggregation. What hangs costs a part of it, not the summary.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it began.
    pub start: Instant,
    /// Stop reading at this time.
    pub read_by: Instant,
    /// Stop writing at this time.
    pub write_by: Instant,
}

/// How long an aggregation may take.
pub(crate) fn longest(interval: Duration) -> Duration {
    interval.max(LEAST)
}

impl Times {
    /// The times of an aggregation that starts at `start`, in an invocation that must answer by `deadline`: three
    /// quarters are for reading.
    pub fn new(start: Instant, interval: Duration, deadline: Instant) -> Self {
        let write_by = deadline.min(start + longest(interval));
        let time = write_by.saturating_duration_since(start);
        Self { start, read_by: start + time / 4 * 3, write_by }
    }
}

/// The number of attempts to write a summary. A failed attempt means that another aggregation has written one, which is
/// almost always newer.
const ATTEMPTS: usize = 8;

/// What this process knows of the stored summary, and what it has granted.
///
/// Without it, the function reads the summary, and grants no growth while a grant of that summary may be in force.
#[derive(Debug)]
pub(crate) struct LastSummary {
    /// The tag of the stored summary, and what it says. `None` if no summary is stored.
    stored: Option<(String, Previous)>,
    /// What the summaries of this process have granted.
    ledger: Ledger,
    /// The summary that this process tried to write after it, if it is not known whether it is stored.
    tried: Option<String>,
}

impl LastSummary {
    /// Takes over what was read at the moment `now`. Keeps the ledger unless another process has written a summary.
    fn after_read(last: Option<Self>, object: Option<&Stored>, now: EpochMillis) -> Self {
        let stored = object.map(|object| (object.tag.clone(), text::previous(&object.text)));
        let is_ours = |last: &Self| match object {
            Some(object) => last.has_tried(object) || last.tag() == Some(&object.tag),
            // The summary was deleted. The grants of this process are still in force.
            None => true,
        };
        let ledger = match last.filter(is_ours) {
            Some(last) => last.ledger,
            None => Ledger::new(object.map(stored_summary), now),
        };
        Self { stored, ledger, tried: None }
    }

    fn tag(&self) -> Option<&str> {
        self.stored.as_ref().map(|(tag, _)| tag.as_str())
    }

    fn has_tried(&self, object: &Stored) -> bool {
        self.tried.as_ref().is_some_and(|tried| tried.as_bytes() == object.text)
    }
}

fn stored_summary(object: &Stored) -> StoredSummary {
    let reports = text::lease::summary(&object.text).map(|lease| lease.reports).unwrap_or_default();
    StoredSummary { written: object.written, reports }
}

/// A summary that is to be written unless a newer one is there.
#[derive(Debug)]
pub(crate) struct Publication<'a> {
    pub(crate) files: &'a RateFiles,
    pub(crate) prefix: &'a str,
    pub(crate) fleet: &'a Fleet,
    pub(crate) summary: Summary,
    pub(crate) cutoff: Cutoff,
    pub(crate) times: Times,
}

impl Publication<'_> {
    /// Replaces an older summary. `last` is what is known of the stored summary, before and after.
    pub(crate) async fn publish(self, last: &mut Option<LastSummary>) -> Result<SummaryOutcome, CallError> {
        let Self { files, prefix, fleet, mut summary, cutoff, times } = self;
        let began = summary.began;
        let now = || began.after(times.start.elapsed());
        for _ in 0..ATTEMPTS {
            let mut is_ours = false;
            let last = match last {
                Some(last) if last.tried.is_none() => last,
                _ => {
                    let object = within(times.write_by, files.summary(prefix)).await?;
                    is_ours = last.as_ref().zip(object.as_ref()).is_some_and(|(last, object)| last.has_tried(object));
                    let read = LastSummary::after_read(last.take(), object.as_ref(), now());
                    last.insert(read)
                }
            };
            let previous = last.stored.as_ref().map(|(_, previous)| *previous);
            match decide_replacement(previous, began, now(), cutoff) {
                Replacement::Next { sequence } => summary.sequence = sequence,
                // An earlier attempt has succeeded, but its response was lost.
                Replacement::Superseded if is_ours => {
                    return Ok(SummaryOutcome::Published { sequence: summary.sequence });
                }
                Replacement::Superseded => return Ok(SummaryOutcome::Superseded),
            }
            fleet.add_leases(&mut summary, &mut last.ledger, now());
            let text = last.tried.insert(text::summary(&summary));
            let tag = last.stored.as_ref().map(|(tag, _)| tag.as_str());
            if let Replaced::Written { tag } =
                Box::pin(within(times.write_by, files.replace(prefix, tag, text))).await?
            {
                if let Some(tag) = tag {
                    let timestamp = Field::Number(summary.timestamp());
                    last.stored = Some((tag, Previous { timestamp, sequence: Some(summary.sequence) }));
                    last.tried = None;
                }
                return Ok(SummaryOutcome::Published { sequence: summary.sequence });
            }
        }
        Ok(SummaryOutcome::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_fit_interval_and_invocation() {
        let check = |interval, left, read, write| {
            let start = Instant::now();
            let [interval, left, read, write] = [interval, left, read, write].map(Duration::from_millis);
            let times = Times::new(start, interval, start + left);
            assert_eq!((times.read_by - start, times.write_by - start), (read, write), "{interval:?} {left:?}");
        };
        check(5_000, 60_000, 3_750, 5_000);
        check(8_000, 60_000, 6_000, 8_000);
        check(1_000, 60_000, 3_750, 5_000);
        check(5_000, 400, 300, 400);
        check(5_000, 0, 0, 0);
    }
}
