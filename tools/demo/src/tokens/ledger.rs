//! What is true of tokens, by what the clients did and what became of their resources, apart from the table.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_domain::sweep::{Token, TokenKey};

/// Seconds in which a token must go once its event has come: the grace, redeliveries, and invocations
/// that crash.
pub(super) const AFTER_EVENT: i64 = 360;
/// Seconds between two reconciles.
pub(super) const RECONCILE_EVERY: i64 = 900;
/// Seconds within which the reconcile must delete the token of a cluster whose event was lost.
const AFTER_CLUSTER: i64 = 2 * RECONCILE_EVERY;

/// How a resource ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: i64,
    /// When its first event comes; `None` if it was lost.
    pub(super) told: Option<i64>,
    /// Whether EMR knows of it.
    pub(super) is_cluster: bool,
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
pub(super) struct Ledger {
    entries: BTreeMap<TokenKey, Entry>,
    /// `None` as long as it runs.
    resources: BTreeMap<String, Option<End>>,
    /// Tokens that stayed too long.
    pub(super) leaked: BTreeSet<String>,
    /// Tokens that were live and gone.
    pub(super) taken: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn reserved(&mut self, key: TokenKey, now: i64, expires: i64) {
        self.entries.insert(key, Entry { resource: None, written: now, expires });
    }

    pub(super) fn started(&mut self, resource: &str) {
        self.resources.insert(resource.to_owned(), None);
    }

    pub(super) fn held(&mut self, key: TokenKey, resource: &str, now: i64, expires: i64) {
        self.entries.insert(key, Entry { resource: Some(resource.to_owned()), written: now, expires });
    }

    pub(super) fn ended(&mut self, resource: &str, end: End) {
        self.resources.insert(resource.to_owned(), Some(end));
    }

    /// Resources that run and have a token.
    pub(super) fn running(&self, now: i64) -> usize {
        self.entries.values().filter(|entry| entry.resource.is_some() && self.is_live(entry, now)).count()
    }

    /// When the last token expires of a resource that has ended.
    pub(super) fn last_expiry(&self) -> i64 {
        let ended = |entry: &&Entry| entry.resource.as_ref().is_none_or(|resource| self.end(resource).is_some());
        self.entries.values().filter(ended).map(|entry| entry.expires).max().unwrap_or_default()
    }

    /// Compares the table with what is true.
    pub(super) fn compare(&mut self, table: &[Token], now: i64) {
        let taken = self.taken_from(table, now);
        let leaked: Vec<_> = table.iter().filter(|token| self.is_leaked(token, now)).map(told).collect();
        self.taken.extend(taken);
        self.leaked.extend(leaked);
    }

    /// Compares the table with what is true when all has come to rest: nothing is left of what has ended or expired.
    pub(super) fn compare_at_rest(&mut self, table: &[Token], now: i64) {
        self.compare(table, now);
        let is_live = |token: &&Token| self.entries.get(&token.key).is_some_and(|entry| self.is_live(entry, now));
        let left: Vec<_> = table.iter().filter(|token| !is_live(token)).map(told).collect();
        self.leaked.extend(left);
    }

    fn taken_from(&self, table: &[Token], now: i64) -> Vec<String> {
        let table: BTreeMap<_, _> = table.iter().map(|token| (&token.key, token)).collect();
        let live = self.entries.iter().filter(|(_, entry)| self.is_live(entry, now));
        let is_there = |key: &TokenKey, entry: &Entry| {
            let resource = entry.resource.as_ref().unwrap_or(&key.reservation);
            table.get(key).is_some_and(|token| token.resource == *resource)
        };
        let taken = live.filter(|(key, entry)| !is_there(key, entry));
        taken.map(|(key, entry)| format!("{} {:?}", key.reservation, entry.resource)).collect()
    }

    fn is_live(&self, entry: &Entry, now: i64) -> bool {
        entry.expires > now && entry.resource.as_ref().is_none_or(|resource| self.end(resource).is_none())
    }

    /// Whether a token counts although it should have gone.
    fn is_leaked(&self, token: &Token, now: i64) -> bool {
        let counts = token.expires.is_some_and(|expires| expires > now);
        let Some(end) = self.end(&token.resource) else { return false };
        let written = self.entries.get(&token.key).map_or(end.at, |entry| entry.written);
        let due = match end {
            End { told: Some(told), .. } => told.max(written) + AFTER_EVENT,
            End { is_cluster: true, at, .. } => at.max(written) + AFTER_CLUSTER,
            // Nobody can know before it expires.
            _ => return false,
        };
        counts && now > due
    }

    fn end(&self, resource: &str) -> Option<End> {
        self.resources.get(resource).copied().flatten()
    }
}

fn told(token: &Token) -> String {
    format!("{} {}", token.key.reservation, token.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TokenKey {
        TokenKey { coordinate: "clusters:1".to_owned(), reservation: "r-1".to_owned() }
    }

    fn token(resource: &str, expires: i64) -> Token {
        Token { key: key(), resource: resource.to_owned(), expires: Some(expires) }
    }

    fn end(told: Option<i64>, is_cluster: bool) -> End {
        End { at: 100, told, is_cluster }
    }

    /// A ledger of one token that was held at 20, and whose resource ended if it is said how.
    fn ledger(end: Option<End>) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.reserved(key(), 0, 300);
        ledger.started("j-1");
        ledger.held(key(), "j-1", 20, 10_000);
        if let Some(end) = end {
            ledger.ended("j-1", end);
        }
        ledger
    }

    /// `expect` is whether a token leaked, and whether one was taken.
    fn check(end: Option<End>, table: &[Token], now: i64, expect: (bool, bool)) {
        let mut ledger = ledger(end);
        ledger.compare(table, now);
        assert_eq!((!ledger.leaked.is_empty(), !ledger.taken.is_empty()), expect, "{end:?} {table:?} {now}");
    }

    #[test]
    fn a_token_that_runs_must_be_there() {
        check(None, &[token("j-1", 10_000)], 9_999, (false, false));
        check(None, &[], 9_999, (false, true));
        check(None, &[token("j-2", 10_000)], 9_999, (false, true));
        check(None, &[], 10_000, (false, false));
    }

    #[test]
    fn a_token_whose_resource_has_ended_must_go_in_time() {
        let there = [token("j-1", 10_000)];
        check(Some(end(Some(110), false)), &there, 110 + AFTER_EVENT, (false, false));
        check(Some(end(Some(110), false)), &there, 111 + AFTER_EVENT, (true, false));
        check(Some(end(Some(110), false)), &[], 111, (false, false));
        check(Some(end(None, true)), &there, 100 + AFTER_CLUSTER, (false, false));
        check(Some(end(None, true)), &there, 101 + AFTER_CLUSTER, (true, false));
        check(Some(end(None, false)), &there, 9_999, (false, false));
        check(Some(end(Some(110), false)), &there, 10_000, (false, false));
    }

    #[test]
    fn a_reservation_must_be_there_until_it_expires() {
        let mut ledger = Ledger::default();
        ledger.reserved(key(), 0, 300);
        ledger.compare(&[token("r-1", 300)], 299);
        ledger.compare(&[], 300);
        assert!(ledger.taken.is_empty());
        ledger.compare(&[], 299);
        assert_eq!(ledger.taken.len(), 1);
    }

    #[test]
    fn at_rest_only_what_runs_is_left() {
        let mut running = ledger(None);
        running.compare_at_rest(&[token("j-1", 10_000)], 9_000);
        assert_eq!((running.leaked.len(), running.running(9_000), running.running(10_000)), (0, 1, 0));
        let mut ended = ledger(Some(end(None, false)));
        ended.compare_at_rest(&[token("j-1", 10_000)], 10_001);
        assert_eq!((ended.leaked.len(), ended.running(9_000), ended.last_expiry()), (1, 0, 10_000));
    }
}
