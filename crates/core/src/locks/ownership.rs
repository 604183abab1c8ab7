//! Rules of mode `strict`: taking and ending ownership, and invalidating plans.
//!
//! At most one owner of a project is not merged, and it is the oldest one. Pull requests that were merged without being applied may be
//! owners beside each other and after it, since the server cannot prevent a merge.

use super::rules::Transition;
use super::{LockChange, LockRefusal, MergedInto, MergedPull, WantedLock};
use crate::config::{LockMode, LockScope};
use crate::domain::ownership::{AppliedCommit, InvalidatedPlan, InvalidationCause, OwnerState, ProjectOwner};
use crate::domain::reply::Message;
use crate::domain::state::{LockHolder, PlanRecord, ProjectState, ProjectStatus};
use crate::domain::waiting::PlannedAgain;
use crate::domain::{CommitSha, JobId, ProjectId, PullId, RepoId};
use jiff::Timestamp;
use std::time::Duration;

/// A change of a project's state that is about to begin.
pub(super) struct StateChange<'a> {
    pub(super) project: &'a WantedLock,
    pub(super) job: &'a JobId,
    /// The head that it runs on.
    pub(super) head: &'a CommitSha,
}

impl StateChange<'_> {
    fn pull(&self) -> &PullId {
        &self.project.lock.holder.pull
    }

    fn repo(&self) -> &RepoId {
        &self.project.lock.repo
    }
}

/// Returns the owner that blocks a pull request from changing the state of a project, under any name; none if it is allowed.
///
/// An owner that is not merged comes before all others, then a merge whose changes are not known yet. Each of the merged and unapplied
/// owners may apply, one at a time; other pull requests wait for the first one.
pub(super) fn owner_before<'a>(
    owners: &'a [ProjectOwner],
    pull: &PullId,
    project: &ProjectId,
) -> Option<&'a ProjectOwner> {
    let of_project = || owners.iter().filter(|owner| owner.is_of_state(&pull.repo, project));
    let is_other = |owner: &&ProjectOwner| owner.holder.pull != *pull;
    if let Some(owner) = of_project().find(|owner| owner.state != OwnerState::MergedUnapplied) {
        return Some(owner).filter(is_other);
    }
    let unknown = owners.iter().filter(is_other).find(|owner| owner.is_unknown() && owner.repo == pull.repo);
    let before = unknown.or_else(|| of_project().filter(is_other).find(|owner| owner.is_at_work()));
    before.or_else(|| of_project().next().filter(|_| of_project().all(|owner| is_other(&owner))))
}

/// Returns true if a plan is another pull request's for the same state.
fn is_of_other(plan: &PlanRecord, pull: &PullId, project: &ProjectId) -> bool {
    plan.pull != *pull && plan.pull.repo == pull.repo && plan.project.is_same_state(project)
}

impl Transition {
    fn owner_before(&self, pull: &PullId, project: &ProjectId) -> Option<&ProjectOwner> {
        owner_before(&self.world.owners, pull, project)
    }

    /// Returns the projects that a pull request owns from this change on: the project, and, depending on the scope, all that the pull
    /// request changes. A merged one already owns its projects.
    fn wanted_by(&self, change: &StateChange<'_>) -> Vec<ProjectId> {
        let (pull, project) = (change.pull(), &change.project.lock.project);
        let mut wanted = vec![project.clone()];
        let own = || self.world.owners.iter().filter(|owner| owner.holder.pull == *pull && !owner.is_unknown());
        let is_merged = own().any(|owner| owner.state == OwnerState::MergedUnapplied);
        if change.project.mode == LockMode::Strict(LockScope::PullRequest) && !is_merged {
            let changed = self.world.changed.iter().flat_map(|changed| changed.strict());
            let mut more: Vec<&ProjectId> = changed.chain(own().map(|owner| &owner.project)).collect();
            more.sort();
            more.dedup();
            wanted.extend(more.into_iter().filter(|more| *more != project).cloned());
        }
        wanted
    }

    /// Returns a refusal if another pull request owns one of the projects that this change would own.
    pub(super) fn refusal_of_owners(&self, change: &StateChange<'_>) -> Option<LockRefusal> {
        if change.project.mode == LockMode::Disabled {
            return None;
        }
        let (_, owner) = self.kept_from(change)?;
        Some(LockRefusal::OwnedBy(Box::new(owner.clone())))
    }

    /// Returns the first of the projects that this change would own and that another pull request blocks, with its owner.
    pub(super) fn kept_from(&self, change: &StateChange<'_>) -> Option<(ProjectId, &ProjectOwner)> {
        self.wanted_by(change).into_iter().find_map(|project| {
            let owner = self.owner_before(change.pull(), &project)?;
            Some((project, owner))
        })
    }

    /// Returns the reason for which the plan of a project in mode `strict` cannot be applied, independent of the owner.
    pub(super) fn refusal_of_apply(&self, change: &StateChange<'_>) -> Option<LockRefusal> {
        if !matches!(change.project.mode, LockMode::Strict(_)) {
            return None;
        }
        let (pull, project) = (change.pull(), &change.project.lock.project);
        if self.world.owners.iter().any(|owner| owner.holder.pull == *pull && owner.project == *project) {
            return None;
        }
        match &self.world.changed {
            Some(changed) if changed.pull == *pull && changed.head == *change.head => {
                let is_changed = changed.projects.iter().any(|changed| changed.project == *project);
                (!is_changed).then_some(LockRefusal::NotChanged)
            }
            _ => Some(LockRefusal::ChangesUnknown),
        }
    }

    /// Takes ownership for a change, and invalidates plans of others for the project.
    pub(super) fn own_for_change(&mut self, change: &StateChange<'_>) {
        let (holder, project) = (&change.project.lock.holder, &change.project.lock.project);
        for wanted in self.wanted_by(change) {
            self.own(change.repo(), &wanted, holder, "");
        }
        let applied =
            AppliedCommit { commit: change.head.clone(), at: holder.since, ended: None, job: change.job.clone() };
        let pull = change.pull().clone();
        let is_own = |owner: &ProjectOwner| owner.holder.pull == pull && owner.project == *project;
        self.change_owners(is_own, |owner| {
            owner.applied = Some(applied.clone());
            if owner.state != OwnerState::MergedUnapplied {
                owner.state = OwnerState::AppliedUnmerged;
            }
        });
        let cause = InvalidationCause::AppliedBy { pull: pull.clone() };
        self.invalidate(&cause, holder.since, |plan| is_of_other(plan, &pull, project));
    }

    /// Makes the pull request the owner of this project. No effect if it owns it already, or its state under a name that is newer than its
    /// recorded changes.
    pub(super) fn own(&mut self, repo: &RepoId, project: &ProjectId, holder: &LockHolder, reason: &str) {
        let changed = self.world.changed.as_ref();
        let is_newer = |owner: &ProjectOwner| {
            changed.is_some_and(|changed| changed.projects.iter().all(|known| known.project != owner.project))
        };
        let is_own = |owner: &ProjectOwner| {
            owner.holder.pull == holder.pull
                && owner.is_of_state(repo, project)
                && (owner.project == *project || is_newer(owner))
        };
        if self.world.owners.iter().any(is_own) {
            return;
        }
        let (repo, project, holder, reason) = (repo.clone(), project.clone(), holder.clone(), reason.to_owned());
        let owner = ProjectOwner {
            repo,
            project,
            holder,
            state: OwnerState::Planned,
            applied: None,
            merged: None,
            told: None,
            reminder_interval: None,
            approved: None,
            reason,
        };
        self.world.owners.push(owner.clone());
        self.follows.changes.push(LockChange::Own(owner));
    }

    /// Gives a pull request all projects that it changes, by hand; none if one of them has another owner.
    pub(super) fn ownership_taken(&mut self, holder: &LockHolder, reason: &str) {
        let Some(changed) = self.world.changed.clone().filter(|changed| changed.pull == holder.pull) else {
            return self.refuse(LockRefusal::ChangesUnknown);
        };
        let owner = changed.strict().find_map(|project| self.owner_before(&holder.pull, project)).cloned();
        if let Some(owner) = owner {
            return self.refuse(LockRefusal::OwnedBy(Box::new(owner)));
        }
        if changed.strict().next().is_none() {
            return self.refuse(LockRefusal::NotChanged);
        }
        for project in changed.strict() {
            self.own(&holder.pull.repo, project, holder, reason);
        }
        let taken: Vec<ProjectId> = changed.strict().cloned().collect();
        self.leave_taken(&holder.pull, &taken);
    }

    /// Records the end of a change of the state under an ownership. Invalidates plans that others have recorded meanwhile, which saw the
    /// state in between.
    pub(super) fn change_ended(&mut self, pull: &PullId, project: &ProjectId, at: Timestamp) {
        let is_own = |owner: &ProjectOwner| owner.holder.pull == *pull && owner.project == *project;
        if !self.world.owners.iter().any(is_own) {
            return;
        }
        self.change_owners(is_own, |owner| {
            if let Some(applied) = &mut owner.applied {
                applied.ended = Some(at);
            }
        });
        let cause = InvalidationCause::AppliedBy { pull: pull.clone() };
        self.invalidate(&cause, at, |plan| is_of_other(plan, pull, project));
    }

    /// Ends the ownerships that an apply satisfies: those of the merges in its commit, and its own, under the names of the project's state
    /// that `is_meant` selects.
    pub(super) fn satisfied(
        &mut self,
        pull: &PullId,
        project: &ProjectId,
        merges: &[CommitSha],
        is_meant: impl Fn(&ProjectId) -> bool,
    ) {
        let is_satisfied = |owner: &ProjectOwner| {
            owner.state == OwnerState::MergedUnapplied
                && owner.is_of_state(&pull.repo, project)
                && is_meant(&owner.project)
                && (owner.holder.pull == *pull || owner.merged.as_ref().is_some_and(|merge| merges.contains(merge)))
        };
        for owner in self.disown(is_satisfied) {
            if owner.holder.pull != *pull {
                let told = Message::AppliedByAnother { project: owner.project, pull: pull.clone() };
                self.follows.others.push((owner.holder.pull, told));
            }
        }
    }

    /// Updates the ownerships of a pull request that is merged or closed.
    pub(super) fn owners_of_closed(&mut self, pull: &PullId, merged: Option<&MergedPull>) {
        let (state, left) = match merged {
            Some(merged) => match &merged.into {
                MergedInto::Applied => {
                    self.owners_of_merged(pull, merged);
                    (OwnerState::MergedUnapplied, self.known_of(pull))
                }
                MergedInto::HeadOf(onto) => return self.owners_of_stacked(pull, merged, onto),
                MergedInto::Unknown { because } => return self.merge_unknown(merged, because),
            },
            None => {
                self.disown(|owner| owner.holder.pull == *pull && owner.applied.is_none() && !owner.is_unknown());
                let is_closed = |owner: &ProjectOwner| {
                    owner.holder.pull == *pull && owner.state != OwnerState::MergedUnapplied && !owner.is_unknown()
                };
                self.change_owners(is_closed, |owner| owner.state = OwnerState::ClosedApplied);
                (OwnerState::ClosedApplied, self.known_of(pull))
            }
        };
        // A repeated event, which hosts and this server can cause, posts nothing.
        let changed = |change: &LockChange| matches!(change, LockChange::Own(_) | LockChange::ChangeOwner(_));
        if !left.is_empty() && self.follows.changes.iter().any(changed) {
            self.follows.others.push((pull.clone(), Message::Owes { state, projects: left, again: false }));
            self.note_intervals(pull);
        }
    }

    /// Records the interval of reminders from the projects' configuration.
    pub(super) fn note_intervals(&mut self, pull: &PullId) {
        let changed = self.world.changed.clone().filter(|changed| changed.pull == *pull);
        let projects: Vec<_> = changed.into_iter().flat_map(|changed| changed.projects).collect();
        self.change_owners(
            |owner| owner.holder.pull == *pull,
            |owner| {
                let of_owner = projects.iter().find(|changed| changed.project == owner.project);
                owner.told = None;
                owner.reminder_interval = of_owner.and_then(|changed| changed.reminder_interval);
            },
        );
    }

    /// Posts a reminder to a pull request with unapplied or unmerged changes when it is due for any of them. The interval starts at the
    /// first check.
    pub(super) fn remind(&mut self, pull: &PullId, usual: Duration, at: Timestamp) {
        let is_owed = |owner: &ProjectOwner| owner.holder.pull == *pull && owner.is_owed();
        let owed: Vec<&ProjectOwner> = self.world.owners.iter().filter(|owner| is_owed(owner)).collect();
        let is_due = owed.iter().any(|owner| owner.reminder_due(usual).is_some_and(|due| due <= at));
        if let Some(unknown) = owed.iter().find(|owner| owner.is_unknown() && is_due) {
            let told = Message::MergeUnknown { because: unknown.reason.clone(), again: true };
            self.follows.others.push((pull.clone(), told));
        } else if let Some(first) = owed.first().filter(|_| is_due) {
            let projects = owed.iter().map(|owner| owner.project.clone()).collect();
            let told = Message::Owes { state: first.state, projects, again: true };
            self.follows.others.push((pull.clone(), told));
        }
        self.change_owners(is_owed, |owner| {
            if is_due || owner.told.is_none() {
                owner.told = Some(at);
            }
        });
    }

    pub(super) fn owned_by(&self, pull: &PullId) -> Vec<ProjectId> {
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == *pull);
        own.map(|owner| owner.project.clone()).collect()
    }

    /// Returns the same without the row that stands for projects that are not known yet.
    pub(super) fn known_of(&self, pull: &PullId) -> Vec<ProjectId> {
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == *pull && !owner.is_unknown());
        own.map(|owner| owner.project.clone()).collect()
    }

    /// Ends ownerships that were applied as merged; the others have to be applied.
    pub(super) fn owners_of_merged(&mut self, pull: &PullId, merged: &MergedPull) {
        let of_head = self.world.changed.clone().filter(|changed| changed.pull == *pull && changed.head == merged.head);
        if let Some(of_head) = &of_head {
            let names: Vec<ProjectId> = of_head.projects.iter().map(|changed| changed.project.clone()).collect();
            self.named(pull, &names);
        }
        let is_done = |status: &&(PullId, ProjectStatus)| {
            let done = [ProjectState::Applied, ProjectState::PlannedNoChanges];
            status.0 == *pull && status.1.head == merged.head && done.contains(&status.1.state)
        };
        let done: Vec<ProjectId> =
            self.world.statuses.iter().filter(is_done).map(|(_, status)| status.project.clone()).collect();
        self.disown(|owner| owner.holder.pull == *pull && done.contains(&owner.project));
        self.base_moved(pull, merged, of_head.iter().flat_map(|changed| changed.strict()));
        if let Some(of_head) = &of_head {
            // Owned with an earlier head, and not changed by the merged one.
            let is_changed = |project: &ProjectId| of_head.strict().any(|changed| changed == project);
            let is_over =
                |owner: &ProjectOwner| owner.applied.is_none() && !is_changed(&owner.project) && !owner.is_unknown();
            self.disown(|owner| owner.holder.pull == *pull && is_over(owner));
        }
        for project in of_head.iter().flat_map(|changed| changed.strict()).filter(|project| !done.contains(project)) {
            self.own(&pull.repo, project, &merged.holder, "");
        }
        let seen = std::mem::take(&mut self.world.seen);
        let approved = |project: &ProjectId| {
            let seen = seen.iter().find(|seen| seen.project == *project)?;
            seen.last_of(&merged.head).cloned()
        };
        self.change_owners(
            |owner| owner.holder.pull == *pull && !owner.is_unknown(),
            |owner| {
                // A plan after the merge was not approved, even if the base branch is at the merged head.
                if owner.state != OwnerState::MergedUnapplied {
                    owner.approved = approved(&owner.project);
                }
                owner.state = OwnerState::MergedUnapplied;
                owner.merged.clone_from(&merged.commit);
            },
        );
    }

    /// Invalidates plans on the same base branch of these projects, whose files the merge has changed.
    pub(super) fn base_moved<'a>(
        &mut self,
        pull: &PullId,
        merged: &MergedPull,
        projects: impl Iterator<Item = &'a ProjectId>,
    ) {
        let commit = merged.commit.clone().unwrap_or_else(|| merged.head.clone());
        let cause = InvalidationCause::BaseMoved { branch: merged.branch.clone(), commit };
        for project in projects {
            let is_on_it = |plan: &PlanRecord| plan.base_branch.is_empty() || plan.base_branch == merged.branch;
            self.invalidate(&cause, merged.at, |plan| is_of_other(plan, pull, project) && is_on_it(plan));
        }
    }

    /// Restores the ownerships of a pull request that was closed after an apply and is open again.
    pub(super) fn reopened(&mut self, pull: &PullId) {
        self.change_owners(
            |owner| owner.holder.pull == *pull && owner.state == OwnerState::ClosedApplied,
            |owner| owner.state = OwnerState::AppliedUnmerged,
        );
    }

    /// Ends the ownerships of these projects that a person may end. Returns the released projects, and those that stay owned.
    pub(super) fn disown_by_hand(
        &mut self,
        pull: &PullId,
        may_end: impl Fn(&ProjectOwner) -> bool,
        is_meant: impl Fn(&ProjectId) -> bool,
    ) -> (Vec<ProjectId>, Vec<ProjectId>) {
        let is_freed = |owner: &ProjectOwner| owner.holder.pull == *pull && is_meant(&owner.project) && may_end(owner);
        let freed = self.disown(is_freed);
        let mut kept = self.owned_by(pull);
        kept.retain(|project| is_meant(project));
        (freed.into_iter().map(|owner| owner.project).collect(), kept)
    }

    /// Invalidates these plans: they are dropped, and their pull requests are notified.
    pub(super) fn invalidate(
        &mut self,
        cause: &InvalidationCause,
        at: Timestamp,
        is_invalidated: impl Fn(&PlanRecord) -> bool,
    ) {
        for plan in self.drop_plans(is_invalidated) {
            let pull = plan.pull.clone();
            self.set_state(&pull, &plan.project, &plan.head, ProjectState::PlanInvalidated, at);
            self.follows.invalidated.push(InvalidatedPlan { plan, cause: cause.clone(), again: PlannedAgain::No });
        }
    }

    /// Changes the owners that `is_named` selects.
    pub(super) fn change_owners(
        &mut self,
        is_named: impl Fn(&ProjectOwner) -> bool,
        change: impl Fn(&mut ProjectOwner),
    ) {
        for owner in self.world.owners.iter_mut().filter(|owner| is_named(owner)) {
            let before = owner.clone();
            change(owner);
            if *owner != before {
                self.follows.changes.push(LockChange::ChangeOwner(owner.clone()));
            }
        }
    }

    /// Ends the ownerships that `is_named` selects, and returns them, oldest first. Ownerships only end here.
    pub(super) fn disown(&mut self, is_named: impl Fn(&ProjectOwner) -> bool) -> Vec<ProjectOwner> {
        let (gone, kept) = std::mem::take(&mut self.world.owners).into_iter().partition(is_named);
        self.world.owners = kept;
        let gone: Vec<ProjectOwner> = gone;
        self.follows.changes.extend(gone.iter().cloned().map(LockChange::Disown));
        gone
    }
}
