//! Rules for the effect of each event on locks and plans.

use super::line::lock_before;
use super::ownership::StateChange;
use super::{Consequences, ConsumedPlan, LockChange, LockEvent, LockRefusal, WantedLock, World};
use crate::config::LockMode;
use crate::domain::ownership::{InvalidatedPlan, InvalidationCause, OwnerState, ProjectOwner};
use crate::domain::reply::Message;
use crate::domain::state::{AuditEntry, LockHolder, PlanRecord, ProjectLock, ProjectState, ProjectStatus};
use crate::domain::waiting::{PlannedAgain, WaitCause, WaitingPull};
use crate::domain::{CommitSha, JobId, PlanId, ProjectId, PullId};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Applies an event to the rows, and returns its consequences.
pub fn step(world: World, event: &LockEvent) -> (World, Consequences) {
    let mut step = Transition { world, follows: Consequences::default() };
    match event {
        LockEvent::PlanBegins { pull, projects, everything: true } => step.plan_of_all_begins(pull, projects),
        LockEvent::PlanBegins { pull, projects, everything: false } => step.plan_of_some_begins(pull, projects),
        LockEvent::PlanGoesOn { projects } => step.take_for_plan(projects),
        LockEvent::NotPlanned { pull, project } => {
            step.release(pull, ReleaseReason::NotPlanned, |lock| lock.repo == pull.repo && lock.project == *project);
        }
        LockEvent::ApplyBegins { plan, job, project } => step.apply_begins(plan, job, project),
        LockEvent::StateChangeBegins { project, job, head } => {
            let change = StateChange { project, job, head };
            match step.refusal_of_change(&change) {
                Some(refusal) => step.refuse(refusal),
                None => {
                    step.hold_for_change(&change);
                    step.take_back(&project.lock);
                }
            }
        }
        LockEvent::StateChanged { pull, project, outputs, at } => {
            let depends = |plan: &PlanRecord| *outputs && plan.may_depend_on(project);
            // A plan that may depend on any project would be invalidated by every apply of others.
            let is_dependent_elsewhere =
                |plan: &PlanRecord| *outputs && plan.pull.repo == pull.repo && plan.depends_on(project);
            let gone = step.drop_plans(|plan| match plan.pull == *pull {
                true => plan.project == *project || depends(plan),
                false => is_dependent_elsewhere(plan),
            });
            for plan in gone.into_iter().filter(|plan| plan.pull != *pull || plan.project != *project) {
                let told = plan.inputs.is_some() || pull.is_branch();
                let state = if told { ProjectState::PlanInvalidated } else { ProjectState::PlanDiscarded };
                step.set_state(&plan.pull, &plan.project, &plan.head, state, *at);
                if told {
                    let cause = InvalidationCause::DependencyApplied { project: project.clone() };
                    step.follows.invalidated.push(InvalidatedPlan { plan, cause, again: PlannedAgain::No });
                }
            }
            step.change_ended(pull, project, *at);
            if pull.is_branch() {
                step.remedy_ended(pull, project, *at);
            }
        }
        LockEvent::ApplyFailed { pull, project, at } => step.line_up_failed(pull, project, *at),
        LockEvent::Satisfied { pull, project, merges, alone } => {
            step.satisfied(pull, project, merges, |name| *alone || name == project);
        }
        LockEvent::ProjectsNamed { pull, projects } => step.projects_named(pull, projects),
        LockEvent::PlansInvalidated { plans, cause, at } => {
            step.invalidate(cause, *at, |plan| plans.contains(&plan.id))
        }
        LockEvent::OwnershipTaken { holder, reason } => step.ownership_taken(holder, reason),
        LockEvent::ReminderDue { pull, usual, at } => step.remind(pull, *usual, *at),
        LockEvent::TurnBegins { pull, projects, at } => step.turn_begins(pull, projects, *at),
        LockEvent::TurnEnds { pull, projects } => step.turn_ends(pull, projects),
        LockEvent::Reopened { pull } => step.reopened(pull),
        LockEvent::Unlocked { pull, only, accept_drift, by } => {
            step.unlocked(pull, only.as_deref(), |owner| *accept_drift || owner.state == OwnerState::Planned, by);
        }
        LockEvent::LockDeleted { key, applying, by } => step.lock_deleted(key, applying.as_ref(), by),
        LockEvent::Closed { pull, remarks, merged } => {
            step.closed(pull, remarks);
            step.owners_of_closed(pull, merged.as_ref());
            step.leave(|waiter| waiter.pull == *pull);
        }
        LockEvent::MergeKnown { pull, merged } => step.merge_known(pull, merged),
    }
    step.settle_lines(event);
    (step.world, step.follows)
}

/// Reason for which locks are released.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReleaseReason {
    /// The project has no plan, or is no longer planned.
    NotPlanned,
    /// A person gave the command `unlock`, or deleted the lock.
    Person,
    /// The pull request was merged or closed.
    Closed,
    /// A drift run's apply of the project has ended, or was interrupted.
    RemedyEnded,
}

impl ReleaseReason {
    /// Returns true if the reason releases the lock. After an apply under a lock, real infrastructure may differ from the base branch: no
    /// plan releases it.
    fn frees(self, lock: &ProjectLock) -> bool {
        match self {
            ReleaseReason::NotPlanned => !lock.applied && lock.why.is_none(),
            ReleaseReason::Person | ReleaseReason::Closed | ReleaseReason::RemedyEnded => true,
        }
    }
}

pub(super) struct Transition {
    pub(super) world: World,
    pub(super) follows: Consequences,
}

impl Transition {
    /// Releases the locks of the pull request that `is_named` selects, and returns them, oldest first. Locks are only released here.
    pub(super) fn release(
        &mut self,
        pull: &PullId,
        reason: ReleaseReason,
        is_named: impl Fn(&ProjectLock) -> bool,
    ) -> Vec<ProjectLock> {
        let goes = |lock: &ProjectLock| lock.holder.pull == *pull && is_named(lock) && reason.frees(lock);
        let (freed, kept) = std::mem::take(&mut self.world.locks).into_iter().partition(goes);
        self.world.locks = kept;
        let freed: Vec<ProjectLock> = freed;
        self.follows.changes.extend(freed.iter().cloned().map(LockChange::Free));
        freed
    }

    /// Drops the plans that `is_named` selects, and returns them.
    pub(super) fn drop_plans(&mut self, is_named: impl Fn(&PlanRecord) -> bool) -> Vec<PlanRecord> {
        let (dropped, kept) = std::mem::take(&mut self.world.plans).into_iter().partition(is_named);
        self.world.plans = kept;
        let dropped: Vec<PlanRecord> = dropped;
        self.follows.changes.extend(dropped.iter().cloned().map(LockChange::DropPlan));
        dropped
    }

    pub(super) fn refuse(&mut self, refusal: LockRefusal) {
        self.follows.refusal = Some(refusal);
    }

    /// Returns the lock of a project under its own name, with any holder.
    fn lock_of(&mut self, wanted: &ProjectLock) -> Option<&mut ProjectLock> {
        self.world.locks.iter_mut().find(|lock| lock.project == wanted.project && lock.repo == wanted.repo)
    }

    /// Returns the pull request that blocks another one from working on a project; none if its state is not locked. The hold of a drift run
    /// counts in every mode.
    fn other_holder(&self, wanted: &WantedLock) -> Option<Box<LockHolder>> {
        let counts = |lock: &&ProjectLock| wanted.mode != LockMode::Disabled || lock.holder.pull.is_branch();
        let ProjectLock { project, holder, address, .. } = &wanted.lock;
        let lock = lock_before(self.world.locks.iter().filter(counts), &holder.pull, project, address)?;
        Some(Box::new(lock.holder.clone()))
    }

    /// Takes a lock that is free. A lock that the pull request already has is kept, including `since`; if it is now taken by hand, that is
    /// recorded.
    fn hold(&mut self, lock: &ProjectLock) {
        match self.lock_of(lock) {
            None => {
                self.world.locks.push(lock.clone());
                self.follows.changes.push(LockChange::Take(lock.clone()));
            }
            Some(known) if lock.why.is_some() => {
                known.why.clone_from(&lock.why);
                let known = known.clone();
                self.follows.changes.push(LockChange::NoteApplied(known));
            }
            Some(_) => {}
        }
    }

    /// Returns the lock or owner that blocks this change of a project's state.
    fn refusal_of_change(&mut self, change: &StateChange<'_>) -> Option<LockRefusal> {
        if let Some(holder) = self.other_holder(change.project) {
            return Some(LockRefusal::HeldBy(holder));
        }
        self.refusal_of_owners(change)
    }

    /// Holds a project whose state is about to change: until the merge, or until a person releases it.
    fn hold_for_change(&mut self, change: &StateChange<'_>) {
        let wanted = change.project;
        match wanted.mode {
            LockMode::Disabled => return,
            LockMode::Strict(_) => return self.own_for_change(change),
            LockMode::OnPlan | LockMode::OnApply => {}
        }
        let applied = ProjectLock { applied: true, ..wanted.lock.clone() };
        match self.lock_of(&wanted.lock) {
            None => self.hold(&applied),
            Some(lock) if lock.applied => {}
            Some(lock) => {
                lock.applied = true;
                let lock = lock.clone();
                self.follows.changes.push(LockChange::NoteApplied(lock));
            }
        }
    }

    /// Resets the status of a project that was applied or had no changes: it is not done, with any result of the change.
    fn take_back(&mut self, lock: &ProjectLock) {
        let (pull, project) = (&lock.holder.pull, &lock.project);
        let is_done = |known: &&(PullId, ProjectStatus)| {
            known.0 == *pull && known.1.project == *project && known.1.state.is_done()
        };
        let Some(head) = self.world.statuses.iter().find(is_done).map(|(_, status)| status.head.clone()) else {
            return;
        };
        // The plan is dropped when the change has ended.
        let has_plan = self.world.plans.iter().any(|plan| plan.pull == *pull && plan.project == *project);
        let state = if has_plan { ProjectState::Planned } else { ProjectState::PlanDiscarded };
        self.set_state(pull, project, &head, state, lock.holder.since);
    }

    /// Drops earlier plans, releases locks of projects that are no longer planned, and takes the others.
    fn plan_of_all_begins(&mut self, pull: &PullId, projects: &[WantedLock]) {
        let planned: HashSet<&ProjectId> = projects.iter().map(|wanted| &wanted.lock.project).collect();
        self.drop_plans(|plan| plan.pull == *pull);
        self.release(pull, ReleaseReason::NotPlanned, |lock| !planned.contains(&lock.project));
        let is_planned = |project: &ProjectId| planned.iter().any(|planned| planned.is_same_state(project));
        self.leave(|waiter| waiter.pull == *pull && !is_planned(&waiter.project));
        self.take_for_plan(projects);
        // Nothing is planned under these names any more.
        let is_old = |waiter: &&WaitingPull| waiter.pull == *pull && !planned.contains(&waiter.project);
        let old: Vec<ProjectId> =
            self.world.waiters.iter().filter(is_old).map(|waiter| waiter.project.clone()).collect();
        self.leave_free(pull, &old);
    }

    /// Drops earlier plans of these projects, and takes their locks.
    fn plan_of_some_begins(&mut self, pull: &PullId, projects: &[WantedLock]) {
        let planned: HashSet<&ProjectId> = projects.iter().map(|wanted| &wanted.lock.project).collect();
        self.drop_plans(|plan| plan.pull == *pull && planned.contains(&plan.project));
        self.take_for_plan(projects);
    }

    /// Takes the locks of free projects, and reports the holders of the others.
    fn take_for_plan(&mut self, projects: &[WantedLock]) {
        for wanted in projects {
            match self.other_holder(wanted) {
                // A drift run that applies the project blocks plans of every mode: they would be out of date when it ends.
                Some(holder) if wanted.is_locked_by_plan() || holder.pull.is_branch() => {
                    self.follows.held.push((wanted.lock.project.clone(), holder));
                    self.wait_refused(wanted, &wanted.lock.project, WaitCause::Plan);
                }
                None if wanted.is_locked_by_plan() => self.hold(&wanted.lock),
                Some(_) | None => {}
            }
        }
        for wanted in projects {
            self.leave_free_of(wanted);
        }
    }

    fn apply_begins(&mut self, plan: &PlanId, job: &JobId, project: &WantedLock) {
        if let Some(stop) = self.world.apply_lock.clone() {
            return self.refuse(LockRefusal::AppliesStopped(stop));
        }
        let Some(at) = self.world.plans.iter().position(|known| known.id == *plan) else {
            return match self.other_holder(project) {
                Some(holder) => self.refuse_apply(project, &project.lock.project, LockRefusal::HeldBy(holder)),
                None => self.refuse(LockRefusal::NoPlan),
            };
        };
        let head = self.world.plans[at].head.clone();
        let change = StateChange { project, job, head: &head };
        if let Some(refusal) = self.refusal_of_change(&change) {
            let is_owned = matches!(refusal, LockRefusal::OwnedBy(_));
            let kept = self.kept_from(&change).filter(|_| is_owned).map(|(kept, _)| kept);
            return self.refuse_apply(project, &kept.unwrap_or_else(|| project.lock.project.clone()), refusal);
        }
        if let Some(refusal) = self.refusal_of_apply(&change) {
            return self.refuse(refusal);
        }
        let used = PlanRecord { consumed_by: Some(job.clone()), ..self.world.plans.remove(at) };
        self.follows.changes.push(LockChange::UsePlan(ConsumedPlan(used)));
        self.hold_for_change(&change);
        let pull = &project.lock.holder.pull;
        let own = self.world.owners.iter().filter(|owner| owner.holder.pull == *pull).map(|owner| &owner.project);
        let taken: Vec<ProjectId> = own.chain([&project.lock.project]).cloned().collect();
        match project.is_strict() {
            true => self.leave_taken(pull, &taken),
            false => self.leave_free(pull, &taken),
        }
        self.leave_free_of(project);
    }

    /// Refuses an apply, which waits for the holder of `held`: the project, or one that would be owned with it.
    fn refuse_apply(&mut self, project: &WantedLock, held: &ProjectId, refusal: LockRefusal) {
        let cause = if project.is_locked_by_plan() { WaitCause::Plan } else { WaitCause::Apply };
        self.wait_refused(project, held, cause);
        self.refuse(refusal);
    }

    /// Releases locks and drops plans of the pull request, all or those of some projects, and reports the projects. Of its ownerships, it
    /// ends only those that the person may end.
    fn unlocked(
        &mut self,
        pull: &PullId,
        only: Option<&[ProjectId]>,
        may_end: impl Fn(&ProjectOwner) -> bool,
        by: &AuditEntry,
    ) {
        let is_meant = |project: &ProjectId| only.is_none_or(|only| only.contains(project));
        let plans = self.drop_plans(|plan| plan.pull == *pull && is_meant(&plan.project));
        for plan in &plans {
            self.set_state(pull, &plan.project, &plan.head, ProjectState::PlanDiscarded, by.at);
        }
        let locks = self.release(pull, ReleaseReason::Person, |lock| is_meant(&lock.project));
        let mut projects: Vec<ProjectId> = locks.into_iter().map(|lock| lock.project).collect();
        let locked: HashSet<ProjectId> = projects.iter().cloned().collect();
        projects.extend(plans.into_iter().map(|plan| plan.project).filter(|project| !locked.contains(project)));
        self.leave(|waiter| waiter.pull == *pull && is_meant(&waiter.project));
        let (freed, kept) = self.disown_by_hand(pull, may_end, is_meant);
        projects.extend(freed.into_iter().filter(|project| !projects.contains(project)).collect::<Vec<_>>());
        let why = by.why.clone().unwrap_or_default();
        self.follows.message = Some(Message::Unlocked { projects, kept, why, next: Vec::new() });
        self.follows.audit = Some(by.clone());
    }

    /// Returns the lock that a link names: with its host, or with Atlantis' key alone. None if several locks match: of several hosts, or as
    /// different names, directories and workspaces can give the same text.
    fn named_by(&self, key: &str) -> Option<ProjectLock> {
        let locks = &self.world.locks;
        let alone = |is_named: &dyn Fn(&&ProjectLock) -> bool| {
            let mut named = locks.iter().filter(is_named);
            named.next().filter(|_| named.next().is_none())
        };
        let with_id = locks.iter().any(|lock| lock.id() == key);
        let found = if with_id { alone(&|lock| lock.id() == key) } else { alone(&|lock| lock.key() == key) };
        found.cloned()
    }

    /// Deletes one lock and the plan of its project, and notifies its pull request.
    fn lock_deleted(&mut self, key: &str, applying: Option<&JobId>, by: &AuditEntry) {
        let Some(lock) = self.named_by(key) else {
            return self.refuse(LockRefusal::NoLock);
        };
        if let Some(job) = applying {
            self.follows.audit = Some(AuditEntry { result: format!("refused: job {job} applies"), ..by.clone() });
            return self.refuse(LockRefusal::ApplyRuns { job: job.clone() });
        }
        let pull = &lock.holder.pull;
        self.release(pull, ReleaseReason::Person, |other| other.project == lock.project && other.repo == lock.repo);
        for plan in self.drop_plans(|plan| plan.pull == *pull && plan.project == lock.project) {
            self.set_state(pull, &lock.project, &plan.head, ProjectState::PlanDiscarded, by.at);
        }
        let result = format!("deleted; {pull} had it");
        let project = Some(lock.project.label());
        self.follows.audit = Some(AuditEntry { result, pull: Some(pull.clone()), project, ..by.clone() });
        let (project, user, why) = (lock.project, by.who.clone(), by.why.clone().unwrap_or_default());
        self.follows.message = Some(Message::Discarded { project, user, why, next: Vec::new() });
    }

    /// Deletes all locks and plans of the pull request; it is notified if there was a lock, or a remark.
    fn closed(&mut self, pull: &PullId, remarks: &[String]) {
        self.drop_plans(|plan| plan.pull == *pull);
        let mut by_dir: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for lock in self.release(pull, ReleaseReason::Closed, |_| true) {
            let workspaces = by_dir.entry(lock.project.dir).or_default();
            if !workspaces.contains(&lock.project.workspace) {
                workspaces.push(lock.project.workspace);
            }
        }
        if !by_dir.is_empty() || !remarks.is_empty() {
            let locks = by_dir.into_iter().collect();
            self.follows.message =
                Some(Message::Cleanup { locks, unmerged: Vec::new(), remarks: remarks.to_vec(), next: Vec::new() });
        }
    }

    /// Sets the status of a project, without a job and without totals of a plan.
    pub(super) fn set_state(
        &mut self,
        pull: &PullId,
        project: &ProjectId,
        head: &CommitSha,
        state: ProjectState,
        updated: Timestamp,
    ) {
        let (project, head) = (project.clone(), head.clone());
        let status = ProjectStatus { project, state, head, summary: None, job: None, updated, waits_for: Vec::new() };
        self.world.statuses.retain(|(of, known)| of != pull || known.project != status.project);
        self.world.statuses.push((pull.clone(), status.clone()));
        self.follows.changes.push(LockChange::SetStatus(pull.clone(), status));
    }
}
