//! Projects whose directory a pull request deletes (`deleted_projects: destroy`). Their plans destroy everything, with the code and the
//! configuration of the base branch. A directory that seems to be moved is kept: its state may belong to the new directory.

use super::target::clip;
use super::{Facts, NoSchedule, configured, discover, names};
use crate::config::global::RepoRules;
use crate::config::paths::{join, parent};
use crate::config::{DeletedProjects, OnMerge, ProjectConfig};
use crate::domain::command::{Command, CommandName};
use crate::domain::{AutoApply, ProjectId};
use crate::inputs::{Tree, backends, has_terraform, is_project_file};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most files that are compared to find out whether a directory was moved; with more, none counts as deleted.
const MAX_COMPARED: usize = 1000;
/// Most remarks on directories.
const MAX_REMARKS: usize = 10;

/// Projects that a pull request deletes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Deletions {
    /// Effective configurations of those that are destroyed.
    pub projects: Vec<ProjectConfig>,
    /// Directories without Terraform files whose projects are not destroyed.
    pub kept: Vec<KeptDirectory>,
}

/// A directory that a pull request deletes, and whose projects are not destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDirectory {
    /// The directory.
    pub dir: String,
    /// The reason, and the next command if there is one, for people.
    pub because: String,
}

impl Deletions {
    /// Returns remarks on the directories whose projects are not destroyed.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> {
        self.kept.iter().take(MAX_REMARKS).map(|kept| kept.because.clone())
    }

    /// Returns true if one of the projects has the state of this one.
    pub(super) fn contain(&self, id: &ProjectId) -> bool {
        self.projects.iter().any(|project| project.id.is_same_state(id))
    }
}

/// Returns the directories that have lost all their Terraform files by these changes, if the rules destroy their projects. Reads the head
/// alone, so that a pull request without any costs nothing more.
pub fn emptied(rules: &RepoRules, modified: &[String], head: &dyn Tree) -> BTreeSet<String> {
    if rules.deleted_projects == DeletedProjects::Ignore {
        return BTreeSet::new();
    }
    let touched = modified.iter().filter(|file| is_project_file(name_of(file))).map(|file| parent(file));
    let touched: BTreeSet<&str> = touched.collect();
    touched.into_iter().filter(|dir| !has_terraform(head, dir)).map(str::to_owned).collect()
}

/// Returns the projects of these emptied directories. `head` has the pull request's files, and `base` the base branch with its own config.
pub fn deletions(
    command: &Command,
    emptied: &BTreeSet<String>,
    head: &Facts<'_>,
    base: &Facts<'_>,
) -> Result<Deletions, NoSchedule> {
    let was_there = |dir: &&String| has_terraform(base.tree, dir) && discover::is_there(base.tree, dir);
    let gone: BTreeSet<&str> = emptied.iter().filter(was_there).map(String::as_str).collect();
    let mut found = Deletions::default();
    if gone.is_empty() {
        return Ok(found);
    }
    let graph = base.graph();
    let listed = base.repo_config.into_iter().flat_map(|config| &config.projects);
    let mut projects: Vec<ProjectConfig> = listed.filter(|one| gone.contains(one.id.dir.as_str())).cloned().collect();
    if discover::is_on(base) {
        let unlisted = discover::projects(base, &graph)?;
        projects.extend(unlisted.into_iter().filter(|one| gone.contains(one.id.dir.as_str())));
    }
    // A hook of the operator writes a config that only the head has: the base's projects are unknown.
    let is_generated = head.repo_config.is_some()
        && base.repo_config.is_none()
        && !head.rules.repo_config_names().iter().any(|name| head.modified.iter().any(|file| file == name));
    let destroys = || command.extra_args.iter().any(|arg| is_destroy(arg));
    let is_asked = command.target.names_some() && (command.name != CommandName::Plan || destroys());
    let moves = MoveSearch::new(head, base);
    for project in projects {
        let dir = &project.id.dir;
        let because = if is_generated {
            Some(
                "a workflow hook writes the repository's configuration, so its projects on the base branch are unknown"
                    .to_owned(),
            )
        } else if graph.is_unit(&project) {
            Some("it is a unit of Terragrunt, whose order of destruction is unknown".to_owned())
        } else if is_asked {
            None
        } else {
            moves.reason(&project.id)
        };
        match because {
            None => found.projects.push(destroying(project, head, base)),
            Some(because) if found.kept.iter().all(|kept| kept.dir != *dir) => {
                let next = match is_generated || graph.is_unit(&project) {
                    true => "To destroy its resources, do so before you delete it",
                    false => "To plan its destruction nevertheless",
                };
                let because = kept_text(dir, &because, next, head);
                found.kept.push(KeptDirectory { dir: dir.clone(), because });
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

/// Returns the configurations of deleted projects that were planned in the base's tree.
pub fn planned_deletions(ids: &[ProjectId], head: &Facts<'_>, base: &Facts<'_>) -> Vec<ProjectConfig> {
    ids.iter().map(|id| destroying(configured(id, base), head, base)).collect()
}

fn kept_text(dir: &str, because: &str, next: &str, facts: &Facts<'_>) -> String {
    let (shown, executable) = (dir.replace('`', "'"), &facts.options.executable);
    let quoted = shlex::try_quote(dir).map_or_else(|_| "DIR".into(), |dir| dir.replace('`', "'"));
    format!(
        "`{shown}` has no Terraform files any more, and is not planned as a destroy: {because}. {next}: \
         `{executable} plan -d {quoted} -- -destroy`"
    )
}

/// Returns the configuration of a deleted project. Only a person applies it, after the deleted projects that depend on it.
fn destroying(project: ProjectConfig, head: &Facts<'_>, base: &Facts<'_>) -> ProjectConfig {
    let mut apply_requirements = project.apply_requirements;
    for requirement in &head.rules.destroy_requirements {
        if !apply_requirements.contains(requirement) {
            apply_requirements.push(*requirement);
        }
    }
    let listed = base.repo_config.into_iter().flat_map(|config| &config.projects);
    let is_user = |other: &&ProjectConfig| {
        project.id.name.as_ref().is_some_and(|name| other.depends_on.contains(name))
            && !has_terraform(head.tree, &other.id.dir)
    };
    ProjectConfig {
        apply_requirements,
        depends_on: listed.filter(is_user).filter_map(|user| user.id.name.clone()).collect(),
        auto_apply: AutoApply::Never,
        on_merge: OnMerge::Nothing,
        terragrunt: false,
        shares_state: names::shares_state(&project.id, base),
        deleted: true,
        ..project
    }
}

/// Returns true if an argument of a comment is the switch that destroys.
fn is_destroy(arg: &str) -> bool {
    matches!(arg, "-destroy" | "--destroy")
}

fn name_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Files that a pull request adds, to find those of moved directories.
struct MoveSearch<'a> {
    head: &'a Facts<'a>,
    base: &'a Facts<'a>,
    /// Terraform files that the base branch does not have, with their lines.
    added: Vec<(&'a str, HashSet<String>)>,
    /// Directories with changed Terraform files.
    changed: BTreeSet<&'a str>,
    is_cut: bool,
}

impl<'a> MoveSearch<'a> {
    fn new(head: &'a Facts<'a>, base: &'a Facts<'a>) -> MoveSearch<'a> {
        let files: Vec<&str> =
            head.modified.iter().map(String::as_str).filter(|file| is_project_file(name_of(file))).collect();
        let is_cut = files.len() > MAX_COMPARED;
        let present = files.into_iter().take(MAX_COMPARED).filter_map(|file| Some((file, head.tree.read(file)?)));
        let present: Vec<(&str, String)> = present.collect();
        let changed = present.iter().map(|(file, _)| parent(file)).collect();
        let is_new = |file: &str| !base.tree.files(parent(file)).iter().any(|name| name == name_of(file));
        let added = present.iter().filter(|(file, _)| is_new(file)).map(|(file, text)| (*file, lines(text))).collect();
        MoveSearch { head, base, added, changed, is_cut }
    }

    /// Returns the reason to keep the projects of a deleted directory; `None` if nothing suggests that it was moved.
    fn reason(&self, id: &ProjectId) -> Option<String> {
        let dir = id.dir.as_str();
        let mut listed = self.head.repo_config.into_iter().flat_map(|config| &config.projects);
        if let Some(other) = listed.find(|other| id.name.is_some() && other.id.name == id.name && other.id.dir != dir) {
            return Some(format!("its name is that of `{}` now, so the state may be the same", clip(&other.id.dir)));
        }
        if self.is_cut {
            return Some(format!(
                "more than {MAX_COMPARED} Terraform files changed, so it may have been moved unnoticed"
            ));
        }
        let own = backends(self.base.tree, dir);
        let takes_over =
            |other: &&&str| backends(self.head.tree, other) == own && backends(self.base.tree, other) != own;
        if let Some(other) = self.changed.iter().find(|other| !own.is_empty() && takes_over(other)) {
            return Some(format!("`{}` has the same backend now, so its state may be the same", clip(other)));
        }
        let files: Vec<String> = self.base.tree.files(dir).into_iter().filter(|name| is_project_file(name)).collect();
        let mut moved_to: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &files {
            let Some(text) = self.base.tree.read(&join(dir, name)) else { continue };
            let text = lines(&text);
            let alike: BTreeSet<&str> = (self.added.iter())
                .filter(|(_, other)| are_alike(&text, other))
                .map(|(file, _)| parent(file))
                .collect();
            for other in alike {
                *moved_to.entry(other).or_default() += 1;
            }
        }
        let (other, count) = moved_to.into_iter().max_by_key(|(_, count)| *count)?;
        (2 * count >= files.len())
            .then(|| format!("it looks moved to `{}`, which has {count} of its {} files", clip(other), files.len()))
    }
}

/// Returns the lines of a text, without indentation and empty ones.
fn lines(text: &str) -> HashSet<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns true if half of the lines of each text are in the other one.
fn are_alike(one: &HashSet<String>, other: &HashSet<String>) -> bool {
    !one.is_empty() && 2 * one.intersection(other).count() >= one.len().max(other.len())
}

/// Returns the deleted projects that a part of a target names exactly.
pub(super) fn named<'a>(facts: &Facts<'a>, is_named: impl Fn(&ProjectId) -> bool) -> Vec<&'a ProjectConfig> {
    let known = facts.deletions.into_iter().flat_map(|known| &known.projects);
    known.filter(|project| is_named(&project.id)).collect()
}
