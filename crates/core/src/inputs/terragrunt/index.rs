//! Units that a changed file touches, for unlisted directories.

use super::super::files::INDICATOR_SUFFIXES;
use super::super::modules::ModuleCalls;
use super::super::{Tree, is_hcl};
use super::expression::UNIT_FILE;
use super::{MAX_UNITS, Units, has_file};
use crate::config::paths::{join, parent};
use std::collections::{BTreeMap, BTreeSet};

/// Units of a repository by their inputs.
pub(in super::super) struct UnitIndex {
    units: BTreeSet<String>,
    /// Directories with Terragrunt's file that are not units: the file is only included, or there is nothing to run.
    only_included: BTreeSet<String>,
    by_file: BTreeMap<String, BTreeSet<String>>,
    /// Directories of Terraform files that units run, with the modules that are called there.
    by_module: BTreeMap<String, BTreeSet<String>>,
    /// Direct dependents of a unit.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl UnitIndex {
    pub(in super::super) fn build(
        tree: &dyn Tree,
        dirs: &[String],
        units: &Units,
        calls: &mut ModuleCalls,
    ) -> UnitIndex {
        let with_file: Vec<&String> = dirs.iter().filter(|dir| has_file(tree, dir)).take(MAX_UNITS).collect();
        let read = |dir: &str| units.unit_in(tree, dir);
        let included: BTreeSet<String> =
            with_file.iter().filter_map(|dir| read(dir)).flat_map(|unit| unit.includes.clone()).collect();
        let (mut found, mut only_included) = (BTreeSet::new(), BTreeSet::new());
        for dir in with_file {
            let Some(unit) = read(dir) else { continue };
            let could_run = unit.has_source || unit.may_depend_on_more();
            let has_files =
                || tree.files(dir).iter().any(|name| INDICATOR_SUFFIXES.iter().any(|end| name.ends_with(end)));
            let is_unit = (could_run && !included.contains(&join(dir, UNIT_FILE))) || has_files();
            if is_unit {
                found.insert(dir.clone())
            } else {
                only_included.insert(dir.clone())
            };
        }
        let mut index = UnitIndex {
            units: found,
            only_included,
            by_file: BTreeMap::new(),
            by_module: BTreeMap::new(),
            dependents: BTreeMap::new(),
        };
        for dir in index.units.clone() {
            let Some(unit) = read(&dir) else { continue };
            let add = |to: &mut BTreeMap<String, BTreeSet<String>>, key: String| {
                to.entry(key).or_default().insert(dir.clone());
            };
            unit.files.iter().for_each(|file| add(&mut index.by_file, file.clone()));
            unit.dependencies.iter().for_each(|on| add(&mut index.dependents, on.clone()));
            for from in unit.source.iter().chain([&dir]) {
                calls.closure(tree, from).into_iter().for_each(|module| add(&mut index.by_module, module));
            }
            unit.source.iter().for_each(|source| add(&mut index.by_module, source.clone()));
        }
        index
    }

    /// Returns the units that a changed file belongs to, with those that depend on them. `is_listed`: the file list names it.
    pub(in super::super) fn touched(&self, file: &str, is_listed: bool) -> Vec<String> {
        let dir = parent(file);
        let mut waiting: Vec<&String> = self.by_file.get(file).into_iter().flatten().collect();
        if is_listed {
            waiting.extend(self.by_module.get(dir).into_iter().flatten());
        }
        if is_listed || is_hcl(file) {
            waiting.extend(self.units.get(dir));
        }
        let mut found = BTreeSet::new();
        while let Some(unit) = waiting.pop() {
            if found.insert(unit.clone()) {
                waiting.extend(self.dependents.get(unit).into_iter().flatten());
            }
        }
        found.into_iter().collect()
    }

    /// Returns true if a directory is planned through units, or not at all.
    pub(in super::super) fn is_no_project(&self, dir: &str) -> bool {
        self.only_included.contains(dir) || (self.by_module.contains_key(dir) && !self.units.contains(dir))
    }
}
