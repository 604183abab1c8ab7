//! Tables of keys in the manual, between two comments in each page.

use super::keys::{Default, Key, Origin, Section, section};
use super::probe::{ConfigFile, Place, in_yaml};
use super::{Definitions, all_sections, inner, value};
use crate::config::global::{GlobalConfig, OVERRIDABLE_KEYS};
use crate::config::repo;
use crate::domain::RepoId;
use regex::{Captures, Regex};
use serde_json::Value;

/// Replaces the tables of a page. `<!-- keys: project, autoplan -->` begins that of the section `project`, with a row for each key of
/// `autoplan` below the key with such a value.
pub(super) fn with_tables(page: &str) -> String {
    let places = Regex::new(r"(?s)<!-- keys: ([a-z_., ]+) -->\n.*?<!-- end of keys -->").unwrap();
    let replaced = places.replace_all(page, |found: &Captures<'_>| {
        let names: Vec<&str> = found[1].split(", ").collect();
        format!("<!-- keys: {} -->\n{}<!-- end of keys -->", &found[1], table(&names))
    });
    replaced.into_owned()
}

/// Most keys that a type lists.
const MAX_NAMES: usize = 8;

/// Last column of a table, if it has one.
#[derive(Clone, Copy, PartialEq)]
enum Permission {
    /// No pull request sets the keys.
    None,
    /// Permission that a pull request needs to set the key.
    Needed,
    /// Says whether a pull request may be permitted to set the key too.
    Overridable,
}

impl Permission {
    fn of_section(name: &str) -> Permission {
        match name {
            "atlantis.yaml" | "project" => Permission::Needed,
            "repo" => Permission::Overridable,
            _ => Permission::None,
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Permission::None => "",
            Permission::Needed => " needs |",
            Permission::Overridable => " overridable |",
        }
    }

    fn cell(self, key: &Key, place: &Place) -> String {
        match self {
            Permission::None => String::new(),
            Permission::Needed => needed(key, place).map_or(" |".to_owned(), |needed| format!(" {needed} |")),
            Permission::Overridable if OVERRIDABLE_KEYS.contains(&key.name) => " yes |".to_owned(),
            Permission::Overridable => " |".to_owned(),
        }
    }
}

/// Returns what the parser asks for where nothing is permitted.
fn needed(key: &Key, place: &Place) -> Option<String> {
    let id = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
    let rules = GlobalConfig::without_file().rules(&id, "main");
    let text = place.document(key.example.map(in_yaml).unwrap_or_default());
    let errors = repo::parse(&text, "f", &rules, "main", &|_: &str| Vec::new()).err().unwrap_or_default();
    let setting = Regex::new(r"an operator set `(allowed_overrides: \[\w+\]|\w+: true)`").unwrap();
    let text = errors.iter().find_map(|error| setting.captures(&error.0).map(|found| found[1].to_owned()))?;
    let key = text.strip_prefix("allowed_overrides: [").map(|key| key.trim_end_matches(']'));
    Some(format!("`{}`", key.unwrap_or(&text)))
}

fn table(names: &[&str]) -> String {
    let (first, inlined) = names.split_first().unwrap();
    let (section, permission) = (section(first), Permission::of_section(first));
    let place = place_of(section);
    let line = if permission == Permission::None { "" } else { "---|" };
    let mut text = format!("| key | type | default | meaning |{}\n|---|---|---|---|{line}\n", permission.heading());
    rows(section, &place, "", permission, inlined, &mut text);
    text
}

fn rows(
    of: &'static Section,
    place: &Place,
    prefix: &str,
    permission: Permission,
    inlined: &[&str],
    text: &mut String,
) {
    for key in of.keys {
        let place = place.key(of, key);
        let schema = Value::Object(value(key, &place, &mut Definitions::new()));
        let is_inlined = inlined.contains(&key.section);
        let kind = kind(key, &schema, is_inlined);
        let own = match permission {
            Permission::None => String::new(),
            _ if prefix.is_empty() => permission.cell(key, &place),
            _ => " |".to_owned(),
        };
        let meaning = key.meaning;
        let origin = if key.origin == Origin::Tidelock { " *Not in Atlantis.*" } else { "" };
        let default = default(key).map_or(" |".to_owned(), |default| format!(" {default} |"));
        text.push_str(&format!("| `{prefix}{}` | {kind} |{default} {meaning}{origin} |{own}\n", key.name));
        if is_inlined {
            let prefix = format!("{prefix}{}.", key.name);
            rows(section(key.section), &inner(&place), &prefix, permission, inlined, text);
        }
    }
}

fn default(key: &Key) -> Option<String> {
    Some(match key.default {
        Default::None => return None,
        Default::Required => "required".to_owned(),
        Default::Words(words) => words.to_owned(),
        Default::Value("[]") => "empty".to_owned(),
        // Too long for a column: the page has the list elsewhere.
        Default::Value(value) if value.starts_with('[') => "see below".to_owned(),
        Default::Value(value) => format!("`{value}`"),
    })
}

/// Returns the type of a key in words.
fn kind(key: &Key, schema: &Value, is_inlined: bool) -> String {
    if let Some(forms) = schema["anyOf"].as_array() {
        let kinds = forms.iter().map(|form| kind(key, form, is_inlined)).filter(|kind| !kind.is_empty());
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        let texts = values.iter().filter_map(Value::as_str).map(|text| format!("`{text}`"));
        return texts.collect::<Vec<_>>().join(", ");
    }
    if schema["$ref"].is_string() {
        let names: Vec<String> = section(key.section).keys.iter().map(|key| format!("`{}`", key.name)).collect();
        let is_short = !is_inlined && names.len() <= MAX_NAMES;
        return if is_short { format!("object: {}", names.join(", ")) } else { "object".to_owned() };
    }
    let types: Vec<&str> = schema["type"].as_array().map_or_else(
        || schema["type"].as_str().into_iter().collect(),
        |types| types.iter().filter_map(Value::as_str).collect(),
    );
    match types.first() {
        Some(&"array") => {
            let most = schema["maxItems"].as_u64().map_or_else(String::new, |most| format!(" ({most} at most)"));
            format!("list of {}{most}", kind(key, &schema["items"], is_inlined))
        }
        Some(&"object") => format!("map of {}", kind(key, &schema["additionalProperties"], is_inlined)),
        Some(&"string") => key.form.map_or("text", |form| form.name).to_owned(),
        Some(&"integer") => "number".to_owned(),
        Some(&"boolean") => "boolean".to_owned(),
        Some(&"null") => String::new(),
        _ => "any".to_owned(),
    }
}

/// Returns a place of a section.
fn place_of(wanted: &'static Section) -> Place {
    let all = [ConfigFile::Repo, ConfigFile::Server].map(all_sections).concat();
    let found = all.into_iter().find(|(section, _)| section.name == wanted.name);
    found.unwrap_or_else(|| panic!("no place for {}", wanted.name)).1
}
