//! Projects that no repo config lists: the directories of changed Terraform files.

use super::hcl::cloud_workspace;
use super::modules::ModuleIndex;
use super::patterns::Patterns;
use super::{Facts, Refusal, Tree};
use crate::config::global::{Autodiscover, AutodiscoverMode};
use crate::config::paths::{Glob, clean, parent};
use crate::config::{ConfigError, DEFAULT_WORKSPACE, ProjectConfig, workspace_problem};
use crate::domain::ProjectId;
use std::cell::OnceCell;
use std::collections::HashSet;

/// Files that make a directory a project, by name.
pub const INDICATOR_NAMES: [&str; 1] = ["terragrunt.hcl"];
/// Files that make a directory a project, by the end of their name.
pub const INDICATOR_SUFFIXES: [&str; 4] = [".tf", ".tf.json", ".tofu", ".tofu.json"];
/// Files with this in their name never cause a plan.
const EXCLUDED: [&str; 3] = ["terraform.tfstate", "terraform.tfstate.backup", "tflint.hcl"];

/// Whether a directory directly contains files for Terraform, OpenTofu or Terragrunt.
pub fn has_terraform(tree: &dyn Tree, dir: &str) -> bool {
    tree.files(dir).iter().any(|name| {
        INDICATOR_NAMES.contains(&name.as_str()) || INDICATOR_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
    })
}

/// Directories of a tree, which is walked once, for the first glob.
pub struct Directories<'a> {
    tree: &'a dyn Tree,
    all: OnceCell<Vec<String>>,
}

impl<'a> Directories<'a> {
    /// Nothing is looked at yet.
    pub fn new(tree: &'a dyn Tree) -> Directories<'a> {
        Directories { tree, all: OnceCell::new() }
    }

    /// Directories with Terraform files that a glob `dir` of the repo config stands for; none for a wrong glob. The root has no
    /// name: only `**` stands for it. Links to directories of the tree count as directories.
    pub fn matching(&self, glob: &str) -> Vec<String> {
        let for_root = clean(glob).split('/').all(|part| part == "**");
        let Ok(glob) = Glob::new(glob) else { return Vec::new() };
        let matches = |dir: &str| if dir == "." { for_root } else { glob.matches(dir) };
        let all = self.all.get_or_init(|| self.tree.dirs_and_links());
        let mut dirs: Vec<String> =
            all.iter().filter(|dir| matches(dir) && has_terraform(self.tree, dir)).cloned().collect();
        dirs.sort();
        dirs
    }
}

/// Whether directories that nobody listed are planned. The server's word is above the repository's, that above the flag's.
pub(super) fn is_on(facts: &Facts<'_>) -> bool {
    let mode = effective(facts).map_or(facts.options.autodiscover_mode, |block| block.mode);
    match mode {
        AutodiscoverMode::Enabled => true,
        AutodiscoverMode::Disabled => false,
        AutodiscoverMode::Auto => {
            facts.repo_config.is_none_or(|config| config.projects.is_empty() && config.other_branch_dirs.is_empty())
        }
    }
}

fn effective<'a>(facts: &Facts<'a>) -> Option<&'a Autodiscover> {
    facts.rules.autodiscover.as_ref().or_else(|| facts.repo_config?.autodiscover.as_ref())
}

/// Whether `ignore_paths` names the directory; the server's list if it has one, else the repository's.
pub(super) fn is_ignored(facts: &Facts<'_>, dir: &str) -> Result<bool, Refusal> {
    let server = facts.rules.autodiscover.as_ref().and_then(|block| block.ignore_paths.as_ref());
    let repo = facts.repo_config.and_then(|config| config.autodiscover.as_ref()?.ignore_paths.as_ref());
    for glob in server.or(repo).into_iter().flatten() {
        if Glob::new(glob).map_err(|error| config_error(format!("autodiscover.ignore_paths: {error}")))?.matches(dir) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Projects of the changed files, without directories that the repo config lists.
pub(super) fn projects(facts: &Facts<'_>, index: Option<&ModuleIndex>) -> Result<Vec<ProjectConfig>, Refusal> {
    let file_list = file_list(facts)?;
    let listed: HashSet<&str> = facts
        .repo_config
        .into_iter()
        .flat_map(|config| {
            let elsewhere = config.other_branch_dirs.iter().map(String::as_str);
            config.projects.iter().map(|project| project.id.dir.as_str()).chain(elsewhere)
        })
        .collect();
    let mut seen = HashSet::new();
    let mut projects = Vec::new();
    for file in facts.modified.iter().filter(|file| file_list.matches(file) && !is_excluded(file)) {
        for dir in dirs_of(file, facts.tree, index) {
            if !seen.insert(dir.clone()) || listed.contains(dir.as_str()) || !facts.tree.is_dir(&dir) {
                continue;
            }
            if !is_ignored(facts, &dir)? {
                projects.push(unlisted(facts, &dir, None)?);
            }
        }
    }
    Ok(projects)
}

/// `--autoplan-file-list`, compiled.
pub(super) fn file_list(facts: &Facts<'_>) -> Result<Patterns, Refusal> {
    Patterns::new(&facts.options.autoplan_file_list)
        .map_err(|error| config_error(format!("--autoplan-file-list: {error}; an operator has to fix it")))
}

pub(super) fn is_excluded(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    EXCLUDED.iter().any(|excluded| name.contains(excluded))
}

/// The project directories that a changed file belongs to.
pub(super) fn dirs_of(file: &str, tree: &dyn Tree, index: Option<&ModuleIndex>) -> Vec<String> {
    let dir = parent(file);
    if dir.rsplit('/').next() == Some("env") {
        return vec![parent(dir).to_owned()];
    }
    let mut parts = dir.split('/');
    if !parts.clone().any(|part| part == MODULES) {
        return vec![dir.to_owned()];
    }
    let above = clean(&parts.by_ref().take_while(|part| *part != MODULES).collect::<Vec<_>>().join("/"));
    if has_terraform(tree, &above) {
        return vec![above];
    }
    // A module is planned through those who use it; modules between are no projects.
    let users = index.into_iter().flat_map(|index| index.dependents(dir));
    users.filter(|user| user.split('/').all(|part| part != MODULES)).map(str::to_owned).collect()
}

/// Name of the directories that hold modules, not projects.
const MODULES: &str = "modules";

/// A project that the repo config does not list: what the rules say, in the workspace that its files or the command name.
pub(super) fn unlisted(facts: &Facts<'_>, dir: &str, workspace: Option<&str>) -> Result<ProjectConfig, Refusal> {
    let workspace = match workspace {
        Some(workspace) => workspace.to_owned(),
        None => cloud_workspace(facts.tree, dir, facts.options.default_distribution)
            .unwrap_or_else(|| DEFAULT_WORKSPACE.to_owned()),
    };
    if let Some(problem) = workspace_problem(&workspace) {
        return Err(config_error(format!(
            "{dir}: the workspace name {workspace:?} is not valid: {problem}; change it in the `cloud` block"
        )));
    }
    let id = ProjectId { dir: dir.to_owned(), workspace, name: None };
    Ok(ProjectConfig::from_rules(id, facts.rules))
}

pub(super) fn config_error(message: String) -> Refusal {
    Refusal::Config(ConfigError(message))
}
