//! Which reports must be fetched, and whether enough of them are known. Fetching each worker's report every few seconds
//! is the main cost of an aggregation.

use std::{collections::HashMap, time::Duration};

use super::{Cutoff, Field, Judgement, Reason, Report, judge};
use crate::{lease::FORGET, time::EpochMillis};

/// The most bytes of a report. A larger one is not read. A worker's report has about 150, a leasing worker's about 350.
pub const MAX_SIZE: u64 = 64 * 1024;

/// S3 truncates `LastModified` to seconds, so a report may be up to a second younger than its listing says.
///
/// AWS: [`Object.LastModified`](https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html).
pub(super) const GRAIN: Duration = Duration::from_secs(1);

/// The listing of a report, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The key of the object.
    pub key: String,
    /// The entity tag: the same tag means the same content. `None` if the listing has none.
    pub tag: Option<String>,
    /// The size, in bytes.
    pub size: u64,
    /// When the object was written, to the second. `None` if the listing does not say so.
    pub modified: Option<EpochMillis>,
}

/// The parsed report, or why it cannot be parsed.
pub type Content = Result<Report, Reason>;

/// What to do about a listed report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Nothing. The listing is enough for this judgement.
    Judged(Judgement),
    /// Nothing. This is the remembered content.
    Known(Content),
    /// Fetch the report.
    Fetch,
}

/// Remembers the content of reports by key. It holds no more reports than the last listing.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    last: HashMap<String, (String, Content)>,
    next: HashMap<String, (String, Content)>,
}

impl Memory {
    /// Decides what to do about a report that is listed at the moment `now`. A worker's clock may differ from S3's, so
    /// the timestamp in the report decides. The time of the listing only avoids reading reports that are certainly stale,
    /// and whose workers cannot hold a lease.
    #[must_use]
    pub fn step(&self, listed: &Listed, now: EpochMillis, cutoff: Cutoff) -> Step {
        if listed.modified.is_some_and(|modified| now.since(modified) > cutoff.get().max(FORGET) + GRAIN) {
            return Step::Judged(Judgement::Stale);
        }
        if listed.size > MAX_SIZE {
            return Step::Judged(Judgement::Rejected(Reason::TooLarge));
        }
        match (self.last.get(&listed.key), &listed.tag) {
            (Some((known, content)), Some(tag)) if known == tag => Step::Known(*content),
            _ => Step::Fetch,
        }
    }

    /// Completes the content of a report that was fetched, where the store received it when `written`. That is also the time of
    /// a leasing worker's report: such a worker counts with any clock.
    ///
    /// # Errors
    /// Why the content is invalid, if it is.
    pub fn complete(&self, key: &str, content: Content, written: EpochMillis) -> Content {
        let report = content?;
        let timestamp = if report.lease.is_some() { Field::Number(written.seconds()) } else { report.timestamp };
        Ok(Report { timestamp, is_first: !self.last.contains_key(key), ..report })
    }

    /// Remembers the content with this tag, until a listing ends without the report.
    pub fn remember(&mut self, key: String, tag: String, content: Content) {
        self.next.insert(key, (tag, content));
    }

    /// Keeps the last known content for another listing. Returns it, if there is one.
    pub fn keep(&mut self, key: &str) -> Option<Content> {
        let (key, (tag, content)) = self.last.remove_entry(key)?;
        self.next.insert(key, (tag, content));
        Some(content)
    }

    /// Ends a listing and forgets the reports that it did not contain. An incomplete listing forgets none.
    pub fn end_listing(&mut self, is_complete: bool) {
        if is_complete {
            self.last = std::mem::take(&mut self.next);
        } else {
            self.last.extend(self.next.drain());
        }
    }

    /// Returns the number of remembered reports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Returns whether no report is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

/// Judges the content of a report at the moment `now`.
#[must_use]
pub fn judge_content(content: &Content, now: EpochMillis, cutoff: Cutoff) -> Judgement {
    match content {
        Ok(report) => judge(report, now, cutoff),
        Err(reason) => Judgement::Rejected(*reason),
    }
}

/// One report in this many may be unread.
const ONE_IN: usize = 10;

/// Returns whether the sums over the `active` workers may be published without the `unread` workers. At most a tenth of
/// all reports may be unread. Workers use up any capacity that the sum leaves free, so with more missing, the previous summary is
/// more accurate.
#[must_use]
pub const fn is_complete_enough(active: usize, unread: usize) -> bool {
    unread <= active / (ONE_IN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_may_be_unread() {
        let check =
            |active, unread, expect| assert_eq!(is_complete_enough(active, unread), expect, "{active} {unread}");
        check(0, 0, true);
        check(1, 0, true);
        check(0, 1, false);
        check(8, 1, false);
        check(9, 1, true);
        check(17, 2, false);
        check(18, 2, true);
        check(900, 100, true);
        check(899, 100, false);
        check(usize::MAX, usize::MAX, false);
    }
}
