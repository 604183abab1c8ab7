//! Plans of a part of a project: their applies change the state, and satisfy nothing.

use super::super::*;
use super::faults::Fault;
use super::history::{Simulation, merge_commit, project_id, pull_id};
use crate::domain::state::ProjectState;

/// Restores statuses from before the event.
pub(super) fn keep_statuses(before: &World, after: &mut World) {
    for (pull, status) in &mut after.statuses {
        let was = before.statuses.iter().find(|(of, was)| of == pull && was.project == status.project);
        was.into_iter().for_each(|(_, was)| status.clone_from(was));
    }
}

impl Simulation {
    /// Returns true if the apply of this project is one of a part.
    pub(super) fn applies_part(&self, pull: u64, project: u8) -> bool {
        self.truth.plans.get(&(pull, project)).is_some_and(|plan| plan.is_part)
    }

    /// Ends it with success: the project is not done.
    pub(super) fn part_is_applied(&mut self, pull: u64, project: u8) -> Result<(), String> {
        self.set_status(pull, project, ProjectState::AppliedInPart);
        if self.fault == Some(Fault::PartsSatisfy) {
            let merges = self.truth.merges.iter().map(|merge| merge_commit(*merge)).collect();
            self.event(
                pull,
                &LockEvent::Satisfied { pull: pull_id(pull), project: project_id(project), merges, alone: true },
            )?;
        }
        self.judge()
    }
}
