//! A worker that holds a lease. The domain's [`LeaseHolder`] decides what it may consume.

use std::time::Duration;

use tidegate_domain::{
    lease::{
        EQUAL_WEIGHT, LeaseReport, ReportNumber,
        holder::{Basis, LeaseHolder},
        should_report_early,
    },
    rates::{Rate, Rates, summary::Summary},
    time::EpochMillis,
};

#[derive(Clone, Debug)]
pub(crate) struct Leasing {
    holder: LeaseHolder,
    started: EpochMillis,
    /// What the last report wants. `None` if it could not be written.
    reported: Option<Rates>,
    /// The number of the newest summary that was read.
    read: u64,
}

impl Leasing {
    pub(crate) fn new(now: EpochMillis) -> Self {
        Self { holder: LeaseHolder::default(), started: now, reported: None, read: 0 }
    }

    fn clock(&self, now: EpochMillis) -> Duration {
        now.since(self.started)
    }

    fn allowance(&self, now: EpochMillis) -> Rate {
        self.holder.allowance(self.clock(now)).rates.read
    }

    pub(crate) fn limit(&self, now: EpochMillis) -> f64 {
        self.allowance(now).units()
    }

    /// What the lease lets the worker consume, in millionths. What a worker may consume without a lease does not count.
    pub(crate) fn leased(&self, now: EpochMillis) -> u64 {
        let allowance = self.holder.allowance(self.clock(now));
        if allowance.basis == Basis::Start { 0 } else { allowance.rates.read.millionths() }
    }

    /// What is consumed between two moments. The lease may end between them.
    pub(crate) fn consumption(&self, demand: f64, from: EpochMillis, to: EpochMillis) -> f64 {
        let end = self.holder.lease_end().map_or(to, |end| self.started.after(end).clamp(from, to));
        let between = |from: EpochMillis, to: EpochMillis| demand.min(self.limit(from)) * to.since(from).as_secs_f64();
        between(from, end) + between(end, to)
    }

    pub(crate) fn begin_report(&mut self, wants: Rates, now: EpochMillis) -> LeaseReport {
        self.reported = Some(wants);
        let clock = self.clock(now);
        self.holder.begin_report(wants, EQUAL_WEIGHT, clock)
    }

    pub(crate) fn confirm(&mut self, number: ReportNumber, now: EpochMillis) {
        let clock = self.clock(now);
        self.holder.confirm(number, clock);
    }

    /// The last report could not be written.
    pub(crate) fn fail_report(&mut self) {
        self.reported = None;
    }

    /// Returns whether the worker must report at once.
    pub(crate) fn should_report(&self, wants: Rates) -> bool {
        self.reported.is_none_or(|reported| should_report_early(reported, wants))
    }

    /// Returns whether the worker looks at a summary between its reports.
    pub(crate) fn should_look(&self, wants: Rates, summary: &Summary, now: EpochMillis) -> bool {
        let is_due = wants.read > self.allowance(now) || self.holder.ends_soon(self.clock(now));
        is_due && summary.sequence > self.read
    }

    /// Adopts the grant of a summary for the worker with this id.
    pub(crate) fn adopt(&mut self, summary: &Summary, id: &str, now: EpochMillis) {
        self.read = self.read.max(summary.sequence);
        let clock = self.clock(now);
        if let Some(lease) = &summary.lease
            && let Some(seen) = lease.reports.get(id)
        {
            self.holder.adopt(&lease.terms, *seen, clock);
        }
    }
}

/// Rates of so many capacity units of reads. Reads and writes follow the same rules, so only reads are simulated.
pub(crate) fn reads(units: f64) -> Rates {
    // The command accepts no cap and no maximum that is not a rate.
    Rates { read: Rate::new(units).unwrap_or_default(), ..Rates::default() }
}
