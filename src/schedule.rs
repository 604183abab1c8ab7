//! Which projects a command runs on, in which order. Pure: it sees the repository through [`Tree`].

pub mod discover;
mod hcl;
pub mod modules;
pub mod patterns;
pub mod providers;
mod target;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tree;

pub use discover::{Directories, INDICATOR_NAMES, INDICATOR_SUFFIXES, has_terraform};
pub use hcl::required_versions;
pub use modules::module_dirs;

use crate::config::global::{AutodiscoverMode, RepoRules};
use crate::config::paths::parent;
use crate::config::repo::RepoConfig;
use crate::config::{ConfigError, ProjectConfig};
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::{Distribution, ProjectId};
use discover::config_error;
use modules::ModuleIndex;
use patterns::Patterns;
use std::collections::BTreeMap;

/// A checked-out repository as discovery sees it. Paths are relative to the root, with `/`, `.` for the root.
pub trait Tree {
    /// Whether the directory exists, inside the tree.
    fn is_dir(&self, dir: &str) -> bool;
    /// Names of the files directly in a directory.
    fn files(&self, dir: &str) -> Vec<String>;
    /// All directories, without `.git`, `.terraform` and `.terragrunt-cache`.
    fn dirs(&self) -> Vec<String>;
    /// The same, and what links to directories inside the tree lead to, by the paths that lead there; no path goes in circles.
    fn dirs_and_links(&self) -> Vec<String> {
        self.dirs()
    }
    /// A file's text, if it is there, is inside the tree, and has at most 1 MiB of UTF-8.
    fn read(&self, path: &str) -> Option<String>;
}

/// All that a schedule is made of.
pub struct Facts<'a> {
    /// The rules of the repository.
    pub rules: &'a RepoRules,
    /// Its repo config, if it has one.
    pub repo_config: Option<&'a RepoConfig>,
    /// Files that the pull request changes.
    pub modified: &'a [String],
    /// Its tree.
    pub tree: &'a dyn Tree,
    /// Flags.
    pub options: &'a Options,
}

/// Flags that matter here.
#[derive(Debug, Clone)]
pub struct Options {
    /// First word of the commands that messages offer.
    pub executable: String,
    /// `--default-tf-distribution`.
    pub default_distribution: Distribution,
    /// `--autodiscover-mode`.
    pub autodiscover_mode: AutodiscoverMode,
    /// `--autoplan-file-list`.
    pub autoplan_file_list: Vec<String>,
    /// `--autoplan-modules-from-projects`, already resolved with `--autoplan-modules`; empty: off.
    pub autoplan_modules_from: Vec<String>,
    /// `--enable-regexp-cmd`.
    pub enable_regexp_cmd: bool,
    /// `--restrict-file-list`.
    pub restrict_file_list: bool,
    /// `--silence-no-projects`.
    pub silence_no_projects: bool,
    /// `--parallel-plan`.
    pub parallel_plan: bool,
    /// `--parallel-apply`.
    pub parallel_apply: bool,
}

/// Projects in execution order.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Groups in ascending `execution_order_group`; stable within.
    pub groups: Vec<Vec<ProjectConfig>>,
    /// Projects of a group may be planned at the same time.
    pub parallel_plan: bool,
    /// Projects of a group may be applied at the same time.
    pub parallel_apply: bool,
    /// After a failed group the later ones do not start.
    pub abort_on_execution_order_fail: bool,
}

/// Why there is no schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// For people: `no project with name 'x'; there are: a, b`. Nothing at all is said under `--silence-no-projects` where Atlantis is silent.
    Target(String),
    /// The configuration is wrong.
    Config(ConfigError),
    /// To be passed over in silence.
    Silent,
}

/// Projects for `plan` (autoplan or comment), `import` and `state rm`, chosen as Atlantis does.
pub fn for_plan(command: &Command, facts: &Facts<'_>) -> Result<Schedule, Refusal> {
    let mut projects = match command.target.is_all() {
        true => modified(facts)?,
        false => target::resolve(command, facts)?,
    };
    if command.target.is_all() && command.trigger == Trigger::Autoplan {
        projects.retain(|project| project.autoplan_enabled);
    }
    if command.name == CommandName::Import && projects.len() > 1 {
        return Err(target::ambiguous(facts, command, &projects, "import cannot run on multiple projects; name one"));
    }
    Ok(schedule(projects, facts))
}

/// Effective config of projects that were planned earlier, for `apply`, `version`: configured ones by name or dir and workspace,
/// others with the rules' defaults. Narrowed by the command's target; a target that no planned project matches yields the project
/// that `for_plan` would choose, so that the refusal can name it.
pub fn for_planned(command: &Command, planned: &[ProjectId], facts: &Facts<'_>) -> Result<Schedule, Refusal> {
    let chosen = target::among(command, planned, facts)?;
    let projects = match chosen {
        Some(ids) => ids.into_iter().map(|id| configured(id, facts)).collect(),
        None => target::resolve(command, facts)?,
    };
    Ok(schedule(projects, facts))
}

/// Whether these changed files would make this project plan: through its `when_modified`, or the file list for one that nobody
/// listed, or one of its local modules. For the `undiverged` requirement.
pub fn touched_by(project: &ProjectConfig, changed: &[String], facts: &Facts<'_>) -> bool {
    let dir = project.id.dir.as_str();
    let modules = module_dirs(facts.tree, dir, distribution(project, facts));
    let Ok(file_list) = discover::file_list(facts) else { return true };
    let of_modules = |file: &String| file_list.matches(file) && modules.iter().any(|module| module == parent(file));
    if changed.iter().any(of_modules) {
        return true;
    }
    if project.when_modified.is_empty() {
        let own = |file: &&String| file_list.matches(file) && !discover::is_excluded(file);
        return changed
            .iter()
            .filter(own)
            .any(|file| discover::dirs_of(file, facts.tree, None).iter().any(|of| of == dir));
    }
    // A pattern that does not compile cannot say that nothing changed.
    Patterns::relative_to(dir, &project.when_modified).map_or(true, |patterns| patterns.match_any(changed))
}

/// The effective config of one planned project, whatever the file says by now.
fn configured(id: &ProjectId, facts: &Facts<'_>) -> ProjectConfig {
    let listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    let mut same = listed.filter(|project| project.id == *id);
    same.next().cloned().unwrap_or_else(|| ProjectConfig::from_rules(id.clone(), facts.rules))
}

/// What reads a project's files.
fn distribution(project: &ProjectConfig, facts: &Facts<'_>) -> Distribution {
    project.distribution.unwrap_or(facts.options.default_distribution)
}

/// Projects that the pull request's files change: listed ones in the file's order, then discovered ones.
fn modified(facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, Refusal> {
    let listed = facts.repo_config.map(|config| config.projects.as_slice()).unwrap_or_default();
    let default = facts.options.default_distribution;
    let is_of_other = |project: &ProjectConfig| distribution(project, facts) != default;
    let index = module_index(facts, default)?;
    let index_of_other = match listed.iter().any(is_of_other) {
        true => module_index(facts, default.other())?,
        false => None,
    };
    let mut projects = Vec::new();
    for project in listed {
        let index = if is_of_other(project) { &index_of_other } else { &index };
        let dir = project.id.dir.as_str();
        let patterns = Patterns::relative_to(dir, &project.when_modified).map_err(|error| {
            config_error(format!("project `{}`: autoplan.when_modified: {error}", project.id.label()))
        })?;
        let touched = patterns.match_any(facts.modified)
            || index.as_ref().is_some_and(|index| index.is_touched(dir, facts.modified));
        if touched && facts.tree.is_dir(dir) {
            projects.push(project.clone());
        }
    }
    if discover::is_on(facts) {
        projects.extend(discover::projects(facts, index.as_ref())?);
    }
    Ok(projects)
}

fn module_index(facts: &Facts<'_>, which: Distribution) -> Result<Option<ModuleIndex>, Refusal> {
    let from = &facts.options.autoplan_modules_from;
    if from.is_empty() {
        return Ok(None);
    }
    let patterns = Patterns::new(from).map_err(|error| {
        config_error(format!("--autoplan-modules-from-projects: {error}; an operator has to fix it"))
    })?;
    Ok(Some(ModuleIndex::build(facts.tree, &patterns, which)))
}

/// Puts projects in groups; their order within a group stays.
fn schedule(projects: Vec<ProjectConfig>, facts: &Facts<'_>) -> Schedule {
    let mut groups: BTreeMap<i64, Vec<ProjectConfig>> = BTreeMap::new();
    for project in projects {
        groups.entry(project.execution_order_group).or_default().push(project);
    }
    let config = facts.repo_config;
    Schedule {
        groups: groups.into_values().collect(),
        parallel_plan: config.and_then(|config| config.parallel_plan).unwrap_or(facts.options.parallel_plan),
        parallel_apply: config.and_then(|config| config.parallel_apply).unwrap_or(facts.options.parallel_apply),
        abort_on_execution_order_fail: config.is_some_and(|config| config.abort_on_execution_order_fail),
    }
}
