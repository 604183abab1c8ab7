//! Projects whose directory a pull request deletes (`deleted_projects: destroy`). Their plans destroy everything, with the code and the
//! configuration of the base branch. In doubt a directory is kept: its state may belong to another directory, or not be found.

mod moves;

use super::target::{clip, quoted};
use super::{Facts, NoSchedule, configured, discover, names};
use crate::config::global::RepoRules;
use crate::config::paths::{clean, parent};
use crate::config::workflow::Step;
use crate::config::{DeletedProjects, OnMerge, ProjectConfig};
use crate::domain::command::{Command, CommandName};
use crate::domain::{AutoApply, ProjectId};
use crate::inputs::{Tree, code, has_terraform, is_project_file};
use moves::{MoveSearch, left_file, unreadable};
use std::collections::BTreeSet;

/// Most bytes of code of one deleted directory.
const MAX_BYTES: usize = 8 << 20;
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
    /// Returns remarks on the directories whose projects are not destroyed. `only`: projects of these directories; empty for all.
    pub(super) fn remarks(&self, only: &[ProjectId]) -> impl Iterator<Item = String> {
        let is_meant = |kept: &&KeptDirectory| only.is_empty() || only.iter().any(|id| id.dir == kept.dir);
        self.kept.iter().filter(is_meant).take(MAX_REMARKS).map(|kept| kept.because.clone())
    }

    /// Returns true if a directory is deleted, whether its projects are destroyed or not.
    pub(super) fn tell_of(&self, dir: &str) -> bool {
        self.projects.iter().any(|project| project.id.dir == dir) || self.kept.iter().any(|kept| kept.dir == dir)
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
    // A directory that cannot be listed is not empty.
    let is_empty = |dir: &&str| !has_terraform(head, dir) && (!head.is_dir(dir) || head.names(dir).is_some());
    touched.into_iter().filter(is_empty).map(str::to_owned).collect()
}

/// Returns the projects of these emptied directories. `head` has the files that the pull request changes in git, and `base` the base branch
/// with its own config.
pub fn deletions(
    command: &Command,
    emptied: &BTreeSet<String>,
    head: &Facts<'_>,
    base: &Facts<'_>,
) -> Result<Deletions, NoSchedule> {
    let gone = gone(emptied, base.tree);
    let mut found = Deletions::default();
    if gone.is_empty() {
        return Ok(found);
    }
    let listed = names::listed(base);
    let mut projects: Vec<ProjectConfig> = listed.filter(|one| gone.contains(one.id.dir.as_str())).cloned().collect();
    if discover::is_on(base) {
        let modified: Vec<String> = head.modified.iter().filter(|file| gone.contains(parent(file))).cloned().collect();
        let unlisted = discover::projects(&Facts { modified: &modified, ..*base }, &base.graph())?;
        projects.extend(unlisted.into_iter().filter(|one| gone.contains(one.id.dir.as_str())));
    }
    let search = DeletionSearch { head, base, moves: MoveSearch::new(head, base) };
    for project in projects {
        let dir = &project.id.dir;
        let is_dispelled =
            |reason: &KeepReason| matches!(reason, KeepReason::ByName(_)) && is_asked(&project.id, command, head);
        match search.reason(&project).filter(|reason| !is_dispelled(reason)) {
            None => found.projects.push(destroying(project, head, base)),
            Some(reason) if found.kept.iter().all(|kept| kept.dir != *dir) => {
                found.kept.push(KeptDirectory { dir: dir.clone(), because: kept_text(dir, &reason, head) });
            }
            Some(_) => {}
        }
    }
    keep_together(&mut found, head, base);
    Ok(found)
}

/// Keeps the projects that kept ones depend on, and all projects of a kept directory.
fn keep_together(found: &mut Deletions, head: &Facts<'_>, base: &Facts<'_>) {
    loop {
        let Deletions { projects, kept } = &mut *found;
        projects.retain(|project| kept.iter().all(|kept| kept.dir != project.id.dir));
        let is_kept = |user: &&ProjectConfig| kept.iter().any(|kept| kept.dir == user.id.dir);
        let user_of = |name: &String| {
            let listed = names::listed(base);
            listed.filter(is_kept).find(|user| user.depends_on.contains(name))
        };
        let held = projects.iter().find_map(|project| Some((project, user_of(project.id.name.as_ref()?)?)));
        let Some((project, user)) = held else { return };
        let reason = KeepReason::Final(format!(
            "`{}` depends on it, and is not planned as a destroy either",
            clip(&user.id.label())
        ));
        let dir = project.id.dir.clone();
        let because = kept_text(&dir, &reason, head);
        found.kept.push(KeptDirectory { dir, because });
    }
}

/// Returns the emptied directories as kept ones, if the config of the base branch cannot be read. A pull request that repairs it goes on.
pub fn kept_by_broken_config(emptied: &BTreeSet<String>, base: &dyn Tree, head: &Facts<'_>) -> Deletions {
    let reason =
        KeepReason::Final("the configuration of the base branch has an error, so its projects are unknown".to_owned());
    let kept = |dir: &str| KeptDirectory { dir: dir.to_owned(), because: kept_text(dir, &reason, head) };
    Deletions { projects: Vec::new(), kept: gone(emptied, base).into_iter().map(kept).collect() }
}

/// Returns those of these directories that have Terraform files on the base branch.
fn gone<'a>(emptied: &'a BTreeSet<String>, base: &dyn Tree) -> BTreeSet<&'a str> {
    emptied.iter().map(String::as_str).filter(|dir| has_terraform(base, dir) && discover::is_there(base, dir)).collect()
}

/// Returns true if the command names this project and asks for its destruction, which only a person does.
fn is_asked(id: &ProjectId, command: &Command, head: &Facts<'_>) -> bool {
    let mut listed = names::listed(head);
    let is_named = id.name.as_ref().is_some_and(|name| command.target.projects.contains(name))
        && !listed.any(|other| other.id.name == id.name && other.id.dir != id.dir);
    let is_dir = command.target.dirs.iter().any(|dir| clean(dir) == id.dir);
    let destroys = command.name != CommandName::Plan || command.extra_args.iter().any(|arg| is_destroy(arg));
    (is_named || is_dir) && destroys
}

/// Reason to keep a deleted directory.
enum KeepReason {
    /// A person who knows better may name the directory.
    ByName(String),
    /// Its destruction cannot be planned here.
    Final(String),
}

/// Search for reasons to keep deleted directories.
struct DeletionSearch<'a> {
    head: &'a Facts<'a>,
    base: &'a Facts<'a>,
    moves: MoveSearch<'a>,
}

impl DeletionSearch<'_> {
    /// Returns the reason to keep a project; `None` if it is destroyed.
    fn reason(&self, project: &ProjectConfig) -> Option<KeepReason> {
        let (head, base, dir) = (self.head, self.base, project.id.dir.as_str());
        let refused = |because: &str| Some(KeepReason::Final(because.to_owned()));
        let is_tracked =
            || head.rules.repo_config_names().iter().any(|name| head.modified.iter().any(|file| file == name));
        let has_hooks = !head.rules.pre_workflow_hooks.is_empty();
        if base.repo_config.is_none() && (has_hooks || (head.repo_config.is_some() && !is_tracked())) {
            return refused(
                "a workflow hook may write the repository's configuration, so its projects on the base branch are unknown",
            );
        }
        if base.graph().is_unit(project) {
            return refused("it is a unit of Terragrunt, whose order of destruction is unknown");
        }
        if let Some(file) = left_file(dir, head, base) {
            let file = clip(&file);
            return Some(KeepReason::Final(format!(
                "the base branch has `{file}`, which this pull request does not delete. Merge the base branch, and delete the file"
            )));
        }
        if let Some(user) = self.remaining_user(project) {
            return Some(KeepReason::Final(format!("`{}` still depends on it, by `depends_on`", clip(&user))));
        }
        if !project.workflow.plan.iter().any(|step| matches!(step, Step::Plan { .. })) {
            return Some(KeepReason::Final(format!(
                "its workflow `{}` plans with commands of its own, which the server cannot turn into a destroy",
                clip(&project.workflow_name)
            )));
        }
        if !project.workflow.apply.iter().any(applies_plan) {
            return Some(KeepReason::Final(format!(
                "its workflow `{}` applies with commands of its own, and none of them names `$PLANFILE`",
                clip(&project.workflow_name)
            )));
        }
        let mut budget = MAX_BYTES;
        let own = match code(base.tree, dir, &mut budget) {
            Ok(own) => own,
            Err(file) => return Some(KeepReason::Final(unreadable(&file))),
        };
        if own.states.is_empty() {
            return refused(
                "its code on the base branch has no `backend` or `cloud` block, so its state would not be found",
            );
        }
        let because = self.moves.reason(project, &own).or_else(|| self.unlisted_user(project));
        let because = because.or_else(|| {
            has_hooks.then(|| "workflow hooks may write files of it, which the base branch does not have".to_owned())
        });
        because.map(KeepReason::ByName)
    }

    /// Returns a project that the pull request leaves, and that depends on this one in the head's configuration.
    fn remaining_user(&self, project: &ProjectConfig) -> Option<String> {
        let name = project.id.name.as_ref()?;
        let mut listed = names::listed(self.head);
        let user = listed.find(|user| user.depends_on.contains(name) && has_terraform(self.head.tree, &user.id.dir));
        user.map(|user| user.id.label())
    }

    /// Returns the reason to keep a project if one that depends on it on the base branch stays, and the head lists it no more.
    fn unlisted_user(&self, project: &ProjectConfig) -> Option<String> {
        let name = project.id.name.as_ref()?;
        let is_listed = |dir: &str| {
            let mut listed = names::listed(self.head);
            listed.any(|other| other.id.dir == dir)
        };
        let is_there = |dir: &str| {
            let is_touched = self.head.modified.iter().any(|file| parent(file) == dir);
            // A sparse tree has not all directories that the pull request leaves as they are.
            has_terraform(self.head.tree, dir) || (!is_touched && has_terraform(self.base.tree, dir))
        };
        let mut users = names::listed(self.base);
        let user =
            users.find(|user| user.depends_on.contains(name) && !is_listed(&user.id.dir) && is_there(&user.id.dir))?;
        Some(format!("`{}` depends on it on the base branch, and stays", clip(&user.id.label())))
    }
}

/// Returns true if a step of an apply may apply the plan that was made, and not the code.
fn applies_plan(step: &Step) -> bool {
    match step {
        Step::Apply { .. } => true,
        Step::Run { command, .. } => command.command.contains("PLANFILE"),
        _ => false,
    }
}

/// Returns the configurations of deleted projects that were planned in the base's tree.
pub fn planned_deletions(ids: &[ProjectId], head: &Facts<'_>, base: &Facts<'_>) -> Vec<ProjectConfig> {
    ids.iter().map(|id| destroying(configured(id, base), head, base)).collect()
}

fn kept_text(dir: &str, reason: &KeepReason, facts: &Facts<'_>) -> String {
    let (shown, executable) = (dir.replace('`', "'"), &facts.options.executable);
    let quoted = quoted(dir).replace('`', "'");
    let (because, next) = match reason {
        KeepReason::ByName(because) => {
            (because, format!("To plan its destruction nevertheless: `{executable} plan -d {quoted} -- -destroy`"))
        }
        KeepReason::Final(because) => {
            let next = "Its resources remain. To destroy them, delete the resources from its code in a pull request, apply it, and \
                        delete the directory afterwards.";
            (because, next.to_owned())
        }
    };
    format!("`{shown}` has no Terraform files any more, and is not planned as a destroy: {because}. {next}")
}

/// Returns the configuration of a deleted project. Only a person applies it, after the projects that depend on it on the base branch.
fn destroying(project: ProjectConfig, head: &Facts<'_>, base: &Facts<'_>) -> ProjectConfig {
    let mut apply_requirements = project.apply_requirements;
    for requirement in &head.rules.destroy_requirements {
        if !apply_requirements.contains(requirement) {
            apply_requirements.push(*requirement);
        }
    }
    let listed = names::listed(base);
    let is_user = |other: &&ProjectConfig| project.id.name.as_ref().is_some_and(|name| other.depends_on.contains(name));
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
    matches!(arg.strip_suffix("=true").unwrap_or(arg), "-destroy" | "--destroy")
}

fn name_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Returns the deleted projects that a part of a target names exactly.
pub(super) fn named<'a>(facts: &Facts<'a>, is_named: impl Fn(&ProjectId) -> bool) -> Vec<&'a ProjectConfig> {
    let known = facts.deletions.into_iter().flat_map(|known| &known.projects);
    known.filter(|project| is_named(&project.id)).collect()
}
