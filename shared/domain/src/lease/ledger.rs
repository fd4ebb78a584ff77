//! The aggregator's side: what each worker may use at most, and what the next summary gives away.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    FORGET, LEASE, LeaseReport, LeaseTerms, ReportNumber, distributable,
    level::{Demand, growth, level},
};
use crate::{
    rates::{Rate, Rates},
    time::EpochMillis,
};

/// The aggregator sees a lease end after this time: [`LEASE`] and a fortieth, for two clocks that are off by 1 %.
const LONGEST: Duration = Duration::from_millis(LEASE.as_secs() * 1_025);

/// The most by which the clocks of the store and of the aggregator differ, and the second to which the store truncates.
const SKEW: Duration = Duration::from_secs(12);

/// The summary in the store, which another process or an earlier one has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSummary {
    /// When the store received it.
    pub written: Option<EpochMillis>,
    /// Which report of each worker it acknowledges.
    pub reports: BTreeMap<String, ReportNumber>,
}

/// A leasing worker's file, as the aggregator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting<'a> {
    /// The worker's id.
    pub worker: &'a str,
    /// When the store received the file.
    pub written: EpochMillis,
    /// What the file says. `None` if it could not be read.
    pub report: Option<LeaseReport>,
}

/// What an aggregator remembers of the grants that it has made.
///
/// Use a ledger for consecutive summaries of one process: when the store holds a summary that was not planned with this ledger, start
/// a [new one](Ledger::new). If it is not known whether a planned summary was written, go on with the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Before this time, grants of earlier ledgers may be in force.
    quiet_until: EpochMillis,
    workers: BTreeMap<String, Tracked>,
}

/// A worker whose use is reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tracked {
    /// The newest report that was seen, by this ledger or by an earlier one.
    number: ReportNumber,
    /// `None` if only an earlier ledger has seen the report.
    seen: Option<SeenReport>,
    /// The grants that the newest report does not follow, the oldest first.
    grants: Vec<OutstandingGrant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenReport {
    report: LeaseReport,
    /// When the lease of a grant to this report has surely ended.
    ends: EpochMillis,
}

/// What was granted to one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OutstandingGrant {
    number: ReportNumber,
    amount: Rates,
    ends: EpochMillis,
    share: Rates,
}

impl Ledger {
    /// Starts a ledger at the moment `now`, where `stored` is the summary in the store, or `None` if the
    /// store has no summary.
    ///
    /// The ledger grants no growth while a grant of the stored summary, or of an earlier one, may be in force.
    #[must_use]
    pub fn new(stored: Option<StoredSummary>, now: EpochMillis) -> Self {
        let Some(stored) = stored else { return Self { quiet_until: EpochMillis::EPOCH, workers: BTreeMap::new() } };
        let quiet_until = surely_ended(now, stored.written.unwrap_or(now));
        // What an earlier ledger granted is not known, nor is the safe share of its summary.
        let unknown = Rates { read: Rate::MAX, write: Rate::MAX };
        let tracked = |number| {
            let earlier = OutstandingGrant { number, amount: Rates::default(), ends: quiet_until, share: unknown };
            Tracked { number, seen: None, grants: vec![earlier] }
        };
        let workers = stored.reports.into_iter().map(|(worker, number)| (worker, tracked(number))).collect();
        Self { quiet_until, workers }
    }

    /// Returns the terms of the next summary, and remembers what they grant.
    ///
    /// `sightings` are the files of all leasing workers in a complete listing, and those that could not be read. `others` is
    /// what the workers of other programs use; a fiftieth more is reserved for them. `now` is a moment after the last file
    /// was read.
    ///
    /// The ledger forgets a worker whose file is gone, or is older than [`FORGET`].
    pub fn plan<'a>(
        &mut self,
        sightings: impl IntoIterator<Item = Sighting<'a>>,
        cap: Rates,
        others: Rates,
        now: EpochMillis,
    ) -> LeaseTerms {
        self.observe(sightings, now);
        let is_quiet = now < self.quiet_until || self.workers.values().any(|worker| worker.seen.is_none());
        let (reads, active) = self.heights(now, distributable(cap).read, others.read, |rates| rates.read);
        let (writes, _) = self.heights(now, distributable(cap).write, others.write, |rates| rates.write);
        let growth = if is_quiet { Rates::default() } else { Rates { read: reads.growth, write: writes.growth } };
        let terms = LeaseTerms { cap, active, level: Rates { read: reads.level, write: writes.level }, growth };
        for worker in self.workers.values_mut() {
            worker.remember(&terms, now);
        }
        terms
    }

    /// Returns the part of the cap that is due to the leasing workers at the moment `now`, beside so many `others`: what the
    /// leasing workers want, and at most their share by weight. Each other worker has the weight of an equal worker.
    ///
    /// Workers of other programs share the rest of the cap. See [`Fleet::add_leases`](super::fleet::Fleet::add_leases).
    #[must_use]
    pub fn due(&self, cap: Rates, others: usize, now: EpochMillis) -> Rates {
        let active = self.workers.values().filter_map(|worker| worker.seen).filter(|seen| now < seen.ends);
        let (mut read, mut write, mut weights) = (0_u128, 0_u128, 0_u128);
        for SeenReport { report, .. } in active {
            read += u128::from(report.wants.read.millionths());
            write += u128::from(report.wants.write.millionths());
            weights += u128::from(report.weight.get());
        }
        let all = (weights + others as u128).max(1);
        let part = |cap: Rate, wants: u128| {
            let part = wants.min(u128::from(cap.millionths()) * weights / all);
            Rate::from_millionths(u64::try_from(part).unwrap_or(u64::MAX))
        };
        let cap = distributable(cap);
        Rates { read: part(cap.read, read), write: part(cap.write, write) }
    }

    /// Returns which report of each worker the next summary acknowledges, in the order of their ids.
    pub fn reports(&self) -> impl Iterator<Item = (&str, ReportNumber)> {
        self.workers.iter().map(|(worker, tracked)| (worker.as_str(), tracked.number))
    }

    /// Returns what is reserved for a worker at the moment `now`. `None` for an unknown worker.
    #[must_use]
    pub fn reserved(&self, worker: &str, now: EpochMillis) -> Option<Rates> {
        let tracked = self.workers.get(worker)?;
        tracked.seen.map(|seen| tracked.reserved(seen, now))
    }

    /// Records the reports, and forgets workers without a recent file.
    fn observe<'a>(&mut self, sightings: impl IntoIterator<Item = Sighting<'a>>, now: EpochMillis) {
        let mut present = BTreeSet::new();
        for Sighting { worker, written, report } in sightings {
            if now.since(written) > FORGET {
                continue;
            }
            present.insert(worker);
            let Some(report) = report else { continue };
            let seen = SeenReport { report, ends: surely_ended(now, written) };
            if let Some(tracked) = self.workers.get_mut(worker) {
                tracked.see(seen);
            } else {
                if report.follows.is_some() {
                    // An earlier ledger has granted this lease, and maybe others.
                    self.quiet_until = self.quiet_until.max(now.after(LONGEST));
                }
                let tracked = Tracked { number: report.number, seen: Some(seen), grants: Vec::new() };
                self.workers.insert(worker.to_owned(), tracked);
            }
        }
        self.workers.retain(|worker, _| present.contains(worker.as_str()));
    }

    /// Computes the level and the growth of one kind of capacity, and counts the active workers.
    fn heights(&self, now: EpochMillis, cap: Rate, others: Rate, of: impl Fn(Rates) -> Rate) -> (Heights, u32) {
        let others = others.millionths();
        let mut taken = u128::from(others + others / 50);
        let mut demands = Vec::with_capacity(self.workers.len());
        for worker in self.workers.values() {
            let Some(seen) = worker.seen else { continue };
            let held = of(worker.reserved(seen, now));
            if now < seen.ends {
                demands.push(Demand { wants: of(seen.report.wants), held, weight: seen.report.weight });
            } else {
                taken += u128::from(held.millionths());
            }
        }
        let room = u64::try_from(taken).map_or(0, |taken| cap.millionths().saturating_sub(taken));
        let room = Rate::from_millionths(room);
        let level = level(&demands, room);
        let active = u32::try_from(demands.len()).unwrap_or(u32::MAX);
        (Heights { level, growth: growth(&demands, level, room) }, active)
    }
}

struct Heights {
    level: Rate,
    growth: Rate,
}

impl Tracked {
    /// Takes over a newer report. An older one arrived late.
    fn see(&mut self, seen: SeenReport) {
        let number = seen.report.number;
        if number < self.number || (number == self.number && self.seen.is_some()) {
            return;
        }
        (self.number, self.seen) = (number, Some(seen));
        self.grants.retain(|grant| seen.report.follows.is_none_or(|follows| grant.number > follows));
    }

    /// What the worker may use at most from now on, unless it gets another grant.
    fn reserved(&self, seen: SeenReport, now: EpochMillis) -> Rates {
        let LeaseReport { has, safe, .. } = seen.report;
        if now < seen.ends {
            let in_force = self.grants.iter().filter(|grant| now < grant.ends);
            return in_force.fold(has, |most, grant| most.max(grant.amount));
        }
        // All leases have ended: those of earlier reports do so earlier.
        has.min(self.grants.iter().fold(safe, |most, grant| most.max(grant.share)))
    }

    /// Remembers what a summary grants to the newest report.
    fn remember(&mut self, terms: &LeaseTerms, now: EpochMillis) {
        let Some(seen) = self.seen.filter(|seen| now < seen.ends) else { return };
        let (amount, share) = (terms.grant(&seen.report), terms.safe_share());
        match self.grants.last_mut().filter(|grant| grant.number == self.number) {
            // The worker adopts one of both summaries.
            Some(grant) => {
                (grant.amount, grant.share) = (grant.amount.max(amount), grant.share.max(share));
                grant.ends = grant.ends.max(seen.ends);
            }
            None => self.grants.push(OutstandingGrant { number: self.number, amount, ends: seen.ends, share }),
        }
        // Of grants that have ended, only the highest share matters.
        while let [ended, next, ..] = self.grants.as_mut_slice()
            && ended.ends <= now
        {
            next.share = next.share.max(ended.share);
            self.grants.remove(0);
        }
    }
}

/// When the lease of a report has surely ended, if it was read before `now` and the store received it when `written`.
fn surely_ended(now: EpochMillis, written: EpochMillis) -> EpochMillis {
    now.min(written.after(SKEW)).after(LONGEST)
}
