//! New names of projects. A pull request owns a state: when the configuration gives the project another name, the row is renamed.

use super::LockChange;
use super::rules::Transition;
use crate::domain::ownership::{OwnerState, ProjectOwner};
use crate::domain::state::ProjectStatus;
use crate::domain::{ProjectId, PullId};

/// Returns true if a project has one of these names now, and this is none of them.
pub fn is_old_name(name: &ProjectId, projects: &[ProjectId]) -> bool {
    !projects.contains(name) && projects.iter().any(|project| project.is_same_state(name))
}

impl Transition {
    /// Sets the names of a pull request's projects. A row under an old name gets the names in its directory and workspace that the pull
    /// request does not own already. Applied rows come first. Returns the statuses that are known under new names now.
    pub(super) fn named(&mut self, pull: &PullId, projects: &[ProjectId]) -> Vec<ProjectStatus> {
        // A later push may restore the head, and with it the name: by then others may have changed the state under its new one.
        self.drop_plans(|plan| plan.pull == *pull && is_old_name(&plan.project, projects));
        let is_old = |owner: &&ProjectOwner| owner.holder.pull == *pull && !projects.contains(&owner.project);
        let mut old: Vec<ProjectOwner> = self.world.owners.iter().filter(is_old).cloned().collect();
        old.sort_by_key(|owner| owner.applied.is_none());
        let mut statuses = Vec::new();
        for owner in old {
            let here = projects.iter().filter(|project| project.is_same_state(&owner.project));
            let names: Vec<ProjectId> = here.filter(|name| self.can_take(pull, &owner, name)).cloned().collect();
            let Some((first, others)) = names.split_first() else { continue };
            self.disown(|row| row.holder.pull == *pull && row.project == *first);
            self.rename(&owner, first);
            for name in others {
                self.own_like(&owner, name);
            }
            statuses.extend(names.iter().filter_map(|name| self.stands_like(pull, &owner.project, name)));
        }
        statuses
    }

    /// Does the same, and records the statuses under the new names.
    pub(super) fn projects_named(&mut self, pull: &PullId, projects: &[ProjectId]) {
        let statuses = self.named(pull, projects).into_iter();
        self.follows.changes.extend(statuses.map(|status| LockChange::SetStatus(pull.clone(), status)));
    }

    /// Returns true if an ownership under another name can have this one: it is free, or nothing was applied under it.
    fn can_take(&self, pull: &PullId, owner: &ProjectOwner, name: &ProjectId) -> bool {
        let mut rows = self.world.owners.iter().filter(|row| row.holder.pull == *pull && row.project == *name);
        rows.all(|row| owner.applied.is_some() && row.state == OwnerState::Planned)
    }

    /// Renames a row, which keeps its position among the owners of the state.
    fn rename(&mut self, owner: &ProjectOwner, name: &ProjectId) {
        for row in self.world.owners.iter_mut().filter(|row| *row == owner) {
            row.project = name.clone();
            self.follows.changes.push(LockChange::RenameOwner { from: owner.project.clone(), owner: row.clone() });
        }
    }

    /// Adds an ownership for a state that has become several projects: each has to be applied.
    fn own_like(&mut self, owner: &ProjectOwner, name: &ProjectId) {
        self.disown(|row| row.holder.pull == owner.holder.pull && row.project == *name);
        let owner = ProjectOwner { project: name.clone(), ..owner.clone() };
        self.world.owners.push(owner.clone());
        self.follows.changes.push(LockChange::Own(owner));
    }

    /// Copies the status under the old name to the new one, unless that has a status itself. Returns the copy.
    fn stands_like(&mut self, pull: &PullId, old: &ProjectId, name: &ProjectId) -> Option<ProjectStatus> {
        let of = |project: &ProjectId| {
            let mut known = self.world.statuses.iter().filter(|(of, status)| of == pull && status.project == *project);
            known.next().map(|(_, status)| status.clone())
        };
        let (Some(mut status), None) = (of(old), of(name)) else { return None };
        status.project = name.clone();
        self.world.statuses.push((pull.clone(), status.clone()));
        Some(status)
    }
}
