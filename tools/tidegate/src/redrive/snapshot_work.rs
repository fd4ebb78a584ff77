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

use super::{
    CONCURRENCY, Redriver, SNAPSHOT_TIMEOUT,
    letter::{Letter, Settled},
    summary::Summary,
};

/// The records of a snapshot, with the letters that each is in.
#[derive(Default)]
struct SnapshotRecords {
    candidates: BTreeMap<RecordId, Candidate>,
    letters: BTreeMap<RecordId, Vec<usize>>,
}

/// The records that a round's letters hold, by snapshot.
struct Records<'a> {
    changes: Vec<BucketChange<'a>>,
    wanted: BTreeMap<SnapshotKey<'a>, SnapshotRecords>,
}

/// Settles what can be settled of a round. After `interrupt`, no further snapshot is begun, and those that are under way
/// are finished.
pub(super) async fn settle(
    letters: Vec<Letter>,
    redriver: &Redriver,
    now: EpochMillis,
    bar: &ProgressBar,
    mut interrupt: Pin<&mut impl FusedFuture<Output = ()>>,
    summary: &mut Summary,
) -> Settled {
    let mut reasons = vec![Vec::new(); letters.len()];
    {
        let Records { changes, mut wanted } = read(&letters, redriver, now, &mut reasons);
        let mut unfinished = vec![0_usize; letters.len()];
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
                for place in wanted.letters.get(record).into_iter().flatten() {
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
    letters.into_iter().map(|letter| letter.name).zip(reasons).collect()
}

/// Decodes all records, and sorts them by snapshot; says why letters must stay, by their places.
fn read<'a>(
    letters: &'a [Letter],
    Redriver { windows, from_table, .. }: &Redriver,
    now: EpochMillis,
    reasons: &mut [Vec<String>],
) -> Records<'a> {
    let mut all = Records { changes: Vec::new(), wanted: BTreeMap::new() };
    for (place, letter) in letters.iter().enumerate() {
        let records = match &letter.records {
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
                Ok(Ok(Record::Change(change))) => all.add(change, place, letter, windows, now),
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
    /// The places of the letters that these records are in, each once.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.letters.values().flatten().copied().collect::<BTreeSet<_>>().into_iter()
    }
}

impl<'a> Records<'a> {
    /// Adds the record of a letter to the snapshots that miss it; why the letter must stay if there is none.
    fn add(
        &mut self,
        change: BucketChange<'a>,
        place: usize,
        letter: &Letter,
        windows: &[Window],
        now: EpochMillis,
    ) -> Result<(), String> {
        let candidate = Candidate { origin: letter.origin, is_deliverable: is_deliverable(change.created, now) };
        let record = (change.bucket.shard, change.position());
        let windows = if letter.snapshot.is_some() { &Window::ALL[..] } else { windows };
        let mut is_met = letter.snapshot.is_none();
        for posting in usage::fold(std::slice::from_ref(&change), windows) {
            if letter.snapshot.as_ref().is_some_and(|only| *only != describe(posting.snapshot())) {
                continue;
            }
            is_met = true;
            let of_snapshot = self.wanted.entry(posting.snapshot().clone()).or_default();
            of_snapshot.letters.entry(record).or_default().push(place);
            let known = of_snapshot.candidates.entry(record).or_insert(candidate);
            // What was parked was certainly not counted.
            if letter.origin == Origin::Parked {
                *known = candidate;
            }
        }
        self.changes.push(change);
        match &letter.snapshot {
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
