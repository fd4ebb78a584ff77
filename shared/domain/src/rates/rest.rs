//! How often to list an idle job. A finished job leaves its files behind, and each listing of them costs money.

use std::time::Duration;

use super::{Cutoff, reading::GRAIN};
use crate::time::EpochMillis;

/// The longest rest. A process that knows nothing lists every job once, so a rest of a minute costs no more than an
/// invocation a minute in a new process.
const LONGEST: Duration = Duration::from_mins(1);
/// The rest of a prefix without a report and a summary: workers may be about to start.
const UNKNOWN: Duration = Duration::from_secs(10);
/// A rest lasts a tenth of the time for which the job has been silent.
const SILENCE_PER_REST: u32 = 10;

/// When the objects of a job were last written, according to its listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastWrites {
    /// The newest report. `None` without reports.
    pub report: Option<EpochMillis>,
    /// The summary. `None` without a summary.
    pub summary: Option<EpochMillis>,
}

/// A period in which an idle job is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    start: EpochMillis,
    end: EpochMillis,
}

impl LastWrites {
    /// Returns the rest of a job that was listed at the moment `now`, or `None` if it has something to aggregate. An
    /// aggregation takes `longest` at most.
    ///
    /// A job is idle if it has no reports, or if all are stale and its summary says so. The summary says so if its
    /// aggregation began after the newest report became stale, by a clock that is up to the cutoff behind the store's.
    #[must_use]
    pub fn rest(self, now: EpochMillis, cutoff: Cutoff, longest: Duration) -> Option<Rest> {
        if let Some(report) = self.report {
            let stale = cutoff.get() + GRAIN;
            let is_settled =
                self.summary.is_some_and(|summary| summary.since(report) >= stale + cutoff.get() + longest);
            if now.since(report) <= stale || !is_settled {
                return None;
            }
        }
        let rest = match self.report.or(self.summary) {
            Some(last) => (now.since(last) / SILENCE_PER_REST).min(LONGEST),
            None => UNKNOWN,
        };
        Some(Rest { start: now, end: now.after(rest) })
    }
}

impl Rest {
    /// Returns whether the job still rests at the moment `now`. A clock that was set back ends the rest.
    #[must_use]
    pub fn covers(self, now: EpochMillis) -> bool {
        (self.start..self.end).contains(&now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_AGGREGATION: Duration = Duration::from_secs(5);

    /// A moment, in seconds.
    fn at(second: i64) -> EpochMillis {
        EpochMillis::new(second * 1_000).unwrap()
    }

    /// The rest of a job that is listed at second 10,000, in milliseconds.
    fn check(report: Option<i64>, summary: Option<i64>, expect: Option<i64>) {
        let writes = LastWrites { report: report.map(at), summary: summary.map(at) };
        let rest = writes.rest(at(10_000), Cutoff::DEFAULT, LONGEST_AGGREGATION);
        assert_eq!(rest.map(|rest| rest.end.get() - rest.start.get()), expect, "{report:?} {summary:?}");
    }

    #[test]
    fn idle_jobs_rest_a_tenth_of_their_silence() {
        check(Some(9_900), Some(9_936), Some(10_000));
        check(Some(9_400), Some(9_700), Some(60_000));
        check(Some(0), Some(100), Some(60_000));
        check(None, Some(9_900), Some(10_000));
        check(None, Some(10_001), Some(0));
        check(None, None, Some(10_000));
    }

    #[test]
    fn active_jobs_do_not_rest() {
        check(Some(9_984), Some(10_020), None);
        check(Some(10_001), Some(10_100), None);
        check(Some(9_900), Some(9_935), None);
        check(Some(9_900), Some(9_800), None);
        check(Some(9_900), None, None);
    }

    #[test]
    fn a_rest_ends_when_the_clock_leaves_it() {
        let rest = Rest { start: at(10), end: at(20) };
        assert_eq!([9, 10, 19, 20].map(|second| rest.covers(at(second))), [false, true, true, false]);
    }
}
