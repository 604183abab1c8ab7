//! Plans the projects of a run. An attempt makes a project ready, waits for its turn, runs its steps in a job and binds its plan, for pull
//! requests and for drift runs. The plans of pull requests are recorded here.

use super::super::cancel::CancelReason;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::errored_state::kept_file;
use super::super::groups::{Groups, Projects};
use super::super::ids::{random_bits, random_id};
use super::super::job::{self, ExecutorSlot, JobRun, JobTask, Ready};
use super::super::job_end::{JobChange, NewPlan};
use super::super::not_run::NotRun;
use super::super::overtaken::{self, Meanwhile};
use super::super::permissions::RefusedProjects;
use super::super::prepare::Prepared;
use super::super::requirements::{self, PullFacts};
use super::super::{auto_apply, capacity, deleted, guards, measured, merged, parts, plan, recorder, state_locks};
use super::deferred;
use crate::checkout::Strategy;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Planned, Reason};
use crate::domain::ownership::PlanInputs;
use crate::domain::state::{Job, LockHolder, PlanRecord, ProjectState, ProjectStatus};
use crate::domain::waiting::Blocked;
use crate::domain::{AutoApply, PlanId, ProjectId};
use crate::locks::{LockEvent, WantedLock};
use crate::meters::RunPhase;
use crate::runner::local::archive_path;
use crate::runner::spec::Steps;
use crate::schedule::Schedule;
use crate::store::{KeptFile, Tx};
use crate::terraform::summary::plan_resources;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

/// Plans of the projects of one run.
pub(in super::super) struct PlanRun<'a, Of> {
    pub(in super::super) ctx: &'a Context,
    pub(in super::super) work: &'a CommandRun,
    pub(in super::super) prepared: &'a Prepared,
    pub(in super::super) facts: &'a PullFacts,
    pub(in super::super) schedule: &'a Schedule,
    /// Slots for Terraform: a project is prepared before it takes one, and returns it before its plan is recorded.
    pub(in super::super) slots: Semaphore,
    /// Data of the pull request's plans, or of the drift run.
    pub(in super::super) of: Of,
}

/// A plan that is kept for an apply.
pub(in super::super) struct KeptPlan {
    /// Directories of projects.
    pub(in super::super) dirs: Vec<String>,
    /// Key of the digest of its changes; absent if nothing is compared.
    pub(in super::super) changes_key: Option<String>,
}

/// A plan that was made.
pub(in super::super) struct MadePlan {
    pub(in super::super) ready: Ready,
    pub(in super::super) output: String,
    /// The plan, bound to its inputs except those of mode `strict`; absent if it is not kept.
    pub(in super::super) record: Option<PlanRecord>,
}

impl<'a, Of> PlanRun<'a, Of> {
    /// Plans all projects in the order of the schedule. An error means that this server does not lead any more.
    pub(in super::super) async fn run_all(&self, refused: &RefusedProjects) -> Result<Vec<<Self as Projects>::Done>>
    where
        Self: Projects,
    {
        let slots = self.slots.available_permits();
        let at_once = if slots == 1 { 1 } else { slots * 2 };
        Groups { schedule: self.schedule, refused, at_once }.run(self.ctx, self.work, self).await
    }

    /// Plans a project in the place that `ready` prepares. Returns the job, which has begun in one commit with `begin`, also if the
    /// preparation failed; the result of `begin`; and the plan, or the outcome in place of it.
    pub(in super::super) async fn plan<C: Send + 'static>(
        &self,
        config: &ProjectConfig,
        ready: impl Future<Output = Result<Ready, NotRun>>,
        kept: Option<KeptPlan>,
        begin: impl FnOnce(&Tx<'_>, &Job) -> Result<C, NotRun> + Send + 'static,
    ) -> Result<(JobRun<'a>, C, Result<MadePlan, Outcome>), NotRun> {
        let (ctx, work) = (self.ctx, self.work);
        let ready = match ready.await {
            Ok(ready) => Ok(ready),
            Err(reason) => Err(reason.outcome(ctx, work)?),
        };
        let slot = self.slots.acquire().await.map_err(anyhow::Error::from)?;
        self.work.cancel.check()?;
        let at = ExecutorSlot::wait(ctx, work, config).await?;
        // An executor has memory of its own.
        let permit = match at {
            Some(_) => None,
            None => {
                let began = Instant::now();
                let permit = capacity::enter_for_plan(ctx, work, &config.id).await?;
                measured::phase(ctx, &work.run.id, RunPhase::Wait, began.elapsed());
                Some(permit)
            }
        };
        let (mut job, begun) = JobRun::begin(ctx, work, config, at, begin).await?;
        let ready = match ready {
            Ok(ready) => ready,
            Err(outcome) => return Ok((job, begun, Err(outcome))),
        };
        let dependencies = self.dependencies(config);
        let (root, dir) = (&ready.place.tree.root, &ready.place.dir);
        let _directories = job::lock_directories(ctx, root, dir, &dependencies).await;
        let id = PlanId::from_bits(random_bits());
        let steps = Steps::Stage { first: Vec::new(), steps: config.workflow.plan.clone() };
        let task = match kept {
            Some(KeptPlan { dirs, changes_key }) => JobTask::Plan { steps, id: id.clone(), dirs, changes_key },
            None => JobTask::Steps(steps),
        };
        let ran = job.run(config, &ready, self.facts, task, (slot, permit)).await?;
        if let Some(outcome) = job.failed(config, &ran) {
            return Ok((job, begun, Err(outcome)));
        }
        let output = ran.output;
        let (base, tool) = (ready.place.tree.base.clone(), ready.place.tool.to_string());
        let record = ran.plan.map(|made| PlanRecord {
            dependencies,
            may_depend_on_more: self.may_depend_on_more(config),
            ..job.bound_plan(config, id, base, tool, made, &output)
        });
        Ok((job, begun, Ok(MadePlan { ready, output, record })))
    }

    /// Returns the directories of the Terragrunt units whose outputs a project reads.
    pub(super) fn dependencies(&self, config: &ProjectConfig) -> Vec<String> {
        self.schedule.units.get(&config.id).into_iter().flat_map(|of| of.on.iter().cloned()).collect()
    }

    /// Returns true if a project may also read outputs of units that its files do not name.
    pub(super) fn may_depend_on_more(&self, config: &ProjectConfig) -> bool {
        self.schedule.units.get(&config.id).is_some_and(|of| of.may_be_more)
    }
}

/// Data shared by the projects of a pull request's plan.
pub(super) struct OfPull<'a> {
    pub(super) remarks: &'a Mutex<Vec<String>>,
    /// Plans that this one replaces.
    pub(super) earlier: &'a [PlanRecord],
    /// Projects that the run had planned before it was resumed here.
    pub(super) finished: &'a [(JobOutcome, PlanRecord)],
    /// Plans of the run that went on at executors before it was resumed here.
    pub(super) running: &'a [Job],
    /// Projects that another pull request holds.
    pub(super) held: &'a [(ProjectId, Box<Blocked<LockHolder>>)],
    /// Directories of its projects and of those that were planned before.
    pub(super) dirs: &'a [String],
    /// Inputs of the plans in mode `strict`.
    pub(super) inputs: &'a BTreeMap<ProjectId, PlanInputs>,
}

/// A plan as it will be recorded, with the archive of the files that its steps left.
pub(super) struct PlanWithArchive {
    record: PlanRecord,
    left: Option<KeptFile>,
    /// Key of the digest of its changes; absent if nothing is compared.
    changes_key: Option<String>,
}

impl Projects for PlanRun<'_, OfPull<'_>> {
    type Done = JobOutcome;
    const DONE: &'static str = "planned";

    async fn attempt(&self, config: &ProjectConfig, _: &[ProjectId]) -> Result<JobOutcome, NotRun> {
        if let Some(outcome) = self.finished(&config.id) {
            return Ok(outcome);
        }
        if let Some(outcome) = self.take_up(config).await? {
            return Ok(outcome);
        }
        self.work.cancel.check()?;
        if let Some((_, holder)) = self.of.held.iter().find(|(id, _)| *id == config.id) {
            return Err(Failure::Locked(holder.clone()).into());
        }
        if let Some(outcome) = self.defer(config).await? {
            return Ok(outcome);
        }
        let not_permitted = guards::not_permitted(self.ctx, self.work, config).await?;
        if !not_permitted.is_empty() {
            return Err(Failure::Requirements(not_permitted).into());
        }
        let mut wanted = plan::wanted_lock(self.ctx, self.work, config);
        let audit = guards::audit_of_plan(self.work, config);
        let (mut lock, changes_key) = (wanted.clone(), self.changes_key(config).await?);
        let kept = KeptPlan { dirs: self.of.dirs.to_vec(), changes_key: changes_key.clone() };
        let begin = move |tx: &Tx<'_>, job: &Job| {
            lock.lock.holder.since = job.started;
            audit.iter().try_for_each(|entry| tx.audit(entry))?;
            overtaken::begin(tx, &lock, job.started)
        };
        let (job, begun, made) = self.plan(config, self.ready(config), Some(kept), begin).await?;
        wanted.lock.holder.since = job.record.started;
        let (outcome, plan) = match made {
            Ok(MadePlan { record: Some(record), output, .. }) => {
                self.planned(config, record, output, changes_key).await
            }
            Ok(MadePlan { record: None, output, .. }) => {
                let message = "The plan was made, and its runner did not give it back".to_owned();
                (Outcome::Errored(Fault { reason: Reason::Internal, message, output }), None)
            }
            Err(outcome) => (outcome, None),
        };
        Ok(self.record_job_end(config, job, outcome, plan, begun, wanted).await?)
    }

    /// Records a project that did not get a job. A lock that it took is released, unless something was applied under it.
    async fn refused(&self, outcome: JobOutcome) -> Result<JobOutcome> {
        if let Some(finished) = self.finished(&outcome.project) {
            return Ok(finished);
        }
        let (pull, head) = (self.work.pull.id.clone(), self.work.pull.head.commit.clone());
        let (project, not_planned) = (outcome.project.clone(), self.not_planned(&outcome.project));
        if self.goes_on_later(&outcome) {
            return Ok(outcome);
        }
        recorder::refusal(self.ctx, self.work, outcome, move |tx| {
            not_planned.iter().try_for_each(|event| tx.record_lock_event(event).map(drop))?;
            tx.put_project_status(&pull, &ProjectStatus::without_job(project, ProjectState::PlanErrored, head))
        })
        .await
    }
}

impl PlanRun<'_, OfPull<'_>> {
    /// Returns the outcome of a project that was planned before the run was resumed here.
    fn finished(&self, project: &ProjectId) -> Option<JobOutcome> {
        let (outcome, plan) = self.of.finished.iter().find(|(outcome, _)| outcome.project == *project)?;
        let remarks = not_kept(self.ctx, plan).into_iter().chain(parts::remark(self.ctx, outcome));
        self.of.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        Some(outcome.clone())
    }

    /// Records the outcome of a job and its plan. An out-of-date plan is recorded as invalidated, and one that nobody can apply is dropped.
    pub(super) async fn record_job_end(
        &self,
        config: &ProjectConfig,
        job: JobRun<'_>,
        outcome: Outcome,
        plan: Option<PlanWithArchive>,
        meanwhile: Meanwhile,
        wanted: WantedLock,
    ) -> Result<JobOutcome> {
        let outcome = job.outcome(outcome);
        let remark = state_locks::remark(self.ctx, &self.work.pull.id, &outcome).await;
        let remarks = remark.into_iter().chain(parts::remark(self.ctx, &outcome));
        self.of.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        let status = ProjectStatus { job: Some(job.record.id.clone()), ..self.status(config, &outcome) };
        let change = match plan {
            Some(PlanWithArchive { record, left, changes_key }) => {
                // A deletion that is not merged says nothing about merged changes.
                let satisfied = match record.has_nothing_to_do() && !record.deleted {
                    true => merged::satisfied(self.ctx, self.work, config, &record).await,
                    false => None,
                };
                JobChange::Planned(Box::new(NewPlan {
                    plan: record,
                    status,
                    left,
                    changes_key,
                    on_merge: config.applies_on_merge(),
                    after_merge: self.work.after_merge.is_some(),
                    satisfied,
                    wanted,
                    meanwhile,
                }))
            }
            None if self.goes_on_later(&outcome) => JobChange::Nothing,
            None => JobChange::NotPlanned { status, lock: self.not_planned(&config.id).map(Box::new) },
        };
        job.end(outcome, change).await
    }

    /// Returns true if the shutdown of this server interrupted the plan of a project: the next server resumes it, so its lock stays.
    fn goes_on_later(&self, outcome: &JobOutcome) -> bool {
        let cut = matches!(outcome.outcome, Outcome::Failed(Failure::Cancelled { .. }));
        cut && matches!(self.work.cancel.reason(), Some(CancelReason::Shutdown))
    }

    /// Returns the event for the lock of a project without a plan. `None` if its pull request is closed, as the close releases and reports
    /// all locks at once. `None` also after a push that is planned next: that plan keeps the lock, so that nobody else gets it in between.
    fn not_planned(&self, project: &ProjectId) -> Option<LockEvent> {
        let is_settled_next = matches!(
            self.work.cancel.reason(),
            Some(CancelReason::Closed | CancelReason::Push { is_planned: true, .. })
        );
        let (pull, project) = (self.work.pull.id.clone(), project.clone());
        (!is_settled_next).then_some(LockEvent::NotPlanned { pull, project })
    }

    /// Records a project that is planned only after others are applied; `None` if it need not wait.
    async fn defer(&self, config: &ProjectConfig) -> Result<Option<JobOutcome>> {
        let on = deferred::waits_for(self.ctx, self.work, self.schedule, config).await?;
        if on.is_empty() {
            return Ok(None);
        }
        let outcome = job::refused_outcome(self.work, config, Outcome::Deferred { on: on.clone() });
        let status = ProjectStatus { waits_for: on, ..self.status(config, &outcome) };
        let pull = self.work.pull.id.clone();
        let recorded = recorder::refusal(self.ctx, self.work, outcome, move |tx| tx.put_project_status(&pull, &status));
        recorded.await.map(Some)
    }

    fn status(&self, config: &ProjectConfig, outcome: &JobOutcome) -> ProjectStatus {
        let (state, summary) = match &outcome.outcome {
            Outcome::Planned(planned) if planned.part.is_some() => (ProjectState::PlannedInPart, Some(planned.summary)),
            Outcome::Planned(planned) if planned.summary.no_changes => {
                (ProjectState::PlannedNoChanges, Some(planned.summary))
            }
            Outcome::Planned(planned) => (ProjectState::Planned, Some(planned.summary)),
            Outcome::Deferred { .. } => (ProjectState::Deferred, None),
            _ => (ProjectState::PlanErrored, None),
        };
        let head = self.work.pull.head.commit.clone();
        ProjectStatus { summary, ..ProjectStatus::without_job(config.id.clone(), state, head) }
    }

    /// Checks the requirements of a plan, and prepares the tree, directory and tool of a project before its turn.
    async fn ready(&self, config: &ProjectConfig) -> Result<Ready, NotRun> {
        let (ctx, work, wanted) = (self.ctx, self.work, &config.plan_requirements);
        let (checks, remarks) = requirements::check(ctx, work, config, wanted, self.facts, self.prepared, None).await?;
        self.of.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        if checks.iter().any(|check| !check.met) {
            return Err(Failure::Requirements(checks).into());
        }
        if let Some(failure) = deleted::refusal(ctx, work, self.prepared, config).await? {
            return Err(failure.into());
        }
        job::ready(ctx, work, self.prepared, config).await
    }

    /// Returns the key of the digest of a plan's changes, which is the same for all plans of a project; `None` if nothing is compared.
    async fn changes_key(&self, config: &ProjectConfig) -> Result<Option<String>> {
        let of_plan = config.approvals.as_ref().is_some_and(|rules| rules.of_plan);
        if !of_plan && !plan::wanted_lock(self.ctx, self.work, config).is_strict() {
            return Ok(None);
        }
        let (pull, project) = (self.work.pull.id.clone(), config.id.clone());
        let known = self.ctx.store.read(move |view| view.seen_plans(&pull, &project)).await?;
        Ok(Some(known.map_or_else(random_id, |seen| seen.key)))
    }

    /// Returns the outcome of a plan, and the plan with all its inputs as it will be recorded.
    pub(super) async fn planned(
        &self,
        config: &ProjectConfig,
        bound: PlanRecord,
        output: String,
        changes_key: Option<String>,
    ) -> (Outcome, Option<PlanWithArchive>) {
        let mut record = PlanRecord { inputs: self.of.inputs.get(&config.id).cloned(), ..bound };
        record.auto_apply = auto_apply::of_plan(self.ctx, self.work, config, &record).await.unwrap_or_else(|error| {
            tracing::error!(pull = %record.pull, error = format!("{error:#}"), "the plan is not applied automatically");
            AutoApply::Never
        });
        let left = archive(self.ctx, &mut record).await;
        self.of.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(not_kept(self.ctx, &record));
        let lock = plan::wanted_lock(self.ctx, self.work, config);
        let is_changed = self.schedule.changed.iter().any(|changed| changed.project == config.id);
        let planned = Planned {
            summary: record.summary,
            resources: plan_resources(&output),
            output,
            saved: record.path.is_some(),
            merged_again: self.merged_again(&record),
            extra_args: self.work.command.extra_args.clone(),
            base_commit: Some(record.base.clone()),
            unlocked: !lock.is_locked_by_plan(),
            preview: lock.is_strict() && (!is_changed || self.work.pull.draft) && self.work.after_merge.is_none(),
            part: record.part.clone(),
            guards: record.guards.clone(),
            deleted: record.deleted,
            held: None,
        };
        (Outcome::Planned(planned), Some(PlanWithArchive { record, left, changes_key }))
    }

    /// Returns true if the same head was planned before, on another commit of the base branch.
    fn merged_again(&self, record: &PlanRecord) -> bool {
        let moved =
            |plan: &PlanRecord| plan.project == record.project && plan.head == record.head && plan.base != record.base;
        self.ctx.checkouts.strategy == Strategy::Merge && self.of.earlier.iter().any(moved)
    }
}

/// Returns the archive of the files that the steps of a plan left, to be recorded. Files that cannot be read are not kept, and the plan's
/// record says so.
async fn archive(ctx: &Context, plan: &mut PlanRecord) -> Option<KeptFile> {
    let sha256 = plan.left.archive.as_ref()?;
    match kept_file(ctx, archive_path(&plan.id)).await {
        Ok(Some(file)) if file.sha256 == *sha256 => Some(file),
        other => {
            let error = other.err().map_or_else(|| "it is not what it was".to_owned(), |error| format!("{error:#}"));
            tracing::warn!(plan = plan.id.as_str(), error, "the archive of what steps left could not be read");
            plan.left.archive = None;
            plan.left.too_much = Some("files that could not be read".into());
            None
        }
    }
}

/// Returns the remark on files of steps that are not kept; `None` if all are kept.
fn not_kept(ctx: &Context, plan: &PlanRecord) -> Option<String> {
    let what = plan.left.too_much.as_ref()?;
    let command = command_for(&ctx.rendering.executable, CommandName::Plan, &plan.project, &[]);
    Some(format!(
        "Steps of `{}` left {what}. The server does not keep these files with the plan: if its disk is lost or full before the apply, the \
         apply needs a new plan (`{command}`).",
        plan.project.label()
    ))
}
