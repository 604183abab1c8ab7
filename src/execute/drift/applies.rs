//! Applies of a remediation. Each is of the plan that was made just before, in the same tree, and of no other; while it runs the drift run
//! holds the project's lock, so that no pull request plans or applies the project beside it.

use super::super::errored_state::with_errored;
use super::super::freeze::FreezeGuard;
use super::super::job::{self, JobRun, Ready};
use super::super::notices::NoticeWriter;
use super::super::plan::remove_plan_files;
use super::super::plan_files::bring;
use super::super::prepare::{self, Stop};
use super::super::{Cancel, CommandRun, Context, apply, audit_entry, policies, state_locks};
use super::plans::{DriftFound, DriftPlans};
use super::remedy::RemedyRun;
use crate::config::{LockMode, ProjectConfig};
use crate::domain::JobId;
use crate::domain::drift::{DriftApply, DriftApplyEnd, DriftBlock, ProjectDrift, RemediatedProject, Remediation};
use crate::domain::outcome::{Failure, Outcome, Reason};
use crate::domain::state::{AuditEntry, LockHolder, PlanRecord, ProjectLock};
use crate::domain::state_address::StateAddress;
use crate::locks::{ConsumedPlan, LockEvent, WantedLock};
use crate::store::{KeptFile, Tx};
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

/// What a remediation applies with.
#[derive(Clone, Copy)]
pub(super) struct DriftApplies<'a> {
    pub(super) remedy: &'a RemedyRun,
    /// The run of the applies.
    pub(super) work: &'a CommandRun,
}

/// A project that was planned, to be applied.
pub(super) struct PlannedDrift<'a> {
    pub(super) config: &'a ProjectConfig,
    pub(super) ready: &'a Ready,
    pub(super) found: ProjectDrift,
    /// The text of the plan.
    pub(super) output: String,
    pub(super) plan: PlanRecord,
}

/// What has to hold when an apply begins, and what is recorded then.
struct ApplyBeginning {
    /// The project as the remediation has it, without texts.
    project: RemediatedProject,
    plan: PlanRecord,
    /// Who holds the project meanwhile; the page of the job is added.
    lock: ProjectLock,
    /// Address of this server.
    address: String,
    cancel: Cancel,
    frozen: FreezeGuard,
    entry: AuditEntry,
    remediation: Remediation,
}

/// Why an apply does not begin.
enum NotBegun {
    /// A pull request has come between.
    Held(DriftBlock),
    Failed(Failure),
}

/// Why a project is not applied by a drift run, whatever its plan says.
pub(super) fn refusal(ctx: &Context, config: &ProjectConfig) -> Option<Outcome> {
    let because = "its plans are checked against policies, and drift runs check none: put it right by a pull request";
    let refused = Outcome::Failed(Failure::Refused { reason: Reason::Policy, because: because.to_owned() });
    policies::is_on(ctx, config).then_some(refused)
}

impl DriftPlans<'_> {
    /// Applies a plan that was just made, unless something has come between. Its files go, whatever came of it.
    pub(super) async fn apply(&self, applies: DriftApplies<'_>, planned: PlannedDrift<'_>) -> Result<DriftFound> {
        let done = self.begin_and_apply(applies, &planned).await;
        remove_plan_files(self.ctx, std::slice::from_ref(&planned.plan)).await;
        done
    }

    async fn begin_and_apply(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>) -> Result<DriftFound> {
        let (ctx, config) = (self.ctx, planned.config);
        let _permit = ctx.admission.enter_when_free().await;
        let frozen = match FreezeGuard::of(ctx, applies.work, config).await {
            Ok(frozen) => frozen,
            Err(stop) => return self.not_applied(applies, planned, stop),
        };
        let first = match bring(ctx, config, &planned.plan, &planned.ready.place, &config.workflow.apply).await? {
            Ok(first) => first,
            Err(failure) => return Ok(self.refused(applies, planned, failure)),
        };
        if let Some(failure) = self.moved().await {
            return Ok(self.refused(applies, planned, failure));
        }
        match self.begin(applies, planned, frozen).await? {
            Ok((mut job, consumed)) => {
                let facts = (planned.ready, self.facts);
                let (outcome, errored) = apply::stage::run(&mut job, config, &consumed, facts, first).await?;
                self.end(applies, planned, job, (outcome, errored)).await
            }
            Err(NotBegun::Held(block)) => {
                let job = planned.found.job.clone();
                Ok((self.skipped_for(&config.id, job, block), Some(planned.output.clone())))
            }
            Err(NotBegun::Failed(failure)) => Ok(self.refused(applies, planned, failure)),
        }
    }

    /// Why an apply does not begin where the branch has a newer commit, or the host does not tell: what was merged since would be undone.
    async fn moved(&self) -> Option<Failure> {
        let (repo, branch, pull) = (&self.request.repo, &self.request.branch, &self.work.pull);
        let credentials = prepare::credentials_of(self.ctx, repo).await;
        let tip = self.ctx.checkouts.branch_tip(repo, &pull.clone_url, branch, credentials.as_ref()).await;
        let because = match tip {
            Ok(Some(tip)) if tip == pull.head.commit => return None,
            Ok(Some(tip)) => {
                format!("`{branch}` has moved to {} since, and what was merged would be undone", tip.short())
            }
            Ok(None) => format!("there is no branch `{branch}` any more"),
            Err(error) => format!("whether `{branch}` has moved could not be found: {error}"),
        };
        Some(Failure::Refused { reason: Reason::StalePlan, because })
    }

    fn not_applied(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>, stop: Stop) -> Result<DriftFound> {
        let outcome = job::stop_outcome(self.ctx, applies.work, stop)?;
        Ok(self.failed_after_plan(applies, planned, outcome))
    }

    fn refused(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>, failure: Failure) -> DriftFound {
        self.failed_after_plan(applies, planned, Outcome::Failed(failure))
    }

    fn failed_after_plan(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>, outcome: Outcome) -> DriftFound {
        let mut refused = job::refused(applies.work, planned.config, outcome);
        refused.job.clone_from(&planned.found.job);
        let (found, _) = self.failed(refused);
        (found, Some(planned.output.clone()))
    }

    /// The commit that Terraform waits for: nobody else has the project, the plan is used, the job has begun, the lock is held.
    async fn begin<'a>(
        &'a self,
        applies: DriftApplies<'a>,
        planned: &PlannedDrift<'_>,
        frozen: FreezeGuard,
    ) -> Result<Result<(JobRun<'a>, ConsumedPlan), NotBegun>> {
        let (ctx, work) = (self.ctx, applies.work);
        let project = applies.remedy.project(&planned.found, String::new());
        let beginning = ApplyBeginning {
            project: project.clone(),
            plan: planned.plan.clone(),
            lock: self.hold(work, planned),
            address: ctx.settings.atlantis_url.clone(),
            cancel: self.work.cancel.clone(),
            frozen,
            entry: self.audit_entry(applies, planned, "begun"),
            remediation: applies.remedy.recorded(),
        };
        let begun = JobRun::begin(ctx, work, planned.config, move |tx, job| beginning.record(tx, &job.id));
        Ok(begun.await?.inspect(|(job, _)| {
            let apply = Some(DriftApply { job: job.record.id.clone(), end: None });
            applies.remedy.apply_begun(RemediatedProject { apply, output: planned.output.clone(), ..project });
        }))
    }

    /// The hold of the drift run on the project.
    fn hold(&self, work: &CommandRun, planned: &PlannedDrift<'_>) -> ProjectLock {
        let holder = LockHolder {
            pull: work.pull.id.clone(),
            title: format!("that applies {}", self.request.branch),
            url: String::new(),
            user: work.command.user.clone(),
            since: Timestamp::now(),
        };
        let (repo, project) = (self.request.repo.clone(), planned.config.id.clone());
        ProjectLock { repo, project, holder, applied: false, why: None, address: StateAddress::default() }
    }

    fn audit_entry(&self, applies: DriftApplies<'_>, planned: &PlannedDrift<'_>, result: &str) -> AuditEntry {
        let entry = audit_entry(applies.work, &planned.config.id, result.to_owned());
        let (repo, commit) = (&self.request.repo, &self.work.pull.head.commit);
        AuditEntry {
            act: "drift apply".to_owned(),
            subject: format!("{} of {repo} at {commit}", planned.config.id.label()),
            plan: planned.plan.sha256.clone(),
            pull: None,
            request: Some(self.work.run.id.to_string()),
            ..entry
        }
    }

    /// Commits the end: the hold goes, and plans of pull requests fall that were made of what was before.
    async fn end(
        &self,
        applies: DriftApplies<'_>,
        planned: &PlannedDrift<'_>,
        job: JobRun<'_>,
        (outcome, errored): (Outcome, Option<KeptFile>),
    ) -> Result<DriftFound> {
        let (ctx, id) = (self.ctx, job.record.id.clone());
        let outcome = job.outcome(with_errored(outcome, errored.is_some(), &id));
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
        let (notices, row) = (NoticeWriter::new(ctx), found.clone());
        let (writer, recorded) = (notices.clone(), applies.remedy.recorded());
        let entry = self.audit_entry(applies, planned, if success { "applied" } else { "failed" });
        let (pull, project) = (self.work.pull.id.clone(), planned.config.id.clone());
        let outputs = !planned.plan.summary.no_changes;
        let ended = job.end(outcome, move |tx, _| {
            let at = Timestamp::now();
            let (pull, project) = (pull.clone(), project.clone());
            writer.record(tx, &LockEvent::StateChanged { pull, project, outputs, at })?;
            errored.iter().try_for_each(|file| tx.keep_file(file))?;
            tx.put_drift(&row)?;
            tx.put_remediation(&recorded)?;
            tx.audit(&entry)
        });
        ended.await?;
        notices.after_commit(ctx).await;
        Ok((found, Some(planned.output.clone())))
    }
}

impl ApplyBeginning {
    /// Uses the plan up for this job, and takes the project. A refusal changes nothing.
    fn record(self, tx: &Tx<'_>, job: &JobId) -> Result<Result<ConsumedPlan, NotBegun>> {
        if let Some(refused) = self.refusal(tx)? {
            return Ok(Err(refused));
        }
        let ApplyBeginning { project, plan, mut lock, address, entry, mut remediation, .. } = self;
        lock.holder.url = format!("{address}/jobs/{job}");
        tx.put_plan(&plan)?;
        // In every mode: this is short.
        let wanted = WantedLock { lock, mode: LockMode::OnPlan };
        let begins = LockEvent::ApplyBegins { plan: plan.id.clone(), job: job.clone(), project: wanted };
        let follows = tx.record_lock_event(&begins)?;
        ensure!(follows.refusal.is_none(), "a project that nobody has was refused: {:?}", follows.refusal);
        let apply = Some(DriftApply { job: job.clone(), end: None });
        remediation.begun.push(RemediatedProject { apply, ..project });
        tx.put_remediation(&remediation)?;
        tx.audit(&entry)?;
        Ok(Ok(follows.consumed().cloned().context("an apply begins without its plan")?))
    }

    fn refusal(&self, tx: &Tx<'_>) -> Result<Option<NotBegun>> {
        if self.cancel.token.is_cancelled() {
            return Ok(Some(NotBegun::Failed(Failure::Cancelled { by: self.cancel.by() })));
        }
        if let Some(failure) = self.frozen.refusal(tx, Timestamp::now())? {
            return Ok(Some(NotBegun::Failed(failure)));
        }
        if let Some(lock) = tx.apply_lock()? {
            let because = apply::apply_lock_text(&lock);
            return Ok(Some(NotBegun::Failed(Failure::Refused { reason: Reason::NotPermitted, because })));
        }
        Ok(tx.drift_block(&self.lock.repo, &self.lock.project)?.map(NotBegun::Held))
    }
}
