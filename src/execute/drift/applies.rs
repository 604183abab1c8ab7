//! Applies of a remediation. Each is of the plan that was made just before in the same tree. Meanwhile the drift run holds the project's
//! lock, so that no pull request plans or applies the project at the same time.

use super::super::apply::bound::ApplyStart;
use super::super::apply::place::ApplyPlace;
use super::super::apply::stage::PlanToApply;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job::{self, ExecutorSlot, JobRun, Ready};
use super::super::not_run::NotRun;
use super::super::plan::remove_plan_files;
use super::super::plan_files::bring;
use super::super::preconditions::{ApplyPreconditions, PlanOwner, Preconditions};
use super::super::prepare;
use super::super::{apply, guards, policies};
use super::apply_end;
use super::plans::{DriftFound, DriftPlans};
use super::remedy::RemedyRun;
use crate::config::{LockMode, ProjectConfig};
use crate::domain::drift::{DriftApply, ProjectDrift, RemediatedProject};
use crate::domain::outcome::{Failure, Outcome, Reason};
use crate::domain::state::{Job, LockHolder, PlanRecord, ProjectLock};
use crate::domain::state_address::StateAddress;
use crate::locks::{ConsumedPlan, WantedLock};
use crate::runner::local::Place;
use crate::runner::spec::PlanReference;
use crate::store::{KeptFile, Tx};
use anyhow::{Context as _, Result};
use jiff::Timestamp;

/// A remediation that applies its plans.
#[derive(Clone, Copy)]
pub(super) struct DriftApplies<'a> {
    pub(super) remedy: &'a RemedyRun,
    /// The run of the applies.
    pub(super) work: &'a CommandRun,
}

/// A planned project that is to be applied.
pub(super) struct PlannedDrift<'a> {
    pub(super) config: &'a ProjectConfig,
    pub(super) ready: &'a Ready,
    pub(super) found: ProjectDrift,
    /// The text of the plan.
    pub(super) output: String,
    pub(super) plan: PlanRecord,
}

/// Returns the refusal of a project that a drift run may not apply, whatever its plan is; `None` if it may.
pub(super) fn refusal(ctx: &Context, config: &ProjectConfig) -> Option<Failure> {
    let because =
        "its plans are checked against policies, and drift runs check none: correct the drift by a pull request";
    let refused = Failure::Refused { reason: Reason::Policy, because: because.to_owned() };
    policies::is_on(ctx, config).then_some(refused)
}

impl DriftPlans<'_> {
    /// Applies a plan that was just made, unless something has changed meanwhile. Its files are removed in any case: a job at an executor has
    /// its own.
    pub(super) async fn apply(&self, applies: DriftApplies<'_>, planned: PlannedDrift<'_>) -> Result<DriftFound> {
        let done = self.begin_and_apply(applies, &planned).await;
        remove_plan_files(self.ctx, std::slice::from_ref(&planned.plan)).await;
        match done {
            Ok(found) => Ok(found),
            Err(reason) => {
                if reason.is_held()
                    && let Some((skipped, _)) = self.skipped(&planned.config.id, planned.found.job.clone()).await?
                {
                    return Ok((skipped, Some(planned.output)));
                }
                let mut refused =
                    job::refused_outcome(applies.work, planned.config, reason.outcome(self.ctx, applies.work)?);
                refused.job = planned.found.job;
                let (found, _) = self.failed(refused);
                Ok((found, Some(planned.output)))
            }
        }
    }

    async fn begin_and_apply(
        &self,
        applies: DriftApplies<'_>,
        planned: &PlannedDrift<'_>,
    ) -> Result<DriftFound, NotRun> {
        let (ctx, config) = (self.ctx, planned.config);
        if let Some(failure) = guards::refusal_of_drift(config, &planned.plan) {
            return Err(failure.into());
        }
        let slot = ExecutorSlot::wait(ctx, applies.work, config).await?;
        let _permit = job::enter(ctx, applies.work, slot.as_ref()).await;
        let mut preconditions = Preconditions::load(ctx, applies.work, config, &self.work.cancel).await?;
        preconditions.apply = Some(ApplyPreconditions { plan: planned.plan.clone(), of: PlanOwner::DriftRun });
        preconditions.check(ctx).await?;
        let at = ApplyPlace::find(ctx, applies.work, config, &planned.plan, &self.work.cancel).await?;
        let (spec, place) = (planned.ready.tree.clone(), &planned.ready.place);
        let tree = at.tree(place.tree.clone());
        let dir = job::project_dir(&tree.root, &config.id.dir)?;
        let _directories = job::lock_directories(ctx, &tree.root, &dir, &planned.plan.dependencies).await;
        let ready = Ready { tree: spec, place: Place::new(tree, dir, &config.id, place.tool.clone()) };
        let reference = PlanReference { approved: at.approved.clone(), ..PlanReference::from(&planned.plan) };
        let first = bring(ctx, config, &reference, &ready.place, &config.workflow.apply, at.executor).await?;
        self.refuse_if_moved().await?;
        let (mut job, consumed) = self.begin(applies, planned, preconditions, slot).await?;
        let to_apply = PlanToApply { plan: &consumed, approved: reference.approved, first };
        let ran = apply::stage::run(&mut job, config, to_apply, &ready, self.facts).await;
        at.leave().await;
        let (outcome, errored) = ran?;
        Ok(self.end(applies, planned, job, outcome, errored).await?)
    }

    /// Refuses an apply if the branch has newer commits, which it would undo, or if the host does not report the tip.
    async fn refuse_if_moved(&self) -> Result<(), Failure> {
        let (repo, branch, pull) = (&self.of.request.repo, &self.of.request.branch, &self.work.pull);
        let credentials = prepare::credentials_of(self.ctx, repo).await;
        let tip = self.ctx.checkouts.branch_tip(repo, &pull.clone_url, branch, credentials.as_ref()).await;
        let because = match tip {
            Ok(Some(tip)) if tip == pull.head.commit => return Ok(()),
            Ok(Some(tip)) => {
                format!(
                    "`{branch}` has moved to {} since, and an apply would undo the commits merged since",
                    tip.short()
                )
            }
            Ok(None) => format!("there is no branch `{branch}` any more"),
            Err(error) => format!("whether `{branch}` has moved could not be found: {error}"),
        };
        Err(Failure::Refused { reason: Reason::StalePlan, because })
    }

    /// Commits the beginning of an apply before Terraform starts: project free, plan consumed, job begun, lock held.
    async fn begin<'a>(
        &'a self,
        applies: DriftApplies<'a>,
        planned: &PlannedDrift<'_>,
        preconditions: Preconditions,
        slot: Option<ExecutorSlot>,
    ) -> Result<(JobRun<'a>, ConsumedPlan), NotRun> {
        let (ctx, work) = (self.ctx, applies.work);
        // In every lock mode, as the lock is held only briefly.
        let project = WantedLock { lock: self.hold(work, planned), mode: LockMode::OnPlan };
        let entry = apply_end::audit(work, Some(&self.work.run.id), &planned.plan, "begun");
        let start = ApplyStart { preconditions, project, entry, slot };
        let project = applies.remedy.project(&planned.found, String::new());
        let (mut remediation, begins) = (applies.remedy.recorded(), project.clone());
        let address = ctx.settings.atlantis_url.clone();
        let first = move |start: &mut ApplyStart, tx: &Tx<'_>, job: &Job| {
            start.project.lock.holder.url = format!("{address}/jobs/{}", job.id);
            let apply = Some(DriftApply { job: job.id.clone(), end: None });
            remediation.begun.push(RemediatedProject { apply, ..begins });
            tx.put_remediation(&remediation)
        };
        let (job, consumed) = start.commit(ctx, work, planned.config, first).await?;
        let apply = Some(DriftApply { job: job.record.id.clone(), end: None });
        applies.remedy.apply_begun(RemediatedProject { apply, output: planned.output.clone(), ..project });
        Ok((job, consumed))
    }

    /// Returns the drift run's lock on the project.
    fn hold(&self, work: &CommandRun, planned: &PlannedDrift<'_>) -> ProjectLock {
        let holder = LockHolder {
            pull: work.pull.id.clone(),
            title: format!("that applies {}", self.of.request.branch),
            url: String::new(),
            user: work.command.user.clone(),
            since: Timestamp::now(),
            overdue: None,
        };
        let (repo, project) = (self.of.request.repo.clone(), planned.config.id.clone());
        ProjectLock { repo, project, holder, applied: false, why: None, address: StateAddress::default() }
    }

    /// Commits the end of an apply.
    async fn end(
        &self,
        applies: DriftApplies<'_>,
        planned: &PlannedDrift<'_>,
        job: JobRun<'_>,
        outcome: Outcome,
        errored: Option<KeptFile>,
    ) -> Result<DriftFound> {
        let (id, remedy, plan) = (job.record.id.clone(), applies.remedy, &planned.plan);
        let outcome = job.outcome(outcome);
        let result = if outcome.outcome.is_success() { "applied" } else { "failed" };
        let found = remedy.apply_ended(&id, apply_end::of_outcome(self.ctx, applies.work, &outcome).await);
        let found = found.context("an apply has ended that had not begun")?;
        let audit = apply_end::audit(applies.work, Some(&self.work.run.id), plan, result);
        let change = apply_end::change(plan, errored, Some((found.clone(), remedy.recorded())), audit);
        job.end(outcome, change).await?;
        Ok((found, Some(planned.output.clone())))
    }
}
