//! Selects the projects that a command runs on, and their order. Pure: it reads the repository through [`Tree`], and the inputs of projects
//! through [`InputGraph`].

mod deleted;
pub mod discover;
mod names;
mod narrow;
mod order;
mod scope;
mod target;
#[cfg(test)]
mod tests;
mod typed_names;
mod whole;

pub use deleted::{Deletions, KeptDirectory, deletions, emptied, kept_by_broken_config, planned_deletions};
pub use discover::Directories;
pub use names::named_now;
pub use whole::for_branch;

use crate::config::global::{AutodiscoverMode, RepoRules};
use crate::config::paths::parent;
use crate::config::repo::RepoConfig;
use crate::config::{ConfigError, ProjectConfig};
use crate::domain::command::{Command, CommandName};
use crate::domain::ownership::ChangedProject;
use crate::domain::{Distribution, ProjectId};
use crate::inputs::{Dependencies, InputGraph, InputRules, Tree};
use discover::config_error;
use std::collections::{BTreeMap, BTreeSet};

/// Inputs of a schedule.
pub struct Facts<'a> {
    /// The rules of the repository.
    pub rules: &'a RepoRules,
    /// Its repo config, if it has one.
    pub repo_config: Option<&'a RepoConfig>,
    /// Files that the pull request changes.
    pub modified: &'a [String],
    /// Its tree.
    pub tree: &'a dyn Tree,
    /// Server flags.
    pub options: &'a ScheduleOptions,
    /// The repo config before and after the pull request, if it changes that file.
    pub config_change: Option<ConfigChange<'a>>,
    /// Projects that were applied in this pull request, in mode `strict`.
    pub applied: &'a [ProjectId],
    /// Projects that the pull request deletes; absent if none is looked for.
    pub deletions: Option<&'a Deletions>,
}

/// Change of the repo config by a pull request.
#[derive(Debug, Clone, Copy)]
pub struct ConfigChange<'a> {
    /// Repo config on the base branch.
    pub base: &'a RepoConfig,
    /// Repo config in the pull request.
    pub head: &'a RepoConfig,
}

impl<'a> Facts<'a> {
    /// Returns the inputs of the tree's projects.
    fn graph(&self) -> InputGraph<'a> {
        InputGraph::new(self.tree, self.options.input_rules(self.rules))
    }
}

/// Server flags that a schedule depends on.
#[derive(Debug, Clone)]
pub struct ScheduleOptions {
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

impl ScheduleOptions {
    /// Returns the options that decide the inputs of a project, in a repository with these rules.
    pub fn input_rules<'a>(&'a self, rules: &'a RepoRules) -> InputRules<'a> {
        InputRules {
            file_list: &self.autoplan_file_list,
            modules_from: &self.autoplan_modules_from,
            default_distribution: self.default_distribution,
            rules,
        }
    }
}

/// Projects in execution order.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Groups in ascending `execution_order_group`. Each project comes after its [`Self::dependencies`]; otherwise the order is stable.
    pub groups: Vec<Vec<ProjectConfig>>,
    /// True if projects of a group may be planned in parallel.
    pub parallel_plan: bool,
    /// True if projects of a group may be applied in parallel.
    pub parallel_apply: bool,
    /// Automerge setting of the repo config.
    pub automerge: Option<bool>,
    /// True if later groups do not start after a failed one.
    pub abort_on_execution_order_fail: bool,
    /// For Terragrunt units, and by `depends_on` in mode `strict`: the projects here that each depends on, directly or not.
    pub dependencies: BTreeMap<ProjectId, BTreeSet<ProjectId>>,
    /// The same for units, with dependencies that are not projects of this schedule.
    pub units: BTreeMap<ProjectId, Dependencies>,
    /// Remarks for people on the selection and order of projects.
    pub remarks: Vec<String>,
    /// All projects that the pull request changes, selected or not. Only for a plan, if a project is in mode `strict` or may only be
    /// applied once all are planned.
    pub changed: Vec<ChangedProject>,
}

/// Reason for which there is no schedule. Texts are for people and may contain names of files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSchedule {
    /// The target is wrong: `no project with name 'x'; there are: a, b`.
    #[error("{0}")]
    Target(String),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A refusal without an answer: under `--silence-no-projects`, where Atlantis does not answer.
    #[error("")]
    Silent,
}

/// Selects projects for `plan` (autoplan or comment), `import` and `state rm`, as Atlantis does.
pub fn for_plan(command: &Command, facts: &Facts<'_>) -> Result<Schedule, NoSchedule> {
    let exactly = &command.target.exactly;
    let chooses_changed = !command.target.names_some();
    let mut changes = match chooses_changed || scope::may_want_changed(facts) {
        true => modified(facts)?,
        false => Vec::new(),
    };
    let (reverted, mut remarks) = scope::reverted(command, &changes, facts);
    changes.extend(reverted.iter().cloned());
    let changed = scope::changed(&changes);
    let mut projects = if chooses_changed {
        narrow::narrow(changes, &command.target, facts)?
    } else {
        target::resolve(command, facts)?
    };
    if command.target.is_all() {
        remarks.extend(scope::deleted(command, facts));
        remarks.extend(facts.deletions.into_iter().flat_map(|deletions| deletions.remarks(&[])));
        remarks.extend(discover::unreadable(facts.tree, facts.modified.iter().map(|file| parent(file))));
    } else {
        remarks.clear();
        // The destroy that a person named before is not planned again.
        let again = facts.deletions.into_iter().filter(|_| !exactly.is_empty());
        remarks.extend(again.flat_map(|deletions| deletions.remarks(exactly)));
    }
    if chooses_changed && command.trigger.is_unasked() {
        projects.retain(|project| project.autoplan_enabled || reverted.contains(project));
    }
    if !exactly.is_empty() {
        let all: Vec<ProjectId> = projects.iter().map(|project| project.id.clone()).collect();
        projects.retain(|project| exactly.iter().any(|asked| names::is_meant(asked, &project.id, &all)));
    }
    if command.name == CommandName::Import && projects.len() > 1 {
        return Err(target::ambiguous(facts, command, &projects, "import cannot run on multiple projects; name one"));
    }
    let made = schedule(projects, facts)?;
    remarks.extend(made.remarks);
    Ok(Schedule { changed, remarks, ..made })
}

/// Returns the effective config of projects that were planned earlier, for `apply`, `version`: configured ones by name or dir and
/// workspace, others with the rules' defaults. The command's target narrows them. A target that no planned project matches yields the
/// project that `for_plan` would choose, so that the refusal can name it.
pub fn for_planned(command: &Command, planned: &[ProjectId], facts: &Facts<'_>) -> Result<Schedule, NoSchedule> {
    let projects = match command.target.names_some() {
        false => planned.iter().map(|id| configured(id, facts)).collect(),
        true => target::among(command, planned, facts)?,
    };
    schedule(narrow::narrow(projects, &command.target, facts)?, facts)
}

/// Returns the effective config of one planned project, even if no repo config lists it now.
fn configured(id: &ProjectId, facts: &Facts<'_>) -> ProjectConfig {
    let mut deleted = facts.deletions.into_iter().flat_map(|deletions| &deletions.projects);
    if let Some(deleted) = deleted.find(|project| project.id == *id) {
        return deleted.clone();
    }
    let listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    let mut same = listed.filter(|project| project.id == *id);
    same.next().cloned().unwrap_or_else(|| ProjectConfig::from_rules(id.clone(), facts.rules))
}

/// Returns the projects that the pull request's files change: listed ones in the file's order, then discovered ones.
fn modified(facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let graph = facts.graph();
    graph.check_modules_from().map_err(config_error)?;
    let mut projects = Vec::new();
    for project in facts.repo_config.into_iter().flat_map(|config| &config.projects) {
        let inputs = graph.inputs_of(project).map_err(|error| {
            config_error(format!("project `{}`: autoplan.when_modified: {error}", project.id.label()))
        })?;
        let is_touched = inputs.are_planned_for(facts.modified).map_err(config_error)?;
        if (is_touched || scope::is_configured_anew(project, facts)) && discover::is_there(facts.tree, &project.id.dir)
        {
            projects.push(project.clone());
        }
    }
    if discover::is_on(facts) {
        projects.extend(discover::projects(facts, &graph)?);
    }
    if let Some(why) = graph.units_exceed() {
        return Err(config_error(why));
    }
    if let Some(deletions) = facts.deletions {
        projects.retain(|project| !deletions.contain(&project.id));
        projects.extend(deletions.projects.iter().cloned());
    }
    Ok(projects)
}

/// Puts projects in groups. The order within a group stays, except for projects that depend on each other. Deleted projects come last, and
/// their groups in descending order.
fn schedule(mut projects: Vec<ProjectConfig>, facts: &Facts<'_>) -> Result<Schedule, NoSchedule> {
    let graph = facts.graph();
    for project in projects.iter_mut().filter(|project| !project.deleted) {
        project.terragrunt = graph.is_unit(project);
        project.shares_state = names::shares_state(&project.id, facts);
    }
    let units = projects.iter().filter(|project| project.terragrunt).map(|project| project.id.clone());
    let units = order::units(&graph, units)?;
    let (mut dependencies, mut remarks) = (order::dependencies(&units)?, order::remarks(&graph, &units));
    remarks.extend(discover::remarks_on_links(&projects));
    order::add_named(&projects, &mut dependencies)?;
    let mut groups: BTreeMap<(bool, i128), Vec<ProjectConfig>> = BTreeMap::new();
    for project in projects {
        let group = i128::from(project.execution_order_group);
        groups.entry((project.deleted, if project.deleted { -group } else { group })).or_default().push(project);
    }
    let config = facts.repo_config;
    Ok(Schedule {
        groups: groups.into_values().flat_map(|group| order::layers(group, &dependencies, &units)).collect(),
        parallel_plan: config.and_then(|config| config.parallel_plan).unwrap_or(facts.options.parallel_plan),
        parallel_apply: config.and_then(|config| config.parallel_apply).unwrap_or(facts.options.parallel_apply),
        automerge: config.and_then(|config| config.automerge),
        abort_on_execution_order_fail: config.is_some_and(|config| config.abort_on_execution_order_fail),
        dependencies,
        units,
        remarks,
        changed: Vec::new(),
    })
}
