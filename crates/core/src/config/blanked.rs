//! Finds more than the first error of a file's keys and types: the key with an error is replaced by spaces, and the file is parsed again.

use super::ConfigErrors;
use super::places::{FilePlace, Places};
use super::yaml::{DecodeError, decode_located};
use serde::de::DeserializeOwned;

/// Largest file that is parsed again, in bytes: each error takes two more passes.
const MAX_BYTES: usize = 128 * 1024;

/// Returns the first error of a document's YAML, keys and types, and those of other keys and types as far as they do not depend on it.
pub(super) fn schema_errors_of<T: DeserializeOwned>(text: &str, file: &str) -> ConfigErrors {
    let mut errors = ConfigErrors::default();
    let mut blanked: Option<String> = None;
    let mut last = None;
    while !errors.is_cut() {
        let current = blanked.as_deref().unwrap_or(text);
        let Err(error) = decode_located::<T>(current, file) else { break };
        // Without the key, an anchor may be missing, and an item of a list empty.
        if last.is_some_and(|last| !error.is_of_schema || error.place <= Some(last)) {
            break;
        }
        let DecodeError { error, place, is_of_schema } = error;
        errors.add(error);
        last = place;
        let Some(place) = place.filter(|_| is_of_schema && text.len() <= MAX_BYTES) else { break };
        let Some(without) = without_key(current, place) else { break };
        blanked = Some(without);
    }
    errors
}

/// Replaces the key or item at a place by spaces, with its value, so that all others keep their places. Returns none where it shares a line
/// with others.
fn without_key(text: &str, place: FilePlace) -> Option<String> {
    let places = Places::parse(text, "").ok()?;
    let (start, end, is_item) = places.extent(place)?;
    // YAML ends a line at a lone carriage return as well.
    if text.replace("\r\n", "\n").contains('\r') || end.is_some_and(|end| end.line <= start.line) {
        return None;
    }
    let mut without = String::with_capacity(text.len());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let is_inside = number >= start.line && end.is_none_or(|end| number < end.line);
        // The dash of the next item may be on a line of its own.
        if !is_inside || (number > start.line && line.trim() == "-") {
            without.push_str(line);
            continue;
        }
        let kept = if number == start.line { usize::try_from(start.column).ok()?.saturating_sub(1) } else { 0 };
        let before: String = line.chars().take(kept).collect();
        if !before.chars().all(|char| matches!(char, ' ' | '-')) {
            return None;
        }
        without.push_str(&before);
        // Nothing at all would be another error of the item.
        without.push_str(if is_item && number == start.line { "{}\n" } else { "\n" });
    }
    Some(without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw::RawRepoConfig;

    fn errors(text: &str) -> Vec<String> {
        let errors = schema_errors_of::<RawRepoConfig>(text, "f");
        errors
            .iter()
            .map(|error| error.0.chars().take(40).collect::<String>())
            .map(|text| text.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn wrong_keys_and_types_are_told_where_they_stand_on_lines_of_their_own() {
        let text = "\
version: 3
colour: red # first
projects:
- colour: |
    a
    b
  dir: [a]
  autoplan:
    enabled: perhaps
    when_modified:
    - a
-
  dir: b
  depends_on: c
- foo
- dir: d
  workspacee: &anchor d
workflows:
  own:
    plan:
      steps:
      - plan
    plam: {}
";
        insta::assert_snapshot!(errors(text).join("\n"), @r##"
        f:2:1: unknown key `colour`; known here:
        f:4:3: unknown key `colour`; known here:
        f:7:8: `dir`: text is expected here
        f:9:14: `enabled`: true or false is expe
        f:14:15: `depends_on`: a list is expecte
        f:15:3: `key: value` pairs are expected
        f:17:3: unknown key `workspacee`; did yo
        f:23:5: unknown key `plam`; did you mean
        "##);
    }

    #[test]
    fn what_may_follow_from_an_error_is_not_told() {
        // The second use of the anchor, a list of one item, and pairs on one line.
        for (text, count) in [
            ("version: 3\nparallel: &a {x: 1}\nprojects:\n- {dir: a, autoplan: *a}\n", 1),
            ("version: 3\nprojects:\n- foo\n", 1),
            ("{version: 3, colour: red, size: 2}\n", 1),
            ("{\n\"colour\": 1\n}\n", 1),
            ("version: 3\ncolour: red\nversion: 2\n", 1),
            ("version: 3\rcolour: red\rsize: 2\r", 1),
            ("version: 3\r\ncolour: red\r\nsize: 2\r\n", 2),
            ("version: 3\nsize: é\n- \n", 1),
        ] {
            assert_eq!(errors(text).len(), count, "{text:?}: {:?}", errors(text));
        }
        let large = format!("# {}\ncolour: red\nsize: 2\n", "x".repeat(MAX_BYTES));
        assert_eq!(errors(&large).len(), 1);
    }
}
