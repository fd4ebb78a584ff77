//! Rotation: which items one run of a schedule takes when a run cannot take all of them and remembers nothing of the
//! run before.

use std::num::NonZeroUsize;

/// Returns the items that the run with this number takes, at most `budget` of them, in the order in which it takes them.
///
/// While the items stay the same, any `items.len().div_ceil(budget)` runs with successive numbers take every item.
/// Each round of so many runs starts elsewhere within each run, by the golden section. So if runs stop early, after `k` of
/// `n` items, `2 * n.div_ceil(k)` rounds still take every item.
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
    let start = golden(run / runs, items.len());
    items.rotate_left(start);
    items
}

/// The `round`-th place of a golden section of `len` places: however many rounds there were, they are spread evenly.
#[expect(clippy::cast_possible_truncation, reason = "the place is below `len`")]
fn golden(round: usize, len: usize) -> usize {
    /// The golden section as a fraction of 2^64.
    const SECTION: u64 = 0x9E37_79B9_7F4A_7C15;
    let fraction = (round as u64).wrapping_mul(SECTION);
    ((u128::from(fraction) * len as u128) >> 64) as usize
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
            let runs = 2 * count.div_ceil(stop);
            let taken: BTreeSet<_> =
                (first..first + runs).flat_map(|run| turn(items.clone(), run, NonZeroUsize::MAX).into_iter().take(stop)).collect();
            prop_assert_eq!(taken, BTreeSet::from_iter(items));
        }
    }
}
