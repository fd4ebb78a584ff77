//! The S3 bucket between the workers and the aggregator.

use std::{collections::BTreeMap, rc::Rc};

use tidegate_domain::{lease::LeaseReport, rates::summary::Summary, time::EpochMillis};

/// What a worker writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WorkerFile {
    /// The worker's place in the scenario.
    pub(crate) worker: usize,
    /// The time by the worker's own clock.
    pub(crate) at: EpochMillis,
    /// Capacity units a second.
    pub(crate) rate: f64,
    /// `None` for a Python worker.
    pub(crate) lease: Option<LeaseReport>,
}

/// A file, and when the store received it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoredFile {
    pub(crate) file: WorkerFile,
    pub(crate) written: EpochMillis,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// By worker.
    pub(crate) files: BTreeMap<usize, StoredFile>,
    /// The summary, and when the store received it.
    pub(crate) summary: Option<(Rc<Summary>, EpochMillis)>,
}

impl Store {
    pub(crate) fn put_file(&mut self, file: WorkerFile, now: EpochMillis) {
        self.files.insert(file.worker, StoredFile { file, written: truncated(now) });
    }

    /// Writes a summary if the one with the number `replaces` is still stored.
    pub(crate) fn put_summary(&mut self, summary: Rc<Summary>, replaces: Option<u64>, now: EpochMillis) {
        if self.summary.as_ref().map(|(stored, _)| stored.sequence) == replaces {
            self.summary = Some((summary, truncated(now)));
        }
    }

    pub(crate) fn summary(&self) -> Option<Rc<Summary>> {
        self.summary.as_ref().map(|(summary, _)| Rc::clone(summary))
    }
}

/// The store truncates times to seconds.
fn truncated(now: EpochMillis) -> EpochMillis {
    EpochMillis::new(now.get() / 1000 * 1000).unwrap_or(now)
}
