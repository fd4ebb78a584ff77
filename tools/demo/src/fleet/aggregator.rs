//! The aggregator: it sums up the reports that count, and adds the leases.

use std::rc::Rc;

use tidegate_domain::{
    lease::{
        LeaseKeys,
        fleet::Fleet,
        ledger::{Ledger, StoredSummary},
    },
    rates::{
        Cutoff, Field, Rates, Report,
        reading::{Content, Listed, Memory, Step, judge_content},
        summary::{Previous, Replacement, Summary, decide_replacement},
        tally::Tally,
    },
    time::EpochMillis,
};

use super::{
    simulation::INTERVAL,
    store::{Store, StoredFile},
};

/// An aggregation: the files that existed at this moment, and what the aggregator makes of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregation {
    pub(crate) at: EpochMillis,
    pub(crate) files: Vec<StoredFile>,
    pub(crate) tally: Tally,
}

/// A summary on its way to the store, and the number of the one that it replaces.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) summary: Rc<Summary>,
    pub(crate) replaces: Option<u64>,
}

/// A process of the aggregator.
pub(crate) struct Aggregator<'a> {
    cap: Rates,
    /// The workers' ids, by member.
    ids: &'a [String],
    memory: Memory,
    /// `None` before the first aggregation.
    ledger: Option<Ledger>,
}

impl<'a> Aggregator<'a> {
    pub(crate) fn new(cap: Rates, ids: &'a [String]) -> Self {
        Self { cap, ids, memory: Memory::default(), ledger: None }
    }

    /// Aggregates what is stored. Returns no publication if a newer summary is stored.
    pub(crate) fn aggregate(&mut self, store: &Store, now: EpochMillis) -> (Aggregation, Option<Publication>) {
        let (mut fleet, mut tally) = (Fleet::new(Some(self.cap)), Tally::default());
        for StoredFile { file, written } in store.files.values() {
            let keys = file.lease.map(|report| LeaseKeys { report, cap: None });
            let report = Report {
                timestamp: Field::Number(file.at.seconds()),
                read_rate: Field::Number(file.rate),
                write_rate: Field::Number(0.0),
                lease: keys,
                is_first: false,
            };
            let content = self.read(&self.ids[file.worker], report, *written, now);
            let judgement = judge_content(&content, now, Cutoff::DEFAULT);
            tally.count(judgement);
            match keys {
                Some(keys) => fleet.see(&self.ids[file.worker], *written, keys),
                None => fleet.count_other(judgement, content.is_ok_and(|report| report.is_first)),
            }
        }
        self.memory.end_listing(true);
        let aggregation = Aggregation { at: now, files: store.files.values().copied().collect(), tally };
        (aggregation, self.publication(store, &fleet, Summary::new(now, tally, INTERVAL)))
    }

    /// Reads a report, unless it has not changed.
    fn read(&mut self, id: &str, report: Report, written: EpochMillis, now: EpochMillis) -> Content {
        let tag = format!("{report:?}");
        let listed = Listed { key: id.to_owned(), tag: Some(tag.clone()), size: 0, modified: Some(written) };
        if let Step::Known(content) = self.memory.step(&listed, now, Cutoff::DEFAULT) {
            self.memory.keep(id);
            return content;
        }
        let content = self.memory.complete(id, Ok(report), written);
        self.memory.remember(id.to_owned(), tag, content);
        content
    }

    fn publication(&mut self, store: &Store, fleet: &Fleet, mut summary: Summary) -> Option<Publication> {
        let (stored, now) = (store.summary.as_ref(), summary.began);
        let previous = stored.map(|(stored, _)| Previous {
            timestamp: Field::Number(stored.timestamp()),
            sequence: Some(stored.sequence),
        });
        let Replacement::Next { sequence } = decide_replacement(previous, now, now, Cutoff::DEFAULT) else {
            return None;
        };
        summary.sequence = sequence;
        let ledger = self.ledger.get_or_insert_with(|| {
            let stored = stored.map(|(stored, written)| StoredSummary {
                written: Some(*written),
                reports: stored.lease.as_ref().map(|lease| lease.reports.clone()).unwrap_or_default(),
            });
            Ledger::new(stored, now)
        });
        fleet.add_leases(&mut summary, ledger, now);
        let replaces = previous.and_then(|previous| previous.sequence);
        Some(Publication { summary: Rc::new(summary), replaces })
    }
}
