//! What a worker may use, and what limits it.

use std::time::Duration;

use tidegate_domain::{
    lease::{
        LeaseTerms,
        holder::{Basis, LeaseHolder},
    },
    rates::Rates,
    throttle::{CapacityKind, limit::RampStart},
};

use crate::fleet::Throttle;

/// The state of a [`Worker`](super::Worker) at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The read capacity.
    pub read: CapacityStatus,
    /// The write capacity.
    pub write: CapacityStatus,
    /// How many workers share the cap. `None` unless the last summary acknowledges a report of this worker.
    pub active_workers: Option<u32>,
    /// How long ago the worker found a new summary. `None` before the first one.
    pub summary_age: Option<Duration>,
    /// How long ago the store confirmed a report of this worker. `None` before the first one.
    pub report_age: Option<Duration>,
}

/// One kind of capacity, in capacity units a second.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CapacityStatus {
    /// What the workers of the fleet may use together. `None` unless the last summary acknowledges this worker.
    pub cap: Option<f64>,
    /// The most that a worker of weight 1 gets. `None` unless the last summary acknowledges this worker.
    pub level: Option<f64>,
    /// The rate of the lease. Without one, the rate that applies instead: see [`limited_by`](Self::limited_by).
    pub lease: f64,
    /// What the worker may use: the lease, and at most its own maximum.
    pub allowed: f64,
    /// What limits the worker.
    pub limited_by: LimitedBy,
    /// The state of the worker's announcement. `None` if this kind of capacity was not announced, by
    /// `WorkerBuilder::announce` of the feature `capacity`.
    pub announcement: Option<AnnouncementState>,
}

/// The state of the announcement of a worker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnouncementState {
    /// The announced capacity is not there yet: the worker may use one unit a second.
    Pending,
    /// The capacity was there: the worker may use its maximum.
    Ready,
    /// The announcement has failed, as a warning in the log says: the slow start applies.
    Failed,
}

/// What limits a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The worker has no lease yet, or has lost the bucket for 45 seconds: it may use one unit a second.
    NoLease,
    /// The worker's lease: its share of the cap.
    Lease,
    /// The lease has ended, because no new summary acknowledges a report: the worker uses an equal share at most.
    SafeShare,
    /// The worker's own maximum.
    Maximum,
    /// The slow start.
    SlowStart,
    /// The announced capacity is not there yet: the worker may use one unit a second.
    Announcement,
    /// The worker has been stopped.
    Stopped,
    /// The callers use less than the limit.
    Demand,
}

/// What the task of a worker knows.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) holder: LeaseHolder,
    pub(super) terms: Option<LeaseTerms>,
    /// When the worker found the last new summary.
    pub(super) summary: Option<Duration>,
    /// When the store confirmed the last report.
    pub(super) confirmed: Option<Duration>,
    /// What the callers would use.
    pub(super) wants: Rates,
    /// The kinds of capacity that the worker announces.
    pub(super) announced: Vec<CapacityKind>,
    pub(super) is_stopped: bool,
}

impl View {
    /// The worker wants its maximum until its demand is measured.
    pub(super) fn new(maximum: Rates, announced: Vec<CapacityKind>) -> Self {
        let (holder, is_stopped) = (LeaseHolder::default(), false);
        Self { holder, terms: None, summary: None, confirmed: None, wants: maximum, announced, is_stopped }
    }

    pub(super) fn status(&self, throttle: &Throttle) -> WorkerStatus {
        let now = throttle.now();
        let age = |moment: Option<Duration>| moment.map(|moment| now.saturating_sub(moment));
        WorkerStatus {
            read: self.capacity(CapacityKind::Read, throttle, now),
            write: self.capacity(CapacityKind::Write, throttle, now),
            active_workers: self.terms.map(|terms| terms.active),
            summary_age: age(self.summary),
            report_age: age(self.confirmed),
        }
    }

    fn capacity(&self, kind: CapacityKind, throttle: &Throttle, now: Duration) -> CapacityStatus {
        let (limit, allowance) = (throttle.limit(), self.holder.allowance(now));
        let [lease, allowed, wants, maximum, ramp] =
            [allowance.rates, limit.at(now), self.wants, limit.maximum, limit.ramp(now)].map(|rates| kind.of(rates));
        let is_all_granted = self.holder.wanted().is_some_and(|wanted| lease >= kind.of(wanted));
        let limited_by = match allowance.basis {
            _ if self.is_stopped => LimitedBy::Stopped,
            _ if limit.ramp_start(kind) == RampStart::Pending => LimitedBy::Announcement,
            _ if wants < allowed || (wants == allowed && wants < maximum) => LimitedBy::Demand,
            _ if allowed == maximum => LimitedBy::Maximum,
            Basis::Lease if is_all_granted && ramp != maximum => LimitedBy::SlowStart,
            Basis::Start => LimitedBy::NoLease,
            Basis::Lease => LimitedBy::Lease,
            Basis::SafeShare => LimitedBy::SafeShare,
        };
        let announcement = self.announced.contains(&kind).then(|| match limit.ramp_start(kind) {
            RampStart::Pending => AnnouncementState::Pending,
            RampStart::Skipped => AnnouncementState::Ready,
            RampStart::At(_) => AnnouncementState::Failed,
        });
        let of_terms = |of: fn(&LeaseTerms) -> Rates| self.terms.as_ref().map(|terms| kind.of(of(terms)).units());
        CapacityStatus {
            cap: of_terms(|terms| terms.cap),
            level: of_terms(|terms| terms.level),
            lease: lease.units(),
            allowed: allowed.units(),
            limited_by,
            announcement,
        }
    }
}
