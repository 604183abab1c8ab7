//! Compares shapes with examples of others.

use serde_json::Value;

/// Compares a shape with an example, whose values are the names of their types. Keys that are allowed to be missing are named by their
/// whole place; what is wrong is added to the list.
pub(crate) fn compare(
    name: &str,
    place: &str,
    example: &Value,
    ours: &Value,
    (allowed, wrong): (&[&str], &mut Vec<String>),
) {
    match (example, ours) {
        (Value::Object(example), Value::Object(ours)) => {
            for (key, value) in example {
                let place = format!("{place}.{key}");
                match ours.get(key) {
                    Some(own) => compare(name, &place, value, own, (allowed, &mut *wrong)),
                    None if allowed.contains(&place.as_str()) => {}
                    None => wrong.push(format!("{name}: {place} is missing")),
                }
            }
        }
        (Value::Array(example), Value::Array(ours)) => {
            if let (Some(example), Some(own)) = (example.first(), ours.first()) {
                compare(name, &format!("{place}[0]"), example, own, (allowed, &mut *wrong));
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::String(kind), ours) => {
            let own = match ours {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                _ => "other",
            };
            if kind != own {
                wrong.push(format!("{name}: {place} is a {own} and should be a {kind}"));
            }
        }
        _ => wrong.push(format!("{name}: {place} is {ours}")),
    }
}
