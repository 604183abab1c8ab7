//! Positions of the keys of a configuration file, for `tidelock check`: the key of an error, and the line of a value.

use super::ConfigError;
use super::yaml::{decode, key_on_line};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};
use std::fmt;

/// A place in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FilePlace {
    pub line: u64,
    pub column: u64,
}

/// Most bytes of all paths together: keys may be long, and each is in the paths of all that it contains.
const MAX_PATH_BYTES: usize = 16 * 1024 * 1024;

/// All keys and items of lists, in the order of the file. Those of `<<` and of aliases have the position of their use.
#[derive(Debug, Default)]
pub struct Places {
    keys: Vec<KeyPlace>,
    path_bytes: usize,
}

#[derive(Debug)]
struct KeyPlace {
    /// Path, such as `projects[0].autoplan.enabled`.
    path: String,
    place: FilePlace,
    /// True if it has a value: a key without one counts as absent.
    is_said: bool,
}

impl Places {
    /// Reads a file. Only its YAML has to be valid.
    ///
    /// # Errors
    ///
    /// The YAML is not valid, or its paths have more than 16 MiB.
    pub fn parse(text: &str, file: &str) -> Result<Places, ConfigError> {
        let mut places = Places::default();
        if let Some(root) = decode::<Spanned<Node>>(text, file)? {
            places.add("", &root.value);
        }
        if places.path_bytes > MAX_PATH_BYTES {
            return Err(ConfigError(format!("{file}: the keys are too long for their number")));
        }
        Ok(places)
    }

    fn add(&mut self, path: &str, node: &Node) {
        match node {
            Node::Plain | Node::Nothing => {}
            Node::Map(entries) => {
                for (key, value) in entries {
                    let dot = if path.is_empty() { "" } else { "." };
                    self.push(format!("{path}{dot}{}", key.value), key.referenced, &value.value);
                }
            }
            Node::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.push(format!("{path}[{number}]"), item.referenced, &item.value);
                }
            }
        }
    }

    fn push(&mut self, path: String, at: Location, value: &Node) {
        self.path_bytes += path.len();
        if self.path_bytes > MAX_PATH_BYTES {
            return;
        }
        let place = FilePlace { line: at.line(), column: at.column() };
        self.keys.push(KeyPlace { path: path.clone(), place, is_said: !matches!(value, Node::Nothing) });
        self.add(&path, value);
    }

    /// Returns the position of a key that has a value, such as `repos[1].apply_requirements`.
    pub fn find(&self, path: &str) -> Option<FilePlace> {
        self.keys.iter().find(|key| key.path == path && key.is_said).map(|key| key.place)
    }

    /// Returns the key or item that begins at a position, the outermost of several; otherwise the last one before it.
    pub fn at(&self, place: FilePlace) -> Option<&str> {
        let exact = self.keys.iter().find(|key| key.place == place);
        let before = || self.keys.iter().filter(|key| key.place <= place).max_by_key(|key| key.place);
        exact.or_else(before).map(|key| key.path.as_str())
    }

    /// Returns the place of the innermost key or item at or before a position, that of the next one which is not a part of it, and true if
    /// it is an item.
    pub(super) fn extent(&self, place: FilePlace) -> Option<(FilePlace, Option<FilePlace>, bool)> {
        let KeyPlace { path, place: start, .. } =
            self.keys.iter().filter(|key| key.place <= place).max_by_key(|key| key.place)?;
        let is_part = |key: &KeyPlace| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
        let next = self.keys.iter().filter(|key| key.place > *start && !is_part(key)).map(|key| key.place).min();
        Some((*start, next, path.ends_with(']')))
    }

    /// Returns all paths of keys that have a value, with their positions.
    pub fn iter(&self) -> impl Iterator<Item = (&str, FilePlace)> {
        self.keys.iter().filter(|key| key.is_said).map(|key| (key.path.as_str(), key.place))
    }
}

/// Returns the key that a position belongs to. If the file is not valid YAML, or has no key before it, the nearest line that looks like
/// one.
pub fn key_at(text: &str, place: FilePlace) -> Option<String> {
    let known = Places::parse(text, "").ok().and_then(|places| places.at(place).map(str::to_owned));
    known.or_else(|| (1..=place.line).rev().find_map(|line| key_on_line(text, line)))
}

/// YAML of any shape.
enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Plain,
    Nothing,
}

/// Scalars whose value does not matter.
macro_rules! plain {
    ($($visit:ident $type:ty,)*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Plain)
        })*
    };
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        struct AnyNode;
        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("YAML")
            }
            plain! { visit_bool bool, visit_i64 i64, visit_u64 u64, visit_i128 i128, visit_u128 u128, visit_f64 f64, visit_str &str, }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Nothing)
            }
            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Nothing)
            }
            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
                Node::deserialize(deserializer)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Map(entries))
            }
        }
        deserializer.deserialize_any(AnyNode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
version: 3
projects:
- &base
  dir: a
  workflow:
  autoplan: {enabled: false}
- <<: *base
  dir: b
  apply_requirements: [approved,
    mergeable]
";

    fn place(line: u64, column: u64) -> FilePlace {
        FilePlace { line, column }
    }

    #[test]
    fn keys_are_where_the_file_has_them() {
        let places = Places::parse(YAML, "f").unwrap();
        for (path, found) in [
            ("version", Some(place(1, 1))),
            ("projects[0].dir", Some(place(4, 3))),
            ("projects[0].autoplan.enabled", Some(place(6, 14))),
            ("projects[0].workflow", None),
            ("projects[1].dir", Some(place(8, 3))),
            ("projects[1].apply_requirements", Some(place(9, 3))),
            ("projects[1].apply_requirements[1]", Some(place(10, 5))),
            ("projects[2].dir", None),
        ] {
            assert_eq!(places.find(path), found, "{path}: {places:?}");
        }
        assert!(places.find("projects[1].autoplan").is_some(), "what an anchor says is said: {places:?}");
    }

    #[test]
    fn a_place_belongs_to_the_key_that_begins_there_or_before_it() {
        let places = Places::parse(YAML, "f").unwrap();
        for (at, path) in [
            (place(1, 1), "version"),
            (place(1, 10), "version"),
            (place(4, 8), "projects[0].dir"),
            (place(10, 5), "projects[1].apply_requirements[1]"),
            (place(99, 1), "projects[1].apply_requirements[1]"),
        ] {
            assert_eq!(places.at(at), Some(path));
        }
        assert_eq!(Places::parse("", "f").unwrap().at(place(1, 1)), None);
    }

    #[test]
    fn a_file_that_is_no_yaml_has_keys_all_the_same() {
        assert_eq!(key_at("version: 3\nprojects:\n\t- dir: a\n", place(3, 1)).as_deref(), Some("dir"));
        assert_eq!(key_at("projects:\n\t-\n", place(2, 1)).as_deref(), Some("projects"));
        assert_eq!(key_at("[", place(1, 1)), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ \\t\\n:\\[\\]{}&*<a-c0-9'\"-]{0,120}", line in 0_u64..9, column in 0_u64..9) {
            let _ = key_at(&text, FilePlace { line, column });
        }
    }

    #[test]
    fn what_is_no_yaml_is_an_error_with_its_place() {
        assert!(Places::parse("a: [", "f").unwrap_err().0.starts_with("f:"));
        assert!(Places::parse("a: 1\na: 2", "f").unwrap_err().0.contains("there twice"));
    }
}
