//! Records which tokens must exist, from the actions of clients and resources, and compares them with the table.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_aws::schema::tokens::slot_number;
use tidegate_domain::sweep::{Token, TokenKey};

/// Seconds after an event within which its token must be deleted: the grace, redeliveries, and invocations that crash.
pub(crate) const AFTER_EVENT: i64 = 360;
/// Seconds between two reconciles.
pub(crate) const RECONCILE_EVERY: i64 = 900;
/// Seconds within which the reconcile must delete the token of a cluster whose event was lost.
const AFTER_CLUSTER: i64 = 2 * RECONCILE_EVERY;

/// How a resource ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) at: i64,
    /// When its first event arrives; `None` if it was lost.
    pub(crate) first_event: Option<i64>,
    /// Whether EMR knows of it.
    pub(crate) is_cluster: bool,
}

/// A reservation, or the token that it became.
#[derive(Clone, Debug)]
struct Entry {
    /// `None` while it is reserved.
    resource: Option<String>,
    written: i64,
    expires: i64,
}

/// All reservations and resources, live or not.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<TokenKey, Entry>,
    /// `None` while a resource runs.
    resources: BTreeMap<String, Option<End>>,
    /// Tokens that stayed too long.
    pub(crate) leaked: BTreeSet<String>,
    /// Tokens that were live and gone.
    pub(crate) taken: BTreeSet<String>,
}

impl Ledger {
    pub(crate) fn reserved(&mut self, key: TokenKey, now: i64, expires: i64) {
        self.entries.insert(key, Entry { resource: None, written: now, expires });
    }

    pub(crate) fn started(&mut self, resource: &str) {
        self.resources.insert(resource.to_owned(), None);
    }

    pub(crate) fn created(&mut self, key: TokenKey, resource: &str, now: i64, expires: i64) {
        self.entries.insert(key, Entry { resource: Some(resource.to_owned()), written: now, expires });
    }

    pub(crate) fn ended(&mut self, resource: &str, end: End) {
        self.resources.insert(resource.to_owned(), Some(end));
    }

    /// Resources that run and have a token.
    pub(crate) fn running(&self, now: i64) -> usize {
        self.entries.values().filter(|entry| entry.resource.is_some() && self.is_live(entry, now)).count()
    }

    /// The latest expiry of the reservations, and of the tokens whose resource has ended.
    pub(crate) fn last_expiry(&self) -> i64 {
        let ended = |entry: &&Entry| entry.resource.as_ref().is_none_or(|resource| self.end(resource).is_some());
        self.entries.values().filter(ended).map(|entry| entry.expires).max().unwrap_or_default()
    }

    /// Compares the table with the tokens that must exist.
    pub(crate) fn compare(&mut self, table: &[Token], now: i64) {
        let taken = self.taken_from(table, now);
        let leaked: Vec<_> = table.iter().filter(|token| self.is_leaked(token, now)).map(describe).collect();
        self.taken.extend(taken);
        self.leaked.extend(leaked);
    }

    /// Compares the table after the last event: every token that has ended or expired must be gone. A free slot may stay:
    /// TTL deletes it, and the simulation has none.
    pub(crate) fn compare_at_rest(&mut self, table: &[Token], now: i64) {
        self.compare(table, now);
        let is_live = |token: &Token| self.entries.get(&token.key).is_some_and(|entry| self.is_live(entry, now));
        let is_free = |token: &Token| is_unbound_slot(token) && token.expires.is_some_and(|expires| expires <= now);
        let left: Vec<_> = table.iter().filter(|token| !is_live(token) && !is_free(token)).map(describe).collect();
        self.leaked.extend(left);
    }

    fn taken_from(&self, table: &[Token], now: i64) -> Vec<String> {
        let table: BTreeMap<_, _> = table.iter().map(|token| (&token.key, token)).collect();
        let live = self.entries.iter().filter(|(_, entry)| self.is_live(entry, now));
        let is_in_table = |key: &TokenKey, entry: &Entry| {
            let resource = entry.resource.as_ref().unwrap_or(&key.reservation);
            table.get(key).is_some_and(|token| token.resource == *resource)
        };
        let taken = live.filter(|(key, entry)| !is_in_table(key, entry));
        taken.map(|(key, entry)| format!("{} {:?}", key.reservation, entry.resource)).collect()
    }

    fn is_live(&self, entry: &Entry, now: i64) -> bool {
        entry.expires > now && entry.resource.as_ref().is_none_or(|resource| self.end(resource).is_none())
    }

    /// Returns whether a token counts although it should have been deleted.
    fn is_leaked(&self, token: &Token, now: i64) -> bool {
        let counts = token.expires.is_some_and(|expires| expires > now);
        let Some(end) = self.end(&token.resource) else { return false };
        let written = self.entries.get(&token.key).map_or(end.at, |entry| entry.written);
        let due = match end {
            End { first_event: Some(event), .. } => event.max(written) + AFTER_EVENT,
            End { is_cluster: true, at, .. } => at.max(written) + AFTER_CLUSTER,
            // Only its expiry deletes it.
            _ => return false,
        };
        counts && now > due
    }

    fn end(&self, resource: &str) -> Option<End> {
        self.resources.get(resource).copied().flatten()
    }
}

fn is_unbound_slot(token: &Token) -> bool {
    token.is_reservation() && slot_number(&token.key.reservation).is_some()
}

fn describe(token: &Token) -> String {
    format!("{} {}", token.key.reservation, token.resource)
}

#[cfg(test)]
mod tests {
    use tidegate_aws::schema::tokens::slot_key;

    use super::*;

    fn key() -> TokenKey {
        TokenKey { coordinate: "clusters:1".to_owned(), reservation: "r-1".to_owned() }
    }

    fn token(resource: &str, expires: i64) -> Token {
        Token { key: key(), resource: resource.to_owned(), expires: Some(expires) }
    }

    fn end(first_event: Option<i64>, is_cluster: bool) -> End {
        End { at: 100, first_event, is_cluster }
    }

    /// A ledger with one token, written at 20. Its resource has ended if there is an end.
    fn ledger(end: Option<End>) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.reserved(key(), 0, 300);
        ledger.started("j-1");
        ledger.created(key(), "j-1", 20, 10_000);
        if let Some(end) = end {
            ledger.ended("j-1", end);
        }
        ledger
    }

    /// `expect` says whether a token leaked, and whether one was taken.
    fn check(end: Option<End>, table: &[Token], now: i64, expect: (bool, bool)) {
        let mut ledger = ledger(end);
        ledger.compare(table, now);
        assert_eq!((!ledger.leaked.is_empty(), !ledger.taken.is_empty()), expect, "{end:?} {table:?} {now}");
    }

    #[test]
    fn a_token_in_use_must_exist() {
        check(None, &[token("j-1", 10_000)], 9_999, (false, false));
        check(None, &[], 9_999, (false, true));
        check(None, &[token("j-2", 10_000)], 9_999, (false, true));
        check(None, &[], 10_000, (false, false));
    }

    #[test]
    fn a_token_must_go_after_its_end() {
        let table = [token("j-1", 10_000)];
        check(Some(end(Some(110), false)), &table, 110 + AFTER_EVENT, (false, false));
        check(Some(end(Some(110), false)), &table, 111 + AFTER_EVENT, (true, false));
        check(Some(end(Some(110), false)), &[], 111, (false, false));
        check(Some(end(None, true)), &table, 100 + AFTER_CLUSTER, (false, false));
        check(Some(end(None, true)), &table, 101 + AFTER_CLUSTER, (true, false));
        check(Some(end(None, false)), &table, 9_999, (false, false));
        check(Some(end(Some(110), false)), &table, 10_000, (false, false));
    }

    #[test]
    fn a_reservation_must_exist_until_it_expires() {
        let mut ledger = Ledger::default();
        ledger.reserved(key(), 0, 300);
        ledger.compare(&[token("r-1", 300)], 299);
        ledger.compare(&[], 300);
        assert!(ledger.taken.is_empty());
        ledger.compare(&[], 299);
        assert_eq!(ledger.taken.len(), 1);
    }

    #[test]
    fn at_rest_only_running_resources_have_tokens() {
        let mut running = ledger(None);
        running.compare_at_rest(&[token("j-1", 10_000)], 9_000);
        assert_eq!((running.leaked.len(), running.running(9_000), running.running(10_000)), (0, 1, 0));
        let mut ended = ledger(Some(end(None, false)));
        ended.compare_at_rest(&[token("j-1", 10_000)], 10_001);
        assert_eq!((ended.leaked.len(), ended.running(9_000), ended.last_expiry()), (1, 0, 10_000));
    }

    #[test]
    fn at_rest_a_free_slot_may_stay() {
        let slot = |resource: &str, expires| {
            let key = TokenKey { reservation: slot_key(2), ..key() };
            Token { key, resource: resource.to_owned(), expires: Some(expires) }
        };
        let left = |token: Token| {
            let mut ledger = Ledger::default();
            ledger.compare_at_rest(&[token], 9_000);
            ledger.leaked.len()
        };
        assert_eq!(left(slot(&slot_key(2), 9_000)), 0);
        assert_eq!(left(slot(&slot_key(2), 9_001)), 1);
        assert_eq!(left(slot("j-1", 9_000)), 1);
        assert_eq!(left(token("r-1", 9_000)), 1);
    }
}
