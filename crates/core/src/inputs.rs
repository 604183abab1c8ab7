//! Inputs of a project's plan. Pure: reads the repository through [`Tree`].
//!
//! There are eight kinds:
//! - files of the project's directory with its lock file
//! - local modules that it calls
//! - files that its `when_modified` names
//! - files that its code reads and its workflow names (`reads`)
//! - files that Terragrunt's files name (`units`)
//! - providers that its `init` needs ([`providers`])
//! - its effective configuration, by its digest in [`ProjectConfig`]
//! - the projects it depends on, by `depends_on` in [`ProjectConfig`]
//!
//! An [`InputGraph`] finds the files: for autoplan in `schedule`, for sparse trees and `undiverged` in `execute`.

mod cloud;
mod files;
mod hcl;
mod modules;
pub mod patterns;
pub mod providers;
mod readers;
mod reads;
pub mod recorded;
mod terragrunt;
#[cfg(test)]
pub(crate) mod tree;
mod units;

pub use cloud::{CloudWorkspace, cloud_workspace};
pub use files::{INDICATOR_NAMES, INDICATOR_SUFFIXES, has_terraform, is_project_file};
pub use hcl::{DirectoryCode, StatePlace, code, required_versions};
pub(crate) use hcl::{locked_providers, text_of};
pub use modules::module_dirs;
pub use terragrunt::Unknown;
pub use units::{Dependencies, MAX_EDGES, unit_source};

use crate::config::global::RepoRules;
use crate::config::paths::{clean, parent};
use crate::config::{DEFAULT_WORKSPACE, ProjectConfig};
use crate::domain::{Distribution, ProjectId};
use modules::{ModuleCalls, ModuleIndex};
use patterns::Patterns;
use readers::ReaderIndex;
use reads::{FileReads, ReadCalls};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use terragrunt::{UnitIndex, Units};

/// A checked-out repository, as project discovery reads it. Paths are relative to the root, with `/`, `.` for the root.
pub trait Tree {
    /// Returns true if the directory exists, inside the tree.
    fn is_dir(&self, dir: &str) -> bool;
    /// Returns the names of the files directly in a directory.
    fn files(&self, dir: &str) -> Vec<String>;
    /// Returns the names of everything directly in a directory that is no directory, also of links out of the tree; absent if it cannot be
    /// listed.
    fn names(&self, dir: &str) -> Option<Vec<String>> {
        Some(self.files(dir))
    }
    /// Returns all directories, without `.git`, `.terraform` and `.terragrunt-cache`.
    fn dirs(&self) -> Vec<String>;
    /// Returns the same and the directories behind links that stay inside the tree, by the paths through the links. No path is circular.
    fn dirs_and_links(&self) -> Vec<String> {
        self.dirs()
    }
    /// Returns a file's text, if it exists, is inside the tree, and has at most 1 MiB of UTF-8.
    fn read(&self, path: &str) -> Option<String>;
    /// Resolves the links of a path; the file or directory need not exist. Absent if it leads out of the tree, in a circle, or through too
    /// many links.
    fn resolve(&self, path: &str) -> Option<RealPath> {
        let path = clean(path);
        (path != ".." && !path.starts_with("../")).then(|| RealPath { path, links: Vec::new() })
    }
}

/// A path of a tree with its links resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealPath {
    /// The path without links.
    pub path: String,
    /// Paths of the links on the way.
    pub links: Vec<String>,
}

/// Flags that decide which files are inputs.
#[derive(Debug, Clone, Copy)]
pub struct InputRules<'a> {
    /// `--autoplan-file-list`.
    pub file_list: &'a [String],
    /// `--autoplan-modules-from-projects`, already resolved with `--autoplan-modules`; empty: off.
    pub modules_from: &'a [String],
    /// Distribution that reads the files of a project that names none.
    pub default_distribution: Distribution,
    /// Rules of the repository, for unlisted projects, and for whether directories with Terragrunt's file are units.
    pub rules: &'a RepoRules,
}

/// The inputs of all projects of a tree. It is walked at most once, and each directory is read at most once, on first use.
pub struct InputGraph<'a> {
    tree: &'a dyn Tree,
    default_distribution: Distribution,
    file_list: Result<Patterns, String>,
    /// Absent if a change of a module does not plan its users.
    modules_from: Result<Option<Patterns>, String>,
    dirs: OnceCell<Vec<String>>,
    terraform: Modules,
    opentofu: Modules,
    units: Units,
    /// Units to plan when a file of Terragrunt changes; absent if directories with such files are not units.
    unit_index: Option<OnceCell<UnitIndex>>,
    /// Configuration of an unlisted project, by the rules.
    unlisted: ProjectConfig,
    readers: OnceCell<ReaderIndex>,
}

/// Local modules as one distribution reads them.
struct Modules {
    calls: RefCell<ModuleCalls>,
    reads: RefCell<ReadCalls>,
    users: OnceCell<ModuleIndex>,
}

impl Modules {
    fn new(which: Distribution) -> Modules {
        let (calls, reads) = (ModuleCalls::new(which), ReadCalls::new(which));
        Modules { calls: RefCell::new(calls), reads: RefCell::new(reads), users: OnceCell::new() }
    }
}

impl<'a> InputGraph<'a> {
    /// Creates it without reading the tree. An invalid pattern becomes an error of the functions that need it.
    pub fn new(tree: &'a dyn Tree, rules: InputRules<'_>) -> InputGraph<'a> {
        let wrong = |flag: &str, error: String| format!("{flag}: {error}; an operator has to fix it");
        let file_list = Patterns::new(rules.file_list).map_err(|error| wrong("--autoplan-file-list", error));
        let modules_from = match rules.modules_from {
            [] => Ok(None),
            from => Patterns::new(from).map(Some).map_err(|error| wrong("--autoplan-modules-from-projects", error)),
        };
        let nowhere = ProjectId { dir: String::new(), workspace: String::new(), name: None };
        InputGraph {
            tree,
            default_distribution: rules.default_distribution,
            file_list,
            modules_from,
            dirs: OnceCell::new(),
            terraform: Modules::new(Distribution::Terraform),
            opentofu: Modules::new(Distribution::OpenTofu),
            units: Units::default(),
            unit_index: rules.rules.terragrunt.then(OnceCell::new),
            unlisted: ProjectConfig::from_rules(nowhere, rules.rules),
            readers: OnceCell::new(),
        }
    }

    /// Returns the inputs of one project. The error names an invalid pattern of its `when_modified`, for people.
    pub fn inputs_of<'g>(&'g self, project: &'g ProjectConfig) -> Result<Inputs<'g>, String> {
        let globs = Patterns::relative_to(&project.id.dir, &project.when_modified)?;
        Ok(Inputs { graph: self, project, globs, arguments: Vec::new(), reads: OnceCell::new() })
    }

    /// Returns true if any of these changed files is an input of a project, or if one of its patterns is invalid.
    pub fn is_touched(&self, project: &ProjectConfig, changed: &[String]) -> bool {
        self.inputs_of(project).and_then(|inputs| inputs.contain_any(changed)).unwrap_or(true)
    }

    /// Returns those of these changed files that the owners of a project have to review. They are below its directory or those of its
    /// modules, or another input of it. Its `when_modified` cannot exclude any, as pull requests can change it.
    pub fn files_of(&self, project: &ProjectConfig, changed: Vec<String>) -> Vec<String> {
        let (dirs, inputs) = (self.source_dirs(project), self.inputs_of(project));
        let is_below = |file: &str| {
            let mut above = file.match_indices('/').filter_map(|(at, _)| file.get(..at));
            dirs.contains(".") || above.any(|dir| dirs.contains(dir))
        };
        let is_input = |file: &String| {
            let found = inputs.as_ref().map(|inputs| inputs.contain_any(std::slice::from_ref(file)));
            !matches!(found, Ok(Ok(false)))
        };
        changed.into_iter().filter(|file| is_below(file) || is_input(file)).collect()
    }

    /// Returns the directories of unlisted projects that a changed file belongs to, by the file list. The error is for people.
    pub fn discovered(&self, file: &str) -> Result<Vec<String>, String> {
        let is_listed = self.file_list()?.matches(file) && !files::is_excluded(file);
        let mut dirs = Vec::new();
        if is_listed {
            dirs = files::dirs_of(file, self.tree, self.users_of_modules(self.default_distribution)?);
        }
        if let Some(index) = self.unit_index() {
            dirs.retain(|dir| !index.is_no_project(dir));
            dirs.extend(index.touched(file, is_listed));
        }
        if !is_configuration(file) && !files::is_excluded(file) {
            dirs.extend(self.readers().readers(file).cloned());
        }
        dirs.sort();
        dirs.dedup();
        Ok(dirs)
    }

    fn readers(&self) -> &ReaderIndex {
        self.readers.get_or_init(|| ReaderIndex::build(self, self.dirs.get_or_init(|| self.tree.dirs())))
    }

    /// Returns these directories with those of all local modules that are called from them, as either distribution reads them, and of the
    /// inputs and dependencies of their units. In alphabetical order.
    pub fn with_modules(&self, mut dirs: Vec<String>) -> Vec<String> {
        let of_units: BTreeSet<String> = dirs.iter().flat_map(|dir| self.dirs_of_unit(dir)).collect();
        dirs.extend(of_units);
        for which in [self.default_distribution, self.default_distribution.other()] {
            let modules: Vec<String> = dirs.iter().flat_map(|dir| self.modules_of(dir, which)).collect();
            dirs.extend(modules);
        }
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Returns the directories of a sparse tree: these, and those that the plans of these projects read, with these arguments of a comment.
    /// If that cannot be determined, the root stands for all directories.
    pub fn sparse(&self, dirs: Vec<String>, projects: &[ProjectConfig], arguments: &[String]) -> Vec<String> {
        let mut dirs = self.with_modules(dirs);
        let listed: BTreeSet<&str> = projects.iter().map(|project| project.id.dir.as_str()).collect();
        let unlisted: Vec<ProjectConfig> = dirs
            .iter()
            .filter(|dir| !listed.contains(dir.as_str()) && files::has_terraform(self.tree, dir))
            .map(|dir| {
                let id = ProjectId { dir: dir.clone(), workspace: DEFAULT_WORKSPACE.to_owned(), name: None };
                ProjectConfig { id, ..self.unlisted.clone() }
            })
            .collect();
        for project in projects.iter().chain(&unlisted) {
            dirs.extend(project.link.clone());
            match self.inputs_of(project) {
                Ok(inputs) => dirs.extend(inputs.with_arguments(arguments).reads().dirs()),
                Err(_) => dirs.push(".".to_owned()),
            }
        }
        let real: Vec<String> = dirs.iter().filter_map(|dir| self.tree.resolve(dir)).map(|real| real.path).collect();
        dirs.extend(real);
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Returns the distribution that reads a project's files.
    pub fn distribution(&self, project: &ProjectConfig) -> Distribution {
        project.distribution.unwrap_or(self.default_distribution)
    }

    /// Checks the flags that select the projects whose users are planned. The error is for people.
    pub fn check_modules_from(&self) -> Result<(), String> {
        self.modules_from.as_ref().map(drop).map_err(Clone::clone)
    }

    fn file_list(&self) -> Result<&Patterns, String> {
        self.file_list.as_ref().map_err(Clone::clone)
    }

    fn modules(&self, which: Distribution) -> &Modules {
        match which {
            Distribution::Terraform => &self.terraform,
            Distribution::OpenTofu => &self.opentofu,
        }
    }

    /// Returns the directories of the local modules that are called from a directory, directly or not.
    fn modules_of(&self, dir: &str, which: Distribution) -> BTreeSet<String> {
        self.modules(which).calls.borrow_mut().closure(self.tree, dir)
    }

    /// Returns the users of modules, to be planned when one changes; absent if no users are planned.
    fn users_of_modules(&self, which: Distribution) -> Result<Option<&ModuleIndex>, String> {
        let Some(from) = self.modules_from.as_ref().map_err(Clone::clone)? else { return Ok(None) };
        let modules = self.modules(which);
        Ok(Some(modules.users.get_or_init(|| {
            let dirs = self.dirs.get_or_init(|| self.tree.dirs());
            ModuleIndex::build(self.tree, dirs, from, &mut modules.calls.borrow_mut())
        })))
    }
}

/// The inputs of one project.
pub struct Inputs<'g> {
    graph: &'g InputGraph<'g>,
    project: &'g ProjectConfig,
    /// Its `when_modified`; empty for an unlisted project.
    globs: Patterns,
    /// Arguments of a comment.
    arguments: Vec<String>,
    reads: OnceCell<FileReads>,
}

impl Inputs<'_> {
    /// Returns the directories of the local modules that it calls, directly or not.
    pub fn modules(&self) -> BTreeSet<String> {
        self.graph.modules_of(&self.project.id.dir, self.graph.distribution(self.project))
    }

    /// Returns true if autoplan selects the listed project for these changed files. One of them matches its globs or touches its Terragrunt
    /// unit; or its code or workflow names one that they do not exclude; or one is in a module of it and users of modules are planned.
    /// The error is for people.
    pub fn are_planned_for(&self, changed: &[String]) -> Result<bool, String> {
        if self.globs.match_any(changed) || self.graph.unit_is_touched(self.project, changed)? {
            return Ok(true);
        }
        // Code is parsed only if a file changed that could be read.
        let is_named = |file: &String| !self.globs.exclude(file) && self.reads().name(file);
        if changed.iter().filter(|file| !is_configuration(file)).any(is_named) {
            return Ok(true);
        }
        let users = self.graph.users_of_modules(self.graph.distribution(self.project))?;
        Ok(users.is_some_and(|users| users.is_touched(&self.project.id.dir, changed)))
    }

    /// Returns true if any of these changed files is an input. Its globs match one (for an unlisted project: the file list and its
    /// location), its code may read one, its Terragrunt unit has one, or one is in the file list and in a module. The error is for people.
    pub fn contain_any(&self, changed: &[String]) -> Result<bool, String> {
        let (file_list, modules) = (self.graph.file_list()?, self.modules());
        if changed.iter().any(|file| file_list.matches(file) && modules.contains(parent(file))) {
            return Ok(true);
        }
        let may_be_more = !changed.is_empty() && self.graph.may_read_more(self.project);
        if may_be_more || self.graph.unit_is_touched(self.project, changed)? {
            return Ok(true);
        }
        if changed.iter().any(|file| self.reads().may_contain(file)) {
            return Ok(true);
        }
        if !self.project.when_modified.is_empty() {
            return Ok(self.globs.match_any(changed));
        }
        let dirs_of = |file: &String| files::dirs_of(file, self.graph.tree, None);
        let own = |file: &&String| file_list.matches(file) && !files::is_excluded(file);
        Ok(changed.iter().filter(own).any(|file| dirs_of(file).contains(&self.project.id.dir)))
    }
}

/// Returns true if a file is configuration of Terraform by its name. Calls that read such a file are not searched for.
fn is_configuration(file: &str) -> bool {
    INDICATOR_SUFFIXES.iter().any(|suffix| file.ends_with(suffix))
}

/// Returns true if Terragrunt reads a file, by the end of its name.
fn is_hcl(file: &str) -> bool {
    file.ends_with(".hcl") || file.ends_with(".hcl.json")
}
