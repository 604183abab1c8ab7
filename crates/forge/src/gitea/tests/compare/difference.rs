//! Differences between two answers or two deliveries. Ids, times, addresses and hashes differ by nature: they must have the same form.

use super::super::Answer;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Keys whose values depend on the instance.
const OF_INSTANCE: [&str; 7] = ["id", "repo_id", "email", "size", "language", "ssh_url", "last_login"];

/// Keys whose values are what somebody wrote into git, which the forge makes up.
const OF_COMMITS: [&str; 4] = ["message", "total_commits", "username", "name"];

/// Collects the differences of one comparison.
pub(super) struct Comparison {
    what: String,
    pub wrong: Vec<String>,
    /// Keys that are not compared by value.
    loose: BTreeSet<&'static str>,
}

impl Comparison {
    pub(super) fn new(what: String) -> Comparison {
        Comparison { what, wrong: Vec::new(), loose: OF_INSTANCE.into() }
    }

    /// Leaves the values of these keys alone.
    pub(super) fn loosen(mut self, keys: &[&'static str]) -> Comparison {
        self.loose.extend(keys);
        self
    }

    /// Compares status, headers of lists and redirects, and body. Each side comes with its address.
    pub(super) fn answers(&mut self, forge: (&Answer, &str), real: (&Answer, &str)) {
        if forge.0.status != real.0.status {
            let (ours, theirs) = (&forge.0.body, &real.0.body);
            self.say("status", &format!("{} {ours}", forge.0.status), &format!("{} {theirs}", real.0.status));
            return;
        }
        let header = |(answer, url): (&Answer, &str), name: &str| {
            let text = answer.headers.get(name).and_then(|value| value.to_str().ok());
            text.map(|text| digits_out(&text.replace(url, "")))
        };
        for name in ["link", "x-total-count", "location"] {
            if header(forge, name) != header(real, name) {
                self.say(name, &format!("{:?}", header(forge, name)), &format!("{:?}", header(real, name)));
            }
        }
        self.values("", &forge.0.body, &real.0.body);
    }

    /// Compares two values at a place of the body. Every key of the forge must be there.
    pub(super) fn values(&mut self, place: &str, forge: &Value, real: &Value) {
        let key = place.rsplit('.').next().unwrap_or_default();
        match (forge, real) {
            (Value::Object(ours), Value::Object(theirs)) => {
                for (name, value) in ours {
                    match theirs.get(name) {
                        Some(other) => self.values(&format!("{place}.{name}"), value, other),
                        None => self.say(&format!("{place}.{name}"), &value.to_string(), "no such key"),
                    }
                }
            }
            (Value::Array(ours), Value::Array(theirs)) if key == "events" => {
                let set = |list: &[Value]| list.iter().map(Value::to_string).collect::<BTreeSet<String>>();
                if set(ours) != set(theirs) {
                    self.say(place, &forge.to_string(), &real.to_string());
                }
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                if key != "commits" && ours.len() != theirs.len() {
                    self.say(place, &format!("{} rows", ours.len()), &format!("{} rows", theirs.len()));
                }
                for (ours, theirs) in ours.iter().zip(theirs) {
                    self.values(place, ours, theirs);
                }
            }
            _ if kind_of(forge) != kind_of(real) => self.say(place, &forge.to_string(), &real.to_string()),
            (Value::String(ours), Value::String(theirs)) => self.texts((place, key), ours, theirs),
            _ if forge != real && !self.is_loose(place, key) => self.say(place, &forge.to_string(), &real.to_string()),
            _ => {}
        }
    }

    fn is_loose(&self, place: &str, key: &str) -> bool {
        let of_commit = OF_COMMITS.contains(&key) && (place.contains("commit") || key == "total_commits");
        self.loose.contains(key) || of_commit
    }

    /// Compares two texts: in form for times and hashes, without the instance's address, and without numbers in messages.
    fn texts(&mut self, (place, key): (&str, &str), ours: &str, theirs: &str) {
        let forms = (form_of(ours), form_of(theirs));
        let same = match forms {
            (Some(one), Some(other)) => one == other,
            _ => digits_out(&without_host(ours)) == digits_out(&without_host(theirs)),
        };
        if !same && !self.is_loose(place, key) {
            self.say(place, ours, theirs);
        }
    }

    pub(super) fn say(&mut self, place: &str, ours: &str, theirs: &str) {
        self.wrong.push(format!("{}: {place}: forge {ours}, Gitea {theirs}", self.what));
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What a text is if it depends on the instance: a time in whole seconds, or a hash.
fn form_of(text: &str) -> Option<&'static str> {
    let is_hash = text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit());
    let is_time = text.parse::<jiff::Timestamp>().is_ok() && !text.contains('.');
    match () {
        () if is_hash => Some("hash"),
        () if text.starts_with("0001-") || text.starts_with("1970-") => None,
        () if is_time => Some("time"),
        () => None,
    }
}

/// The text without scheme and host of an address.
fn without_host(text: &str) -> String {
    let Some((_, rest)) = text.split_once("://") else { return text.to_owned() };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    // Avatars are files by a hash of the email.
    if path.starts_with("avatars/") { "avatars".to_owned() } else { path.to_owned() }
}

/// The text with one `#` for each run of hexadecimal digits that has a digit.
fn digits_out(text: &str) -> String {
    let mut out = String::new();
    let mut run = String::new();
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        let is_number = run.chars().any(|c| c.is_ascii_digit());
        out.push_str(if is_number { "#" } else { &run });
        run.clear();
        out.extend((c != '\0').then_some(c));
    }
    out
}

#[test]
fn differences_are_found() {
    let differ = |forge: Value, real: Value| {
        let mut comparison = Comparison::new(String::new());
        comparison.values("", &forge, &real);
        !comparison.wrong.is_empty()
    };
    assert!(!differ(json!({"id": 1}), json!({"id": 2, "more": true})));
    assert!(!differ(json!({"url": "http://127.0.0.3:1/a/1"}), json!({"url": "http://127.0.0.1:2/a/7"})));
    assert!(!differ(json!({"created_at": "2026-01-01T00:00:00Z"}), json!({"created_at": "2026-02-01T10:00:00+01:00"})));
    assert!(differ(json!({"invented": 1}), json!({})));
    assert!(differ(json!({"url": "http://127.0.0.3:1/a"}), json!({"url": "http://127.0.0.1:2/b"})));
    assert!(differ(json!({"state": "open"}), json!({"state": "closed"})));
    assert!(differ(json!({"merged_at": null}), json!({"merged_at": "2026-01-01T00:00:00Z"})));
    assert!(differ(json!({"at": "2026-01-01T00:00:00.1Z"}), json!({"at": "2026-01-01T00:00:00Z"})));
    assert!(differ(json!([1]), json!([1, 2])));
}
