//! A validator of the part of JSON Schema draft 7 that [`super::schema`] writes. A keyword that it does not know is a panic. A package for this
//! would change the features of packages that the server depends on, so that tests and the server would share no builds of them.

use regex::Regex;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;

/// A schema, and its patterns.
pub(super) struct Validator {
    root: Value,
    patterns: RefCell<HashMap<String, Regex>>,
}

impl Validator {
    pub(super) fn new(root: Value) -> Validator {
        Validator { root, patterns: RefCell::default() }
    }

    /// Returns the first error of a document.
    pub(super) fn error(&self, document: &Value) -> Option<String> {
        self.check(&self.root, document, "").err()
    }

    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        for (keyword, wanted) in schema.as_object().unwrap() {
            if !self.fits(keyword, wanted, schema, value, at)? {
                return Err(format!("{at}: {value} against `{keyword}` {wanted}"));
            }
        }
        Ok(())
    }

    /// Checks one keyword. Errors of values inside are returned as such.
    fn fits(&self, keyword: &str, wanted: &Value, schema: &Value, value: &Value, at: &str) -> Result<bool, String> {
        let (count, number) = (wanted.as_u64().unwrap_or_default() as usize, wanted.as_f64().unwrap_or_default());
        let (entries, items) = (value.as_object(), value.as_array());
        Ok(match keyword {
            "type" => wanted
                .as_array()
                .map_or_else(|| is_of_type(value, wanted), |all| all.iter().any(|one| is_of_type(value, one))),
            "enum" => wanted.as_array().unwrap().contains(value),
            "pattern" => value.as_str().is_none_or(|text| self.matches(wanted, text)),
            "minimum" => value.as_f64().is_none_or(|value| value >= number),
            "maximum" => value.as_f64().is_none_or(|value| value <= number),
            "minItems" => items.is_none_or(|items| items.len() >= count),
            "maxItems" => items.is_none_or(|items| items.len() <= count),
            "minProperties" => entries.is_none_or(|entries| entries.len() >= count),
            "maxProperties" => entries.is_none_or(|entries| entries.len() <= count),
            "required" => entries.is_none_or(|entries| {
                wanted.as_array().unwrap().iter().all(|name| entries.contains_key(name.as_str().unwrap()))
            }),
            "propertyNames" => {
                entries.is_none_or(|entries| entries.keys().all(|name| self.matches(&wanted["pattern"], name)))
            }
            "items" => items.is_none_or(|items| items.iter().all(|item| self.check(wanted, item, at).is_ok())),
            "properties" => {
                for (name, value) in entries.into_iter().flatten() {
                    wanted.get(name).map_or(Ok(()), |schema| self.check(schema, value, &format!("{at}/{name}")))?;
                }
                true
            }
            "additionalProperties" => {
                let others = entries.into_iter().flatten().filter(|(name, _)| schema["properties"].get(name).is_none());
                let mut others = others.map(|(name, value)| (format!("{at}/{name}"), value));
                match wanted {
                    Value::Bool(false) => others.next().is_none(),
                    schema => others.try_for_each(|(at, value)| self.check(schema, value, &at)).map(|()| true)?,
                }
            }
            "anyOf" => wanted.as_array().unwrap().iter().any(|schema| self.check(schema, value, at).is_ok()),
            "allOf" => wanted.as_array().unwrap().iter().all(|schema| self.check(schema, value, at).is_ok()),
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                assert_eq!(schema.as_object().unwrap().len(), 1, "draft 7 ignores keywords beside `$ref`");
                self.check(self.root.pointer(pointer).unwrap(), value, at).map(|()| true)?
            }
            "$schema" | "title" | "description" | "default" | "examples" | "definitions" => true,
            other => panic!("the validator does not know the keyword `{other}`"),
        })
    }

    fn matches(&self, pattern: &Value, text: &str) -> bool {
        let pattern = pattern.as_str().unwrap();
        let mut patterns = self.patterns.borrow_mut();
        patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap()).is_match(text)
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("there is no type `{other}`"),
    }
}
