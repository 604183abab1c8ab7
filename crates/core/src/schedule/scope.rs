//! Projects that belong to a pull request in mode `strict` in addition to those of its changed files.

use super::discover::is_there;
use super::{Facts, configured, names};
use crate::config::paths::parent;
use crate::config::repo::RepoConfig;
use crate::config::{ApplyScope, LockMode, ProjectConfig};
use crate::domain::ProjectId;
use crate::domain::command::{Command, CommandName};
use crate::domain::ownership::{ChangedProject, OwnerState};
use crate::inputs::{INDICATOR_SUFFIXES, has_terraform};
use std::collections::BTreeSet;

/// Most remarks on directories that a pull request deletes.
const MAX_DELETED: usize = 10;

/// Returns the projects that were applied in this pull request, are no longer changed by it, and have to be applied again to match. Also
/// returns remarks on them for people.
pub(super) fn reverted(
    command: &Command,
    changed: &[ProjectConfig],
    facts: &Facts<'_>,
) -> (Vec<ProjectConfig>, Vec<String>) {
    let (mut projects, mut remarks): (Vec<ProjectConfig>, Vec<String>) = Default::default();
    let mut taken: Vec<&ProjectId> = Vec::new();
    let is_reverted = |id: &&ProjectId| changed.iter().all(|project| project.id != **id);
    for id in facts.applied.iter().filter(is_reverted).filter(|_| command.name == CommandName::Plan) {
        let is_free = |new: &ProjectId| !facts.applied.contains(new) && !taken.contains(&new);
        let renamed = names::new_names(id, facts, is_free);
        if !renamed.is_empty() {
            taken.extend(renamed.iter().map(|project| &project.id));
            let unchanged = renamed.into_iter().filter(|project| changed.iter().all(|known| known.id != project.id));
            projects.extend(unchanged.filter(|project| is_there(facts.tree, &project.id.dir)).cloned());
            continue;
        }
        let what = format!("`{}` was applied earlier in this pull request, which no longer changes it", id.label());
        if is_there(facts.tree, &id.dir) {
            projects.push(configured(id, facts));
            remarks.push(format!("{what}: it must be applied again to match."));
        } else {
            let way_out = OwnerState::AppliedUnmerged.way_out(&facts.options.executable);
            remarks.push(format!(
                "{what}, and its directory is gone: nothing can be applied there. To accept the difference: `{way_out}`."
            ));
        }
    }
    (projects, remarks)
}

/// Returns a remark on each directory, in mode `strict`, from which the pull request deletes the files for Terraform.
pub(super) fn deleted(command: &Command, facts: &Facts<'_>) -> Vec<String> {
    if command.name != CommandName::Plan || !is_strict(facts.rules.repo_locks) {
        return Vec::new();
    }
    let is_terraform = |file: &&String| INDICATOR_SUFFIXES.iter().any(|suffix| file.ends_with(suffix));
    let touched: BTreeSet<&str> = facts.modified.iter().filter(is_terraform).map(|file| parent(file)).collect();
    let is_told = |dir: &str| facts.deletions.is_some_and(|deletions| deletions.tell_of(dir));
    let is_gone = |dir: &&str| !has_terraform(facts.tree, dir) && !is_told(dir);
    let gone = touched.into_iter().filter(is_gone).take(MAX_DELETED);
    gone.map(|dir| {
        format!(
            "`{}` has no Terraform files any more. Its resources remain; this pull request does not destroy them.",
            dir.replace('`', "'")
        )
    })
    .collect()
}

/// Returns true if the pull request changes the effective configuration of a project in mode `strict`.
pub(super) fn is_configured_anew(project: &ProjectConfig, facts: &Facts<'_>) -> bool {
    let Some(change) = facts.config_change else { return false };
    let of = |config: &RepoConfig| {
        let listed = config.projects.iter().find(|listed| listed.id == project.id).cloned();
        listed.unwrap_or_else(|| ProjectConfig::from_rules(project.id.clone(), facts.rules))
    };
    let (before, after) = (of(change.base), of(change.head));
    (is_strict(after.repo_locks) || is_strict(before.repo_locks)) && before.digest() != after.digest()
}

/// Returns true if the changed projects may be needed in addition to the selected ones.
pub(super) fn may_want_changed(facts: &Facts<'_>) -> bool {
    let scope = facts.rules.apply_scope.unwrap_or_else(|| ApplyScope::of_mode(facts.rules.repo_locks));
    let mut listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    scope == ApplyScope::AllPlanned
        || is_strict(facts.rules.repo_locks)
        || listed.any(|project| is_strict(project.repo_locks) || project.wants_all_planned())
}

/// Returns the record of these projects. Empty if no mode is `strict` and each may be applied without the others.
pub(super) fn changed(projects: &[ProjectConfig]) -> Vec<ChangedProject> {
    let changed = |config: &ProjectConfig| ChangedProject {
        project: config.id.clone(),
        strict: is_strict(config.repo_locks),
        reminder_interval: is_strict(config.repo_locks).then_some(config.reminder_interval),
    };
    let is_wanted = |config: &ProjectConfig| is_strict(config.repo_locks) || config.wants_all_planned();
    if projects.iter().any(is_wanted) { projects.iter().map(changed).collect() } else { Vec::new() }
}

fn is_strict(mode: LockMode) -> bool {
    matches!(mode, LockMode::Strict(_))
}
