//! Plans the projects of one command: each is prepared, waits for its turn, runs its workflow, and has its plan recorded.

use super::super::admission::Permit;
use super::super::cancel::CancelReason;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::errored_state::kept_file;
use super::super::groups::Projects;
use super::super::ids::{random_bits, random_id};
use super::super::job::{self, JobRun, JobTask, Ready};
use super::super::job_end::{JobChange, NewPlan};
use super::super::not_run::NotRun;
use super::super::overtaken::{self, Meanwhile};
use super::super::prepare::Prepared;
use super::super::requirements::{self, PullFacts};
use super::super::{capacity, merged, parts, plan, recorder, state_locks};
use super::deferred;
use crate::checkout::Strategy;
use crate::comment::command_for;
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, Fault, JobOutcome, Outcome, Planned, Reason};
use crate::domain::ownership::PlanInputs;
use crate::domain::state::{Job, LockHolder, PlanRecord, ProjectState, ProjectStatus};
use crate::domain::waiting::Blocked;
use crate::domain::{PlanId, ProjectId};
use crate::locks::{LockEvent, WantedLock};
use crate::runner::local::{Place, archive_path};
use crate::runner::result::PlanMade;
use crate::runner::spec::Steps;
use crate::schedule::Schedule;
use crate::store::{KeptFile, Tx};
use crate::terraform::summary::plan_resources;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Data shared by the projects of one plan.
pub(super) struct PlanRun<'a> {
    pub(super) ctx: &'a Context,
    pub(super) work: &'a CommandRun,
    pub(super) prepared: &'a Prepared,
    pub(super) facts: &'a PullFacts,
    pub(super) remarks: &'a Mutex<Vec<String>>,
    /// Plans that this one replaces.
    pub(super) earlier: &'a [PlanRecord],
    /// Projects that the run had planned before it was resumed here.
    pub(super) finished: &'a [(JobOutcome, PlanRecord)],
    /// Projects that another pull request holds.
    pub(super) held: &'a [(ProjectId, Box<Blocked<LockHolder>>)],
    /// Slots for Terraform: a project is prepared before it takes one, and returns it before its plan is recorded.
    pub(super) slots: &'a Semaphore,
    /// Directories of its projects and of those that were planned before.
    pub(super) dirs: &'a [String],
    pub(super) schedule: &'a Schedule,
    /// Inputs of the plans in mode `strict`.
    pub(super) inputs: &'a BTreeMap<ProjectId, PlanInputs>,
}

/// A plan as it will be recorded, with the archive of the files that its steps left.
struct PlanWithArchive {
    record: PlanRecord,
    left: Option<KeptFile>,
    /// Key of the digest of its changes; absent if nothing is compared.
    changes_key: Option<String>,
}

impl Projects for PlanRun<'_> {
    type Done = JobOutcome;
    const DONE: &'static str = "planned";

    /// Plans one project; an error becomes its outcome.
    async fn run(&self, config: &ProjectConfig, _: &[ProjectId]) -> Result<JobOutcome> {
        if let Some(outcome) = self.finished(&config.id) {
            return Ok(outcome);
        }
        match self.attempt(config).await {
            Ok(outcome) => Ok(outcome),
            Err(reason) => {
                let outcome = reason.outcome(self.ctx, self.work)?;
                self.record_failure(job::refused_outcome(self.work, config, outcome)).await
            }
        }
    }

    async fn skip(&self, outcome: JobOutcome) -> Result<JobOutcome> {
        match self.finished(&outcome.project) {
            Some(finished) => Ok(finished),
            None => self.record_failure(outcome).await,
        }
    }
}

impl PlanRun<'_> {
    /// Returns the outcome of a project that was planned before the run was resumed here.
    fn finished(&self, project: &ProjectId) -> Option<JobOutcome> {
        let (outcome, plan) = self.finished.iter().find(|(outcome, _)| outcome.project == *project)?;
        let remarks = not_kept(self.ctx, plan).into_iter().chain(parts::remark(self.ctx, outcome));
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        Some(outcome.clone())
    }

    async fn attempt(&self, config: &ProjectConfig) -> Result<JobOutcome, NotRun> {
        self.work.cancel.check()?;
        if let Some((_, holder)) = self.held.iter().find(|(id, _)| *id == config.id) {
            return Err(Failure::Locked(holder.clone()).into());
        }
        if let Some(outcome) = self.defer(config).await? {
            return Ok(outcome);
        }
        let ready = match self.ready(config).await {
            Ok(ready) => Ok(ready),
            Err(reason) => Err(reason.outcome(self.ctx, self.work)?),
        };
        let slot = self.slots.acquire().await.map_err(anyhow::Error::from)?;
        self.work.cancel.check()?;
        let permit = capacity::enter_for_plan(self.ctx, self.work, &config.id).await?;
        let changes_key = self.changes_key(config).await?;
        let wanted = plan::wanted_lock(self.ctx, self.work, config);
        let lock = wanted.clone();
        let begin = move |tx: &Tx<'_>, job: &Job| overtaken::begin(tx, &lock, job.started);
        let (mut job, meanwhile) = JobRun::begin(self.ctx, self.work, config, begin).await?;
        let made = match ready {
            Ok(ready) => self.make(&mut job, config, ready, changes_key, (slot, permit)).await,
            Err(outcome) => {
                drop((slot, permit));
                Err(outcome)
            }
        };
        let (outcome, plan) = match made {
            Ok((planned, plan)) => (Outcome::Planned(planned), Some(plan)),
            Err(outcome) => (outcome, None),
        };
        Ok(self.record_job_end(config, job, outcome, plan, meanwhile, wanted).await?)
    }

    /// Records the outcome of a job and its plan. An out-of-date plan is recorded as invalidated, and one that nobody can apply is dropped.
    async fn record_job_end(
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
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        let status = ProjectStatus { job: Some(job.record.id.clone()), ..self.status(config, &outcome) };
        let change = match plan {
            Some(PlanWithArchive { record, left, changes_key }) => {
                let satisfied = match record.has_nothing_to_do() {
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

    /// Records a project that did not get a job. A lock that it took is released, unless something was applied under it.
    async fn record_failure(&self, outcome: JobOutcome) -> Result<JobOutcome> {
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
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        if checks.iter().any(|check| !check.met) {
            return Err(Failure::Requirements(checks).into());
        }
        job::ready(ctx, work, self.prepared, config).await
    }

    /// Makes the plan. `turn` is released before the plan is recorded, so that the next project need not wait. The error is an outcome that
    /// a step decided.
    async fn make(
        &self,
        job: &mut JobRun<'_>,
        config: &ProjectConfig,
        ready: Ready,
        changes_key: Option<String>,
        turn: (SemaphorePermit<'_>, Permit<'_>),
    ) -> Result<(Planned, PlanWithArchive), Outcome> {
        let ctx = self.ctx;
        // Terragrunt asks the units that it depends on for their outputs, in their directories.
        let on = self.schedule.units.get(&config.id).into_iter().flat_map(|of| &of.on);
        let dirs = on.filter_map(|dir| job::project_dir(&ready.place.tree.root, dir).ok());
        let dirs = dirs.chain([ready.place.dir.clone()]).collect();
        let _directories = ctx.runner.directories.lock_all(dirs).await;
        let id = PlanId::from_bits(random_bits());
        let steps = Steps::Stage { first: Vec::new(), steps: config.workflow.plan.clone() };
        let task = JobTask::Plan { steps, id: id.clone(), dirs: self.dirs.to_vec(), changes_key: changes_key.clone() };
        let ran = job.run(config, &ready, self.facts, task, turn).await;
        if let Some(outcome) = job.failed(config, &ran) {
            return Err(outcome);
        }
        let output = ran.output;
        let Some(made) = ran.plan else {
            let message = "The plan was made, and its runner did not give it back".to_owned();
            return Err(Outcome::Errored(Fault { reason: Reason::Internal, message, output }));
        };
        let mut record = self.record(job, config, id, &ready.place, made, &output);
        let left = archive(ctx, &mut record).await;
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(not_kept(ctx, &record));
        Ok((self.planned(config, &record, output), PlanWithArchive { record, left, changes_key }))
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

    fn planned(&self, config: &ProjectConfig, record: &PlanRecord, output: String) -> Planned {
        let lock = plan::wanted_lock(self.ctx, self.work, config);
        let is_changed = self.schedule.changed.iter().any(|changed| changed.project == config.id);
        Planned {
            summary: record.summary,
            resources: plan_resources(&output),
            output,
            saved: record.path.is_some(),
            merged_again: self.merged_again(record),
            extra_args: self.work.command.extra_args.clone(),
            base_commit: Some(record.base.clone()),
            unlocked: !lock.is_locked_by_plan(),
            preview: lock.is_strict() && (!is_changed || self.work.pull.draft) && self.work.after_merge.is_none(),
            part: record.part.clone(),
            held: None,
        }
    }

    /// Returns true if the same head was planned before, on another commit of the base branch.
    fn merged_again(&self, record: &PlanRecord) -> bool {
        let moved =
            |plan: &PlanRecord| plan.project == record.project && plan.head == record.head && plan.base != record.base;
        self.ctx.checkouts.strategy == Strategy::Merge && self.earlier.iter().any(moved)
    }

    /// Returns the record of the plan, bound to all its inputs.
    fn record(
        &self,
        job: &JobRun<'_>,
        config: &ProjectConfig,
        id: PlanId,
        place: &Place,
        made: PlanMade,
        output: &str,
    ) -> PlanRecord {
        let on = self.schedule.units.get(&config.id);
        PlanRecord {
            dependencies: on.iter().flat_map(|of| of.on.iter().cloned()).collect(),
            may_depend_on_more: on.is_some_and(|of| of.may_be_more),
            inputs: self.inputs.get(&config.id).cloned(),
            ..job.bound_plan(config, id, place, made, output)
        }
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
        "Steps of `{}` left {what}. They are not kept with the plan: if the server is started again on an empty disk before the apply, \
         or runs out of room, that will need a new plan (`{command}`).",
        plan.project.label()
    ))
}
