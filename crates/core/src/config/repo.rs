//! The repo config, `atlantis.yaml`: read from the pull request and checked against the [`RepoRules`].

mod project;
#[cfg(test)]
mod tests;

use super::blanked::schema_errors_of;
use super::checks;
use super::errors::all;
use super::global::{Autodiscover, RepoRules};
use super::raw::{LocatedText, RawRepoConfig};
use super::workflow::Workflow;
use super::workflow::raw::RawWorkflows;
use super::yaml::{decode, error_at, quoted};
use super::{ConfigError, ConfigErrors, LockMode, ProjectConfig};
use crate::domain::command::CommandName;
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Default names of the file; the first that exists is read.
pub const DEFAULT_FILES: [&str; 2] = ["atlantis.yaml", "tidelock.yaml"];
/// Most projects of a repository, after expanding globs.
pub const MAX_PROJECTS: usize = 5_000;

/// Directories of a tree, as far as a repo config names them.
pub trait NamedDirectories {
    /// Returns the directories with Terraform files that a glob `dir` matches, by the paths that match it.
    fn matching(&self, glob: &str) -> Vec<String>;
    /// Returns the path without links; absent if it leads out of the tree or in a circle.
    fn real(&self, dir: &str) -> Option<String> {
        Some(dir.to_owned())
    }
}

impl<F: Fn(&str) -> Vec<String>> NamedDirectories for F {
    fn matching(&self, glob: &str) -> Vec<String> {
        self(glob)
    }
}

/// The checked file. `projects` are effective: globs are expanded, and projects for other base branches are dropped.
#[derive(Debug, Clone, Default)]
pub struct RepoConfig {
    /// Projects in the order of the file.
    pub projects: Vec<ProjectConfig>,
    /// For each project, the index of its entry of `projects` in the file, from 0.
    pub entries: Vec<usize>,
    /// Directories of projects for other base branches, which are not discovered on this one.
    pub other_branch_dirs: Vec<String>,
    /// `autodiscover`.
    pub autodiscover: Option<Autodiscover>,
    /// `automerge`.
    pub automerge: Option<bool>,
    /// `parallel_plan`.
    pub parallel_plan: Option<bool>,
    /// `parallel_apply`.
    pub parallel_apply: Option<bool>,
    /// `abort_on_execution_order_fail`.
    pub abort_on_execution_order_fail: bool,
    /// `allowed_regexp_prefixes`.
    pub allowed_regexp_prefixes: Vec<String>,
}

/// Returns the path of the repo config, if there is one. An `atlantis.yml` is an error: Atlantis does not read it.
pub fn find(rules: &RepoRules, exists: &dyn Fn(&str) -> bool) -> Result<Option<String>, ConfigError> {
    if let Some(file) = &rules.repo_config_file {
        return Ok(exists(file).then(|| file.clone()));
    }
    for file in DEFAULT_FILES {
        let wrong = file.replace(".yaml", ".yml");
        if exists(&wrong) {
            return Err(ConfigError(format!("{wrong} is not read: rename it to {file}, with the .yaml extension")));
        }
    }
    Ok(DEFAULT_FILES.into_iter().find(|file| exists(file)).map(str::to_owned))
}

/// Returns all errors of the file's keys and types, of which [`parse`] returns the first. It takes several passes over the file.
pub fn schema_errors(text: &str, file: &str) -> ConfigErrors {
    schema_errors_of::<RawRepoConfig>(text, file)
}

/// Parses YAML. Every project has its real directory.
///
/// # Errors
///
/// All errors of the file, or the first one of its YAML, keys and types.
pub fn parse(
    text: &str,
    file: &str,
    rules: &RepoRules,
    base_branch: &str,
    directories: &dyn NamedDirectories,
) -> Result<RepoConfig, ConfigErrors> {
    let raw: RawRepoConfig = decode(text, file)?.unwrap_or_default();
    let mut errors = ConfigErrors::default();
    let version = errors.take(version(raw.version.as_ref(), file)).unwrap_or(Version::Three);
    let root = root(&raw, rules, file, &mut errors);
    let workflows = custom_workflows(raw.workflows, version, rules, file, &mut errors);
    let context = project::ProjectContext { file, rules, base_branch, directories, root: &root, workflows: &workflows };
    let project::ListedProjects { projects, entries, other_branch_dirs } =
        context.projects(&raw.projects.unwrap_or_default(), &mut errors);
    let autodiscover = errors.key(raw.autodiscover.as_ref().map(|block| checks::autodiscover(block, file)));
    errors.none_or(RepoConfig {
        projects,
        entries,
        other_branch_dirs,
        autodiscover,
        automerge: raw.automerge,
        parallel_plan: raw.parallel_plan,
        parallel_apply: raw.parallel_apply,
        abort_on_execution_order_fail: raw.abort_on_execution_order_fail.unwrap_or_default(),
        allowed_regexp_prefixes: raw.allowed_regexp_prefixes.unwrap_or_default(),
    })
}

/// Values of the root that projects inherit.
struct Root {
    delete_source_branch_on_merge: Option<bool>,
    repo_locks: Option<LockMode>,
    silence_pr_comments: Option<Vec<CommandName>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// `run` commands are split into words and joined again.
    Two,
    Three,
}

fn version(raw: Option<&LocatedText>, file: &str) -> Result<Version, ConfigError> {
    let Some(text) = raw else {
        return Err(ConfigError(format!("{file}:1:1: version is required: add `version: 3` as the first line")));
    };
    match text.value.as_str() {
        "2" => Ok(Version::Two),
        "3" => Ok(Version::Three),
        other => {
            let message =
                format!("version: only versions 2 and 3 are supported, not {}; write `version: 3`", quoted(other));
            Err(error_at(file, text, message))
        }
    }
}

/// Checks root keys, which need the same permission as keys of a project. (Atlantis ignores them without it.)
fn root(raw: &RawRepoConfig, rules: &RepoRules, file: &str, errors: &mut ConfigErrors) -> Root {
    let deletes = raw.delete_source_branch_on_merge.as_ref();
    errors.take(permitted(deletes, "delete_source_branch_on_merge", rules, file));
    errors.take(permitted(raw.repo_locks.as_ref(), "repo_locks", rules, file));
    errors.take(permitted(raw.silence_pr_comments.as_ref(), "silence_pr_comments", rules, file));
    Root {
        delete_source_branch_on_merge: deletes.map(|on| on.value),
        repo_locks: raw
            .repo_locks
            .as_ref()
            .map(|locks| errors.take(checks::lock_mode(&locks.value, file)).unwrap_or(checks::UNKNOWN_LOCKS)),
        silence_pr_comments: errors
            .key(raw.silence_pr_comments.as_ref().map(|list| checks::silenced_commands(&list.value, file))),
    }
}

/// Refuses a key that `allowed_overrides` does not name.
fn permitted<T>(node: Option<&Spanned<T>>, key: &str, rules: &RepoRules, file: &str) -> Result<(), ConfigError> {
    match node {
        Some(node) if !rules.allows_override(key) => {
            let message = format!(
                "not allowed to set `{key}` here: remove it, or have an operator set `allowed_overrides: [{key}]` for this \
                 repository in the server-side config"
            );
            Err(error_at(file, node, message))
        }
        _ => Ok(()),
    }
}

/// Returns the workflows of the file. One with an error is there too, since projects name it.
fn custom_workflows(
    raw: Option<Spanned<RawWorkflows>>,
    version: Version,
    rules: &RepoRules,
    file: &str,
    errors: &mut ConfigErrors,
) -> BTreeMap<String, Workflow> {
    let Some(raw) = raw else { return BTreeMap::new() };
    if !rules.allow_custom_workflows && !raw.value.is_empty() {
        let message = "not allowed to define custom `workflows` here: remove them, or have an operator set \
                       `allow_custom_workflows: true` for this repository in the server-side config";
        errors.add(error_at(file, &raw, message));
    }
    let mut workflows = BTreeMap::new();
    let place = Spanned::new((), raw.referenced, raw.defined);
    for (name, workflow) in raw.value {
        let mut workflow = Workflow::from_raw(workflow.unwrap_or_default(), file, errors);
        if version == Version::Two {
            errors.take(workflow.rejoin_run_commands(file, &place));
        }
        workflows.insert(name, workflow);
    }
    workflows
}

/// Checks that names, and pairs of directory and workspace, are unique. Each project comes with its position in the file.
fn check_unique(projects: &[(Spanned<()>, ProjectConfig)], file: &str) -> Result<(), ConfigErrors> {
    let mut names = HashSet::new();
    let mut places: HashMap<(&str, &str), &ProjectConfig> = HashMap::new();
    let unique = projects.iter().map(|(place, project)| {
        let id = &project.id;
        if let Some(name) = &id.name
            && !names.insert(name.as_str())
        {
            let message = format!("found two or more projects with name \"{name}\"; names must be unique");
            return Err(error_at(file, place, message));
        }
        let other = places.insert((id.dir.as_str(), id.workspace.as_str()), project);
        match other.filter(|_| id.name.is_none()) {
            Some(other) => Err(error_at(file, place, same_place(project, other))),
            None => Ok(()),
        }
    });
    all(unique).map(|_| ())
}

fn same_place(project: &ProjectConfig, other: &ProjectConfig) -> String {
    let id = &project.id;
    let written = |project: &ProjectConfig| quoted(project.link.as_ref().unwrap_or(&project.id.dir));
    let (one, two) = (written(other), written(project));
    if one != two {
        return format!(
            "`{one}` and `{two}` are one directory, by a link: \"{}\" workspace: \"{}\"; list it once, or give each project a `name`",
            quoted(&id.dir),
            id.workspace
        );
    }
    format!(
        "there are two or more projects with dir: \"{}\" workspace: \"{}\"; give each a `name`, \
         so that commands can tell them apart",
        id.dir, id.workspace
    )
}
