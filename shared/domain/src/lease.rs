//! Leases: the workers of a fleet share one cap, and never use more than it together.
//!
//! Each worker reports what it wants and what it holds. The aggregator answers with one summary for all workers, and each
//! worker computes its own grant from it. Both are files in a store that may lose, delay, repeat and reorder calls.
//!
//! | module | holds |
//! |---|---|
//! | [`demand`] | [`demand::Demand`]: what a worker wants |
//! | [`fleet`] | [`fleet::Fleet`]: what an aggregation has seen of a fleet, and the part of its summary about leases |
//! | [`holder`] | [`holder::LeaseHolder`]: the worker's side, and what it may use at a moment; [`holder::SlowStart`] |
//! | [`ledger`] | [`ledger::Ledger`]: the aggregator's side, and the terms of the next summary |
//! | [`level`] | the level and the growth that use a cap up, exactly |
//!
//! # The rule
//!
//! **What workers may use together never exceeds [`distributable`]`(cap)`: 98 % of the cap.** A worker whose clock is 1 %
//! fast uses 1 % more a second, so the workers together stay below 99 % of the cap in true time. Three things do not
//! count: [`START`], which a worker without a lease may use; what the workers of other programs use beyond the reserve
//! that [`ledger::Ledger::plan`] makes for them; and the time until all workers follow a cap that was lowered. A worker that
//! cannot read the summary does not learn of a lower cap, and keeps its safe share of the old one.
//!
//! The aggregator's ledger reserves for each worker at least what that worker may use until it adopts another grant. It gives
//! away only what is not reserved. This is how both sides agree on that amount:
//!
//! 1. A grant shrinks at once, and grows only by what is not reserved: [`LeaseTerms::grant`].
//! 2. A worker reads the summary, adopts its grant, and then begins its next report. So a report names the newest grant that the
//!    worker had adopted when it began the report. The ledger reserves all later grants too.
//! 3. A lease starts when its worker **begins** the report that the grant answers, and lasts [`LEASE`]. The aggregator
//!    sees the report later, and reserves the grant for a fortieth longer. So the offset of clocks does not matter.
//! 4. A worker whose lease has ended uses its safe share, `cap / active`, at most. It also uses no more than **each** of
//!    its reports says, from the one that its lease answers on. An aggregator may know only one of these reports.
//! 5. A worker drops its lease for good [`CONTACT`] after it began the last report that is known to be stored. The ledger
//!    forgets a worker [`FORGET`] after the store received its file.
//! 6. A new ledger does not know the grants of earlier ones. It grants no growth while one of them may be in force. It never
//!    acknowledges an older report than the stored summary does. While it cannot find the acknowledged report or a newer
//!    one, it grants no growth.
//!
//! These conditions must hold outside of this module:
//!
//! - Each process of a worker has an id of its own. It deletes its file only when it uses no capacity any more. Nothing
//!   else deletes the file of a running worker.
//! - An aggregator writes a summary on condition that the summary that it has read is still stored. Nothing deletes
//!   the summary while workers run.
//! - A clock is off by 1 % at most. The aggregator's clock and the store's differ by ten seconds at most.
//! - A worker's clock is monotonic, and runs while the machine sleeps.
//!
//! With steady wants and working calls, two rounds make the fleet max-min fair by weight. Rounding leaves over less than a
//! millionth of a unit for each unit of weight.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tidegate_domain::{
//!     lease::{EQUAL_WEIGHT, holder::LeaseHolder, ledger::{Ledger, Sighting}},
//!     rates::{Rate, Rates},
//!     time::EpochMillis,
//! };
//!
//! let units = |read: u64| Rates { read: Rate::from_millionths(read * Rate::UNIT), ..Rates::default() };
//! let (mut small, mut large) = (LeaseHolder::default(), LeaseHolder::default());
//! let began = Duration::from_secs(1);
//! let reports = [small.begin_report(units(20), EQUAL_WEIGHT, began), large.begin_report(units(500), EQUAL_WEIGHT, began)];
//!
//! let now = EpochMillis::new(1_767_225_600_000)?;
//! let mut ledger = Ledger::new(None, now);
//! let sightings = ["small", "large"].into_iter().zip(reports).map(|(worker, report)| Sighting {
//!     worker,
//!     written: now,
//!     report: Some(report),
//! });
//! let terms = ledger.plan(sightings, units(100), Rates::default(), now);
//!
//! // Of the cap of 100, the ledger gives away 98.
//! assert!(small.adopt(&terms, reports[0].number, began) && large.adopt(&terms, reports[1].number, began));
//! assert_eq!((small.allowance(began).rates, large.allowance(began).rates), (units(20), units(78)));
//!
//! // Without another summary, the large worker falls back to what its only report says: it had nothing.
//! assert_eq!(large.allowance(began + Duration::from_secs(15)).rates, units(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{num::NonZeroU32, time::Duration};

use crate::rates::{Rate, Rates};

pub mod demand;
pub mod fleet;
pub mod holder;
pub mod ledger;
pub mod level;

/// How long a lease lasts, by the worker's clock, from the beginning of the report that its grant answers.
pub const LEASE: Duration = Duration::from_secs(15);

/// How long a worker keeps what it holds without a report that is known to be stored, by its own clock.
pub const CONTACT: Duration = Duration::from_secs(45);

/// The aggregator forgets a worker whose file the store received longer ago than this.
///
/// It covers [`CONTACT`] with a clock that is 1 % slow, two clocks that differ by ten seconds, and times in whole seconds.
pub const FORGET: Duration = Duration::from_mins(1);

/// What a worker without a lease may use: one capacity unit a second, of reads and of writes.
pub const START: Rates = Rates { read: Rate::from_millionths(Rate::UNIT), write: Rate::from_millionths(Rate::UNIT) };

/// The weight of a worker that is like the others.
pub const EQUAL_WEIGHT: NonZeroU32 = NonZeroU32::MIN;

/// The number of a worker's report. Each report of a worker has a higher number than the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportNumber(u64);

impl ReportNumber {
    /// Creates a number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next number.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What a worker reports about its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The number of this report.
    pub number: ReportNumber,
    /// The report whose grant the worker has adopted. `None` without a lease.
    pub follows: Option<ReportNumber>,
    /// What the worker would use without a limit of the fleet: at most its own maximum.
    pub wants: Rates,
    /// What the worker may use when it begins the report, without [`START`].
    pub has: Rates,
    /// What the worker may use at most when its lease has ended.
    pub safe: Rates,
    /// How many shares the worker gets.
    pub weight: NonZeroU32,
}

/// What a leasing worker's file says, beside what every worker's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKeys {
    /// The report about the lease.
    pub report: LeaseReport,
    /// The cap that the worker was started with, if any.
    pub cap: Option<Rates>,
}

/// What a summary says about leases. A worker computes its grant from this and from the report that the aggregator has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// What the fleet may use.
    pub cap: Rates,
    /// The number of workers that share the cap.
    pub active: u32,
    /// The most that a worker may hold, for each unit of weight.
    pub level: Rates,
    /// The most to which a worker may grow, for each unit of weight.
    pub growth: Rates,
}

impl LeaseTerms {
    /// Returns the grant that answers a report. The worker and the ledger compute the same one.
    ///
    /// It is `min(wants, level * weight, max(has, growth * weight))`.
    #[must_use]
    pub fn grant(&self, report: &LeaseReport) -> Rates {
        let by_weight = |rates: Rates| rates.map(|rate| level::by_weight(rate, report.weight));
        report.wants.min(by_weight(self.level)).min(report.has.max(by_weight(self.growth)))
    }

    /// Returns an equal share of the cap. A worker whose lease has ended uses no more.
    #[must_use]
    pub fn safe_share(&self) -> Rates {
        let active = u64::from(self.active.max(1));
        self.cap.map(|cap| Rate::from_millionths(cap.millionths() / active))
    }
}

/// Returns the part of a cap that is given away: 98 %, rounded down to a millionth of a unit.
///
/// The rest is for fast clocks, and for what workers use before their first grant.
#[must_use]
pub fn distributable(cap: Rates) -> Rates {
    // The product fits: `Rate::MAX` has 44 bits.
    cap.map(|cap| Rate::from_millionths(cap.millionths() * 98 / 100))
}

/// Returns whether a worker should report at once, because what it wants has changed by a fifth of what it has reported or
/// more, and by a unit a second at least.
#[must_use]
pub fn should_report_early(reported: Rates, wants: Rates) -> bool {
    let changed = |reported: Rate, wants: Rate| {
        let change = reported.millionths().abs_diff(wants.millionths());
        change >= Rate::UNIT && change >= reported.millionths() / 5
    };
    changed(reported.read, wants.read) || changed(reported.write, wants.write)
}
