//! Projects that no repo config lists: the directories of changed Terraform files.

use super::{Facts, NoSchedule};
use crate::config::global::{Autodiscover, AutodiscoverMode};
use crate::config::paths::{Glob, clean};
use crate::config::repo::NamedDirectories;
use crate::config::{ConfigError, DEFAULT_WORKSPACE, ProjectConfig, quoted, workspace_problem};
use crate::domain::ProjectId;
use crate::inputs::{CloudWorkspace, InputGraph, Tree, cloud_workspace, has_terraform};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

/// Most remarks on directories.
const MAX_REMARKS: usize = 10;

/// Directories of a tree, which is walked once, for the first glob.
pub struct Directories<'a> {
    tree: &'a dyn Tree,
    all: OnceCell<Vec<String>>,
}

impl<'a> Directories<'a> {
    /// Creates it; the tree is not walked yet.
    pub fn new(tree: &'a dyn Tree) -> Directories<'a> {
        Directories { tree, all: OnceCell::new() }
    }
}

impl NamedDirectories for Directories<'_> {
    /// Returns the directories that a glob matches; none if it is invalid. Only `**` matches the root. Links to directories of the tree
    /// count as directories.
    fn matching(&self, glob: &str) -> Vec<String> {
        let for_root = clean(glob).split('/').all(|part| part == "**");
        let Ok(glob) = Glob::new(glob) else { return Vec::new() };
        let matches = |dir: &str| if dir == "." { for_root } else { glob.matches(dir) };
        let all = self.all.get_or_init(|| self.tree.dirs_and_links());
        let mut dirs: Vec<String> =
            all.iter().filter(|dir| matches(dir) && has_terraform(self.tree, dir)).cloned().collect();
        dirs.sort();
        dirs
    }

    fn real(&self, dir: &str) -> Option<String> {
        self.tree.resolve(dir).map(|real| real.path)
    }
}

/// Returns true if a path is a directory of the tree, without links.
pub(super) fn is_there(tree: &dyn Tree, dir: &str) -> bool {
    tree.is_dir(dir) && tree.resolve(dir).is_some_and(|real| real.path == dir)
}

/// Returns the directory that a path resolves to; the error is for people.
pub(super) fn real_dir(tree: &dyn Tree, dir: &str) -> Result<String, NoSchedule> {
    tree.resolve(dir).map(|real| real.path).ok_or_else(|| {
        NoSchedule::Target(format!(
            "`{}` leads through a link out of the repository or in a circle; give the path of a directory of the repository",
            dir.replace('`', "'")
        ))
    })
}

/// Returns remarks on those of these directories whose names are not UTF-8, as git and the tree report them.
pub(super) fn unreadable<'d>(tree: &dyn Tree, dirs: impl Iterator<Item = &'d str>) -> Vec<String> {
    let dirs: BTreeSet<&str> =
        dirs.filter(|dir| dir.contains(char::REPLACEMENT_CHARACTER) && !tree.is_dir(dir)).collect();
    let remarks = dirs.into_iter().map(|dir| {
        let dir = dir.replace('`', "'");
        format!("The name of the directory `{dir}` is not UTF-8, so nothing is planned there: rename it.")
    });
    remarks.take(MAX_REMARKS).collect()
}

/// Returns remarks on the projects whose directory was named through a link.
pub(super) fn remarks_on_links(projects: &[ProjectConfig]) -> Vec<String> {
    let quoted = |text: &str| text.replace('`', "'");
    let linked = projects.iter().filter_map(|project| Some((project.link.as_ref()?, &project.id.dir)));
    let remarks = linked.map(|(link, dir)| {
        let (link, dir) = (quoted(link), quoted(dir));
        format!(
            "`{link}` leads through a link to `{dir}`: the project is `{dir}`, and the rules for that directory apply."
        )
    });
    remarks.take(MAX_REMARKS).collect()
}

/// Returns true if unlisted directories are planned. The server's config overrides the repository's, which overrides the flag.
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

/// Returns true if `ignore_paths` matches the directory. The server's list replaces the repository's.
pub(super) fn is_ignored(facts: &Facts<'_>, dir: &str) -> Result<bool, NoSchedule> {
    let server = facts.rules.autodiscover.as_ref().and_then(|block| block.ignore_paths.as_ref());
    let repo = facts.repo_config.and_then(|config| config.autodiscover.as_ref()?.ignore_paths.as_ref());
    for glob in server.or(repo).into_iter().flatten() {
        if Glob::new(glob).map_err(|error| config_error(format!("autodiscover.ignore_paths: {error}")))?.matches(dir) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the projects of the changed files, without directories that the repo config lists.
pub(super) fn projects(facts: &Facts<'_>, graph: &InputGraph<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
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
    for file in facts.modified {
        for dir in graph.discovered(file).map_err(config_error)? {
            if !seen.insert(dir.clone()) || listed.contains(dir.as_str()) || !is_there(facts.tree, &dir) {
                continue;
            }
            if !is_ignored(facts, &dir)? {
                projects.push(unlisted(facts, &dir, None)?);
            }
        }
    }
    Ok(projects)
}

/// Returns a project that the repo config does not list: the defaults of the rules, in the workspace that its files or the command name.
pub(super) fn unlisted(facts: &Facts<'_>, dir: &str, workspace: Option<&str>) -> Result<ProjectConfig, NoSchedule> {
    let named = || cloud_workspace(facts.tree, dir, facts.options.default_distribution);
    let workspace = match workspace {
        Some(workspace) => workspace.to_owned(),
        None => named().map_or_else(|| Ok(DEFAULT_WORKSPACE.to_owned()), valid)?,
    };
    let id = ProjectId { dir: dir.to_owned(), workspace, name: None };
    Ok(ProjectConfig::from_rules(id, facts.rules))
}

fn valid(cloud: CloudWorkspace) -> Result<String, NoSchedule> {
    let CloudWorkspace { name, file, line, column } = cloud;
    match workspace_problem(&name) {
        None => Ok(name),
        Some(problem) => Err(config_error(format!(
            "{file}:{line}:{column}: `name` in the `cloud` block: {:?} cannot be the name of a workspace: {problem}",
            quoted(&name)
        ))),
    }
}

pub(super) fn config_error(message: String) -> NoSchedule {
    NoSchedule::Config(ConfigError::short(&message))
}
