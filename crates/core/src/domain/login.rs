//! The account of a person or program on a host, and the name that people know it by.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Separates login and shown name in records. No host has control characters in logins, so an earlier record is never read as two parts.
const SEPARATOR: char = '\u{1f}';
/// Most combining marks on one character of a shown name.
const MOST_MARKS: usize = 2;
/// Longest shown name, in characters.
const LONGEST_SHOWN: usize = 64;

/// Name of a person's or program's account on a host. Hosts ignore case in it: compare with [`Login::is`].
///
/// On hosts without login names it is an id, and may carry the name that people see. Anybody can choose such a name, so comparisons, order
/// and hashes do not read it. In records both are one text, `id` and the name in parentheses, which earlier versions read as a login.
#[derive(Clone)]
pub struct Login {
    id: String,
    shown: Option<Box<str>>,
}

impl Login {
    /// Creates it from a host's answer, or a setting.
    pub fn new(text: impl Into<String>) -> Login {
        let id: String = text.into();
        Login { id: if id.contains(SEPARATOR) { id.replace(SEPARATOR, "\u{fffd}") } else { id }, shown: None }
    }

    /// Creates it from an id, and the name that the host shows for it.
    pub fn named(id: impl Into<String>, shown: &str) -> Login {
        let login = Login::new(id);
        let shown = Some(readable(shown)).filter(|name| !name.is_empty() && *name != login.id && !login.is_unknown());
        Login { shown: shown.map(String::into_boxed_str), ..login }
    }

    /// Returns the login of an account that is deleted, or that the host does not report. It is empty text in records.
    pub fn unknown() -> Login {
        Login::new("")
    }

    /// Returns true if the account is unknown.
    pub fn is_unknown(&self) -> bool {
        self.id.is_empty()
    }

    /// Returns true if both are the same account. An unknown one equals none.
    pub fn is(&self, other: &Login) -> bool {
        !self.is_unknown() && self.id.eq_ignore_ascii_case(&other.id)
    }

    /// Returns its text for rules, requests and comparisons, without the shown name.
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// Returns the name for people: the shown one, or else the login. Nothing may be decided by it.
    pub fn shown(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.id)
    }

    /// Returns the name for people with the login, which rules need.
    pub fn described(&self) -> String {
        self.shown.as_ref().map_or_else(|| self.id.clone(), |shown| format!("{shown} ({})", self.id))
    }

    /// Returns the shown name, if it is another than the login.
    pub fn shown_name(&self) -> Option<&str> {
        self.shown.as_deref()
    }

    /// Reads the text of a record, which may have a shown name.
    pub fn from_record(text: String) -> Login {
        match text.split_once(SEPARATOR) {
            None => Login { id: text, shown: None },
            Some((id, rest)) => {
                let shown = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
                Login::named(id, shown.unwrap_or_default())
            }
        }
    }
}

/// Returns a name as one line without parentheses, control characters, and characters that hide or reorder text.
fn readable(name: &str) -> String {
    let is_hidden = |c: char| {
        matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    let spaced = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    let kept = name.chars().filter(|c| !is_hidden(*c) && !matches!(c, '(' | ')'));
    // Names of any length are hostile, so the text is cut before its words are joined.
    let mut text = String::new();
    for c in kept.map(spaced).take(4 * LONGEST_SHOWN) {
        // Marks without end would cover the lines above.
        let marks = text.chars().rev().take_while(|last| is_mark(*last)).count();
        if !is_mark(c) || marks < MOST_MARKS {
            text.push(c);
        }
    }
    if !text.chars().any(char::is_alphanumeric) {
        return String::new();
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LONGEST_SHOWN) {
        None => words,
        Some(_) => words.chars().take(LONGEST_SHOWN - 1).chain(['…']).collect(),
    }
}

/// Returns true for combining marks of the common blocks.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

impl fmt::Display for Login {
    /// Formats the name for people. Use [`Login::as_str`] for everything that decides or asks a host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            None => fmt::Debug::fmt(&self.id, f),
            Some(shown) => write!(f, "{:?} ({shown})", self.id),
        }
    }
}

impl PartialEq for Login {
    fn eq(&self, other: &Login) -> bool {
        self.id == other.id
    }
}

impl Eq for Login {}

impl Hash for Login {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl PartialOrd for Login {
    fn partial_cmp(&self, other: &Login) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Login {
    fn cmp(&self, other: &Login) -> Ordering {
        self.id.cmp(&other.id)
    }
}

impl Serialize for Login {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.shown {
            None => serializer.serialize_str(&self.id),
            Some(shown) => serializer.collect_str(&format_args!("{}{SEPARATOR} ({shown})", self.id)),
        }
    }
}

impl<'de> Deserialize<'de> for Login {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Login, D::Error> {
        String::deserialize(deserializer).map(Login::from_record)
    }
}

#[cfg(any(test, feature = "test-support"))]
impl PartialEq<&str> for Login {
    fn eq(&self, other: &&str) -> bool {
        self.id == *other
    }
}

#[cfg(any(test, feature = "test-support"))]
impl From<String> for Login {
    fn from(text: String) -> Login {
        Login::new(text)
    }
}

#[cfg(any(test, feature = "test-support"))]
impl From<&str> for Login {
    fn from(text: &str) -> Login {
        Login::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_shown_name_decides_nothing() {
        let (ada, same, eve) =
            (Login::named("712020:a", "Ada"), Login::new("712020:a"), Login::named("712020:e", "Ada"));
        assert!(ada == same && ada.is(&same) && ada != eve && !ada.is(&eve));
        assert!(!Login::named("712020:e", "712020:a").is(&ada) && Login::named("", "Ada").is_unknown());
        assert_eq!(BTreeSet::from([ada.clone(), same, eve]).len(), 2);
        assert_eq!((ada.as_str(), ada.shown(), ada.to_string().as_str()), ("712020:a", "Ada", "Ada"));
        assert_eq!(Login::new("bob").to_string(), "bob");
    }

    #[test]
    fn shown_names_are_one_readable_line() {
        for (name, want) in [
            ("Ada\u{202e}\u{200b} Lovelace", Some("Ada Lovelace")),
            ("Ada (712020:e)", Some("Ada 712020:e")),
            ("a\n\tb\u{1f}\u{1b}[31mc", Some("a b [31mc")),
            (" \u{200f}()", None),
            ("\u{3164}\u{2800}", None),
            ("e\u{301}\u{302}\u{303}\u{304}", Some("e\u{301}\u{302}")),
            ("🌊", None),
            ("712020:a", None),
        ] {
            assert_eq!(Login::named("712020:a", name).shown_name(), want, "{name:?}");
        }
        let long = Login::named("a", &"x".repeat(1000));
        assert_eq!(long.shown().chars().count(), LONGEST_SHOWN);
    }

    #[test]
    fn records_of_earlier_versions_are_logins_as_they_are() {
        for text in ["bob", "", "CORP\\Ada (Admin)", "a (b)", "{5f0c}"] {
            let login: Login = serde_json::from_value(text.into()).unwrap();
            assert_eq!((login.as_str(), login.shown_name()), (text, None));
            assert_eq!(serde_json::to_value(&login).unwrap(), text);
        }
        let stored = serde_json::to_value(Login::named("712020:a", "Ada L")).unwrap();
        assert_eq!(stored, "712020:a\u{1f} (Ada L)");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Both parts survive storage, whatever they are, and no text becomes another account.
        #[test]
        fn a_login_survives_storage(id in "(\\PC|[ -~]|\u{1f}|\\(|\\)){0,20}", shown in "(\\PC|\u{1f}|\u{202e}|\\(|\\)|\n){0,90}") {
            let login = Login::named(id, &shown);
            let read: Login = serde_json::from_str(&serde_json::to_string(&login).unwrap()).unwrap();
            prop_assert_eq!(&read, &login);
            prop_assert_eq!(read.shown_name(), login.shown_name());
            let plain = Login::new(login.as_str());
            let read: Login = serde_json::from_str(&serde_json::to_string(&plain).unwrap()).unwrap();
            prop_assert_eq!((read.as_str(), read.shown_name()), (login.as_str(), None));
        }
    }
}
