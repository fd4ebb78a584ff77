//! The bucket between workers and aggregator: reports, and the summary.

use std::collections::BTreeMap;

use tidegate_domain::{
    rates::{
        Cutoff, Field, Report, judge,
        summary::{Previous, Replacement, decide_replacement},
    },
    time::EpochMillis,
};

use super::course::{Pass, Reported, WorkerId};

#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    pub(super) began: EpochMillis,
    pub(super) sum: f64,
}

#[derive(Default)]
pub(super) struct Storage {
    reports: BTreeMap<WorkerId, Reported>,
    /// The one that is there, and its number.
    summary: Option<(Summary, u64)>,
}

impl Storage {
    const CUTOFF: Cutoff = Cutoff::DEFAULT;

    pub(super) fn put_report(&mut self, report: Reported) {
        self.reports.insert(report.worker, report);
    }

    /// What workers find in the summary.
    pub(super) fn sum(&self) -> Option<f64> {
        self.summary.map(|(summary, _)| summary.sum)
    }

    /// Judges the reports that are there, and sums them up.
    pub(super) fn aggregate(&self, now: EpochMillis) -> Pass {
        let reports: Vec<_> = self.reports.values().copied().collect();
        let tally = reports.iter().map(|report| judge(&written(*report), now, Self::CUTOFF)).collect();
        Pass { at: now, reports, tally }
    }

    pub(super) fn put_summary(&mut self, summary: Summary) {
        let previous = self.summary.map(|(previous, sequence)| Previous {
            timestamp: Field::Number(seconds(previous.began)),
            sequence: Some(sequence),
        });
        if let Replacement::Next { sequence } = decide_replacement(previous, summary.began, summary.began, Self::CUTOFF)
        {
            self.summary = Some((summary, sequence));
        }
    }
}

fn written(report: Reported) -> Report {
    Report {
        timestamp: Field::Number(seconds(report.at)),
        read_rate: Field::Number(report.rate),
        write_rate: Field::Number(0.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the calendar's milliseconds are below 2^53")]
fn seconds(moment: EpochMillis) -> f64 {
    moment.get() as f64 / 1000.0
}
