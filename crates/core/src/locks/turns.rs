//! Turns of pull requests, which are automatic re-plans: recording them, beginning them, and ending them.
//!
//! A re-plan takes up later turns of its pull request until it begins. Then it is planned for the projects whose turn it still is. A turn
//! that comes after the beginning needs another re-plan, and its wait outlasts the end of this one.

use super::LockEvent;
use super::rules::Transition;
use crate::domain::state::{ProjectState, ProjectStatus};
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::{Replan, ReplanId, ReplanScope, ReplanState, WaitCause, WaitingPull};
use crate::domain::{ProjectId, PullId};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Change of the recorded re-plans for new turns of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplanChange {
    /// A re-plan is added.
    Add(ReplanScope),
    /// A re-plan that has not begun gets more projects; its new scope.
    Extend(ReplanId, ReplanScope),
}

/// Returns a re-plan for each pull request of these turns.
pub fn replans_of(turns: &[(PullId, ProjectId)]) -> Vec<ReplanScope> {
    let mut by_pull: BTreeMap<&PullId, Vec<ProjectId>> = BTreeMap::new();
    for (pull, project) in turns {
        by_pull.entry(pull).or_default().push(project.clone());
    }
    by_pull.into_iter().map(|(pull, projects)| ReplanScope { pull: pull.clone(), projects }).collect()
}

/// Returns the change that records a re-plan, from the re-plans of its pull request. The first one that has not begun gets its projects.
pub fn queue_replan(new: ReplanScope, replans: Vec<Replan>) -> ReplanChange {
    match replans.into_iter().find(|replan| replan.state == ReplanState::Queued) {
        Some(Replan { id, mut scope, .. }) => {
            scope.projects.extend(new.projects);
            scope.projects.sort();
            scope.projects.dedup();
            ReplanChange::Extend(id, scope)
        }
        None => ReplanChange::Add(new),
    }
}

/// Returns the event for the end of a re-plan, from all re-plans. Leaves out projects whose turn has come again in another one. Absent if the
/// re-plan has ended before.
pub fn replan_ends(id: ReplanId, replans: &[Replan]) -> Option<LockEvent> {
    let (own, others): (Vec<&Replan>, Vec<&Replan>) = replans.iter().partition(|replan| replan.id == id);
    let ReplanScope { pull, mut projects } = own.first()?.scope.clone();
    for again in others.into_iter().map(|replan| &replan.scope).filter(|again| again.pull == pull) {
        projects.retain(|project| !again.projects.contains(project));
    }
    Some(LockEvent::TurnEnds { pull, projects })
}

/// Returns the deferred projects that are due now that this project of their pull request is done, from its new status and all statuses of
/// the pull request.
pub fn due_after(done: &ProjectStatus, statuses: &[ProjectStatus]) -> Vec<ProjectId> {
    let waited = |status: &&ProjectStatus| status.waits_for.contains(&done.project);
    let due = deferred_due(statuses).filter(|_| done.state.is_done()).filter(waited);
    due.map(|status| status.project.clone()).collect()
}

/// Returns the deferred projects of a pull request whose dependencies are all done, from all its statuses.
fn deferred_due(statuses: &[ProjectStatus]) -> impl Iterator<Item = &ProjectStatus> {
    let is_due = |status: &&ProjectStatus| {
        let is_done = |on: &ProjectId| {
            let mut of_on = statuses.iter().filter(|other| other.project == *on && other.head == status.head);
            of_on.any(|other| other.state.is_done())
        };
        status.state == ProjectState::Deferred && status.waits_for.iter().all(is_done)
    };
    statuses.iter().filter(is_due)
}

impl Transition {
    /// Selects the projects of a re-plan whose turn it still is: the pull request waits, and nobody blocks the project. Deferred projects
    /// join the line only now.
    pub(super) fn turn_begins(&mut self, pull: &PullId, projects: &[ProjectId], at: Timestamp) {
        self.line_up_deferred(pull, projects, at);
        let is_due = |project: &&ProjectId| self.row(pull, project).is_some_and(|row| self.blocker(row).is_none());
        let (due, passed) = projects.iter().partition::<Vec<&ProjectId>, _>(is_due);
        let (due, passed) = (due.into_iter().cloned().collect(), passed.into_iter().cloned().collect());
        (self.follows.due, self.follows.passed) = (due, passed);
    }

    /// Adds the pull request to the lines for its deferred projects whose dependencies are done.
    fn line_up_deferred(&mut self, pull: &PullId, projects: &[ProjectId], at: Timestamp) {
        let own = self.world.statuses.iter().filter(|(of, _)| of == pull).map(|(_, status)| status.clone());
        let statuses: Vec<ProjectStatus> = own.collect();
        let due: Vec<&ProjectId> = deferred_due(&statuses).map(|status| &status.project).collect();
        for project in projects.iter().filter(|project| due.contains(project)) {
            if self.row(pull, project).is_none() {
                let (pull, project, address) = (pull.clone(), project.clone(), StateAddress::default());
                self.join(WaitingPull { project, pull, since: at, cause: WaitCause::Invalidated, address });
            }
        }
    }
}
