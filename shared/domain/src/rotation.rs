//! Rotation: which items one run of a schedule takes when a run cannot take all of them and remembers nothing of the
//! run before.

use std::num::NonZeroUsize;

/// Returns the items that the run with this number takes, at most `budget` of them, in the order in which it takes them.
///
/// While the items stay the same, any `items.len().div_ceil(budget)` runs with successive numbers take every item.
/// Each round of so many runs starts elsewhere within each run, by the golden section. So if runs stop early, after a
/// `k`-th of their items, a few times `k` rounds still take every item.
///
/// ```
/// use std::num::NonZeroUsize;
/// use tidegate_domain::rotation::turn;
///
/// let two = NonZeroUsize::new(2).unwrap();
/// let taken = |run| turn(vec!['a', 'b', 'c'], run, two);
/// assert_eq!((taken(0), taken(1)), (vec!['a', 'b'], vec!['c', 'a']));
/// assert_eq!((taken(2), taken(3)), (vec!['b', 'a'], vec!['a', 'c']));
/// ```
#[must_use]
pub fn turn<T>(mut items: Vec<T>, run: usize, budget: NonZeroUsize) -> Vec<T> {
    if items.is_empty() {
        return items;
    }
    let runs = items.len().div_ceil(budget.get());
    items.rotate_left(run % runs * budget.get());
    items.truncate(budget.get());
    let len = items.len();
    items.rotate_left(run / runs % len * step(len) % len);
    items
}

/// The number next to the golden section of `len` that has no divisor in common with it: its multiples reach every place,
/// and the first few are far apart.
fn step(len: usize) -> usize {
    let golden = len * 618 / 1000;
    (1..=golden).rev().find(|step| gcd(*step, len) == 1).unwrap_or(1)
}

const fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The number of items may have been another one before the first of these runs.
        #[test]
        fn successive_runs_take_all_items(count in 0_usize..2000, budget in 1_usize..400, first in 0..usize::MAX / 2) {
            let items: Vec<_> = (0..count).collect();
            let budget = NonZeroUsize::new(budget).unwrap();
            let runs = count.div_ceil(budget.get());
            let mut taken = BTreeSet::new();
            for run in first..first + runs {
                let turn = turn(items.clone(), run, budget);
                prop_assert_eq!(turn.len(), count.min(budget.get()));
                prop_assert_eq!(turn.iter().collect::<BTreeSet<_>>().len(), turn.len(), "an item twice");
                taken.extend(turn);
            }
            prop_assert_eq!(taken, BTreeSet::from_iter(items));
        }

        /// As when EMR throttles each run after some calls.
        #[test]
        fn runs_that_stop_early_take_all_items(count in 1_usize..400, stop in 1_usize..400, first in 0..usize::MAX / 2) {
            let items: Vec<_> = (0..count).collect();
            let runs = 5 * count.div_ceil(stop);
            let taken: BTreeSet<_> =
                (first..first + runs).flat_map(|run| turn(items.clone(), run, NonZeroUsize::MAX).into_iter().take(stop)).collect();
            prop_assert_eq!(taken, BTreeSet::from_iter(items));
        }

        #[test]
        fn every_item_is_the_first_of_a_run(count in 1_usize..60, budget in 1_usize..60, start in 0..usize::MAX / 2) {
            let items: Vec<_> = (0..count).collect();
            let budget = NonZeroUsize::new(budget).unwrap();
            let runs = count.div_ceil(budget.get()) * count.min(budget.get());
            let first = |run| turn(items.clone(), run, budget)[0];
            let firsts: BTreeSet<_> = (start..start + runs).map(first).collect();
            prop_assert_eq!(firsts.len(), count);
        }
    }
}
