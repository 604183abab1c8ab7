//! Asks the parser which keys, types and values there are at a place of a file: small documents in JSON, and its answers.

use super::keys::{Key, Section, section};
use crate::config::global::GlobalConfig;
use crate::config::mutated_tests::{global_errors, repo_errors, rules};
use crate::config::raw::{RawGlobal, RawRepoConfig};
use crate::config::{repo, yaml};
use crate::domain::RepoId;
use regex::Regex;
use serde_json::{Map, Value, json};

/// A text that is no key and no value of any.
const UNKNOWN: &str = "zzzzzz";

/// A configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ConfigFile {
    Repo,
    Server,
}

impl ConfigFile {
    /// Returns the section of its root, which has its usual name.
    pub(super) fn root(self) -> &'static Section {
        section(match self {
            ConfigFile::Repo => "atlantis.yaml",
            ConfigFile::Server => "repos.yaml",
        })
    }

    /// Returns all errors of a text, in a repository that may set every key.
    pub(super) fn errors(self, text: &str) -> Vec<String> {
        match self {
            ConfigFile::Repo => repo_errors(text),
            ConfigFile::Server => global_errors(text),
        }
    }

    /// Returns the first error of a text's keys and types.
    pub(super) fn shape_error(self, text: &str) -> Option<String> {
        let error = match self {
            ConfigFile::Repo => yaml::decode::<RawRepoConfig>(text, "f").err(),
            ConfigFile::Server => yaml::decode::<RawGlobal>(text, "f").err(),
        };
        error.map(|error| error.0)
    }

    /// Returns what a valid text comes to.
    pub(super) fn meaning(self, text: &str) -> String {
        let id = RepoId { host: "github.com".into(), owner: "acme".into(), name: "infra".into() };
        match self {
            ConfigFile::Repo => {
                format!("{:?}", repo::parse(text, "f", &rules(), "main", &|_: &str| Vec::new()).unwrap())
            }
            ConfigFile::Server => {
                let config = GlobalConfig::parse(text, "f").unwrap();
                let GlobalConfig { policies, team_authz, people, metrics, executors, .. } = &config;
                let others = (policies, team_authz, people.login_of("a", "b"), metrics, executors);
                format!("{:?} {:?} {others:?}", config.rules(&id, "main"), config.drift_schedule(&id))
            }
        }
    }
}

/// A place of a file: the way to it from the root.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) file: ConfigFile,
    steps: Vec<PlaceStep>,
}

#[derive(Clone)]
enum PlaceStep {
    Key(&'static Section, &'static Key),
    /// The only item of a list.
    Item,
    /// The only entry of a mapping with names of people's choice.
    Named,
}

impl Place {
    pub(super) fn root(file: ConfigFile) -> Place {
        Place { file, steps: Vec::new() }
    }

    pub(super) fn key(&self, section: &'static Section, key: &'static Key) -> Place {
        self.and(PlaceStep::Key(section, key))
    }

    pub(super) fn item(&self) -> Place {
        self.and(PlaceStep::Item)
    }

    pub(super) fn named(&self) -> Place {
        self.and(PlaceStep::Named)
    }

    /// Returns true if it is an entry of a mapping with names of people's choice.
    pub(super) fn is_entry(&self) -> bool {
        matches!(self.steps.last(), Some(PlaceStep::Named))
    }

    fn and(&self, step: PlaceStep) -> Place {
        let steps = self.steps.iter().cloned().chain([step]).collect();
        Place { steps, ..*self }
    }

    /// Returns a document with this value here, and around it what is required and what its key's example needs.
    pub(super) fn document(&self, value: Value) -> String {
        let wrap = |value: Value, step: &PlaceStep| match step {
            PlaceStep::Item => json!([value]),
            PlaceStep::Named => json!({ "own": value }),
            PlaceStep::Key(section, key) => {
                let mut all = minimal(section);
                all.extend(in_yaml(key.beside).as_object().cloned().unwrap_or_default());
                all.insert(key.name.to_owned(), value);
                Value::Object(all)
            }
        };
        self.steps.iter().rev().fold(value, wrap).to_string()
    }

    /// Returns true if the parser takes a value of this type here.
    pub(super) fn takes(&self, value: Value) -> bool {
        self.file.shape_error(&self.document(value)).is_none()
    }

    /// Returns true if it takes any value here.
    pub(super) fn takes_all(&self) -> bool {
        [json!(UNKNOWN), json!([[]]), json!({ UNKNOWN: [] })].into_iter().all(|value| self.takes(value))
    }

    /// Returns true if it takes a mapping here with any names.
    pub(super) fn takes_names(&self) -> bool {
        self.takes(json!({ UNKNOWN: null }))
    }

    /// Returns true if it takes a text here.
    pub(super) fn takes_text(&self) -> bool {
        self.takes(json!(UNKNOWN))
    }

    /// Returns the keys of a mapping here, if the parser knows which there are: it lists them when it refuses another one.
    pub(super) fn keys(&self) -> Option<Vec<String>> {
        let error = self.file.shape_error(&self.document(json!({ UNKNOWN: null })))?;
        listed(&error, r"known(?: here)?: ").filter(|_| error.contains(&format!("`{UNKNOWN}`")))
    }

    /// Returns the values that there are for a text here: the parser lists them when it refuses another one.
    pub(super) fn values(&self) -> Vec<String> {
        let errors = self.file.errors(&self.document(json!(UNKNOWN)));
        let found = errors.iter().find_map(|error| listed(error, "(?:there are|known): |one of "));
        found.unwrap_or_else(|| panic!("no values in {errors:?}"))
    }
}

/// Returns the names after these words of an error.
fn listed(error: &str, before: &str) -> Option<Vec<String>> {
    let names = Regex::new(&format!(r"(?:{before})((?:[A-Za-z_-]+, )*[A-Za-z_-]*[A-Za-z_])")).unwrap();
    let found = names.captures(error)?;
    Some(found[1].split(", ").map(str::to_owned).collect())
}

/// Returns a mapping with the required keys of a section.
pub(super) fn minimal(section: &Section) -> Map<String, Value> {
    let required = section.keys.iter().filter(|key| key.is_required());
    required.map(|key| (key.name.to_owned(), in_yaml(key.example.unwrap()))).collect()
}

/// Reads a value of the table.
pub(super) fn in_yaml(text: &str) -> Value {
    yaml::decode(text, "a key's value").unwrap().unwrap_or_default()
}
