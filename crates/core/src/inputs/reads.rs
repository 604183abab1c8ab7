//! Files that code reads with Terraform's functions, and files in a workflow's arguments: inputs of a plan besides its configuration files.

mod arguments;
mod calls;
#[cfg(test)]
mod tests;

use super::{Inputs, Tree};
use crate::config::paths::{Glob, join, parent};
use crate::domain::ownership::FilesBelow;
pub(super) use calls::ReadCalls;
use std::collections::BTreeSet;

/// Consequence for a plan if a file that it reads is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Fails,
    Passes,
}

/// Files that a plan reads. Paths are relative to the root of the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileReads {
    /// Named files, existing or not.
    pub(super) files: BTreeSet<String>,
    /// Directories and patterns of `fileset`.
    pub(super) below: BTreeSet<(String, Option<String>)>,
    /// Directories below which it reads files with unknown names.
    pub(super) guessed: BTreeSet<String>,
    /// True if it may read any file.
    pub(super) unknown: bool,
    /// True if it may read unknown files and does not fail if they are missing.
    pub(super) is_silent: bool,
}

impl FileReads {
    /// Adds a path relative to the root; one out of the repository is ignored. Links on the way are files as well.
    fn add(&mut self, tree: &dyn Tree, path: &str, add: impl FnOnce(&mut FileReads, String) -> bool) {
        if path == ".." || path.starts_with("../") {
            return;
        }
        let Some(real) = tree.resolve(path) else { return };
        self.files.extend(real.links);
        add(self, real.path);
    }

    fn file(&mut self, tree: &dyn Tree, path: &str) {
        self.add(tree, path, |reads, path| reads.files.insert(path));
    }

    fn below(&mut self, tree: &dyn Tree, dir: &str, glob: Option<String>) {
        self.add(tree, dir, |reads, path| reads.below.insert((path, glob)));
    }

    fn guess(&mut self, tree: &dyn Tree, dir: &str, if_missing: IfMissing) {
        self.is_silent |= if_missing == IfMissing::Passes;
        self.add(tree, dir, |reads, path| reads.guessed.insert(path));
    }

    fn anything(&mut self, if_missing: IfMissing) {
        self.unknown = true;
        self.is_silent |= if_missing == IfMissing::Passes;
    }

    /// Returns true if code names this file, so that a change of it changes the plan.
    pub(super) fn name(&self, file: &str) -> bool {
        self.files.contains(file) || self.below.iter().any(|(dir, glob)| is_below(dir, glob.as_deref(), file))
    }

    /// Returns true if this file may be read.
    pub(super) fn may_contain(&self, file: &str) -> bool {
        self.unknown || self.name(file) || self.guessed.iter().any(|dir| is_below(dir, None, file))
    }

    /// Returns the directories for the plan's record.
    pub(super) fn recorded(&self) -> Vec<FilesBelow> {
        let named = self.below.iter().map(|(dir, glob)| FilesBelow { dir: dir.clone(), glob: glob.clone() });
        named.chain(self.guessed.iter().map(|dir| FilesBelow { dir: dir.clone(), glob: None })).collect()
    }

    /// Returns the directories that a sparse tree needs for it.
    pub(super) fn dirs(&self) -> BTreeSet<String> {
        if self.unknown || self.is_silent {
            return BTreeSet::from([".".to_owned()]);
        }
        // Files at the root are in every tree.
        let of_files = self.files.iter().map(|file| parent(file)).filter(|dir| *dir != ".");
        let below = self.below.iter().map(|(dir, _)| dir.as_str()).chain(self.guessed.iter().map(String::as_str));
        of_files.chain(below).map(str::to_owned).collect()
    }
}

/// Returns true if a file is below a directory, and matches the glob from there. An invalid glob excludes nothing.
pub(super) fn is_below(dir: &str, glob: Option<&str>, file: &str) -> bool {
    let rest = match dir {
        "." => Some(file),
        _ => file.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/')),
    };
    rest.is_some_and(|rest| glob.is_none_or(|glob| Glob::new(glob).map_or(true, |glob| glob.matches(rest))))
}

impl Inputs<'_> {
    /// Adds the arguments of a comment.
    pub fn with_arguments(self, args: &[String]) -> Self {
        Inputs { arguments: args.to_vec(), reads: std::cell::OnceCell::new(), ..self }
    }

    /// Returns the files that the project's plan reads besides configuration files.
    pub(super) fn reads(&self) -> &FileReads {
        self.reads.get_or_init(|| {
            let (graph, dir, tree) = (self.graph, &self.project.id.dir, self.graph.tree);
            let mut reads = FileReads::default();
            arguments::add(tree, self.project, &self.arguments, &mut reads);
            if let Some(link) = &self.project.link {
                reads.file(tree, link);
            }
            let modules = graph.modules(graph.distribution(self.project));
            let mut roots = vec![dir.clone()];
            if graph.is_unit(self.project) {
                roots.extend(graph.units.unit_in(tree, dir).and_then(|unit| unit.source.clone()));
            }
            for root in roots {
                let closure = modules.calls.borrow_mut().closure(tree, &root);
                for module in closure.iter().chain([&root]) {
                    reads.files.extend(modules.calls.borrow_mut().links(tree, module));
                    modules.reads.borrow_mut().add(tree, module, &root, &mut reads);
                }
            }
            reads
        })
    }
}

/// Returns `path` relative to the root, as code in a directory means it.
fn from(dir: &str, path: &str) -> String {
    join(dir, path)
}
