//! Where the value of a key comes from: for each key, the repository's file where it may say it, else the last matching entry of
//! `repos.yaml` that says it, else a setting, else the default. Values themselves are merged by `config`.

use crate::config::places::Places;
use std::collections::BTreeMap;
use std::fmt::Display;

/// What is said of a value that nobody gives.
pub(super) const DEFAULT: &str = "default";

/// Places of all keys that are given.
pub(super) struct Origins {
    /// The source of each setting that is given.
    given: BTreeMap<&'static str, String>,
    global: LocatedFile,
    /// Entries of `repos.yaml` that are for this repository, from 0.
    entries: Vec<usize>,
    repo: LocatedFile,
}

/// A file and its keys; without name and keys where there is none.
#[derive(Default)]
struct LocatedFile {
    name: String,
    places: Places,
}

impl LocatedFile {
    fn new(name: &str, text: &str) -> LocatedFile {
        LocatedFile { name: name.to_owned(), places: Places::of(text, name).unwrap_or_default() }
    }

    /// `FILE line N`.
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

    /// The name of the repository's file; empty where there is none.
    pub(super) fn repo_file(&self) -> &str {
        &self.repo.name
    }

    /// Takes these entries of `repos.yaml` for those of this repository.
    pub(super) fn choose(&mut self, entries: Vec<usize>) {
        self.entries = entries;
    }

    /// The entries of `repos.yaml` that are for this repository, from 1, with their lines.
    pub(super) fn entries(&self) -> Vec<String> {
        let line = |entry: &usize| self.global.places.find(&format!("repos[{entry}]")).map_or(0, |place| place.line);
        self.entries.iter().map(|entry| format!("{} (line {})", entry + 1, line(entry))).collect()
    }

    /// Where a setting is given.
    pub(super) fn setting(&self, name: &str) -> String {
        self.given.get(name).cloned().unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Whether a setting is given.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The last matching entry of `repos.yaml` that has one of these keys.
    pub(super) fn rules(&self, keys: &[&str]) -> Option<String> {
        self.entries.iter().rev().find_map(|entry| keys.iter().find_map(|key| self.in_entry(*entry, key)))
    }

    /// The same, where only the last matching entry counts.
    pub(super) fn last_entry(&self, key: &str) -> Option<String> {
        self.in_entry(*self.entries.last()?, key)
    }

    fn in_entry(&self, entry: usize, key: impl Display) -> Option<String> {
        Some(format!("{}, entry {}", self.global.line(&format!("repos[{entry}].{key}"))?, entry + 1))
    }

    /// The definition of a workflow: in the repository's file, else in `repos.yaml`, else the built-in one.
    pub(super) fn workflow(&self, name: &str) -> String {
        let path = format!("workflows.{name}");
        self.repo.line(&path).or_else(|| self.global.line(&path)).unwrap_or_else(|| "built in".to_owned())
    }

    /// An entry of `projects` of the repository's file, from 0.
    pub(super) fn entry(&self, entry: usize) -> String {
        self.repo.line(&format!("projects[{entry}]")).unwrap_or_else(|| self.repo.name.clone())
    }

    /// A key of a project's entry.
    pub(super) fn project(&self, entry: Option<usize>, key: &str) -> Option<String> {
        self.repo.line(&format!("projects[{}].{key}", entry?))
    }

    /// A key at the root of the repository's file.
    pub(super) fn root(&self, key: &str) -> Option<String> {
        self.repo.line(key)
    }

    /// A key that a project may have and that `repos.yaml` has too.
    pub(super) fn of(&self, entry: Option<usize>, key: &str) -> String {
        self.project(entry, key).or_else(|| self.rules(&[key])).unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// The same for a key that a listed project also takes from the root of its file.
    pub(super) fn of_root_too(&self, entry: Option<usize>, key: &str) -> String {
        let root = || entry.and_then(|_| self.root(key));
        self.project(entry, key).or_else(root).or_else(|| self.rules(&[key])).unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// The mode of locks, which an old key gives as well.
    pub(super) fn locks(&self, entry: Option<usize>) -> String {
        let listed = || {
            let here = self.project(entry, "repo_locks").or_else(|| entry.and_then(|_| self.root("repo_locks")));
            here.or_else(|| self.project(entry, "repo_locking"))
        };
        let found = listed().or_else(|| self.rules(&["repo_locks", "repo_locking"]));
        found.unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// Keys of both files whose last part is one of these, with their places.
    pub(super) fn keys_named(&self, names: &[&str]) -> Vec<(String, String)> {
        let in_file = |file: &LocatedFile| {
            let last = |path: &str| path.rsplit('.').next().map(str::to_owned).unwrap_or_default();
            let named = file.places.iter().map(|(path, place)| (last(path), place));
            let named = named.filter(|(key, _)| names.contains(&key.as_str()));
            named.map(|(key, place)| (key, format!("{} line {}", file.name, place.line))).collect::<Vec<_>>()
        };
        [in_file(&self.global), in_file(&self.repo)].concat()
    }
}
