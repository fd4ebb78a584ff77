//! Which events a pattern matches, and what is said of one that is malformed.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};
use tidegate_aws::pattern::{Pattern, PatternError};

fn matches(pattern: &Value, event: &Value) -> bool {
    Pattern::parse(pattern).unwrap().matches(event)
}

/// A row has a name, a pattern, an event, and whether they match, or that the pattern is invalid.
/// AWS's own implementation, Event Ruler, says the same of each.
#[test]
fn patterns_match_as_they_do_at_aws() {
    let mut wrong = Vec::new();
    for row in include_str!("pattern.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [name, pattern, event, expected] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let actual = match Pattern::parse(&pattern.parse().unwrap()) {
            Err(_) => "invalid",
            Ok(pattern) if pattern.matches(&event.parse().unwrap()) => "yes",
            Ok(_) => "no",
        };
        if actual != expected {
            wrong.push(format!("{name}: {actual}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Where Event Ruler says otherwise, or accepts less.
#[test]
fn the_rules_know_no_exceptions() {
    let check = |pattern: Value, event: Value, expect| {
        assert_eq!(matches(&pattern, &event), expect, "{pattern} and {event}");
    };
    check(json!({"d": {"b": [{"exists": false}]}}), json!({"d": [{"a": 1}, {"b": 2}]}), true);
    check(json!({"d": {"a": [{"exists": false}], "c": [1]}}), json!({"d": [{"a": 1}, {"c": 1}]}), true);
    check(json!({"a": [1], "$or": [{"a": [2]}, {"b": [3]}]}), json!({"a": 2}), false);
    check(json!({"a": [{"cidr": "10.1.2.3/32"}]}), json!({"a": "10.1.2.3"}), true);
    check(json!({"a": ["::1"]}), json!({"a": "0:0:0:0:0:0:0:1"}), false);
    check(json!({"a": {"b": [1]}}), json!({"a.b": 1}), false);
    check(json!({"a.b": [1]}), json!({"a": {"b": 1}}), false);
    check(json!({"a": [{"equals-ignore-case": "maß"}]}), json!({"a": "MASS"}), false);
}

#[test]
fn only_an_object_is_an_event() {
    let check = |event: Value| assert!(!matches(&json!({"a": [{"exists": false}]}), &event), "{event}");
    check(json!(null));
    check(json!("a"));
    check(json!([]));
    check(json!([{"b": 1}]));
}

#[test]
fn an_error_says_where_and_what() {
    let check = |pattern: Value, expect: &str| {
        let error = Pattern::parse(&pattern).unwrap_err();
        assert_eq!(error.to_string(), expect);
        assert!(expect.starts_with(&format!("{}: ", error.path())));
    };
    check(json!(null), "pattern: null is invalid: expected an object with a field or more");
    check(json!({"a": {"b": {}}}), "a.b: {} is invalid: expected an object with a field or more");
    check(json!({"a": "b"}), r#"a: "b" is invalid: expected an object, or a list with a value or more"#);
    check(json!({"a": [1, [2]]}), "a[1]: [2] is invalid: expected no list within a list");
    check(
        json!({"a": [{"cidr": "b", "prefix": "c"}]}),
        r#"a[0]: {"cidr":"b","prefix":"c"} is invalid: expected one operator"#,
    );
    check(
        json!({"a": [{"like": "b"}]}),
        concat!(
            r#"a[0]: {"like":"b"} is invalid: expected "#,
            "prefix, suffix, equals-ignore-case, wildcard, anything-but, numeric, cidr or exists",
        ),
    );
    check(
        json!({"detail": {"name": [{"anything-but": ["b", 1]}]}}),
        concat!(
            r#"detail.name[0].anything-but: ["b",1] is invalid: expected "#,
            "a string, a number, a list of only strings or only numbers, or an operator",
        ),
    );
    check(
        json!({"a": [{"anything-but": {"suffix": ["b", ""]}}]}),
        r#"a[0].anything-but.suffix[1]: "" is invalid: expected a character or more"#,
    );
    check(json!({"a": [{"numeric": [">", 1, "<", "2"]}]}), r#"a[0].numeric[3]: "2" is invalid: expected a number"#);
    check(
        json!({"a": [{"numeric": [">", 1, "!", 2]}]}),
        r#"a[0].numeric[2]: "!" is invalid: expected =, <, <=, > or >="#,
    );
    check(
        json!({"a": [{"prefix": {"equals-ignore-case": 1}}]}),
        "a[0].prefix.equals-ignore-case: 1 is invalid: expected a string",
    );
    check(json!({"a": [{"wildcard": "**"}]}), r#"a[0].wildcard: "**" is invalid: expected no two * in a row"#);
    check(
        json!({"a": {"$or": [{"b": [1]}, {"c": []}]}}),
        "a.$or[1].c: [] is invalid: expected an object, or a list with a value or more",
    );
    check(json!({"$or": {"a": [1]}}), r#"$or: {"a":[1]} is invalid: expected a list of two objects or more"#);
}

#[test]
fn an_error_is_short() {
    let error: PatternError = Pattern::parse(&json!({"a": "ö".repeat(5_000)})).unwrap_err();
    let expect = format!("a: \"{}... is invalid: expected an object, or a list with a value or more", "ö".repeat(99));
    assert_eq!(error.to_string(), expect);
}

/// What a wildcard's next character may be, tried one after another.
fn naive(wildcard: &[char], text: &[char]) -> bool {
    match (wildcard, text) {
        ([], _) => text.is_empty(),
        (['*', rest @ ..], _) => naive(rest, text) || !text.is_empty() && naive(wildcard, &text[1..]),
        (['\\', expected, rest @ ..] | [expected, rest @ ..], [actual, others @ ..]) => {
            expected == actual && naive(rest, others)
        }
        _ => false,
    }
}

fn any_scalar() -> impl Strategy<Value = Value> {
    select(vec![json!(null), json!(true), json!(0), json!(1.5), json!(""), json!("a"), json!("ab"), json!("B")])
}

fn any_event() -> impl Strategy<Value = Value> {
    let value = any_scalar().prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(select(vec!["a", "b", "c"]), inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    });
    prop::collection::btree_map(select(vec!["a", "b", "c"]), value, 0..4).prop_map(|fields| json!(fields))
}

fn any_pattern() -> impl Strategy<Value = Value> {
    let operator = select(vec![
        json!({"exists": true}),
        json!({"exists": false}),
        json!({"prefix": "a"}),
        json!({"suffix": {"equals-ignore-case": "b"}}),
        json!({"anything-but": ["a", ""]}),
        json!({"numeric": [">", 0, "<", 2]}),
        json!({"wildcard": "*b"}),
    ]);
    let tests = prop::collection::vec(prop_oneof![any_scalar(), operator], 1..3).prop_map(Value::from);
    fields(tests.prop_recursive(2, 6, 2, fields))
}

fn fields(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(select(vec!["a", "b", "c"]), value, 1..3).prop_map(|fields| json!(fields))
}

proptest! {
    #[test]
    fn a_wildcard_matches_what_the_naive_matcher_does(
        wildcard in r"(a|\\\*|\\\\)?(\*(a|b|aa|ab|\\\*|\\\\)){0,3}\*?",
        text in r"[aab*\\]{0,6}",
    ) {
        let (expected, actual): (Vec<char>, Vec<char>) = (wildcard.chars().collect(), text.chars().collect());
        let pattern = json!({"a": [{"wildcard": wildcard}]});
        prop_assert_eq!(matches(&pattern, &json!({"a": text})), naive(&expected, &actual));
    }

    #[test]
    fn a_filled_in_wildcard_matches(
        parts in prop::collection::vec("[ab]{1,2}", 1..5),
        fillings in prop::collection::vec("[ab]{0,3}", 5),
    ) {
        let text: String = fillings.iter().zip(&parts).flat_map(|(filling, part)| [filling.as_str(), part]).collect();
        let pattern = json!({"a": [{"wildcard": format!("*{}", parts.join("*"))}]});
        let event = json!({"a": text});
        prop_assert!(matches(&pattern, &event));
    }

    #[test]
    fn or_matches_what_one_of_its_patterns_does(
        patterns in prop::collection::vec(any_pattern(), 2..4),
        event in any_event(),
    ) {
        let expect = patterns.iter().any(|pattern| matches(pattern, &event));
        prop_assert_eq!(matches(&json!({"$or": patterns}), &event), expect);
    }

    #[test]
    fn the_fields_of_a_pattern_match_together(pattern in any_pattern(), event in any_event()) {
        let each = pattern.as_object().unwrap().iter().map(|(name, field)| json!({name: field}));
        prop_assert_eq!(matches(&pattern, &event), each.clone().all(|pattern| matches(&pattern, &event)));
    }

    #[test]
    fn a_scalar_is_equal_or_anything_but(
        value in select(vec![json!(0), json!(1.5), json!("a"), json!("")]),
        scalar in any_scalar(),
    ) {
        let event = json!({"a": scalar});
        let equal = matches(&json!({"a": [value]}), &event);
        prop_assert_ne!(matches(&json!({"a": [{"anything-but": value}]}), &event), equal);
    }
}
