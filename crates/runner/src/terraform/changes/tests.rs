//! The digest ignores differences without effect, and changes with all others.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidelock_core::domain::plan_digest::ChangesDigest;

const KEY: &str = "0123456789abcdef";

fn digest_of(plan: &Value) -> Result<String, String> {
    digest(&plan.to_string(), KEY, &["config".to_owned()])
}

fn change(address: &str, before: Value, after: Value) -> Value {
    let actions = if before.is_null() { json!(["create"]) } else { json!(["update"]) };
    json!({
        "address": address, "mode": "managed", "type": "t", "name": "n", "provider_name": "registry/p",
        "change": {"actions": actions, "before": before, "after": after, "after_unknown": {"id": true},
                   "before_sensitive": false, "after_sensitive": {"password": true}, "replace_paths": [["a", 0]]},
    })
}

fn plan() -> Value {
    json!({
        "format_version": "1.2", "terraform_version": "1.11.4", "timestamp": "2026-01-01T00:00:00Z",
        "variables": {"region": {"value": "eu"}, "commit": {"value": "abc"}},
        "prior_state": {"values": 1}, "planned_values": {}, "resource_drift": [],
        "resource_changes": [
            change("t.a", json!(null), json!({"password": "hunter2", "list": [1, 2.50]})),
            change("t.b", json!({"x": 1}), json!({"x": 2})),
        ],
        "output_changes": {"out": {"actions": ["create"], "before": null, "after": "v", "after_unknown": false}},
        "configuration": {"provider_config": {"p": {"name": "p", "expressions": {"region": {"references": ["var.region"]}}}},
                          "root_module": {}},
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut plan = plan();
    *plan.pointer_mut(path).unwrap() = value;
    plan
}

#[test]
fn what_says_nothing_of_changes_is_not_in_it() {
    let whole = digest_of(&plan()).unwrap();
    for (path, value) in [
        ("/terraform_version", json!("1.12.0")),
        ("/timestamp", json!("2027-01-01T00:00:00Z")),
        ("/format_version", json!("1.9")),
        ("/prior_state", json!({"values": 2})),
        ("/planned_values", json!([1])),
        ("/resource_drift", json!([change("t.c", json!({}), json!({}))])),
        ("/configuration/root_module", json!({"resources": [{"provisioners": [{"type": "local-exec"}]}]})),
    ] {
        assert_eq!(digest_of(&with(path, value)).unwrap(), whole, "{path}");
    }
    let mut unchanged = plan();
    let same = json!({"address": "t.z", "change": {"actions": ["no-op"], "before": {"x": 1}, "after": {"x": 1}}});
    unchanged["resource_changes"].as_array_mut().unwrap().push(same);
    unchanged["output_changes"]["same"] = json!({"actions": ["no-op"], "before": 1, "after": 1});
    assert_eq!(digest_of(&unchanged).unwrap(), whole);
}

#[test]
fn what_an_apply_would_do_otherwise_is_in_it() {
    let whole = digest_of(&plan()).unwrap();
    for (path, value) in [
        ("/resource_changes/0/address", json!("t.other")),
        ("/resource_changes/0/provider_name", json!("registry/q")),
        ("/resource_changes/0/change/actions", json!(["delete", "create"])),
        ("/resource_changes/0/change/after/password", json!("hunter3")),
        ("/resource_changes/0/change/after/list", json!([2.50, 1])),
        ("/resource_changes/1/change/before", json!({"x": 0})),
        ("/resource_changes/1/change/after_unknown", json!({})),
        ("/resource_changes/1/change/replace_paths", json!([["a", 1]])),
        ("/output_changes/out/after", json!("w")),
        ("/variables/region/value", json!("us")),
        ("/variables/commit/value", json!("def")),
        ("/variables/commit", json!({"value": null})),
        ("/configuration/provider_config/p/expressions/region", json!({"constant_value": "us"})),
        ("/resource_changes", json!([])),
    ] {
        assert_ne!(digest_of(&with(path, value)).unwrap(), whole, "{path}");
    }
    for (key, value) in [
        ("action_invocations", json!([{"address": "action.a"}])),
        ("deferred_changes", json!([{"reason": "x"}])),
        ("deferred_action_invocations", json!([{"reason": "x"}])),
    ] {
        let mut more = plan();
        more[key] = value;
        assert_ne!(digest_of(&more).unwrap(), whole, "{key}");
    }
    for (key, value) in [("importing", json!({"id": "i"})), ("previous_address", json!("t.old"))] {
        let mut moved = plan();
        let mut entry = json!({"address": "t.z", "change": {"actions": ["no-op"], "before": 1, "after": 1}});
        let target = if key == "importing" { &mut entry["change"] } else { &mut entry };
        target[key] = value;
        moved["resource_changes"].as_array_mut().unwrap().push(entry);
        assert_ne!(digest_of(&moved).unwrap(), whole, "{key}");
    }
    let config = |text: &str| [text.to_owned()];
    assert_ne!(digest(&plan().to_string(), "another key", &config("config")).unwrap(), whole);
    assert_ne!(digest(&plan().to_string(), KEY, &config("another config")).unwrap(), whole);
}

#[test]
fn what_differs_is_told_by_the_parts() {
    let bound = |text: &str| ["code", "config", "tool", text, "files", "env", "backend"].map(str::to_owned);
    let of = |plan: &Value, text| ChangesDigest(digest(&plan.to_string(), KEY, &bound(text)).unwrap());
    let whole = of(&plan(), "arguments");
    let variables = of(&with("/variables/commit/value", json!("def")), "arguments");
    assert_eq!(whole.differing(&variables), ["the values of its variables"]);
    let both = of(&with("/resource_changes/0/address", json!("t.other")), "more arguments");
    assert_eq!(whole.differing(&both), ["what it changes", "its arguments"]);
}

#[test]
fn numbers_that_no_float_can_tell_apart_are_different() {
    let number = |digits: &str| plan().to_string().replace("2.5", digits);
    let one = digest(&number("0.12345678901234567890123"), KEY, &[]).unwrap();
    assert_ne!(one, digest(&number("0.12345678901234567890124"), KEY, &[]).unwrap());
    assert_ne!(digest(&number("1"), KEY, &[]).unwrap(), digest(&number("\"1\""), KEY, &[]).unwrap());
}

#[test]
fn what_is_no_plan_has_no_digest() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let deep = plan().to_string().replace("2.5", &deep);
    let leads_out = digest_of(&with("/variables/commit/value", json!(["../x"]))).unwrap_err();
    assert!(leads_out.contains("variable `commit` names files"), "{leads_out}");
    for text in [
        "",
        "null",
        "{}",
        r#"{"format_version": "2.0"}"#,
        r#"{"format_version": "1.0", "resource_changes": {}}"#,
        &deep,
    ] {
        assert!(digest(text, KEY, &[]).is_err(), "{text}");
    }
    let quoted = digest(r#"{"format_version": "1.0", "resource_changes": ["hunter2"]}"#, KEY, &[]).unwrap_err();
    assert!(!quoted.contains("hunter2"), "{quoted}");
}

/// Returns the text of a value, with keys and changes of resources in an order that the numbers choose.
fn shuffled(value: &Value, key: &str, numbers: &mut dyn FnMut() -> usize) -> String {
    let mut parts: Vec<String> = match value {
        Value::Object(object) => {
            object.iter().map(|(key, value)| format!("{}: {}", json!(key), shuffled(value, key, numbers))).collect()
        }
        Value::Array(list) => list.iter().map(|value| shuffled(value, "", numbers)).collect(),
        other => return other.to_string(),
    };
    if value.is_object() || key == "resource_changes" {
        for last in (1..parts.len()).rev() {
            parts.swap(last, numbers() % (last + 1));
        }
    }
    let inner = parts.join(" ,");
    if value.is_object() { format!("{{{inner}}}") } else { format!("[{inner}]") }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zé\"\\\\\n]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Collects the places of all values within a value.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| places(value, format!("{at}/{key}"), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| places(value, format!("{at}/{n}"), found)),
        _ => {}
    }
    found.push(at);
}

proptest! {
    #[test]
    fn order_does_not_matter_and_every_value_does(
        values in prop::collection::vec((value(), value()), 1..5),
        order in prop::collection::vec(any::<usize>(), 64),
        which in any::<prop::sample::Index>(),
        other in value(),
    ) {
        let changes = values.iter().enumerate().map(|(at, (before, after))| change(&format!("t.{at}"), before.clone(), after.clone()));
        let whole = with("/resource_changes", changes.collect());
        let first = digest_of(&whole).unwrap();
        let mut at = 0;
        let mut numbers = || {
            at += 1;
            order[at % order.len()]
        };
        prop_assert_eq!(digest(&shuffled(&whole, "", &mut numbers), KEY, &["config".to_owned()]).unwrap(), first.clone());
        let mut found = Vec::new();
        places(&whole["resource_changes"], String::new(), &mut found);
        found.retain(|place| place.contains("/change/before") || place.contains("/change/after"));
        let place = which.get(&found);
        let mut changed = whole.clone();
        let target = changed.pointer_mut(&format!("/resource_changes{place}")).unwrap();
        prop_assume!(*target != other);
        *target = other;
        prop_assert_ne!(digest_of(&changed).unwrap(), first);
    }
}
