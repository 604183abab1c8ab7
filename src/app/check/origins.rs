//! Origins of values: for each key, the repository's file if it may set the key, else the last matching entry of `repos.yaml` that sets
//! it, else a setting, else the default. `config` merges the values themselves.

use crate::config::places::Places;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Origin of a value that nobody sets.
pub(super) const DEFAULT: &str = "default";
/// Beginnings of paths below which people choose the names. A name may contain dots, so all that is below counts.
const OF_CHOSEN_NAMES: [&str; 2] = ["workflows.", "executors."];

/// Places of all keys that are set.
pub(super) struct Origins {
    /// Source of each setting that is set.
    given: BTreeMap<&'static str, String>,
    global: LocatedFile,
    /// Indices, from 0, of the entries of `repos.yaml` that match this repository.
    entries: Vec<usize>,
    repo: LocatedFile,
}

/// A file and its keys; name and keys are empty if there is no file.
#[derive(Default)]
struct LocatedFile {
    name: String,
    places: Places,
}

impl LocatedFile {
    fn new(name: &str, text: &str) -> LocatedFile {
        LocatedFile { name: name.to_owned(), places: Places::parse(text, name).unwrap_or_default() }
    }

    /// Returns the place of a key as `FILE line N`.
    fn line(&self, path: &str) -> Option<String> {
        Some(format!("{} line {}", self.name, self.places.find(path)?.line))
    }
}

impl Origins {
    pub(super) fn new(given: BTreeMap<&'static str, String>) -> Origins {
        Origins { given, global: LocatedFile::default(), entries: Vec::new(), repo: LocatedFile::default() }
    }

    pub(super) fn read_global(&mut self, file: &str, text: &str) {
        self.global = LocatedFile::new(file, text);
    }

    pub(super) fn read_repo(&mut self, file: &str, text: &str) {
        self.repo = LocatedFile::new(file, text);
    }

    /// Returns the name of the repository's file; empty if there is none.
    pub(super) fn repo_file(&self) -> &str {
        &self.repo.name
    }

    /// Sets the indices of the entries of `repos.yaml` that match this repository.
    pub(super) fn choose(&mut self, entries: Vec<usize>) {
        self.entries = entries;
    }

    /// Returns the entries of `repos.yaml` that match this repository, numbered from 1, with their lines.
    pub(super) fn entries(&self) -> Vec<String> {
        let line = |entry: &usize| self.global.places.find(&format!("repos[{entry}]")).map_or(0, |place| place.line);
        self.entries.iter().map(|entry| format!("{} (line {})", entry + 1, line(entry))).collect()
    }

    /// Returns the source of a setting.
    pub(super) fn setting(&self, name: &str) -> String {
        self.given.get(name).cloned().unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Returns true if a setting is set.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns the last matching entry of `repos.yaml` that has one of these keys.
    pub(super) fn rules(&self, keys: &[&str]) -> Option<String> {
        self.entries.iter().rev().find_map(|entry| keys.iter().find_map(|key| self.in_entry(*entry, key)))
    }

    /// Returns the place of a key in the last matching entry; earlier entries do not count.
    pub(super) fn last_entry(&self, key: &str) -> Option<String> {
        self.in_entry(*self.entries.last()?, key)
    }

    fn in_entry(&self, entry: usize, key: impl Display) -> Option<String> {
        Some(format!("{}, entry {}", self.global.line(&format!("repos[{entry}].{key}"))?, entry + 1))
    }

    /// Returns the place of a workflow's definition: in the repository's file, else in `repos.yaml`, else `built in`.
    pub(super) fn workflow(&self, name: &str) -> String {
        let path = format!("workflows.{name}");
        self.repo.line(&path).or_else(|| self.global.line(&path)).unwrap_or_else(|| "built in".to_owned())
    }

    /// Returns the place of an entry, counted from 0, of `projects` in the repository's file.
    pub(super) fn entry(&self, entry: usize) -> String {
        self.repo.line(&format!("projects[{entry}]")).unwrap_or_else(|| self.repo.name.clone())
    }

    /// Returns the place of a key of a project's entry.
    pub(super) fn project(&self, entry: Option<usize>, key: &str) -> Option<String> {
        self.repo.line(&format!("projects[{}].{key}", entry?))
    }

    /// Returns the place of a key at the root of the repository's file.
    pub(super) fn root(&self, key: &str) -> Option<String> {
        self.repo.line(key)
    }

    /// Returns the origin of a key that both a project and `repos.yaml` may have.
    pub(super) fn origin_of(&self, entry: Option<usize>, key: &str) -> String {
        self.project(entry, key).or_else(|| self.rules(&[key])).unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Returns the origin of a key that a listed project also inherits from the root of its file.
    pub(super) fn of_root_too(&self, entry: Option<usize>, key: &str) -> String {
        let root = || entry.and_then(|_| self.root(key));
        self.project(entry, key).or_else(root).or_else(|| self.rules(&[key])).unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Returns the origin of the lock mode, which an older key sets as well.
    pub(super) fn locks(&self, entry: Option<usize>) -> String {
        let listed = || {
            let here = self.project(entry, "repo_locks").or_else(|| entry.and_then(|_| self.root("repo_locks")));
            here.or_else(|| self.project(entry, "repo_locking"))
        };
        let found = listed().or_else(|| self.rules(&["repo_locks", "repo_locking"]));
        found.unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Returns the keys of both files whose last part is one of these names, with their places. Names that people choose are no keys.
    pub(super) fn keys_named(&self, names: &[&str]) -> Vec<(String, String)> {
        let in_file = |file: &LocatedFile| {
            let last = |path: &str| path.rsplit('.').next().map(str::to_owned).unwrap_or_default();
            let is_chosen = |path: &str| OF_CHOSEN_NAMES.iter().any(|below| path.starts_with(below));
            let keys = file.places.iter().filter(|(path, _)| !is_chosen(path));
            let named = keys.map(|(path, place)| (last(path), place));
            let named = named.filter(|(key, _)| names.contains(&key.as_str()));
            named.map(|(key, place)| (key, format!("{} line {}", file.name, place.line))).collect::<Vec<_>>()
        };
        [in_file(&self.global), in_file(&self.repo)].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_choose_are_no_keys() {
        let mut origins = Origins::new(BTreeMap::new());
        origins.read_global(
            "repos.yaml",
            "repos:\n- id: /.*/\n  terragrunt: true\nworkflows:\n  terragrunt:\n    plan: {steps: [init, plan]}\n  own.drift: {}\n\
             executors:\n  drift: {kind: process}\n",
        );
        origins.read_repo(
            "atlantis.yaml",
            "version: 3\nworkflows: {freeze: {}}\nprojects:\n- {dir: a, terragrunt: true}\n",
        );
        let found = origins.keys_named(&["terragrunt", "drift", "freeze", "executors"]);
        let found: Vec<String> = found.into_iter().map(|(key, place)| format!("{place}: {key}")).collect();
        let wanted =
            ["repos.yaml line 3: terragrunt", "repos.yaml line 8: executors", "atlantis.yaml line 4: terragrunt"];
        assert_eq!(found, wanted);
    }
}
