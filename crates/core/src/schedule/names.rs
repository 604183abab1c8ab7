//! Names of projects. A project is its directory and workspace; the repo config may give it another name than it had.

use super::Facts;
use crate::config::ProjectConfig;
use crate::domain::ProjectId;

fn listed<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a ProjectConfig> + use<'a> {
    facts.repo_config.into_iter().flat_map(|config| &config.projects)
}

/// Whether the repo config lists another project in the same directory and workspace.
pub(super) fn shares_state(id: &ProjectId, facts: &Facts<'_>) -> bool {
    listed(facts).any(|project| project.id != *id && project.id.is_same_state(id))
}

/// Listed projects that have the state of a project which is not listed any more, as far as they are free to stand for it.
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

/// These projects as the repo config names them now. One that is not listed any more is called as those that have its state, unless all of
/// them are among these already.
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

/// Whether a project is the one that was asked for: by its name, or by its state where nothing has that name any more.
pub(super) fn is_meant(asked: &ProjectId, project: &ProjectId, all: &[ProjectId]) -> bool {
    asked == project || (asked.is_same_state(project) && !all.contains(asked))
}
