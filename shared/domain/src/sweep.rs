//! When a token of a running resource goes: its resource has ended, or it has expired.
//!
//! A client reserves a token, starts a resource (a cluster, a step, a job), and then writes the resource's
//! id to the token. So the end of a resource may be told before its token is there, and a reservation may
//! be used for another resource at any moment: a token is deleted on the condition that it is still as it
//! was seen.

use std::time::Duration;

use crate::time::EpochMillis;

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// What is limited, and for which account.
    pub coordinate: String,
    /// The reservation that became the token, if it did.
    pub reservation: String,
}

/// A token, or a reservation of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where it is.
    pub key: TokenKey,
    /// The resource that holds it; of a reservation, the reservation itself.
    pub resource: String,
    /// When it expires, in epoch **seconds**; `None` if the attribute is missing or not an integer.
    pub expires: Option<i64>,
}

impl Token {
    /// Whether clients have ceased to count it, because its time is over.
    #[must_use]
    pub fn is_expired(&self, now: EpochMillis) -> bool {
        self.expires.is_some_and(|expires| expires <= seconds(now))
    }

    /// Whether it still waits for its resource.
    #[must_use]
    pub fn is_reservation(&self) -> bool {
        self.resource == self.key.reservation
    }
}

/// The whole seconds that have passed since the epoch: the clients' unit for expiry.
#[must_use]
pub fn seconds(now: EpochMillis) -> i64 {
    now.get() / 1000
}

/// Why a token is deleted, and so the condition on which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its resource has ended: it must still bear that resource's id.
    Ended,
    /// It has expired: it must not have been extended.
    Expired,
}

impl Reason {
    /// Whether a token that was `seen` may be deleted, now that it is as it is.
    #[must_use]
    pub fn holds(self, seen: &Token, current: &Token, now: EpochMillis) -> bool {
        match self {
            Self::Ended => current.resource == seen.resource,
            Self::Expired => current.is_expired(now),
        }
    }
}

/// What became of one token that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is deleted.
    Deleted,
    /// It was gone: its client, its expiry or somebody's sweep was faster.
    AlreadyGone,
    /// It is no longer as it was seen, and stays: the reservation is used for another resource, or was
    /// extended.
    Changed,
}

/// How many tokens of one resource went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// Those that were deleted.
    pub deleted: usize,
    /// Those that were gone.
    pub already_gone: usize,
    /// Those that are no longer the resource's.
    pub changed: usize,
}

impl Removals {
    /// Counts one.
    pub fn count(&mut self, removal: Removal) {
        match removal {
            Removal::Deleted => self.deleted += 1,
            Removal::AlreadyGone => self.already_gone += 1,
            Removal::Changed => self.changed += 1,
        }
    }

    /// How many tokens were found.
    #[must_use]
    pub fn found(&self) -> usize {
        self.deleted + self.already_gone + self.changed
    }
}

/// What the end of a resource came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Tokens of it were deleted.
    Deleted,
    /// It had tokens, but by now they are gone, or others'.
    AlreadyGone,
    /// It has no token, and too little time has passed to say that it will have none: to be asked again.
    Early,
    /// It has no token, and none is to be expected.
    Untracked,
}

/// What the end of a resource comes to, once its tokens are dealt with. `age` is the time since it
/// ended, `grace` the longest time that a token may be written after that.
///
/// A token that is written later than that leaks until it expires, and so does one that is written behind
/// another one of its resource that was deleted already.
#[must_use]
pub fn decide(removals: &Removals, age: Duration, grace: Duration) -> Outcome {
    match removals {
        Removals { deleted: 1.., .. } => Outcome::Deleted,
        removals if removals.found() > 0 => Outcome::AlreadyGone,
        _ if age < grace => Outcome::Early,
        _ => Outcome::Untracked,
    }
}

/// What is known of a token's resource without an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// It runs, or will.
    Running,
    /// It has ended, for good.
    Ended,
    /// Nobody was asked, or nobody knows it.
    Unknown,
}

/// Whether a token goes that no event has told of; `None` if it stays.
#[must_use]
pub fn reconcile(token: &Token, resource: Resource, now: EpochMillis) -> Option<Reason> {
    if token.is_expired(now) {
        return Some(Reason::Expired);
    }
    (resource == Resource::Ended && !token.is_reservation()).then_some(Reason::Ended)
}

#[cfg(test)]
mod tests {
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
    fn a_token_counts_until_the_second_of_its_expiry() {
        let check = |expires: Option<i64>, expect| {
            assert_eq!(token("j-1", expires).is_expired(now()), expect, "{expires:?}");
        };
        check(Some(NOW - 1), true);
        check(Some(NOW), true);
        check(Some(NOW + 1), false);
        check(None, false);
    }

    #[test]
    fn a_token_is_deleted_only_as_it_was_seen() {
        let check = |reason: Reason, current: Token, expect| {
            assert_eq!(reason.holds(&token("j-1", NOW), &current, now()), expect, "{reason:?} {current:?}");
        };
        check(Reason::Ended, token("j-1", NOW), true);
        check(Reason::Ended, token("j-1", NOW + 60), true);
        check(Reason::Ended, token("j-2", NOW), false);
        check(Reason::Expired, token("j-1", NOW), true);
        check(Reason::Expired, token("j-1", NOW + 60), false);
        // Whatever it bears: nobody counts it.
        check(Reason::Expired, token("j-2", NOW), true);
    }

    #[test]
    fn an_end_is_done_with_when_no_token_can_come_any_more() {
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
    fn without_an_event_only_what_is_known_to_have_ended_goes() {
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
}
