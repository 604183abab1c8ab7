//! Names of the keys in which two versions of `repos.yaml` differ, for the log and the audit. Values are never named: they may be secret.

use super::yaml::{decode, quoted};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most names that are listed.
const MAX_NAMES: usize = 20;

/// Name of a difference that is in no key: the texts of two values differ, and not what they are without their type.
const VALUES: &str = "values";

/// Returns the names of the keys that differ, such as `repos[/.*/].apply_requirements` or `workflows.custom`; `values` if the key is not
/// known; empty if only lines with comments or white space around lines differ. Entries of `repos` are compared by their `id`.
pub fn changed_keys(before: &str, after: &str) -> Vec<String> {
    let is_same_text = lines(before).eq(lines(after));
    let parse = |text: &str| decode::<Map<String, Value>>(text, "").ok().map(Option::unwrap_or_default);
    let Some((before, after)) = parse(before).zip(parse(after)) else {
        return if is_same_text { Vec::new() } else { vec![VALUES.to_owned()] };
    };
    let mut names = Vec::new();
    for key in keys(&before, &after) {
        match (before.get(key), after.get(key)) {
            (one, other) if one == other => {}
            (Some(Value::Array(one)), Some(Value::Array(other))) if key == "repos" => entries(one, other, &mut names),
            (Some(Value::Object(one)), Some(Value::Object(other))) => {
                let changed = keys(one, other).into_iter().filter(|inner| one.get(*inner) != other.get(*inner));
                names.extend(changed.map(|inner| format!("{key}.{}", quoted(inner))));
            }
            _ => names.push(quoted(key)),
        }
    }
    if names.is_empty() && !is_same_text {
        names.push(VALUES.to_owned());
    }
    let more = names.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        names.truncate(MAX_NAMES);
        names.push(format!("{more} more"));
    }
    names
}

/// Returns the lines that are neither empty nor comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn keys<'a>(one: &'a Map<String, Value>, other: &'a Map<String, Value>) -> BTreeSet<&'a String> {
    one.keys().chain(other.keys()).collect()
}

/// Names the entries of `repos` that differ, and their keys.
fn entries(before: &[Value], after: &[Value], names: &mut Vec<String>) {
    let (old, new) = (numbered(before), numbered(after));
    let known = names.len();
    for (id, entry) in &new {
        let Some(was) = old.get(id) else {
            names.push(format!("repos[{}]", id.0));
            continue;
        };
        let changed = keys(was, entry).into_iter().filter(|key| was.get(*key) != entry.get(*key));
        names.extend(changed.map(|key| format!("repos[{}].{}", id.0, quoted(key))));
    }
    let gone = old.keys().filter(|id| !new.contains_key(*id));
    names.extend(gone.map(|id| format!("repos[{}]", id.0)));
    if names.len() == known {
        names.push("the order of repos".to_owned());
    }
}

/// An entry's `id`, and the number of entries before it with the same one.
type NumberedId = (String, usize);

fn numbered(list: &[Value]) -> BTreeMap<NumberedId, &Map<String, Value>> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let entries = list.iter().filter_map(Value::as_object).map(|entry| {
        let id = quoted(entry.get("id").and_then(Value::as_str).unwrap_or_default());
        let count = seen.entry(id.clone()).or_default();
        *count += 1;
        ((id, *count), entry)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_and_values_are_not() {
        let before = "repos:\n- id: /.*/\n  apply_requirements: [approved]\n- id: github.com/a/b\n  branch: /main/\n\
                      workflows:\n  one: {plan: {steps: [init]}}\n  two: {plan: {steps: [{run: echo hunter2}]}}\n";
        for (after, names) in [
            (before.to_owned(), vec![]),
            (format!("# a comment\n{before}"), vec![]),
            (before.replace("[approved]", "[mergeable]"), vec!["repos[/.*/].apply_requirements"]),
            (before.replace("hunter2", "hunter3"), vec!["workflows.two"]),
            (before.replace("  branch: /main/\n", ""), vec!["repos[github.com/a/b].branch"]),
            (before.replace("- id: github.com/a/b\n  branch: /main/\n", ""), vec!["repos[github.com/a/b]"]),
            (before.replace("workflows:", "metrics: {prometheus: {endpoint: /m}}\nworkflows:"), vec!["metrics"]),
            (before.replace("workflows:", "- id: /.*/\n  automerge: true\nworkflows:"), vec!["repos[/.*/]"]),
            (String::new(), vec!["repos", "workflows"]),
        ] {
            assert_eq!(changed_keys(before, &after), names, "{after}");
        }
        // Numbers may be equal where texts are not, and some have no JSON.
        assert!(!changed_keys("repos: []\nbranch: .inf", "repos: []\nbranch: .nan").is_empty());
        assert_eq!(changed_keys("terraform_version: 1.1", "terraform_version: 1.10"), ["values"]);
        let swapped = "repos: [{id: b}, {id: a}]";
        assert_eq!(changed_keys("repos: [{id: a}, {id: b}]", swapped), ["the order of repos"]);
    }

    #[test]
    fn many_names_are_cut() {
        let many: String = (0..100).map(|number| format!("- id: github.com/acme/r{number}\n")).collect();
        let names = changed_keys("repos: []", &format!("repos:\n{many}"));
        assert_eq!((names.len(), names.last().unwrap().as_str()), (MAX_NAMES + 1, "80 more"));
    }
}
