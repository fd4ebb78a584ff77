//! When to delete a resource's token: the resource has ended, or the token has expired.
//!
//! A client reserves a token, starts a resource (a cluster, a step, a job), and then writes the resource's id to the token.
//! So the event of an end may arrive before the token is written, and a client may use a reservation for another
//! resource at any moment. A token is therefore deleted on the condition that it has not changed.

use std::{num::NonZeroUsize, time::Duration};

use crate::time::EpochMillis;

/// The key of a token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// The limited kind of resource, and the account.
    pub coordinate: String,
    /// The id of the reservation, which the token keeps.
    pub reservation: String,
}

/// A token, or a reservation of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The key.
    pub key: TokenKey,
    /// The id of the resource that holds the token. A reservation holds its own id.
    pub resource: String,
    /// When it expires, in epoch **seconds**; `None` if the attribute is missing or not an integer.
    pub expires: Option<i64>,
}

impl Token {
    /// Returns whether the token has expired at the moment `now`, so that clients no longer count it.
    #[must_use]
    pub fn is_expired(&self, now: EpochMillis) -> bool {
        self.expires.is_some_and(|expires| expires <= seconds(now))
    }

    /// Returns whether the token is a reservation without a resource.
    #[must_use]
    pub fn is_reservation(&self) -> bool {
        self.resource == self.key.reservation
    }
}

/// Returns the whole seconds since the epoch: the clients' unit of an expiry.
#[must_use]
pub fn seconds(now: EpochMillis) -> i64 {
    now.get() / 1000
}

/// Why a token is deleted, which determines the condition of the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its resource has ended. The token must still hold that resource's id.
    Ended,
    /// It has expired. It must not have been extended.
    Expired,
}

impl Reason {
    /// Returns whether a token that was read as `seen` may be deleted in its `current` state.
    #[must_use]
    pub fn holds(self, seen: &Token, current: &Token, now: EpochMillis) -> bool {
        match self {
            Self::Ended => current.resource == seen.resource,
            Self::Expired => current.is_expired(now),
        }
    }
}

/// The outcome of one deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The token is deleted.
    Deleted,
    /// The token was already gone: its client, TTL or another sweep was faster.
    AlreadyGone,
    /// The token has changed and stays: its reservation is used for another resource, or it was extended.
    Changed,
}

/// The outcomes of the deletions of one resource's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// Tokens that were deleted.
    pub deleted: usize,
    /// Tokens that were already gone.
    pub already_gone: usize,
    /// Tokens that had changed.
    pub changed: usize,
}

impl Removals {
    /// Counts one deletion.
    pub fn count(&mut self, removal: Removal) {
        match removal {
            Removal::Deleted => self.deleted += 1,
            Removal::AlreadyGone => self.already_gone += 1,
            Removal::Changed => self.changed += 1,
        }
    }

    /// Returns the number of tokens that were found.
    #[must_use]
    pub fn found(&self) -> usize {
        self.deleted + self.already_gone + self.changed
    }
}

/// The outcome of an event of a resource's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Tokens were deleted.
    Deleted,
    /// All its tokens were already gone or had changed.
    AlreadyGone,
    /// There is no token yet, but a client may still write one. The event must be handled again later.
    Early,
    /// There is no token, and no client will write one.
    Untracked,
}

/// Decides on an event of a resource's end after the deletion of its tokens. `age` is the time since the end. `grace` is
/// the longest time after the end in which a client may write the token.
///
/// A token that is written after the grace stays until it expires. So does a token that is written after another one of
/// the same resource was deleted.
///
/// ```
/// use std::time::Duration;
/// use tidegate_domain::sweep::{Outcome, Removals, decide};
///
/// let (no_token, grace) = (Removals::default(), Duration::from_secs(120));
/// assert_eq!(decide(&no_token, Duration::from_secs(119), grace), Outcome::Early);
/// assert_eq!(decide(&no_token, Duration::from_secs(120), grace), Outcome::Untracked);
/// ```
#[must_use]
pub fn decide(removals: &Removals, age: Duration, grace: Duration) -> Outcome {
    match removals {
        Removals { deleted: 1.., .. } => Outcome::Deleted,
        removals if removals.found() > 0 => Outcome::AlreadyGone,
        _ if age < grace => Outcome::Early,
        _ => Outcome::Untracked,
    }
}

/// What a reconcile knows of a token's resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The resource runs, or will run.
    Running,
    /// The resource has ended and will not run again.
    Ended,
    /// The service was not asked, or does not know the resource.
    Unknown,
}

/// Decides whether a reconcile deletes a token. `None` if it stays.
#[must_use]
pub fn reconcile(token: &Token, resource: Resource, now: EpochMillis) -> Option<Reason> {
    if token.is_expired(now) {
        return Some(Reason::Expired);
    }
    (resource == Resource::Ended && !token.is_reservation()).then_some(Reason::Ended)
}

/// Returns the items that the run with this number takes, at most `budget` of them, in the order in which it takes them.
///
/// While the items stay the same, any `items.len().div_ceil(budget)` runs with successive numbers take every item.
/// Each round of so many runs starts elsewhere within each run, by the golden section. So if runs stop early, after `k` of
/// `n` items, `2 * n.div_ceil(k)` rounds still take every item.
///
/// ```
/// use std::num::NonZeroUsize;
/// use tidegate_domain::sweep::turn;
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

    const NOW: i64 = 1_767_225_600;

    fn token(resource: &str, expires: impl Into<Option<i64>>) -> Token {
        let key = TokenKey { coordinate: "clusters:1".to_owned(), reservation: "r-1".to_owned() };
        Token { key, resource: resource.to_owned(), expires: expires.into() }
    }

    fn now() -> EpochMillis {
        EpochMillis::new(NOW * 1000 + 999).unwrap()
    }

    #[test]
    fn a_token_counts_until_its_expiry() {
        let check = |expires: Option<i64>, expect| {
            assert_eq!(token("j-1", expires).is_expired(now()), expect, "{expires:?}");
        };
        check(Some(NOW - 1), true);
        check(Some(NOW), true);
        check(Some(NOW + 1), false);
        check(None, false);
    }

    #[test]
    fn a_changed_token_is_not_deleted() {
        let check = |reason: Reason, current: Token, expect| {
            assert_eq!(reason.holds(&token("j-1", NOW), &current, now()), expect, "{reason:?} {current:?}");
        };
        check(Reason::Ended, token("j-1", NOW), true);
        check(Reason::Ended, token("j-1", NOW + 60), true);
        check(Reason::Ended, token("j-2", NOW), false);
        check(Reason::Expired, token("j-1", NOW), true);
        check(Reason::Expired, token("j-1", NOW + 60), false);
        // No client counts an expired token, whatever resource it holds.
        check(Reason::Expired, token("j-2", NOW), true);
    }

    #[test]
    fn an_end_is_decided_after_the_grace() {
        let check = |found: &[Removal], age, expect| {
            let mut removals = Removals::default();
            for removal in found {
                removals.count(*removal);
            }
            let decided = decide(&removals, Duration::from_secs(age), Duration::from_mins(2));
            assert_eq!(decided, expect, "{found:?} after {age} s");
        };
        check(&[Removal::Deleted], 0, Outcome::Deleted);
        check(&[Removal::AlreadyGone, Removal::Deleted], 500, Outcome::Deleted);
        check(&[Removal::AlreadyGone], 0, Outcome::AlreadyGone);
        check(&[Removal::Changed], 500, Outcome::AlreadyGone);
        check(&[], 0, Outcome::Early);
        check(&[], 119, Outcome::Early);
        check(&[], 120, Outcome::Untracked);
    }

    #[test]
    fn a_reconcile_deletes_only_known_ends() {
        let check = |token: Token, resource, expect| {
            assert_eq!(reconcile(&token, resource, now()), expect, "{token:?} {resource:?}");
        };
        check(token("j-1", NOW + 1), Resource::Running, None);
        check(token("j-1", NOW + 1), Resource::Unknown, None);
        check(token("j-1", NOW + 1), Resource::Ended, Some(Reason::Ended));
        check(token("r-1", NOW + 1), Resource::Ended, None);
        check(token("j-1", NOW), Resource::Running, Some(Reason::Expired));
        check(token("r-1", NOW), Resource::Unknown, Some(Reason::Expired));
    }

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
