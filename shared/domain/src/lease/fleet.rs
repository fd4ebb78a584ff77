//! What an aggregation sees of a fleet, and the part of its summary about leases.

use std::collections::BTreeMap;

use super::{
    LeaseKeys, LeaseReport, LeaseTerms, ReportNumber,
    ledger::{Ledger, Sighting},
};
use crate::{
    rates::{Judgement, Rate, Rates, summary::Summary, tally::Tally},
    time::EpochMillis,
};

/// The part of a summary about leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSummary {
    /// What each worker computes its grant from.
    pub terms: LeaseTerms,
    /// Which report of each leasing worker the summary acknowledges.
    pub reports: BTreeMap<String, ReportNumber>,
}

/// What an aggregation has seen of a fleet whose leasing workers share a cap, maybe beside workers of other programs.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The lowest cap: of the configuration and of all reports.
    cap: Option<Rates>,
    files: Vec<SeenFile>,
    others: Tally,
    /// Workers of other programs whose first report says that they use nothing.
    unmeasured: usize,
}

/// A file of a leasing worker, or one that could not be read.
#[derive(Clone, Debug)]
struct SeenFile {
    worker: String,
    written: EpochMillis,
    report: Option<LeaseReport>,
}

impl Fleet {
    /// Creates a fleet without workers. `cap` is the configured one, if any.
    #[must_use]
    pub fn new(cap: Option<Rates>) -> Self {
        Self { cap, ..Self::default() }
    }

    /// Records a leasing worker's file.
    pub fn see(&mut self, worker: &str, written: EpochMillis, keys: LeaseKeys) {
        if let Some(cap) = keys.cap {
            self.cap = Some(self.cap.map_or(cap, |lowest| lowest.min(cap)));
        }
        self.push(worker, written, Some(keys.report));
    }

    /// Records a file that is there, and that could not be read or says nothing valid. It may be a leasing worker's.
    pub fn see_unreadable(&mut self, worker: &str, written: EpochMillis) {
        self.push(worker, written, None);
    }

    /// Counts a worker of another program. `is_first` says whether no earlier report of it is known.
    pub fn count_other(&mut self, judgement: Judgement, is_first: bool) {
        self.others.count(judgement);
        let is_zero = matches!(judgement, Judgement::Fresh { rates, .. } if rates == Rates::default());
        self.unmeasured += usize::from(is_first && is_zero);
    }

    /// Returns whether there are leasing workers, and neither they nor the configuration name a cap. They get no leases.
    #[must_use]
    pub fn lacks_cap(&self) -> bool {
        self.cap.is_none() && self.files.iter().any(|file| file.report.is_some())
    }

    /// Returns the sums over the workers of other programs.
    #[must_use]
    pub const fn others(&self) -> &Tally {
        &self.others
    }

    /// Adds the leases to a summary that is about to be written at the moment `now`: see [`Ledger::plan`]. Without leasing
    /// workers, or without a cap, the summary has none.
    ///
    /// Workers of other programs scale their limits by `cap / sum`. Beside leasing workers, they must share what is not
    /// [due](Ledger::due) to those. So the summary then has `sum * cap / (cap - due)`, with the sum over the others: they act
    /// as a fleet of their own with the rest of the cap, and settle as fast as one.
    pub fn add_leases(&self, summary: &mut Summary, ledger: &mut Ledger, now: EpochMillis) {
        summary.lease = self.plan(ledger, now);
        if let Some(LeaseSummary { terms: LeaseTerms { cap, .. }, .. }) = summary.lease
            && self.others.active > 0
        {
            let due = ledger.due(cap, self.others.active, now);
            summary.read = self.others.read().scaled_up(cap.read, due.read);
            summary.write = self.others.write().scaled_up(cap.write, due.write);
        }
    }

    fn plan(&self, ledger: &mut Ledger, now: EpochMillis) -> Option<LeaseSummary> {
        let sightings = self.files.iter().map(|SeenFile { worker, written, report }| Sighting {
            worker,
            written: *written,
            report: *report,
        });
        let cap = self.cap?;
        let terms = ledger.plan(sightings, cap, self.use_of_others(cap), now);
        let reports: BTreeMap<_, _> = ledger.reports().map(|(worker, number)| (worker.to_owned(), number)).collect();
        (!reports.is_empty()).then_some(LeaseSummary { terms, reports })
    }

    /// What the workers of other programs may use. Each worker whose use is not known counts with an equal share.
    fn use_of_others(&self, cap: Rates) -> Rates {
        let workers = u64::try_from(self.files.len() + self.others.active).unwrap_or(u64::MAX).max(1);
        let unmeasured = u64::try_from(self.unmeasured).unwrap_or(u64::MAX);
        let measured = Rates { read: self.others.read().rate(), write: self.others.write().rate() };
        measured.zip(cap, |measured, cap| {
            let share = (cap.millionths() / workers).saturating_mul(unmeasured);
            Rate::from_millionths(measured.millionths().saturating_add(share))
        })
    }

    fn push(&mut self, worker: &str, written: EpochMillis, report: Option<LeaseReport>) {
        self.files.push(SeenFile { worker: worker.to_owned(), written, report });
    }
}
