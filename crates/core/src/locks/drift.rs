//! Locks, owners and jobs that block a drift run of a project: a planned, locked or half-applied change is not drift. Also the consequences
//! of an apply by a drift run.
//!
//! While a drift run applies a project it holds the project's lock like a pull request, and releases it when its job ends, with any result.
//! The hold has no address of the state: it blocks others under every name.

use super::rules::{ReleaseReason, Transition};
use crate::domain::command::CommandName;
use crate::domain::drift::{DriftBlock, DriftHold};
use crate::domain::ownership::{InvalidationCause, ProjectOwner};
use crate::domain::state::{Job, PlanRecord, ProjectLock};
use crate::domain::{ProjectId, PullId};
use jiff::Timestamp;

impl Transition {
    /// Handles the end of a drift run's apply: releases its lock, and invalidates plans of the project, which are out of date.
    pub(super) fn remedy_ended(&mut self, run: &PullId, project: &ProjectId, at: Timestamp) {
        self.release(run, ReleaseReason::RemedyEnded, |lock| lock.repo == run.repo && lock.project == *project);
        let is_same = |plan: &PlanRecord| plan.pull.repo == run.repo && plan.project.is_same_state(project);
        let is_invalidated = |plan: &PlanRecord| plan.pull != *run && is_same(plan);
        self.invalidate(&InvalidationCause::DriftApplied, at, is_invalidated);
    }
}

/// Returns the pull request that holds a project, from all locks and owners of its directory and workspace, and its running jobs. Names of
/// projects are ignored, as the state is one. Changes in progress, and those applied but not merged, come before plans.
pub fn drift_block(locks: &[ProjectLock], owners: &[ProjectOwner], running: &[Job]) -> Option<DriftBlock> {
    let at_work = running.iter().filter(|job| job.changes_state()).map(|job| (&job.pull, DriftHold::AtWork));
    // A plan may be recorded after an apply that it was made before.
    let planned = running.iter().filter(|job| job.kind == CommandName::Plan.as_str());
    let applied = owners.iter().filter(|owner| owner.applied.is_some() || owner.is_owed());
    let others = owners.iter().filter(|owner| owner.applied.is_none() && !owner.is_owed());
    let owned = |owner: &ProjectOwner| DriftHold::Owned(owner.state);
    let all = at_work
        .chain(applied.map(|owner| (&owner.holder.pull, owned(owner))))
        .chain(locks.iter().map(|lock| (&lock.holder.pull, DriftHold::Locked { applied: lock.applied })))
        .chain(others.map(|owner| (&owner.holder.pull, owned(owner))))
        .chain(planned.map(|job| (&job.pull, DriftHold::AtWork)));
    let mut all = all.map(|(pull, how)| DriftBlock { pull: pull.clone(), how });
    all.next()
}

#[cfg(test)]
mod tests {
    use super::super::{LockEvent, LockRefusal, WantedLock, World, step};
    use super::*;
    use crate::config::{LockMode, LockScope};
    use crate::domain::RepoId;
    use crate::domain::outcome::PlanSummary;
    use crate::domain::ownership::OwnerState;
    use crate::domain::state::{JobState, LeftFiles, LockHolder, StateLockTrace};
    use crate::domain::state_address::StateAddress;
    use crate::domain::waiting::PlannedAgain;

    fn pull(number: u64) -> PullId {
        PullId { repo: RepoId { host: "h".into(), owner: "acme".into(), name: "infra".into() }, number }
    }

    fn project() -> ProjectId {
        ProjectId { dir: "net".into(), workspace: "default".into(), name: None }
    }

    fn lock(number: u64) -> ProjectLock {
        let holder = LockHolder {
            pull: pull(number),
            title: String::new(),
            url: String::new(),
            user: "alice".into(),
            since: Timestamp::UNIX_EPOCH,
            overdue: None,
        };
        ProjectLock {
            repo: holder.pull.repo.clone(),
            project: project(),
            holder,
            applied: false,
            why: None,
            address: StateAddress::default(),
        }
    }

    fn owner(number: u64, state: OwnerState) -> ProjectOwner {
        ProjectOwner {
            repo: pull(number).repo,
            project: project(),
            holder: lock(number).holder,
            state,
            applied: None,
            merged: None,
            told: None,
            reminder_interval: None,
            approved: None,
            reason: String::new(),
        }
    }

    fn job(number: u64, kind: &str) -> Job {
        Job {
            id: "job".into(),
            run: "run".into(),
            pull: pull(number),
            kind: kind.into(),
            project: Some(project()),
            user: "alice".into(),
            head: "a".into(),
            state: JobState::Running,
            summary: String::new(),
            outcome: None,
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            state_lock: StateLockTrace::default(),
            remote: None,
        }
    }

    #[test]
    fn who_has_changed_something_is_named_before_who_has_only_planned() {
        let named = |locks: &[ProjectLock], owners: &[ProjectOwner], running: &[Job]| {
            drift_block(locks, owners, running).map(|block| block.pull.number)
        };
        assert_eq!(named(&[], &[], &[]), None);
        assert_eq!(named(&[], &[], &[job(0, "drift")]), None, "it is its own");
        assert_eq!(named(&[], &[], &[job(4, "plan")]), Some(4));
        assert_eq!(named(&[lock(1)], &[], &[job(4, "plan")]), Some(1));
        assert_eq!(named(&[lock(1)], &[], &[]), Some(1));
        assert_eq!(named(&[], &[owner(2, OwnerState::Planned)], &[]), Some(2));
        let owed = owner(3, OwnerState::MergedUnapplied);
        assert_eq!(named(&[lock(1)], &[owner(2, OwnerState::Planned), owed.clone()], &[]), Some(3));
        for kind in ["apply", "import", "state_rm"] {
            assert_eq!(named(&[lock(1)], std::slice::from_ref(&owed), &[job(4, kind)]), Some(4));
        }
    }

    fn plan(number: u64) -> PlanRecord {
        PlanRecord {
            id: format!("p{number}").as_str().into(),
            pull: pull(number),
            project: project(),
            head: "a".into(),
            base: "b".into(),
            base_branch: "main".into(),
            config_digest: String::new(),
            tool: String::new(),
            path: None,
            sha256: None,
            summary: PlanSummary::default(),
            made: Timestamp::UNIX_EPOCH,
            job: "planned".into(),
            consumed_by: None,
            left: LeftFiles::default(),
            dependencies: Vec::new(),
            may_depend_on_more: false,
            max_age: None,
            inputs: None,
            changes: None,
            incomparable: None,
            part: None,
            guards: Vec::new(),
            tree: None,
            auto_apply: crate::domain::AutoApply::Never,
            arguments: Vec::new(),
            deleted: false,
        }
    }

    fn applies(number: u64, mode: LockMode) -> LockEvent {
        let project = WantedLock { lock: lock(number), mode };
        LockEvent::ApplyBegins { plan: plan(number).id, job: "job".into(), project }
    }

    #[test]
    fn a_drift_run_holds_what_it_applies_in_every_mode_and_nothing_after_it() {
        let start = World { plans: vec![plan(0), plan(1)], ..World::default() };
        let (held, follows) = step(start, &applies(0, LockMode::OnPlan));
        assert!(follows.consumed().is_some() && held.locks == [ProjectLock { applied: true, ..lock(0) }]);
        let modes = [LockMode::Disabled, LockMode::OnApply, LockMode::OnPlan, LockMode::Strict(LockScope::Project)];
        for mode in modes {
            let (after, follows) = step(held.clone(), &applies(1, mode));
            let holder = lock(0).holder;
            assert_eq!(follows.refusal, Some(LockRefusal::HeldBy(Box::new(holder))), "{mode:?}");
            assert_eq!((&after.locks, &after.plans), (&held.locks, &held.plans), "{mode:?}");
        }
        let changed = |number| LockEvent::StateChanged {
            pull: pull(number),
            project: project(),
            outputs: true,
            at: Timestamp::UNIX_EPOCH,
        };
        // The end of a pull request's change does not release a drift run's lock.
        assert_eq!(step(held.clone(), &changed(1)).0.locks, held.locks);
        let (after, follows) = step(held, &changed(0));
        assert!(after.locks.is_empty() && after.plans.is_empty(), "{after:?}");
        let [invalidated] = follows.invalidated.as_slice() else { panic!("{follows:?}") };
        assert_eq!((&invalidated.cause, &invalidated.again), (&InvalidationCause::DriftApplied, &PlannedAgain::Now));
        assert_eq!(follows.turns, [(pull(1), project())]);
    }

    #[test]
    fn a_drift_run_that_is_refused_waits_for_nobody() {
        let start = World { plans: vec![plan(0)], locks: vec![lock(1)], ..World::default() };
        let (after, follows) = step(start.clone(), &applies(0, LockMode::OnPlan));
        assert!(follows.refusal.is_some() && after == start, "{after:?}");
    }
}
