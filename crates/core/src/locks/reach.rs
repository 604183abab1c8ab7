//! Rows that the rules need for an event. The store reads these into the [`World`] of the event, in the order in which the functions are
//! here. Their number does not depend on the number of pull requests in the repository.

use super::{LockEvent, WantedLock, World};
use crate::domain::ownership::ProjectOwner;
use crate::domain::state::PlanRecord;
use crate::domain::waiting::WaitingPull;
use crate::domain::{PlanId, ProjectId, PullId, RepoId};
use std::collections::BTreeSet;

/// Rows to read into a [`World`]. Plans are those that can still be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NeededRows {
    /// The apply lock.
    ApplyLock,
    /// The lock that a link names, as in [`LockEvent::LockDeleted`], and the plan of its project.
    NamedLock(String),
    /// The locks of a pull request.
    Locks(PullId),
    /// A plan, by its id.
    Plan(PlanId),
    /// The plan of a pull request for a project.
    PlanOf(PullId, ProjectId),
    /// The plans of a pull request.
    Plans(PullId),
    /// The plans for a project's state, under any name and of any pull request of the repository.
    PlansOfState(RepoId, ProjectId),
    /// The same, without those of this pull request.
    PlansOfOthers(PullId, ProjectId),
    /// The plans of other pull requests of the repository that were made with outputs of the project.
    PlansWithOutputs(PullId, ProjectId),
    /// The statuses of all projects of a pull request.
    Statuses(PullId),
    /// The status of a project of a pull request.
    Status(PullId, ProjectId),
    /// The projects that a pull request changes.
    Changed(PullId),
    /// The plans that a pull request has had.
    Seen(PullId),
}

impl LockEvent {
    /// Returns the pull request of the event, if the event itself names it. All that it owns and waits for is needed.
    pub fn pull(&self) -> Option<&PullId> {
        match self {
            LockEvent::PlanBegins { pull, .. }
            | LockEvent::NotPlanned { pull, .. }
            | LockEvent::StateChanged { pull, .. }
            | LockEvent::Satisfied { pull, .. }
            | LockEvent::Reopened { pull }
            | LockEvent::ApplyFailed { pull, .. }
            | LockEvent::ReminderDue { pull, .. }
            | LockEvent::TurnBegins { pull, .. }
            | LockEvent::TurnEnds { pull, .. }
            | LockEvent::ProjectsNamed { pull, .. }
            | LockEvent::Unlocked { pull, .. }
            | LockEvent::MergeKnown { pull, .. }
            | LockEvent::Closed { pull, .. } => Some(pull),
            LockEvent::OwnershipTaken { holder, .. } => Some(&holder.pull),
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                Some(&project.lock.holder.pull)
            }
            LockEvent::PlanGoesOn { projects } => projects.first().map(|wanted| &wanted.lock.holder.pull),
            LockEvent::PlansInvalidated { .. } | LockEvent::LockDeleted { .. } => None,
        }
    }

    /// Returns the rows that are needed besides owners, waiters, and locks of others.
    pub fn rows(&self) -> Vec<NeededRows> {
        match self {
            LockEvent::PlanBegins { pull, projects, everything: false } => {
                projects.iter().map(|wanted| NeededRows::PlanOf(pull.clone(), wanted.lock.project.clone())).collect()
            }
            LockEvent::PlanBegins { pull, .. } | LockEvent::Unlocked { pull, .. } => {
                vec![NeededRows::Locks(pull.clone()), NeededRows::Plans(pull.clone())]
            }
            LockEvent::ApplyBegins { plan, project, .. } => {
                let first = [NeededRows::ApplyLock].into_iter();
                first.chain(for_change(project)).chain([NeededRows::Plan(plan.clone())]).collect()
            }
            LockEvent::StateChangeBegins { project: wanted, .. } => {
                let (pull, project) = (&wanted.lock.holder.pull, &wanted.lock.project);
                let plan = NeededRows::PlanOf(pull.clone(), project.clone());
                let status = NeededRows::Status(pull.clone(), project.clone());
                for_change(wanted).into_iter().chain([plan, status]).collect()
            }
            LockEvent::StateChanged { pull, project, outputs, .. } => {
                let elsewhere = outputs.then(|| NeededRows::PlansWithOutputs(pull.clone(), project.clone()));
                [NeededRows::Plans(pull.clone())].into_iter().chain(elsewhere).collect()
            }
            LockEvent::PlansInvalidated { plans, .. } => plans.iter().cloned().map(NeededRows::Plan).collect(),
            LockEvent::OwnershipTaken { holder, .. } => vec![NeededRows::Changed(holder.pull.clone())],
            LockEvent::Closed { pull, merged, .. } => {
                let own = [NeededRows::Locks(pull.clone()), NeededRows::Plans(pull.clone())].into_iter();
                own.chain(of_closed(pull)).chain(merged.iter().map(|_| NeededRows::Seen(pull.clone()))).collect()
            }
            LockEvent::MergeKnown { pull, .. } => {
                of_closed(pull).into_iter().chain([NeededRows::Seen(pull.clone())]).collect()
            }
            LockEvent::LockDeleted { key, .. } => vec![NeededRows::NamedLock(key.clone())],
            LockEvent::ProjectsNamed { pull, .. } => {
                vec![NeededRows::Plans(pull.clone()), NeededRows::Statuses(pull.clone())]
            }
            LockEvent::TurnBegins { pull, .. } => vec![NeededRows::Statuses(pull.clone())],
            LockEvent::PlanGoesOn { .. }
            | LockEvent::NotPlanned { .. }
            | LockEvent::TurnEnds { .. }
            | LockEvent::Satisfied { .. }
            | LockEvent::Reopened { .. }
            | LockEvent::ApplyFailed { .. }
            | LockEvent::ReminderDue { .. } => Vec::new(),
        }
    }

    /// Returns the rows that are needed as well, from the first ones and the projects that the pull request owns: plans of others that the
    /// event invalidates.
    pub fn further_rows(&self, first: &World) -> Vec<NeededRows> {
        match self {
            LockEvent::StateChanged { pull, project, .. } => {
                let is_own = |owner: &ProjectOwner| owner.holder.pull == *pull;
                let is_here = |owner: &ProjectOwner| owner.is_unknown() || owner.is_of_state(&pull.repo, project);
                let invalidates_others =
                    pull.is_branch() || first.owners.iter().any(|owner| is_own(owner) && is_here(owner));
                invalidates_others
                    .then(|| NeededRows::PlansOfOthers(pull.clone(), project.clone()))
                    .into_iter()
                    .collect()
            }
            LockEvent::Closed { pull, merged: Some(_), .. } | LockEvent::MergeKnown { pull, .. } => {
                let changed = first.changed.iter().flat_map(|changed| changed.strict());
                changed.map(|project| NeededRows::PlansOfOthers(pull.clone(), project.clone())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns true if the event may drop this plan, of those that were read.
    pub fn concerns(&self, plan: &PlanRecord) -> bool {
        match self {
            LockEvent::StateChanged { pull, project, outputs, .. } if plan.pull == *pull => {
                plan.project == *project || *outputs && plan.may_depend_on(project)
            }
            _ => true,
        }
    }

    /// Returns true if the pull request of this plan waits if the event drops the plan, so that all that it owns is needed.
    pub fn may_invalidate(&self, plan: &PlanRecord) -> bool {
        // Only a change of the state invalidates plans of the pull request itself.
        matches!(self, LockEvent::StateChanged { .. }) || Some(&plan.pull) != self.pull()
    }

    /// Returns true if the event may end the merge of its pull request, whose changed projects are not known. Everybody who waits in the
    /// repository is needed then, from the owners of that merge.
    pub fn may_free_all(&self, owners: &[ProjectOwner]) -> bool {
        let is_own = |owner: &ProjectOwner| owner.is_unknown() && Some(&owner.holder.pull) == self.pull();
        let ends = matches!(self, LockEvent::Unlocked { accept_drift: true, .. } | LockEvent::MergeKnown { .. });
        ends && owners.iter().any(is_own)
    }

    /// Returns the projects that the event can free, take or refuse, from the rows so far and from everybody who waits, if that is needed.
    /// All locks, owners and waiters of their states are needed.
    pub fn projects(&self, so_far: &World, waiting: &[WaitingPull]) -> BTreeSet<(RepoId, ProjectId)> {
        let mut projects = self.named_projects();
        projects.extend(so_far.locks.iter().map(|lock| (lock.repo.clone(), lock.project.clone())));
        if let Some(changed) = &so_far.changed {
            projects.extend(changed.strict().map(|project| (changed.pull.repo.clone(), project.clone())));
        }
        if self.concerns_owned() {
            let own = so_far.owners.iter().filter(|owner| Some(&owner.holder.pull) == self.pull());
            projects.extend(own.map(|owner| (owner.repo.clone(), owner.project.clone())));
        }
        projects.extend(waiting.iter().map(|waiter| (waiter.pull.repo.clone(), waiter.project.clone())));
        let invalidated = so_far.plans.iter().filter(|plan| self.may_invalidate(plan));
        projects.extend(invalidated.map(|plan| (plan.pull.repo.clone(), plan.project.clone())));
        projects
    }

    /// Returns the projects that the event itself names.
    fn named_projects(&self) -> BTreeSet<(RepoId, ProjectId)> {
        let wanted = |wanted: &WantedLock| (wanted.lock.repo.clone(), wanted.lock.project.clone());
        match self {
            LockEvent::PlanBegins { projects, .. } | LockEvent::PlanGoesOn { projects } => {
                projects.iter().map(wanted).collect()
            }
            LockEvent::ApplyBegins { project, .. } | LockEvent::StateChangeBegins { project, .. } => {
                [wanted(project)].into()
            }
            LockEvent::NotPlanned { pull, project }
            | LockEvent::ApplyFailed { pull, project, .. }
            | LockEvent::StateChanged { pull, project, .. }
            | LockEvent::Satisfied { pull, project, .. } => [(pull.repo.clone(), project.clone())].into(),
            LockEvent::TurnBegins { pull, projects, .. } | LockEvent::TurnEnds { pull, projects } => {
                projects.iter().map(|project| (pull.repo.clone(), project.clone())).collect()
            }
            LockEvent::PlansInvalidated { .. }
            | LockEvent::OwnershipTaken { .. }
            | LockEvent::ProjectsNamed { .. }
            | LockEvent::ReminderDue { .. }
            | LockEvent::Reopened { .. }
            | LockEvent::Unlocked { .. }
            | LockEvent::LockDeleted { .. }
            | LockEvent::MergeKnown { .. }
            | LockEvent::Closed { .. } => BTreeSet::new(),
        }
    }

    /// Returns true if the event takes all projects that its pull request owns, or ends its ownership, so that other pull requests with
    /// these projects matter.
    fn concerns_owned(&self) -> bool {
        matches!(
            self,
            LockEvent::ApplyBegins { .. }
                | LockEvent::StateChangeBegins { .. }
                | LockEvent::ProjectsNamed { .. }
                | LockEvent::Unlocked { .. }
                | LockEvent::Closed { .. }
                | LockEvent::MergeKnown { .. }
        )
    }
}

/// Returns the rows that decide if a change of a project's state may begin, and the plans that it invalidates.
fn for_change(wanted: &WantedLock) -> Vec<NeededRows> {
    if !wanted.is_strict() {
        return Vec::new();
    }
    let changed = NeededRows::Changed(wanted.lock.holder.pull.clone());
    vec![changed, NeededRows::PlansOfState(wanted.lock.repo.clone(), wanted.lock.project.clone())]
}

/// Returns the rows of a closed pull request that tell what it has done.
fn of_closed(pull: &PullId) -> [NeededRows; 2] {
    [NeededRows::Changed(pull.clone()), NeededRows::Statuses(pull.clone())]
}
