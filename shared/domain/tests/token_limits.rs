//! The law of limits from a file: after the changes, the table is as the file states, a second plan has no writes, and
//! rows of other services stay.

use std::collections::BTreeMap;

use proptest::{collection::btree_map, option, prelude::*};
use tidegate_domain::token_limits::{Action, Change, FileLimit, LimitKey, LimitRow, plan};

type Table = BTreeMap<LimitKey, LimitRow>;
type File = BTreeMap<LimitKey, FileLimit>;

/// Names that collide where an account and a resource are joined without a separator.
fn key() -> impl Strategy<Value = LimitKey> {
    let name = || prop::sample::select(vec!["a", "ab", "abc", "b", "bc", "c"]);
    (name(), name()).prop_map(|(resource, account)| key_of(resource, account))
}

fn key_of(resource: &str, account: &str) -> LimitKey {
    LimitKey { resource: resource.to_owned(), account: account.to_owned() }
}

fn service() -> impl Strategy<Value = Option<String>> {
    option::of(prop::sample::select(vec!["emr".to_owned(), "glue".to_owned()]))
}

fn table() -> impl Strategy<Value = Table> {
    let row = (option::of(-1..3_i64), option::of(-1..3_i64), service());
    let row = row.prop_map(|(limit, window_seconds, service)| LimitRow { limit, window_seconds, service });
    btree_map(key(), row, 0..12)
}

fn file() -> impl Strategy<Value = File> {
    let limit = (0..3_i64, 0..3_i64).prop_map(|(limit, window_seconds)| FileLimit { limit, window_seconds });
    btree_map(key(), limit, 0..8)
}

fn applied(table: &Table, changes: &[Change]) -> Table {
    let mut table = table.clone();
    for Change { key, before, action } in changes {
        assert_eq!(table.get(key), before.as_ref(), "{key:?}");
        match action {
            Action::Set(row) => drop(table.insert(key.clone(), row.clone())),
            Action::Delete => drop(table.remove(key)),
            Action::Leave => {}
        }
    }
    table
}

/// What the table must be, told row by row.
fn expected(table: &Table, file: &File, service: Option<&str>, prune: bool) -> Table {
    let is_pruned = |row: &LimitRow| prune && service.is_some() && row.service.as_deref() == service;
    let mut rows: Table =
        table.iter().filter(|(_, row)| !is_pruned(row)).map(|(key, row)| (key.clone(), row.clone())).collect();
    for (key, limit) in file {
        let kept = || table.get(key).and_then(|row| row.service.clone());
        let row = LimitRow {
            limit: Some(limit.limit),
            window_seconds: Some(limit.window_seconds),
            service: service.map_or_else(kept, |service| Some(service.to_owned())),
        };
        rows.insert(key.clone(), row);
    }
    rows
}

proptest! {
    #[test]
    fn the_table_becomes_what_the_file_states(table in table(), file in file(), service in service(), prune in any::<bool>()) {
        let service = service.as_deref();
        let changes = plan(&table, &file, service, prune);
        prop_assert!(changes.is_sorted_by_key(|change| &change.key), "{:?}", changes);
        let after = applied(&table, &changes);
        prop_assert_eq!(&after, &expected(&table, &file, service, prune));

        let is_left = |change: &Change| change.action == Action::Leave;
        let again = plan(&after, &file, service, prune);
        prop_assert!(again.iter().all(is_left), "{:?}", again);
        prop_assert_eq!(again, changes.into_iter().filter(is_left).collect::<Vec<_>>());
    }

    #[test]
    fn rows_of_other_services_are_never_deleted(table in table(), file in file(), service in service(), prune in any::<bool>()) {
        for Change { key, before, action } in plan(&table, &file, service.as_deref(), prune) {
            if !matches!(action, Action::Set(_)) {
                prop_assert!(service.is_some() && before.is_some_and(|row| row.service == service) && !file.contains_key(&key));
            }
        }
    }

    #[test]
    fn other_rows_make_no_difference(table in table(), file in file(), service in service(), prune in any::<bool>()) {
        let is_read = |key: &LimitKey, row: &LimitRow| file.contains_key(key) || row.service == service;
        let read: Table =
            table.iter().filter(|(key, row)| is_read(key, row)).map(|(key, row)| (key.clone(), row.clone())).collect();
        prop_assert_eq!(plan(&read, &file, service.as_deref(), prune), plan(&table, &file, service.as_deref(), prune));
    }
}

#[test]
fn joined_names_do_not_collide() {
    let row = |limit| LimitRow { limit: Some(limit), window_seconds: Some(0), service: Some("emr".to_owned()) };
    let table = [(key_of("c", "ab"), row(1)), (key_of("bc", "a"), row(2))].into();
    let file = [(key_of("c", "ab"), FileLimit { limit: 1, window_seconds: 0 })].into();
    let delete = Change { key: key_of("bc", "a"), before: Some(row(2)), action: Action::Delete };
    assert_eq!(plan(&table, &file, Some("emr"), true), [delete]);
}
