//! JSON Schemas of `atlantis.yaml` and `repos.yaml`, and the tables of their keys in the manual. The parser is asked which keys and types it
//! takes ([`probe`]); the texts are those of [`keys`]. A test fails if one of them knows a key that the other does not.

mod beyond;
mod keys;
mod probe;
mod reference;
mod tests;
mod validator;

use keys::{Default, Key, Origin, Section, Values, section};
use probe::{ConfigFile, Place, in_yaml, minimal};
use regex::Regex;
use serde_json::{Map, Value, json};

/// Sections by their names, as JSON Schema has them.
type Definitions = Map<String, Value>;

/// Returns the schema of a file.
fn schema(file: ConfigFile) -> Value {
    let mut definitions = Definitions::new();
    check_keys(file.root(), &Place::root(file));
    let mut schema = object(file.root(), &Place::root(file), &mut definitions);
    let (title, description) = match file {
        ConfigFile::Repo => {
            ("atlantis.yaml of Tidelock", "Projects of a repository, and how they are planned and applied.")
        }
        ConfigFile::Server => {
            ("repos.yaml of Tidelock", "What repositories may do, which rules hold for them, and where jobs run.")
        }
    };
    let about =
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "title": title, "description": description});
    schema.extend(about.as_object().cloned().unwrap());
    schema.insert("definitions".to_owned(), Value::Object(definitions));
    Value::Object(schema)
}

/// Checks that the keys that the parser knows at a place of a section are those of the table.
fn check_keys(section: &Section, place: &Place) {
    let mut known = place.keys().unwrap_or_else(|| panic!("{}: the parser takes no keys", section.name));
    let mut described: Vec<String> = section.keys.iter().map(|key| key.name.to_owned()).collect();
    known.sort();
    described.sort();
    assert_eq!(known, described, "{}: keys of the parser and keys of the table", section.name);
}

/// Returns the schema of a mapping.
fn object(section: &'static Section, place: &Place, definitions: &mut Definitions) -> Map<String, Value> {
    let mut properties = Map::new();
    for key in section.keys {
        properties.insert(key.name.to_owned(), property(key, &place.key(section, key), definitions));
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("additionalProperties".to_owned(), json!(false));
    let required: Vec<String> = minimal(section).into_iter().map(|(name, _)| name).collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    } else if !place.file.errors(&place.document(json!({}))).is_empty() {
        schema.insert("minProperties".to_owned(), json!(1));
    }
    let two: Map<String, Value> = section.keys.iter().take(2).map(|key| (key.name.to_owned(), Value::Null)).collect();
    if two.len() == 2 && !place.takes(Value::Object(two)) {
        schema.insert("maxProperties".to_owned(), json!(1));
    }
    schema
}

fn property(key: &'static Key, place: &Place, definitions: &mut Definitions) -> Value {
    let mut schema = value(key, place, definitions);
    if schema.contains_key("$ref") {
        // Draft 7 ignores all keys beside a reference.
        schema = Map::from_iter([("allOf".to_owned(), json!([schema]))]);
    }
    schema.insert("description".to_owned(), json!(description(key)));
    if let Default::Value(text) = key.default {
        schema.insert("default".to_owned(), in_yaml(text));
    }
    if let Some(text) = key.example {
        schema.insert("examples".to_owned(), json!([in_yaml(text)]));
    }
    Value::Object(schema)
}

/// Returns the meaning of a key without its links, and words about its default and its origin.
fn description(key: &Key) -> String {
    let links = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut text = links.replace_all(key.meaning, "$1").into_owned();
    if let Default::Words(words) = key.default {
        text.push_str(&format!(" Default: {words}."));
    }
    if key.origin == Origin::Tidelock {
        text.push_str(" Not in Atlantis.");
    }
    text
}

/// Returns the schema of what the parser takes at a place: one of several forms.
fn value(key: &'static Key, place: &Place, definitions: &mut Definitions) -> Map<String, Value> {
    if place.takes_all() {
        return Map::new();
    }
    let mut forms: Vec<Map<String, Value>> = Vec::new();
    forms.extend(scalar(key, place));
    if place.takes(json!([])) {
        let mut list = Map::new();
        list.insert("type".to_owned(), json!("array"));
        list.insert("items".to_owned(), Value::Object(value(key, &place.item(), definitions)));
        if let Some((fewest, most)) = key.items {
            list.extend((fewest > 0).then(|| ("minItems".to_owned(), json!(fewest))));
            list.insert("maxItems".to_owned(), json!(most));
        }
        forms.push(list);
    }
    if place.takes_names() {
        let mut map = Map::new();
        map.insert("type".to_owned(), json!("object"));
        map.insert("additionalProperties".to_owned(), Value::Object(value(key, &place.named(), definitions)));
        map.extend(key.form.map(|form| ("propertyNames".to_owned(), json!({ "pattern": form.pattern }))));
        forms.push(map);
    } else if place.keys().is_some() {
        let name = key.section;
        check_keys(section(name), place);
        if !definitions.contains_key(name) {
            // A section that is in itself ends here.
            definitions.insert(name.to_owned(), Value::Null);
            let made = object(section(name), place, definitions);
            definitions.insert(name.to_owned(), Value::Object(made));
        }
        forms.push(Map::from_iter([("$ref".to_owned(), json!(format!("#/definitions/{name}")))]));
    }
    let lacks_keys = place.is_entry() && !key.section.is_empty() && !minimal(section(key.section)).is_empty();
    joined(forms, !key.is_required() && !lacks_keys && place.takes(Value::Null))
}

/// Returns the schema of all forms, and of nothing at all if that is taken too.
fn joined(mut forms: Vec<Map<String, Value>>, takes_null: bool) -> Map<String, Value> {
    if let [one] = forms.as_mut_slice() {
        if let Some(values) = one.get_mut("enum").and_then(Value::as_array_mut) {
            values.extend(takes_null.then_some(Value::Null));
            return one.clone();
        }
        if !takes_null {
            return one.clone();
        }
        if let Some(types) = one.get_mut("type") {
            let mut all = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
            all.push(json!("null"));
            *types = Value::Array(all);
            return one.clone();
        }
    }
    if takes_null {
        forms.push(Map::from_iter([("type".to_owned(), json!("null"))]));
    }
    assert!(forms.len() > 1, "the parser takes nothing");
    Map::from_iter([("anyOf".to_owned(), json!(forms))])
}

/// Returns the schema of the scalars that the parser takes at a place.
fn scalar(key: &Key, place: &Place) -> Option<Map<String, Value>> {
    let texts = if place.takes_text() { values(key, place) } else { None };
    let matches = |text: &str| key.form.is_none_or(|form| Regex::new(form.pattern).unwrap().is_match(text));
    let mut types = Vec::new();
    types.extend(place.takes_text().then_some("string"));
    types.extend((place.takes(json!(true)) && (!place.takes_text() || matches("true"))).then_some("boolean"));
    if place.takes(json!(1.5)) && matches("1.5") {
        types.push("number");
    } else if place.takes(json!(1)) && matches("1") {
        types.push("integer");
    }
    if types.is_empty() {
        return None;
    }
    let mut schema = Map::new();
    if let Some(texts) = texts {
        let numbers = texts.iter().filter_map(|text| text.parse::<i64>().ok()).map(Value::from);
        let all: Vec<Value> = numbers.chain(texts.iter().map(|text| json!(text))).collect();
        schema.insert("enum".to_owned(), Value::Array(all));
        return Some(schema);
    }
    schema.insert("type".to_owned(), if let [one] = types.as_slice() { json!(one) } else { json!(types) });
    if let Some(form) = key.form {
        schema.insert("pattern".to_owned(), json!(form.pattern));
    }
    // A pattern is for texts alone.
    if types.len() > 1 && types.contains(&"integer") && !matches("-1") {
        schema.insert("minimum".to_owned(), json!(0));
    }
    if let Some((smallest, largest)) = key.range {
        schema.insert("minimum".to_owned(), json!(smallest));
        schema.insert("maximum".to_owned(), json!(largest));
    }
    Some(schema)
}

/// Returns the only texts that a key may have at a place.
fn values(key: &Key, place: &Place) -> Option<Vec<String>> {
    match key.values {
        Values::Any => None,
        Values::Listed => Some(place.values()),
        Values::Only(values) => Some(values.iter().map(|value| (*value).to_owned()).collect()),
    }
}

/// Returns the place of the mappings in a key's value: itself, its items, or its entries.
fn inner(place: &Place) -> Place {
    let all = [place.clone(), place.item(), place.named()];
    all.into_iter().find(|place| place.keys().is_some()).unwrap_or_else(|| panic!("no mapping in the value"))
}

/// Returns all sections of a file, each with the first place that it has.
fn all_sections(file: ConfigFile) -> Vec<(&'static Section, Place)> {
    let mut found = vec![(file.root(), Place::root(file))];
    let mut next = 0;
    while let Some((section, place)) = found.get(next).cloned() {
        for key in section.keys.iter().filter(|key| !key.section.is_empty()) {
            if !found.iter().any(|(known, _)| known.name == key.section) {
                found.push((keys::section(key.section), inner(&place.key(section, key))));
            }
        }
        next += 1;
    }
    found
}
