//! Turns of pull requests, which are automatic re-plans: recording them, beginning them, and ending them.
//!
//! A re-plan takes up later turns of its pull request until it begins. Then it is planned for the projects whose turn it still is. A turn
//! that comes after the beginning needs another re-plan, and its wait outlasts the end of this one.

use super::LockEvent;
use super::rules::Transition;
use crate::domain::state::{Delivery, DeliveryState, ProjectState, ProjectStatus};
use crate::domain::state_address::StateAddress;
use crate::domain::waiting::{ReplanEvent, WaitCause, WaitingPull};
use crate::domain::{DeliveryId, Event, ProjectId, PullId};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Change of the recorded re-plans for new turns of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplanChange {
    /// A re-plan is added.
    Add(ReplanEvent),
    /// A re-plan that has not begun gets more projects; the new row.
    Extend(Box<Delivery>),
}

/// Returns a re-plan for each pull request of these turns.
pub fn replans_of(turns: &[(PullId, ProjectId)]) -> Vec<ReplanEvent> {
    let mut by_pull: BTreeMap<&PullId, Vec<ProjectId>> = BTreeMap::new();
    for (pull, project) in turns {
        by_pull.entry(pull).or_default().push(project.clone());
    }
    by_pull.into_iter().map(|(pull, projects)| ReplanEvent { pull: pull.clone(), projects }).collect()
}

/// Returns the change that records a re-plan, from the unfinished re-plans of its pull request. The first one that has not begun gets its
/// projects.
pub fn queue_replan(new: ReplanEvent, unfinished: Vec<(Delivery, DeliveryState)>) -> ReplanChange {
    let queued = unfinished.into_iter().find(|(_, state)| *state == DeliveryState::Queued);
    match queued.map(|(delivery, _)| delivery) {
        Some(Delivery { event: Event::Replan(mut event), identity, host_id, received }) => {
            event.projects.extend(new.projects);
            event.projects.sort();
            event.projects.dedup();
            let event = Event::Replan(event);
            ReplanChange::Extend(Box::new(Delivery { event, identity, host_id, received }))
        }
        _ => ReplanChange::Add(new),
    }
}

/// Returns the event for the end of a re-plan, from all unfinished ones. Leaves out projects whose turn has come again in another one.
/// Absent if the delivery is no unfinished re-plan.
pub fn replan_ends(identity: &DeliveryId, unfinished: &[Delivery]) -> Option<LockEvent> {
    let replan = |delivery: &Delivery| match &delivery.event {
        Event::Replan(event) => Some(event.clone()),
        _ => None,
    };
    let (own, others): (Vec<&Delivery>, Vec<&Delivery>) =
        unfinished.iter().partition(|delivery| delivery.identity == *identity);
    let ReplanEvent { pull, mut projects } = own.into_iter().find_map(replan)?;
    for again in others.into_iter().filter_map(replan).filter(|again| again.pull == pull) {
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
