//! Applies of a remediation. Each is of the plan that was made just before in the same tree. Meanwhile the drift run holds the project's
//! lock, so that no pull request plans or applies the project at the same time.

use super::super::apply::bound::ApplyStart;
use super::super::apply::stage::PlanToApply;
use super::super::command_run::{CommandRun, audit_entry};
use super::super::context::Context;
use super::super::job::{self, JobRun, Ready};
use super::super::job_end::{JobChange, StateChangeEnd};
use super::super::not_run::NotRun;
use super::super::plan::remove_plan_files;
use super::super::plan_files::bring;
use super::super::preconditions::{ApplyPreconditions, PlanOwner, Preconditions};
use super::super::prepare;
use super::super::{apply, policies, state_locks};
use super::plans::{DriftFound, DriftPlans};
use super::remedy::RemedyRun;
use crate::config::{LockMode, ProjectConfig};
use crate::domain::drift::{DriftApply, DriftApplyEnd, ProjectDrift, RemediatedProject};
use crate::domain::outcome::{Failure, Outcome, Reason};
use crate::domain::state::{AuditEntry, Job, LockHolder, PlanRecord, ProjectLock};
use crate::domain::state_address::StateAddress;
use crate::locks::{ConsumedPlan, WantedLock};
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
    let because = "its plans are checked against policies, and drift runs check none: put it right by a pull request";
    let refused = Failure::Refused { reason: Reason::Policy, because: because.to_owned() };
    policies::is_on(ctx, config).then_some(refused)
}

impl DriftPlans<'_> {
    /// Applies a plan that was just made, unless something has changed meanwhile. Its files are removed in any case.
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
        let (ctx, config, place) = (self.ctx, planned.config, &planned.ready.place);
        let _directories = job::lock_directories(ctx, &place.tree.root, &place.dir, &planned.plan.dependencies).await;
        let _permit = ctx.admission.enter_when_free().await;
        let mut preconditions = Preconditions::load(ctx, applies.work, config, &self.work.cancel).await?;
        preconditions.apply = Some(ApplyPreconditions { plan: planned.plan.clone(), of: PlanOwner::DriftRun });
        preconditions.check(ctx).await?;
        let reference = PlanReference::from(&planned.plan);
        let first = bring(ctx, config, &reference, place, &config.workflow.apply, None).await?;
        self.refuse_if_moved().await?;
        let (mut job, consumed) = self.begin(applies, planned, preconditions).await?;
        let to_apply = PlanToApply { plan: &consumed, approved: None, first };
        let ran = apply::stage::run(&mut job, config, to_apply, planned.ready, self.facts);
        let (outcome, errored) = ran.await?;
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
                format!("`{branch}` has moved to {} since, and what was merged would be undone", tip.short())
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
    ) -> Result<(JobRun<'a>, ConsumedPlan), NotRun> {
        let (ctx, work) = (self.ctx, applies.work);
        // In every lock mode, as the lock is held only briefly.
        let project = WantedLock { lock: self.hold(work, planned), mode: LockMode::OnPlan };
        let start =
            ApplyStart { preconditions, project, entry: self.audit_entry(applies, planned, "begun"), slot: None };
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
        };
        let (repo, project) = (self.of.request.repo.clone(), planned.config.id.clone());
        ProjectLock { repo, project, holder, applied: false, why: None, address: StateAddress::default() }
    }

    fn audit_entry(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>, result: &str) -> AuditEntry {
        let entry = audit_entry(applies.work, &planned.config.id, result.to_owned());
        let (repo, commit) = (&self.of.request.repo, &self.work.pull.head.commit);
        AuditEntry {
            act: "drift apply".to_owned(),
            subject: format!("{} of {repo} at {commit}", planned.config.id.label()),
            plan: planned.plan.sha256.clone(),
            pull: None,
            request: Some(self.work.run.id.to_string()),
            ..entry
        }
    }

    /// Commits the end of an apply: releases the lock, and invalidates plans of pull requests that were made from the earlier state.
    async fn end(
        &self,
        applies: DriftApplies<'_>,
        planned: &PlannedDrift<'_>,
        job: JobRun<'_>,
        outcome: Outcome,
        errored: Option<KeptFile>,
    ) -> Result<DriftFound> {
        let (ctx, id) = (self.ctx, job.record.id.clone());
        let outcome = job.outcome(outcome);
        let success = outcome.outcome.is_success();
        let remark = state_locks::remark(ctx, &self.work.pull.id, &outcome).await;
        let words = [Some(ctx.statuses.one_line(&outcome)), remark];
        let error = (!success).then(|| words.into_iter().flatten().collect::<Vec<_>>().join(". "));
        let output = match &outcome.outcome {
            Outcome::Applied(applied) => applied.output.clone(),
            Outcome::Errored(fault) => fault.output.clone(),
            _ => String::new(),
        };
        let found = applies.remedy.apply_ended(&id, DriftApplyEnd { output, error });
        let found = found.context("an apply has ended that had not begun")?;
        let change = JobChange::StateChanged(Box::new(StateChangeEnd {
            invalidates_plans: true,
            outputs: !planned.plan.summary.no_changes,
            because: format!("{} was applied", planned.config.id.label()),
            errored,
            remediation: Some((found.clone(), applies.remedy.recorded())),
            audit: self.audit_entry(applies, planned, if success { "applied" } else { "failed" }),
            ..StateChangeEnd::default()
        }));
        job.end(outcome, change).await?;
        Ok((found, Some(planned.output.clone())))
    }
}
