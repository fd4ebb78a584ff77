//! One round: its records by snapshot, decided and counted, many snapshots at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{self, FusedFuture},
    stream,
};
use indicatif::ProgressBar;
use tidegate_aws::{
    error::causes,
    redrive::{Candidate, RecordId},
    snapshots::describe,
    stream::{Record, decode, table_name},
};
use tidegate_domain::{
    bucket::BucketChange,
    redrive::{Decision, Origin, is_deliverable},
    time::EpochMillis,
    usage::{self, SnapshotKey},
    window::Window,
};
use tokio::time::timeout;

use super::{CONCURRENCY, ItemReasons, RedriveItem, Redriver, SNAPSHOT_TIMEOUT, summary::Summary};

/// The records of a snapshot, with the items that each is in.
#[derive(Default)]
struct SnapshotRecords {
    candidates: BTreeMap<RecordId, Candidate>,
    items: BTreeMap<RecordId, Vec<usize>>,
}

/// The records that a round's items hold, by snapshot.
struct Records<'a> {
    changes: Vec<BucketChange<'a>>,
    wanted: BTreeMap<SnapshotKey<'a>, SnapshotRecords>,
}

/// Decides and counts the records of a round. After `interrupt`, it starts no further snapshot and finishes the current
/// ones.
pub(super) async fn count_records(
    items: Vec<RedriveItem>,
    redriver: &Redriver,
    now: EpochMillis,
    bar: &ProgressBar,
    mut interrupt: Pin<&mut impl FusedFuture<Output = ()>>,
    summary: &mut Summary,
) -> ItemReasons {
    let mut reasons = vec![Vec::new(); items.len()];
    {
        let Records { changes, mut wanted } = read(&items, redriver, now, &mut reasons);
        let mut unfinished = vec![0_usize; items.len()];
        wanted.values().flat_map(SnapshotRecords::places).for_each(|place| unfinished[place] += 1);
        bar.inc_length(wanted.values().map(|wanted| wanted.candidates.len() as u64).sum());
        let postings = usage::fold(&changes, &Window::ALL);
        let work = postings.iter().filter_map(|posting| Some((posting, wanted.remove(posting.snapshot())?)));
        let is_stopped = AtomicBool::new(false);
        let mut results = stream::iter(work.collect::<Vec<_>>())
            .take_while(|_| future::ready(!is_stopped.load(Ordering::Relaxed)))
            .map(async |(posting, wanted)| {
                let settled =
                    AssertUnwindSafe(redriver.redrive.settle(posting, &wanted.candidates, now)).catch_unwind();
                let decided = match timeout(SNAPSHOT_TIMEOUT, settled).await {
                    Ok(Ok(settled)) => settled.map_err(|error| causes(&error)),
                    Ok(Err(_)) => Err("our code panicked".to_owned()),
                    Err(_) => Err("no answer in time".to_owned()),
                };
                (posting, wanted, decided)
            })
            .buffer_unordered(CONCURRENCY);
        loop {
            let (posting, wanted, decided) = tokio::select! {
                biased;
                () = &mut interrupt, if !interrupt.is_terminated() => {
                    is_stopped.store(true, Ordering::Relaxed);
                    summary.interrupted = true;
                    continue;
                }
                next = results.next() => match next {
                    Some(next) => next,
                    None => break,
                },
            };
            bar.inc(wanted.candidates.len() as u64);
            wanted.places().for_each(|place| unfinished[place] -= 1);
            let snapshot = describe(posting.snapshot());
            let mut stay = |record: &RecordId, reason: &str| {
                for place in wanted.items.get(record).into_iter().flatten() {
                    reasons[*place].push(format!("record {} of {snapshot} {reason}", record.1));
                }
            };
            match decided {
                Ok(decisions) => {
                    for (record, decision) in &decisions {
                        summary.count(*decision);
                        if let Some(reason) = reason(*decision) {
                            stay(record, reason);
                        }
                    }
                }
                Err(error) => {
                    let reason = format!("failed: {error}");
                    wanted.candidates.keys().for_each(|record| stay(record, &reason));
                }
            }
        }
        for (reasons, unfinished) in reasons.iter_mut().zip(unfinished) {
            if unfinished > 0 {
                reasons.push("interrupted".to_owned());
            }
        }
    }
    items.into_iter().map(|item| item.name).zip(reasons).collect()
}

/// Decodes all records and groups them by snapshot. Adds the reasons why items must stay, by their places.
fn read<'a>(
    items: &'a [RedriveItem],
    Redriver { windows, from_table, .. }: &Redriver,
    now: EpochMillis,
    reasons: &mut [Vec<String>],
) -> Records<'a> {
    let mut all = Records { changes: Vec::new(), wanted: BTreeMap::new() };
    for (place, item) in items.iter().enumerate() {
        let records = match &item.records {
            Ok(records) => records,
            Err(reason) => {
                reasons[place].push(reason.clone());
                continue;
            }
        };
        for record in records {
            if let Some(table) = table_name(record).filter(|table| table != from_table) {
                reasons[place].push(format!("a record is of table {table}, not of {from_table}"));
                continue;
            }
            let added = match panic::catch_unwind(|| decode(record)) {
                Ok(Ok(Record::Change(change))) => all.add(change, place, item, windows, now),
                Ok(Ok(Record::NotOurs)) => Ok(()),
                Ok(Err(error)) => Err(format!("a record cannot be decoded: {error}")),
                Err(_) => Err("decoding a record panicked".to_owned()),
            };
            reasons[place].extend(added.err());
        }
    }
    all
}

impl SnapshotRecords {
    /// The places of the items that these records are in, each once.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.items.values().flatten().copied().collect::<BTreeSet<_>>().into_iter()
    }
}

impl<'a> Records<'a> {
    /// Adds an item's record to the snapshots that miss it. Returns why the item must stay if no snapshot does.
    fn add(
        &mut self,
        change: BucketChange<'a>,
        place: usize,
        item: &RedriveItem,
        windows: &[Window],
        now: EpochMillis,
    ) -> Result<(), String> {
        let candidate = Candidate { origin: item.origin, is_deliverable: is_deliverable(change.created, now) };
        let record = (change.bucket.shard, change.position());
        let windows = if item.snapshot.is_some() { &Window::ALL[..] } else { windows };
        let mut is_met = item.snapshot.is_none();
        for posting in usage::fold(std::slice::from_ref(&change), windows) {
            if item.snapshot.as_ref().is_some_and(|only| *only != describe(posting.snapshot())) {
                continue;
            }
            is_met = true;
            let of_snapshot = self.wanted.entry(posting.snapshot().clone()).or_default();
            of_snapshot.items.entry(record).or_default().push(place);
            let known = of_snapshot.candidates.entry(record).or_insert(candidate);
            // What was parked was certainly not counted.
            if item.origin == Origin::Parked {
                *known = candidate;
            }
        }
        self.changes.push(change);
        match &item.snapshot {
            Some(snapshot) if !is_met => Err(format!("its record adds nothing to snapshot {snapshot}, which it names")),
            _ => Ok(()),
        }
    }
}

/// Why a record with this decision must stay.
fn reason(decision: Decision) -> Option<&'static str> {
    match decision {
        Decision::Count | Decision::AlreadyRedriven => None,
        Decision::Waiting => Some("may still be delivered: try again when it is a day old"),
        Decision::Undecided => Some("is undecided: nothing proves whether it was counted"),
    }
}
