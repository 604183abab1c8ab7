//! Directories that read a file that is not configuration, without a list of projects.

use super::reads::FileReads;
use super::{InputGraph, files};
use crate::config::{DEFAULT_WORKSPACE, ProjectConfig};
use crate::domain::ProjectId;
use std::collections::{BTreeMap, BTreeSet};

/// Most directories that are read.
const MAX_READERS: usize = 10_000;

/// Directories with files for Terraform, by the files that their plans read.
#[derive(Default)]
pub(super) struct ReaderIndex {
    by_file: BTreeMap<String, BTreeSet<String>>,
    by_directory: Vec<(String, FileReads)>,
}

impl ReaderIndex {
    pub(super) fn build(graph: &InputGraph<'_>, dirs: &[String]) -> ReaderIndex {
        let mut index = ReaderIndex::default();
        let is_project = |dir: &&String| {
            // Modules are planned through their users.
            !files::is_in_modules(dir) && files::has_terraform(graph.tree, dir)
        };
        for dir in dirs.iter().filter(is_project).take(MAX_READERS) {
            let id = ProjectId { dir: dir.clone(), workspace: DEFAULT_WORKSPACE.to_owned(), name: None };
            let project = ProjectConfig { id, ..graph.unlisted.clone() };
            let Ok(inputs) = graph.inputs_of(&project) else { continue };
            let reads = inputs.reads();
            for file in &reads.files {
                index.by_file.entry(file.clone()).or_default().insert(dir.clone());
            }
            if !reads.below.is_empty() {
                let reads = FileReads { below: reads.below.clone(), ..FileReads::default() };
                index.by_directory.push((dir.clone(), reads));
            }
        }
        index
    }

    /// Returns the directories whose plans read this file, as far as their code names it.
    pub(super) fn readers<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a String> {
        let by_directory = self.by_directory.iter().filter(|(_, reads)| reads.name(file)).map(|(dir, _)| dir);
        self.by_file.get(file).into_iter().flatten().chain(by_directory)
    }
}
