//! Simulated time: one event after the other, in the order of their moments.

use std::{collections::BTreeMap, time::Duration};

use tidegate_domain::time::EpochMillis;

/// 2026-01-01T00:00:00Z, when the simulations begin.
pub(crate) const START: EpochMillis = match EpochMillis::new(1_767_225_600_000) {
    Ok(moment) => moment,
    Err(_) => panic!("it is within the calendar"),
};

/// A clock and the events that are planned. Each simulation chooses the unit of its moments.
#[derive(Debug)]
pub(crate) struct Agenda<T, E> {
    now: T,
    /// By moment; those of one moment in the order in which they were planned.
    events: BTreeMap<(T, u64), E>,
    planned: u64,
}

impl<T: Copy + Ord, E> Agenda<T, E> {
    pub(crate) fn new(now: T) -> Self {
        Self { now, events: BTreeMap::new(), planned: 0 }
    }

    pub(crate) fn now(&self) -> T {
        self.now
    }

    pub(crate) fn at(&mut self, moment: T, event: E) {
        self.planned += 1;
        self.events.insert((moment, self.planned), event);
    }

    /// Advances the clock to the next event and takes it, if it is due by `until`.
    pub(crate) fn next(&mut self, until: T) -> Option<E> {
        let next = self.events.first_entry().filter(|next| next.key().0 <= until)?;
        self.now = next.key().0;
        Some(next.remove())
    }

    /// Advances the clock when no event is left until then.
    pub(crate) fn advance(&mut self, until: T) {
        self.now = self.now.max(until);
    }
}

impl<E> Agenda<i64, E> {
    pub(crate) fn after(&mut self, delay: i64, event: E) {
        self.at(self.now + delay, event);
    }
}

impl<E> Agenda<EpochMillis, E> {
    pub(crate) fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now.after(delay), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_moment_then_as_planned() {
        let mut agenda = Agenda::new(10);
        agenda.after(5, "third");
        agenda.at(12, "first");
        agenda.at(12, "second");
        assert_eq!((agenda.next(12), agenda.next(12), agenda.next(12)), (Some("first"), Some("second"), None));
        assert_eq!((agenda.next(15), agenda.now()), (Some("third"), 15));
        agenda.advance(20);
        assert_eq!((agenda.next(20), agenda.now()), (None, 20));
    }
}
