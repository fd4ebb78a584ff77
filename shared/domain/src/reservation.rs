//! Computes which slots of a limit may be taken. A token stands for one running resource.
//!
//! A limit of `n` has the slots `0..n`. A slot has at most one holder, so clients that take a free slot below the limit
//! never hold more than `n` tokens together. Other tokens can exist: those of clients that count tokens instead of taking
//! slots, and slots that were taken while the limit was higher. Both reduce the number of slots that may be taken:
//! [`Occupancy::usable`].

use std::{collections::BTreeMap, time::Duration};

/// The lifetime of a reservation that is not bound to a resource, as in rate-limiter-py.
pub const RESERVED: Duration = Duration::from_mins(5);

/// The age of the expiry of a freed slot. It exceeds any difference of clocks, so no client counts the slot.
pub const FREED: Duration = Duration::from_hours(1);

/// How long a write may take, with all attempts. A slot that expires within this time is not bound or renewed: a late
/// attempt would make it live again, after a Python client has counted it as free.
pub const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// The highest limit that slots can have.
pub const HIGHEST_LIMIT: u32 = 1_000_000;

/// The live tokens of an account, from one consistent query of one or more pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// The query returned the slots with this number and above.
    pub from: u32,
    /// The held slots from `from` on, each with its expiry in epoch **seconds**.
    pub slots: BTreeMap<u32, i64>,
    /// The tokens of other clients, which have no slots.
    pub others: u32,
}

impl Occupancy {
    /// Returns a bound. Taking every free slot below it never raises the number of held tokens above `limit - margin`. `None`
    /// if the bound depends on slots below `from`.
    ///
    /// The number of free slots below the bound is the number of tokens that can still be taken. Two clients that read the
    /// same occupancy cannot take the same slot, so they stay within the limit together.
    ///
    /// ```
    /// use tidegate_domain::reservation::Occupancy;
    ///
    /// // Slots 0 and 7 are held, and another client holds 3 tokens.
    /// let occupancy = Occupancy { from: 0, slots: [(0, 1), (7, 1)].into(), others: 3 };
    /// // Of the slots below 6, five are free: with them, 10 tokens are held.
    /// assert_eq!(occupancy.usable(10, 0), Some(6));
    /// assert_eq!(occupancy.usable(10, 5), Some(1));
    /// assert_eq!(occupancy.usable(4, 0), Some(0));
    /// ```
    #[must_use]
    pub fn usable(&self, limit: u32, margin: u32) -> Option<u32> {
        if self.from > limit {
            return None;
        }
        let mut usable = limit;
        // Held slots at or above `usable`. They count, but cannot be taken.
        let mut above = self.slots.range(limit..).count() as u64;
        let mut held = self.slots.range(..limit).rev().map(|(slot, _)| *slot).peekable();
        let others = u64::from(self.others) + u64::from(margin);
        while u64::from(usable) + above + others > u64::from(limit) {
            if usable <= self.from {
                return (usable == 0).then_some(0);
            }
            usable -= 1;
            above += u64::from(held.next_if_eq(&usable).is_some());
        }
        Some(usable)
    }

    /// Returns whether more than `limit` tokens are held. `None` if this depends on slots below `from`.
    #[must_use]
    pub fn exceeds(&self, limit: u32) -> Option<bool> {
        if self.shown() > u64::from(limit) { Some(true) } else { self.usable(limit, 0).map(|_| false) }
    }

    /// Returns how many tokens the query returned.
    fn shown(&self) -> u64 {
        self.slots.len() as u64 + u64::from(self.others)
    }

    /// Returns how many tokens are held. `None` unless the query returned all slots.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        (self.from == 0).then(|| self.shown())
    }

    /// Returns the first slot of the next query. Its result is enough for [`usable`](Self::usable), unless it finds further
    /// tokens.
    #[must_use]
    pub fn next_from(&self, limit: u32, margin: u32) -> u32 {
        let shown = u32::try_from(self.shown()).unwrap_or(u32::MAX);
        limit.saturating_sub(shown.saturating_add(margin)).min(self.from)
    }
}

/// Returns how many slots are tried at random before all of them are read.
///
/// A write to a held slot costs one write unit, which has the price of five read units. A read unit covers about 20 slots
/// of 200 bytes. So reading all slots costs as much as about `limit / 100` writes, and it pays to try that often. More than
/// 32 failed writes, one after the other, would take longer than the read.
///
/// AWS: [read and write units](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/capacity-mode.html).
#[must_use]
pub fn probes(limit: u32) -> u32 {
    (1 + limit / 100).min(32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn occupancy(from: u32, slots: &BTreeSet<u32>, others: u32) -> Occupancy {
        Occupancy { from, slots: slots.range(from..).map(|slot| (*slot, 1)).collect(), others }
    }

    proptest! {
        /// As many slots can be taken as tokens are left.
        #[test]
        fn free_slots_equal_the_tokens_left(
            slots in prop::collection::btree_set(0u32..30, 0..30),
            others in 0u32..20,
            limit in 0u32..25,
            margin in 0u32..5,
        ) {
            let all = occupancy(0, &slots, others);
            let usable = all.usable(limit, margin).unwrap();
            let free = (0..usable).filter(|slot| !slots.contains(slot)).count();
            let held = slots.len() + others as usize + margin as usize;
            prop_assert_eq!(free, (limit as usize).saturating_sub(held));
            prop_assert_eq!(all.exceeds(limit), Some(slots.len() + others as usize > limit as usize));
        }

        /// A read of the upper slots gives the same answer as a read of all, or none.
        #[test]
        fn a_read_of_the_upper_slots_does_not_guess(
            slots in prop::collection::btree_set(0u32..30, 0..30),
            others in 0u32..20,
            limit in 0u32..25,
            margin in 0u32..5,
            from in 0u32..30,
        ) {
            let (all, part) = (occupancy(0, &slots, others), occupancy(from, &slots, others));
            if let Some(usable) = part.usable(limit, margin) {
                prop_assert_eq!(Some(usable), all.usable(limit, margin));
            } else {
                prop_assert!(part.next_from(limit, margin) < from);
            }
            if let Some(exceeds) = part.exceeds(limit) {
                prop_assert_eq!(Some(exceeds), all.exceeds(limit));
            }
        }

        /// Where only the tokens of the first read are held, the second read is enough.
        #[test]
        fn the_second_read_is_enough(slots in prop::collection::btree_set(20u32..30, 0..5), others in 0u32..20) {
            let next = occupancy(20, &slots, others).next_from(20, 0);
            prop_assert!(occupancy(next, &slots, others).usable(20, 0).is_some());
        }
    }

    #[test]
    fn an_empty_account_can_use_all_slots() {
        assert_eq!(Occupancy { from: 10, ..Occupancy::default() }.usable(10, 0), Some(10));
        assert_eq!(occupancy(10, &[12].into(), 0).usable(10, 0), None);
        assert_eq!(occupancy(9, &[12].into(), 0).usable(10, 0), Some(9));
        assert_eq!((probes(5), probes(100), probes(5_000)), (1, 2, 32));
    }
}
