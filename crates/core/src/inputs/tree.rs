//! A [`Tree`] in memory, for tests.

use super::Tree;
use crate::config::paths::{join, parent};
use std::collections::{BTreeMap, BTreeSet};

/// Files by path; directories follow from the paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryTree(BTreeMap<String, String>);

impl MemoryTree {
    pub(crate) fn from_files(files: impl Iterator<Item = (String, String)>) -> MemoryTree {
        MemoryTree(files.collect())
    }

    pub(crate) fn new<const N: usize>(files: [(&str, &str); N]) -> MemoryTree {
        MemoryTree(files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    /// Creates one empty `main.tf` in each directory.
    pub(crate) fn of_dirs<const N: usize>(dirs: [&str; N]) -> MemoryTree {
        MemoryTree(dirs.into_iter().map(|dir| (join(dir, "main.tf"), String::new())).collect())
    }
}

impl Tree for MemoryTree {
    fn is_dir(&self, dir: &str) -> bool {
        self.dirs().iter().any(|other| other == dir)
    }

    fn files(&self, dir: &str) -> Vec<String> {
        let here = self.0.keys().filter(|path| parent(path) == dir);
        here.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
    }

    fn dirs(&self) -> Vec<String> {
        let mut dirs = BTreeSet::from([".".to_owned()]);
        for path in self.0.keys() {
            dirs.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
        }
        dirs.into_iter().collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }
}
