//! Names of projects. Directory and workspace identify a project; the repo config may give it another name than before.

use super::Facts;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;

/// Returns the projects that the repo config lists.
pub(super) fn listed<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a ProjectConfig> + use<'a> {
    facts.repo_config.into_iter().flat_map(|config| &config.projects)
}

/// Returns true if the repo config lists another project in the same directory and workspace.
pub(super) fn shares_state(id: &ProjectId, facts: &Facts<'_>) -> bool {
    listed(facts).any(|project| project.id != *id && project.id.is_same_state(id))
}

/// Returns the listed projects that have the state of a project that is no longer listed, as far as `is_free` accepts them.
pub(super) fn new_names<'a>(
    old: &ProjectId,
    facts: &Facts<'a>,
    is_free: impl Fn(&ProjectId) -> bool,
) -> Vec<&'a ProjectConfig> {
    if listed(facts).any(|project| project.id == *old) {
        return Vec::new();
    }
    listed(facts).filter(|project| project.id.is_same_state(old) && is_free(&project.id)).collect()
}

/// Returns these projects under the names in the current repo config. One that is no longer listed is replaced by those with its state,
/// unless all of them are among these already.
pub fn named_now(ids: &[ProjectId], facts: &Facts<'_>) -> Vec<ProjectId> {
    let mut now: Vec<ProjectId> = Vec::new();
    for old in ids {
        let new: Vec<ProjectId> = new_names(old, facts, |id| !ids.contains(id) && !now.contains(id))
            .into_iter()
            .map(|project| project.id.clone())
            .collect();
        if new.is_empty() { now.push(old.clone()) } else { now.extend(new) }
    }
    now
}

/// Returns true if a project is the requested one: by its name, or by its state if no project has that name now.
pub(super) fn is_meant(asked: &ProjectId, project: &ProjectId, all: &[ProjectId]) -> bool {
    asked == project || (asked.is_same_state(project) && !all.contains(asked))
}
