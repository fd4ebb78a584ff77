//! Which reports must be fetched, and which are known: a call for each worker every few seconds is what costs.

use std::{collections::HashMap, time::Duration};

use super::{Cutoff, Judgement, Reason, Report, judge};
use crate::time::EpochMillis;

/// Bytes that a report may have; a larger one is not read. A report as workers write it has some 150.
pub const MAX_SIZE: u64 = 64 * 1024;

/// A store that tells whole seconds cuts off what is below, so what it lists is up to this much younger than it says.
pub(super) const GRAIN: Duration = Duration::from_secs(1);

/// A report as it is listed: without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub key: String,
    /// Which content it has, so that the same tag is the same content; `None` if it is not told.
    pub tag: Option<String>,
    /// Its bytes.
    pub size: u64,
    /// When it was written, to the second; `None` if it is not told.
    pub modified: Option<EpochMillis>,
}

/// What a report says, or why it says nothing.
pub type Content = Result<Report, Reason>;

/// What is done about a listed report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Nothing: whatever it says, this is what it is worth.
    Judged(Judgement),
    /// Nothing: this is what it says, as is known.
    Known(Content),
    /// It must be fetched.
    Fetch,
}

/// What a fleet's reports said, by where they are: bounded by what was listed last.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    last: HashMap<String, (String, Content)>,
    next: HashMap<String, (String, Content)>,
}

impl Memory {
    /// What is done about a report that is listed at the moment `now`. A worker's clock may differ from the store's,
    /// so a report's own time decides wherever it is read; the store's only spares reading what is stale by far.
    #[must_use]
    pub fn step(&self, listed: &Listed, now: EpochMillis, cutoff: Cutoff) -> Step {
        if listed.modified.is_some_and(|modified| now.since(modified) > cutoff.get() + GRAIN) {
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

    /// Remembers what a report says that was listed or fetched with this tag, until a listing ends without it.
    pub fn remember(&mut self, key: String, tag: String, content: Content) {
        self.next.insert(key, (tag, content));
    }

    /// Goes on remembering what a report said last, and tells it, if that is known.
    pub fn keep(&mut self, key: &str) -> Option<Content> {
        let (key, (tag, content)) = self.last.remove_entry(key)?;
        self.next.insert(key, (tag, content));
        Some(content)
    }

    /// Ends a listing: what it did not remember is forgotten, unless it broke off before its end.
    pub fn turn(&mut self, is_complete: bool) {
        if is_complete {
            self.last = std::mem::take(&mut self.next);
        } else {
            self.last.extend(self.next.drain());
        }
    }

    /// How many reports are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

/// What a report is worth whose content is known.
#[must_use]
pub fn judge_content(content: &Content, now: EpochMillis, cutoff: Cutoff) -> Judgement {
    match content {
        Ok(report) => judge(report, now, cutoff),
        Err(reason) => Judgement::Rejected(*reason),
    }
}
