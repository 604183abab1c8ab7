//! Preconditions of an apply. They are checked on one view of the state before the apply waits for its turn, and again in the commit that
//! it begins with. Events of other pull requests may be recorded in between.

use super::super::applicable_plans::ApplicablePlans;
use super::super::cancel::Cancel;
use super::super::command_run::{CommandRun, plan_limit};
use super::super::context::Context;
use super::super::freeze::FreezeGuard;
use super::super::merged;
use super::super::prepare::Stop;
use super::{ApplyRun, apply_lock_text};
use crate::config::{ProjectConfig, Requirement};
use crate::domain::outcome::{Failure, Reason};
use crate::domain::state::PlanRecord;
use crate::domain::{CommitSha, ProjectId, duration};
use crate::store::View;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Conditions that stop any apply of a project, whatever its plan is.
#[derive(Clone)]
pub(in super::super) struct ApplyGate {
    pub(super) cancel: Cancel,
    pub(super) frozen: FreezeGuard,
}

/// Conditions for the apply of a plan.
pub(in super::super) struct ApplyPreconditions {
    pub(in super::super) gate: ApplyGate,
    /// The plan, which must still exist.
    pub(in super::super) plan: PlanRecord,
    /// Maximum age of the plan; absent for no limit.
    pub(in super::super) max_age: Option<Duration>,
    /// Absent if no pull request applies it.
    pub(in super::super) of_pull: Option<PullPreconditions>,
}

/// Conditions for a pull request that applies a plan.
pub(in super::super) struct PullPreconditions {
    head: CommitSha,
    config: ProjectConfig,
    /// True if it applies unapplied merged changes.
    after_merge: bool,
    /// True if the plan has to change the same as the plan before the merge.
    guarded: bool,
    /// True if `undiverged` is among its requirements.
    wants_undiverged: bool,
    /// Projects that need no plan, although all others that the pull request changes do: the project itself, and those whose plans this
    /// command has made out of date. Absent if no others need one.
    all_planned_but: Option<Vec<ProjectId>>,
    /// Projects that the same command has applied.
    applied: Vec<ProjectId>,
    /// The last activity before its requirements were checked; absent before that.
    activity: Option<i64>,
}

impl ApplyGate {
    /// Loads the conditions. Asks the host about teams only during a freeze window.
    ///
    /// # Errors
    ///
    /// The host did not respond: nothing of the project is applied then.
    pub(in super::super) async fn load(
        ctx: &Context,
        work: &CommandRun,
        config: &ProjectConfig,
        cancel: &Cancel,
    ) -> Result<ApplyGate, Stop> {
        Ok(ApplyGate { cancel: cancel.clone(), frozen: FreezeGuard::load(ctx, work, config).await? })
    }

    /// Returns the refusal if nothing of the project may be applied now.
    pub(in super::super) fn refusal(&self, view: &View<'_>) -> Result<Option<Failure>> {
        if self.cancel.token.is_cancelled() {
            return Ok(Some(Failure::Cancelled { by: self.cancel.by() }));
        }
        if let Some(failure) = self.frozen.refusal(view, Timestamp::now())? {
            return Ok(Some(failure));
        }
        let stopped = view.apply_lock()?;
        Ok(stopped.map(|lock| Failure::Refused { reason: Reason::NotPermitted, because: apply_lock_text(&lock) }))
    }
}

impl ApplyRun<'_> {
    /// Returns true if every project that the pull request changes has to be planned before this apply.
    fn wants_all_planned(&self, config: &ProjectConfig) -> bool {
        config.wants_all_planned() && !self.work.command.only && self.work.after_merge.is_none()
    }

    /// Returns the preconditions of one project. `activity` is the last activity before its requirements were checked; absent before that.
    pub(super) fn preconditions(
        &self,
        config: &ProjectConfig,
        gate: ApplyGate,
        plan: &PlanRecord,
        applied: &[ProjectId],
        activity: Option<i64>,
    ) -> ApplyPreconditions {
        let after_merge = self.work.after_merge.is_some();
        let mut but = self.made_with_old_outputs();
        but.push(config.id.clone());
        let of_pull = PullPreconditions {
            head: self.work.pull.head.commit.clone(),
            config: config.clone(),
            after_merge,
            guarded: merged::is_guarded(self.work),
            wants_undiverged: !after_merge && self.wanted(config, plan).contains(&Requirement::Undiverged),
            all_planned_but: self.wants_all_planned(config).then_some(but),
            applied: applied.to_vec(),
            activity,
        };
        let max_age = plan_limit(self.ctx, config);
        ApplyPreconditions { gate, plan: plan.clone(), max_age, of_pull: Some(of_pull) }
    }
}

impl ApplyPreconditions {
    /// Returns the first precondition that is not met, as a failure.
    pub(in super::super) fn refusal(&self, view: &View<'_>) -> Result<Option<Failure>> {
        if let Some(failure) = self.gate.refusal(view)? {
            return Ok(Some(failure));
        }
        if let Some(failure) = too_old(&self.plan, self.max_age, Timestamp::now()) {
            return Ok(Some(failure));
        }
        self.of_pull.as_ref().map_or(Ok(None), |of_pull| of_pull.refusal(&self.plan, view))
    }
}

impl PullPreconditions {
    fn refusal(&self, plan: &PlanRecord, view: &View<'_>) -> Result<Option<Failure>> {
        let now = ApplicablePlans::read(view, &plan.pull, self.after_merge)?;
        if let Some(but) = &self.all_planned_but {
            let mut missing = now.not_planned(&self.head);
            missing.retain(|project| !but.contains(project));
            if !missing.is_empty() {
                return Ok(Some(Failure::NotPlanned { missing }));
            }
        }
        let missing = now.missing(&self.config, &self.applied);
        if !missing.is_empty() {
            return Ok(Some(Failure::Dependency { missing }));
        }
        let checked = self.activity.filter(|_| self.wants_undiverged);
        if let Some(activity) = checked
            && view.closed_since(&plan.pull.repo, activity)?
        {
            let because = "another pull request was merged or closed in the moment in which it was to begin, and `undiverged` was met before that"
                .to_owned();
            return Ok(Some(Failure::StalePlan { because }));
        }
        match self.guarded {
            true => Ok(merged::guard(plan, &view.owners_of(&plan.pull)?)),
            false => Ok(None),
        }
    }
}

/// Maximum time by which a plan of another server may be ahead of this server's clock.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(5);

/// Returns the refusal of a plan that is older than permitted, or whose age the clock does not tell. The plan stays: an operator may raise
/// the limit, and a new plan replaces it.
fn too_old(plan: &PlanRecord, limit: Option<Duration>, now: Timestamp) -> Option<Failure> {
    let (age, limit) = (plan.age(now), limit?);
    let ahead = plan.made.duration_since(now);
    if ahead > CLOCKS_DIFFER {
        let because = format!(
            "by this server's clock it is made {} from now, so nobody knows whether it is older than plans of this project may be \
             (`plan_max_age`): the clock of this server or of the one that planned is wrong",
            duration::format(ahead.unsigned_abs())
        );
        return Some(Failure::StalePlan { because });
    }
    (age > limit).then(|| {
        let (age, limit) = (duration::format(age), duration::format(limit));
        let because =
            format!("it is {age} old, and plans of this project are applied for {limit} only (`plan_max_age`)");
        Failure::StalePlan { because }
    })
}

#[cfg(test)]
mod tests {
    use super::super::bound::tests::plan;
    use super::*;

    #[test]
    fn a_plan_is_too_old_once_it_is_older_than_the_limit() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let limit = Some(Duration::from_secs(60));
        for (now, limit, refused) in [
            (60, limit, false),
            (61, limit, true),
            (-5, limit, false),
            (61, None, false),
            (-300, limit, false),
            (-301, limit, true),
            (-301, None, false),
        ] {
            assert_eq!(too_old(&plan(), limit, at(now)).is_some(), refused, "{now} {limit:?}");
        }
        let said = too_old(&plan(), limit, at(-3600));
        assert!(
            matches!(said, Some(Failure::StalePlan { because }) if because.contains("clock") && because.contains("1 h"))
        );
    }
}
