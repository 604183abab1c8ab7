//! Reads only those keys of a plan that policies use: most of a plan as JSON is never read, and converting it to values takes longer than
//! most policies do.

use super::load::PolicyText;
use anyhow::anyhow;
use regex::Regex;
use regorus::Value;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// Returns the document `input` with only these keys, or with all of them if `keys` is absent.
pub(super) fn input(json: &str, keys: Option<&BTreeSet<String>>) -> anyhow::Result<Value> {
    let read = match keys.filter(|_| json.trim_start().starts_with('{')) {
        None => Value::from_json_str(json),
        Some(keys) => {
            let mut parser = serde_json::Deserializer::from_str(json);
            let value = NamedKeys(keys).deserialize(&mut parser);
            value.and_then(|value| parser.end().map(|()| value)).map_err(anyhow::Error::from)
        }
    };
    read.map_err(|error| anyhow!("the plan is no JSON: {error}"))
}

/// Returns the keys of `input` that policies name; absent if a policy uses it in any other way than `input.key`.
pub(super) fn keys(policies: &[PolicyText]) -> Option<BTreeSet<String>> {
    let uses = Regex::new(r"\binput\b(?:\.([A-Za-z_][A-Za-z0-9_]*))?").ok()?;
    let texts = policies.iter().flat_map(|policy| uses.captures_iter(&policy.text));
    texts.map(|found| found.get(1).map(|key| key.as_str().to_owned())).collect()
}

/// Deserializes an object with these keys only.
struct NamedKeys<'a>(&'a BTreeSet<String>);

impl<'de> DeserializeSeed<'de> for NamedKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NamedKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = std::collections::BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            match self.0.contains(&key) {
                true => drop(object.insert(Value::from(key), map.next_value::<Value>()?)),
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::from(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(policy: &str) -> Option<Vec<String>> {
        let policies = [PolicyText { path: String::new(), text: policy.to_owned() }];
        keys(&policies).map(|keys| keys.into_iter().collect())
    }

    #[test]
    fn only_keys_that_are_named_are_read() {
        assert_eq!(named("deny if { input.b.c; input.a }").unwrap(), ["a", "b"]);
        assert_eq!(named("deny if { my_input.b; inputs }").unwrap(), Vec::<String>::new());
        for whole in ["walk(input, [p, v])", "input[\"a\"]", "x := input", "import input", "input .a", "# the input"] {
            assert_eq!(named(&format!("input.a; {whole}")), None, "{whole}");
        }
        let json = r#"{"a": {"x": [1, 2.5]}, "b": {"deep": {}}, "c": null}"#;
        let whole = input(json, None).unwrap();
        let part = input(json, Some(&["a", "c", "d"].map(str::to_owned).into())).unwrap();
        assert_eq!((&part["a"], &part["c"]), (&whole["a"], &whole["c"]));
        assert_eq!(part["b"], Value::Undefined);
        for wrong in ["{", r#"{"b": ]}"#, r#"{"b": 1} x"#, ""] {
            let error = input(wrong, Some(&BTreeSet::new())).unwrap_err().to_string();
            assert!(error.starts_with("the plan is no JSON: ") && error.contains(" line 1 column "), "{error}");
        }
        assert_eq!(input("[1]", Some(&BTreeSet::new())).unwrap(), input("[1]", None).unwrap());
    }
}
