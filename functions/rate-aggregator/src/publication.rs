//! The last step of an aggregation: the summary is written unless a newer one is there. And when each step must be done.

use std::time::Duration;

use tidegate_aws::{
    concurrent::within,
    error::CallError,
    rates::{RateFiles, Replaced, text},
};
use tidegate_domain::rates::{
    Cutoff, Field,
    summary::{Previous, Replacement, Summary, decide_replacement},
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

/// The stored summary, as this process has read or written it last.
#[derive(Clone, Debug)]
pub(crate) struct LastSummary {
    /// The tag of the content, and what it says; `None` if no summary is stored.
    summary: Option<(String, Previous)>,
}

/// Replaces an older summary. `last` is what is known of the stored summary, before and after.
pub(crate) async fn publish(
    files: &RateFiles,
    prefix: &str,
    last: &mut Option<LastSummary>,
    mut summary: Summary,
    cutoff: Cutoff,
    times: Times,
) -> Result<SummaryOutcome, CallError> {
    let (mut tried, deadline) = (None, times.write_by);
    for _ in 0..ATTEMPTS {
        let stored = if let Some(stored) = last.take() {
            stored
        } else {
            let object = within(deadline, files.summary(prefix)).await?;
            let text = object.as_ref().map(|object| object.text.clone());
            let stored = LastSummary { summary: object.map(|object| (object.tag, text::previous(&object.text))) };
            // The stored text is ours: an earlier attempt succeeded, but its response was lost.
            if tried.is_some() && text == tried {
                *last = Some(stored);
                return Ok(SummaryOutcome::Published { sequence: summary.sequence });
            }
            stored
        };
        let previous = stored.summary.as_ref().map(|(_, previous)| *previous);
        let now = summary.began.after(times.start.elapsed());
        match decide_replacement(previous, summary.began, now, cutoff) {
            Replacement::Superseded => {
                *last = Some(stored);
                return Ok(SummaryOutcome::Superseded);
            }
            Replacement::Next { sequence } => summary.sequence = sequence,
        }
        let text = text::summary(&summary);
        let tag = stored.summary.as_ref().map(|(tag, _)| tag.as_str());
        if let Replaced::Written { tag } = Box::pin(within(deadline, files.replace(prefix, tag, &text))).await? {
            let written = Previous { timestamp: Field::Number(summary.timestamp()), sequence: Some(summary.sequence) };
            *last = tag.map(|tag| LastSummary { summary: Some((tag, written)) });
            return Ok(SummaryOutcome::Published { sequence: summary.sequence });
        }
        tried = Some(text.into_bytes());
    }
    Ok(SummaryOutcome::Lost)
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
