//! Terragrunt units as inputs: the files that they read and run, and the units that they depend on.

use super::terragrunt::{self, UnitIndex, Unknown};
use super::{InputGraph, Tree, is_hcl};
use crate::config::ProjectConfig;
use crate::config::paths::parent;
use std::collections::BTreeSet;

/// Most pairs of a unit and one that it depends on, directly or not.
pub const MAX_EDGES: usize = terragrunt::MAX_EDGES;

/// Dependencies of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Their directories: direct and indirect dependencies, as far as files name them.
    pub on: BTreeSet<String>,
    /// True if its own files may name more: an expression is unknown without running Terragrunt.
    pub may_be_more: bool,
}

/// Inputs of Terragrunt units.
#[derive(Default)]
pub(super) struct FilesOfUnits {
    /// Their own directories.
    pub(super) dirs: BTreeSet<String>,
    /// Those of their modules.
    pub(super) modules: BTreeSet<String>,
    /// Further files.
    pub(super) files: BTreeSet<String>,
}

/// Returns the directory of the Terraform files that a unit runs, if that is another one of this repository.
pub fn unit_source(tree: &dyn Tree, dir: &str) -> Option<String> {
    terragrunt::has_file(tree, dir).then(|| terragrunt::read(tree, dir).source)?
}

impl InputGraph<'_> {
    /// Returns true if Terragrunt runs a project: its configuration enables that, and its directory has Terragrunt's file.
    pub fn is_unit(&self, project: &ProjectConfig) -> bool {
        project.terragrunt && terragrunt::has_file(self.tree, &project.id.dir)
    }

    /// Returns the dependencies of the unit of a directory.
    pub fn dependencies(&self, dir: &str) -> Dependencies {
        let may_be_more = self.units.unit_in(self.tree, dir).is_some_and(|unit| unit.may_depend_on_more());
        Dependencies { on: self.units.dependencies(self.tree, dir), may_be_more }
    }

    /// Returns the limit that reading the units of this repository exceeded, so that they are not fully known. For people.
    pub fn units_exceed(&self) -> Option<String> {
        self.units.budget.exceeded()
    }

    /// Returns a cycle of units that this unit is in or depends on: `a`, `b`, `a`.
    pub fn circle(&self, dir: &str) -> Option<Vec<String>> {
        self.units.circle(self.tree, dir)
    }

    /// Returns the parts of the unit of a directory that are unknown without running Terragrunt.
    pub fn unknown(&self, dir: &str) -> Vec<Unknown> {
        self.units.unit_in(self.tree, dir).map(|unit| unit.unknown.clone()).unwrap_or_default()
    }

    pub(super) fn unit_index(&self) -> Option<&UnitIndex> {
        let index = self.unit_index.as_ref()?;
        Some(index.get_or_init(|| {
            let dirs = self.dirs.get_or_init(|| self.tree.dirs());
            let calls = &self.modules(self.default_distribution).calls;
            UnitIndex::build(self.tree, dirs, &self.units, &mut calls.borrow_mut())
        }))
    }

    /// Returns the directories of the files that a unit reads, of the Terraform files that it runs, and of the units that it depends on.
    pub(super) fn dirs_of_unit(&self, dir: &str) -> BTreeSet<String> {
        let Some(unit) = self.units.unit_in(self.tree, dir) else { return BTreeSet::new() };
        let files = unit.files.iter().map(|file| parent(file).to_owned());
        files.chain(unit.source.clone()).chain(self.units.dependencies(self.tree, dir)).collect()
    }

    /// Returns the directory of a project, that of the Terraform files that it runs if it is a unit, and those of all local modules called
    /// there.
    pub(super) fn source_dirs(&self, project: &ProjectConfig) -> BTreeSet<String> {
        let mut dirs = BTreeSet::from([project.id.dir.clone()]);
        if self.is_unit(project) {
            dirs.extend(self.units.unit_in(self.tree, &project.id.dir).and_then(|unit| unit.source.clone()));
        }
        let which = self.distribution(project);
        let modules: Vec<String> = dirs.iter().flat_map(|dir| self.modules_of(dir, which)).collect();
        dirs.extend(modules);
        dirs
    }

    /// Returns true if a unit may read unknown files.
    pub(super) fn may_read_more(&self, project: &ProjectConfig) -> bool {
        let is_more = || self.with_dependencies(project).iter().any(|dir| !self.unknown(dir).is_empty());
        self.is_unit(project) && (is_more() || self.units_exceed().is_some())
    }

    /// Returns true if a project is a unit, and any of these changed files is an input of it or of a unit that it depends on. The error is
    /// for people.
    pub(super) fn unit_is_touched(&self, project: &ProjectConfig, changed: &[String]) -> Result<bool, String> {
        if !self.is_unit(project) {
            return Ok(false);
        }
        let (file_list, of_units) = (self.file_list()?, self.files_of_units(project));
        let is_of_unit = |file: &String| {
            let (at, is_listed) = (parent(file), || file_list.matches(file) && !super::files::is_excluded(file));
            of_units.files.contains(file)
                || (of_units.dirs.contains(at) && (is_hcl(file) || is_listed()))
                || (of_units.modules.contains(at) && is_listed())
        };
        Ok(changed.iter().any(is_of_unit))
    }

    /// Returns the inputs of a unit and of its dependencies.
    pub(super) fn files_of_units(&self, project: &ProjectConfig) -> FilesOfUnits {
        let (which, mut found) = (self.distribution(project), FilesOfUnits::default());
        for dir in self.with_dependencies(project) {
            let Some(unit) = self.units.unit_in(self.tree, &dir) else { continue };
            found.modules.extend(self.modules_of(&dir, which));
            if let Some(source) = &unit.source {
                found.modules.extend(self.modules_of(source, which));
                found.modules.insert(source.clone());
            }
            found.files.extend(unit.files.iter().cloned());
            found.dirs.insert(dir);
        }
        found
    }

    fn with_dependencies(&self, project: &ProjectConfig) -> BTreeSet<String> {
        let mut dirs = self.units.dependencies(self.tree, &project.id.dir);
        dirs.insert(project.id.dir.clone());
        dirs
    }
}
