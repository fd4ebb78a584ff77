//! One token bucket, and the callers that wait for it in order.

use std::{collections::BTreeMap, time::Duration};

use super::{BURST, CapacityKind, Place, Turn, Units, Usage, limit::Limit};
use crate::rates::Rate;

/// The grains in a millionth of a unit. A grain is what accrues in a nanosecond at a rate of a millionth of a unit a second, so a
/// balance in grains needs no rounding.
const GRAIN: i128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Line<W> {
    kind: CapacityKind,
    /// What the bucket holds, in grains: [`GRAIN`] in a millionth of a unit. Below zero in debt.
    balance: i128,
    /// The balance includes what accrued up to this time.
    accrued: Duration,
    waiting: BTreeMap<Place, Caller<W>>,
    last: Place,
    consumed: Units,
    delayed: u64,
}

#[derive(Clone, Debug)]
struct Caller<W> {
    units: Units,
    waker: W,
}

impl<W: Clone> Line<W> {
    pub(super) fn new(kind: CapacityKind, limit: &Limit) -> Self {
        Self {
            kind,
            balance: capacity(kind.of(limit.at(Duration::ZERO))),
            accrued: Duration::ZERO,
            waiting: BTreeMap::new(),
            last: Place(0),
            consumed: Units::default(),
            delayed: 0,
        }
    }

    /// Adds what has accrued until `now`, step by step. Returns the rate from now on.
    pub(super) fn accrue(&mut self, limit: &Limit, now: Duration) -> Rate {
        while self.accrued < now {
            let rate = self.kind.of(limit.at(self.accrued));
            let end = limit.next_change(self.accrued).map_or(now, |change| change.min(now));
            let accrued = accrual(rate, end.saturating_sub(self.accrued));
            self.balance = self.balance.saturating_add(accrued).min(capacity(rate));
            self.accrued = end;
        }
        let rate = self.kind.of(limit.at(self.accrued));
        self.balance = self.balance.min(capacity(rate));
        rate
    }

    pub(super) fn take(&mut self, units: Units, limit: &Limit, now: Duration) -> bool {
        if !self.waiting.is_empty() {
            return false;
        }
        let rate = self.accrue(limit, now);
        self.pay(units, rate)
    }

    pub(super) fn enter(&mut self, units: Units, waker: W) -> Place {
        self.last = Place(self.last.0 + 1);
        self.waiting.insert(self.last, Caller { units, waker });
        self.delayed += 1;
        self.last
    }

    /// Lets callers pass, the first ones first. Each pays as of the moment at which it was due, so that nothing is lost if a
    /// task is late by [`BURST`] at most. If any has passed, the caller that is first now must be woken up too.
    pub(super) fn admit(&mut self, limit: &Limit, now: Duration) -> Vec<W> {
        self.accrue(limit, now.saturating_sub(BURST));
        let mut woken = Vec::new();
        while let Some((place, units)) = self.first()
            && let Some(due) = self.due(units, limit).filter(|due| *due <= now)
        {
            let rate = self.accrue(limit, due);
            if self.pay(units, rate) {
                woken.extend(self.waiting.remove(&place).map(|caller| caller.waker));
            }
        }
        self.accrue(limit, now);
        if !woken.is_empty() {
            woken.extend(self.first_waker());
        }
        woken
    }

    /// Lets callers pass after a change. The first caller that still waits must be woken up, because it may pass earlier.
    pub(super) fn recheck(&mut self, limit: &Limit, now: Duration) -> Vec<W> {
        let mut woken = self.admit(limit, now);
        if woken.is_empty() {
            woken.extend(self.first_waker());
        }
        woken
    }

    pub(super) fn turn(&self, place: Place, limit: &Limit) -> Turn {
        match self.first() {
            Some((first, units)) if first == place => Turn::Wait(self.due(units, limit)),
            _ if self.waiting.contains_key(&place) => Turn::Wait(None),
            _ => Turn::Passed,
        }
    }

    /// Returns whether the caller was still waiting.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        self.waiting.remove(&place).is_some()
    }

    /// Corrects a charge. Returns the callers to wake up.
    pub(super) fn settle(&mut self, charged: Units, consumed: Units, limit: &Limit, now: Duration) -> Vec<W> {
        let mut woken = self.admit(limit, now);
        self.balance = self.balance.saturating_add(grains(charged) - grains(consumed));
        self.consumed = self.consumed.plus(consumed);
        if consumed < charged {
            woken.extend(self.recheck(limit, now));
        }
        woken
    }

    pub(super) fn usage(&self) -> Usage {
        Usage { consumed: self.consumed, delayed: self.delayed, waiting: self.waiting.len() }
    }

    fn first(&self) -> Option<(Place, Units)> {
        self.waiting.first_key_value().map(|(place, caller)| (*place, caller.units))
    }

    fn first_waker(&self) -> Option<W> {
        self.waiting.first_key_value().map(|(_, caller)| caller.waker.clone())
    }

    fn pay(&mut self, units: Units, rate: Rate) -> bool {
        let can_pay = rate > Rate::default() && self.balance >= needed(units, rate);
        if can_pay {
            self.balance -= grains(units);
        }
        can_pay
    }

    /// Returns when the first caller can pay, or the next change of the rate if that is earlier.
    fn due(&self, units: Units, limit: &Limit) -> Option<Duration> {
        let rate = self.kind.of(limit.at(self.accrued));
        let missing = u128::try_from(needed(units, rate) - self.balance).unwrap_or_default();
        let paid = (rate > Rate::default()).then(|| {
            let nanos = missing.div_ceil(rate.millionths().into());
            self.accrued.saturating_add(Duration::from_nanos_u128(nanos))
        });
        [paid, limit.next_change(self.accrued)].into_iter().flatten().min()
    }
}

/// What the bucket must hold before a caller may pay. A full bucket is enough for any caller.
fn needed(units: Units, rate: Rate) -> i128 {
    grains(units).min(capacity(rate))
}

fn capacity(rate: Rate) -> i128 {
    accrual(rate, BURST)
}

/// What accrues in a time, in grains. A rate has at most 44 bits, and the nanoseconds of a century have 62.
fn accrual(rate: Rate, time: Duration) -> i128 {
    i128::from(rate.millionths()).saturating_mul(i128::try_from(time.as_nanos()).unwrap_or(i128::MAX))
}

fn grains(units: Units) -> i128 {
    i128::from(units.millionths()) * GRAIN
}
