//! A worker's side of its lease: what it reports, which grant it adopts, and what it may use at a moment.
//!
//! All times are those since the worker started, by a monotonic clock. The caller works in this order: it reads the summary,
//! [adopts](LeaseHolder::adopt) the grant, [begins a report](LeaseHolder::begin_report), and writes it to the store.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::{CONTACT, LEASE, LeaseReport, LeaseTerms, ReportNumber, START};
use crate::{
    rates::{Rate, Rates},
    throttle::limit::RateSteps,
};

/// What is left of a lease when its worker should look at the summary more often. A lease that was renewed a round ago has more
/// left.
pub const RENEWAL: Duration = Duration::from_secs(4);

/// What a worker may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Capacity units a second.
    pub rates: Rates,
    /// What sets the rates.
    pub basis: Basis,
}

/// What sets a worker's [`Allowance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// The worker has no lease yet, or has lost the store: [`START`].
    Start,
    /// The lease that the worker holds.
    Lease,
    /// The lease has ended without a newer one: the safe share at most.
    SafeShare,
}

/// What a worker knows about its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The number of the last report.
    last: ReportNumber,
    /// The reports that a grant may still answer, the oldest first.
    reports: VecDeque<BegunReport>,
    lease: Option<Lease>,
    /// When the last report that is known to be stored was begun.
    contact: Duration,
}

/// A report, and when the worker began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BegunReport {
    report: LeaseReport,
    begun: Duration,
}

/// A grant that a worker has adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    follows: ReportNumber,
    /// What the worker wanted in that report.
    wanted: Rates,
    grant: Rates,
    end: Duration,
    /// What the worker may use when the lease has ended.
    safe: Rates,
}

impl LeaseHolder {
    /// Returns what the worker may use at the moment `now`.
    ///
    /// The worker's own maximum and its [slow start](SlowStart) are further limits.
    #[must_use]
    pub fn allowance(&self, now: Duration) -> Allowance {
        match &self.lease {
            Some(_) if self.has_lost_contact(now) => Allowance { rates: START, basis: Basis::Start },
            Some(lease) if now < lease.end => Allowance { rates: lease.grant, basis: Basis::Lease },
            Some(lease) => Allowance { rates: lease.safe, basis: Basis::SafeShare },
            None => Allowance { rates: START, basis: Basis::Start },
        }
    }

    /// Returns what the worker may use from now on, until it adopts another grant or a report is confirmed: the rates of its
    /// [allowance](Self::allowance) at any moment.
    #[must_use]
    pub fn steps(&self) -> RateSteps {
        self.lease.map_or(RateSteps::constant(START), |lease| {
            let lost = self.contact.saturating_add(CONTACT);
            RateSteps::constant(lease.grant).then(lease.end, lease.safe).then(lost, START)
        })
    }

    /// Begins the next report at the moment `now`. Write it to the store afterwards.
    ///
    /// `wants` is what the worker would use without a limit of the fleet, at most its own maximum.
    #[must_use]
    pub fn begin_report(&mut self, wants: Rates, weight: NonZeroU32, now: Duration) -> LeaseReport {
        self.drop_lost_lease(now);
        self.last = self.last.next();
        let has = if self.lease.is_some() { self.allowance(now).rates } else { Rates::default() };
        let report = LeaseReport {
            number: self.last,
            follows: self.lease.map(|lease| lease.follows),
            wants,
            has,
            safe: self.lease.map_or(Rates::default(), |lease| lease.safe),
            weight,
        };
        self.reports.retain(|report| !has_ended(report.begun, now));
        self.reports.push_back(BegunReport { report, begun: now });
        report
    }

    /// Records that the store has confirmed a report. A report that is unknown, or too old for a lease, changes nothing.
    pub fn confirm(&mut self, number: ReportNumber, now: Duration) {
        self.drop_lost_lease(now);
        if let Some(report) = self.reports.iter().find(|report| report.report.number == number) {
            self.contact = self.contact.max(report.begun);
        }
    }

    /// Adopts the grant of a summary that was read, where `seen` is the worker's report that the summary acknowledges.
    /// Returns whether the worker now holds another grant.
    ///
    /// Ignores a summary that acknowledges no newer report than the one that the worker follows: a call may be late. Ignores
    /// a grant whose lease has ended. Ignores a grant of nothing if the worker has no lease: it may use [`START`].
    pub fn adopt(&mut self, terms: &LeaseTerms, seen: ReportNumber, now: Duration) -> bool {
        self.drop_lost_lease(now);
        let is_newer = self.lease.is_none_or(|lease| lease.follows < seen);
        let acknowledged = self.reports.iter().find(|report| report.report.number == seen);
        let Some(BegunReport { report, begun }) =
            acknowledged.filter(|report| is_newer && !has_ended(report.begun, now))
        else {
            return false;
        };
        let grant = terms.grant(report);
        if self.lease.is_none() && grant == Rates::default() {
            return false;
        }
        // The aggregator may know only one of the reports from this one on. Reports of the new lease say no less than `safe`.
        let later = self.reports.iter().filter(|later| later.report.number >= seen);
        let safe = later.fold(grant.min(terms.safe_share()), |safe, later| safe.min(later.report.has));
        self.lease = Some(Lease { follows: seen, wanted: report.wants, grant, end: begun.saturating_add(LEASE), safe });
        // The aggregator has seen the report, so it is stored.
        self.contact = self.contact.max(*begun);
        true
    }

    /// Returns what the worker wanted in the report that its lease answers. `None` without a lease.
    #[must_use]
    pub fn wanted(&self) -> Option<Rates> {
        self.lease.map(|lease| lease.wanted)
    }

    /// Returns when the lease ends, or has ended. `None` without a lease.
    #[must_use]
    pub fn lease_end(&self) -> Option<Duration> {
        self.lease.map(|lease| lease.end)
    }

    /// Returns whether the lease ends in less than [`RENEWAL`]: the worker should look at the summary at once.
    ///
    /// A worker that looks once a round usually renews its lease earlier. If each report just misses an aggregation, it does not.
    #[must_use]
    pub fn ends_soon(&self, now: Duration) -> bool {
        self.lease.is_some_and(|lease| now < lease.end && lease.end.saturating_sub(now) < RENEWAL)
    }

    fn has_lost_contact(&self, now: Duration) -> bool {
        now >= self.contact.saturating_add(CONTACT)
    }

    /// Drops a lease without contact, and all reports that mention it. A late answer may show that the store has received one of
    /// them, but the aggregator may have given the lease away meanwhile.
    fn drop_lost_lease(&mut self, now: Duration) {
        if self.lease.is_some() && self.has_lost_contact(now) {
            self.lease = None;
            self.reports.clear();
        }
    }
}

/// Whether the lease of a report that was begun at a moment has ended.
fn has_ended(begun: Duration, now: Duration) -> bool {
    now >= begun.saturating_add(LEASE)
}

/// A slow start: a ramp from one rate to a worker's maximum, for background work. A table's auto scaling can follow it.
///
/// ```
/// use std::time::Duration;
/// use tidegate_domain::{lease::holder::SlowStart, rates::{Rate, Rates}};
///
/// let units = |units| Rates { read: Rate::from_millionths(units * Rate::UNIT), ..Rates::default() };
/// let ramp = SlowStart { from: units(100), over: Duration::from_mins(10) };
/// let limit_after = |minutes| ramp.limit(units(1100), Duration::from_mins(minutes));
/// assert_eq!([limit_after(0), limit_after(4), limit_after(60)], [units(100), units(500), units(1100)]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowStart {
    /// The limit at the start. A maximum that is lower is the limit from the start on.
    pub from: Rates,
    /// How long it takes to reach the maximum. Zero means no ramp.
    pub over: Duration,
}

impl SlowStart {
    /// Returns the limit of a worker that started so long ago. What it wants, and what it uses, is at most this.
    #[must_use]
    pub fn limit(&self, maximum: Rates, elapsed: Duration) -> Rates {
        self.from.zip(maximum, |from, maximum| self.between(from.min(maximum), maximum, elapsed))
    }

    /// The point on the line from one rate to a higher one, rounded down to a millionth.
    fn between(&self, from: Rate, maximum: Rate, elapsed: Duration) -> Rate {
        if elapsed >= self.over {
            return maximum;
        }
        let (from, maximum) = (from.millionths(), maximum.millionths());
        // A product of 128 bits is enough for ramps of 600,000 years.
        let rise = u128::from(maximum - from).saturating_mul(elapsed.as_nanos()) / self.over.as_nanos();
        Rate::from_millionths(u64::try_from(rise).map_or(maximum, |rise| from + rise))
    }
}
