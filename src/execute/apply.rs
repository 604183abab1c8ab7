//! The `apply` command: applies only plans that are bound to the present pull request ([`bound`]), each only once.

mod approved;
mod automatic;
pub(super) mod bound;
mod destroys;
pub(super) mod end;
mod outputs;
pub(super) mod place;
pub(super) mod stage;
mod whole;

use super::answer::CommandAnswer;
use super::applicable_plans::ApplicablePlans;
use super::command_run::{CommandRun, Ended, plan_limit};
use super::context::Context;
use super::current::Current;
use super::groups::{Groups, Projects, named};
use super::job::{self, ExecutorSlot, JobLeft, JobRun, Ready};
use super::not_run::NotRun;
use super::plan::{remove_plan_files, wanted_lock};
use super::plan_files::bring;
use super::preconditions::{ApplyPreconditions, PlanOwner, Preconditions, PullPreconditions};
use super::prepare::{self, Need, Prepared, ScheduleScope};
use super::requirements::{self, PullFacts};
use super::status_update::StatusUpdate;
use super::{
    auto_apply, automerge, guards, hooks, merged, parts, permissions, policies, recorder, state_locks, verification,
};
use crate::checkout::Strategy;
use crate::comment::command_for;
use crate::config::{ProjectConfig, Requirement};
use crate::domain::command::CommandName;
use crate::domain::outcome::{Failure, JobOutcome, Reason, RequirementCheck};
use crate::domain::state::{PlanRecord, ProjectState, ProjectStatus};
use crate::domain::{AutoApply, ProjectId};
use crate::render::statuses::ApplyFailures;
use crate::runner::local::Place;
use crate::runner::spec::PlanReference;
use anyhow::Result;
use automatic::DueProjects;
use bound::ApplyStart;
use jiff::Timestamp;
use place::ApplyPlace;
use stage::PlanToApply;
use std::sync::{Mutex, PoisonError};
use whole::{refuse, refused_as_a_whole};

pub(super) async fn run(ctx: &Context, work: &mut CommandRun) -> Result<Ended> {
    // Without hooks the run is recorded with its first job, so that Terraform waits for one commit only.
    if work.has_hooks() {
        recorder::begin(ctx, work).await?;
    }
    let plans_to_apply = ApplicablePlans::load(ctx, work).await?;
    if let Some(answer) = refused_as_a_whole(ctx, work, &plans_to_apply).await? {
        return refuse(ctx, work, &plans_to_apply, answer).await;
    }
    let prepared = match prepare::check_out(ctx, work, Need::Plans(&plans_to_apply)).await {
        Ok(prepared) => prepared,
        Err(stop) => return automatic::stopped(ctx, work, None, stop).await,
    };
    if let Some(answer) = hooks::before(ctx, work, &prepared.tree).await? {
        return recorder::answer(ctx, work, answer).await;
    }
    let schedule =
        match prepare::schedule(ctx, work, &prepared, ScheduleScope::Planned(&plans_to_apply.projects())).await {
            Ok(schedule) => schedule,
            Err(stop) => return automatic::stopped(ctx, work, Some(&prepared), stop).await,
        };
    let (mut schedule, mut refused) = match permissions::split(ctx, work, schedule).await {
        Ok(split) => split,
        Err(stop) => return automatic::stopped(ctx, work, Some(&prepared), stop).await,
    };
    schedule.abort_on_execution_order_fail |= merged::stops_at_failed_group(work);
    work.run.automerge = automerge::wanted(ctx, work, &schedule);
    let work = &*work;
    let (facts, current) = (PullFacts::default(), Current::new(work));
    let remarks = Mutex::new(Vec::from_iter(automatic::remark(work)));
    let mut run = ApplyRun {
        ctx,
        work,
        prepared: &prepared,
        facts: &facts,
        current: &current,
        plans_to_apply: &plans_to_apply,
        remarks: &remarks,
        changed: &Mutex::default(),
        alone: false,
    };
    match automatic::narrow(&run, &mut schedule, &mut refused).await {
        Ok(DueProjects::Some) => {}
        Ok(DueProjects::Nothing) => {
            return automatic::not_due_after_hooks(ctx, work, &prepared, "no project is due").await;
        }
        Err(stop) => return automatic::stopped(ctx, work, Some(&prepared), stop).await,
    }
    run.alone = schedule.groups.iter().map(Vec::len).sum::<usize>() == 1;
    let at_once = if schedule.parallel_apply { ctx.settings.parallel_pool_size } else { 1 };
    let groups = Groups { schedule: &schedule, refused: &refused, at_once };
    let mut outcomes = groups.run(ctx, work, &run).await?;
    let mut remarks = remarks.into_inner().unwrap_or_else(PoisonError::into_inner);
    remarks.sort();
    remarks.dedup();
    let failed = ApplyFailures::of(&outcomes);
    // Projects that this person may not apply change no status: others may apply them.
    let statuses = match outcomes.is_empty() && !refused.outcomes.is_empty() {
        true => StatusUpdate::AsBefore("it is not permitted".into()),
        false => StatusUpdate::AfterApply { failed },
    };
    let has_errors = failed.is_some() || !refused.outcomes.is_empty();
    remarks.extend(merged::remark(ctx, work).filter(|_| has_errors));
    outcomes.extend(refused.outcomes);
    let answer = CommandAnswer::results(work, outcomes, remarks, statuses);
    let ended = recorder::answer(ctx, work, answer).await?;
    hooks::after(ctx, work, &prepared.tree, has_errors).await;
    ctx.checkouts.remove_trees_of_plans(&work.pull.id).await;
    Ok(ended)
}

/// Data shared by the projects of one apply.
struct ApplyRun<'a> {
    ctx: &'a Context,
    work: &'a CommandRun,
    prepared: &'a Prepared,
    facts: &'a PullFacts,
    current: &'a Current,
    plans_to_apply: &'a ApplicablePlans,
    remarks: &'a Mutex<Vec<String>>,
    /// Projects whose outputs its jobs may have changed.
    changed: &'a Mutex<Vec<ProjectId>>,
    /// True for a single project, whose end is committed with the answer.
    alone: bool,
}

impl Projects for ApplyRun<'_> {
    type Done = JobOutcome;
    const DONE: &'static str = "applied";

    async fn attempt(&self, config: &ProjectConfig, applied: &[ProjectId]) -> Result<JobOutcome, NotRun> {
        // The next server goes on with jobs that run at executors, and with the projects after them.
        let is_left = |executor: &str| self.ctx.executors.outlives_server(executor);
        if self.work.cancel.is_leaving() && job::executor(self.ctx, self.work, config).is_some_and(is_left) {
            return Err(anyhow::Error::from(JobLeft).into());
        }
        let slot = ExecutorSlot::wait(self.ctx, self.work, config).await?;
        let _permit = job::enter(self.ctx, self.work, slot.as_ref()).await;
        self.apply(config, applied, slot).await
    }

    /// Records a refusal, which leaves the plan as it is. Only a project with a plan gets a status of its own.
    async fn refused(&self, outcome: JobOutcome) -> Result<JobOutcome> {
        let plan = self.plans_to_apply.plan(&outcome.project);
        let head = self.work.pull.head.commit.clone();
        let status = plan.filter(|plan| plan.head == head).map(|plan| {
            let status = ProjectStatus {
                project: outcome.project.clone(),
                state: ProjectState::ApplyErrored,
                head,
                summary: Some(plan.summary),
                job: Some(plan.job.clone()),
                updated: Timestamp::now(),
                waits_for: Vec::new(),
            };
            (plan.id.clone(), status)
        });
        let pull = self.work.pull.id.clone();
        // A person who reads why it was refused decides what is next.
        let automatic = plan.filter(|_| auto_apply::is_automatic(self.work)).map(|plan| plan.id.clone());
        recorder::refusal(self.ctx, self.work, outcome, move |tx| {
            automatic.iter().try_for_each(|plan| tx.end_auto_apply(plan).map(drop))?;
            match status {
                // A plan that was dropped meanwhile has its status already.
                Some((plan, status)) if tx.plans(&pull)?.iter().any(|kept| kept.id == plan) => {
                    tx.put_project_status(&pull, &status)
                }
                _ => Ok(()),
            }
        })
        .await
    }

    async fn skip(&self, outcome: JobOutcome) -> Result<JobOutcome> {
        Ok(outcome)
    }
}

impl ApplyRun<'_> {
    /// Checks all preconditions, then consumes the plan and applies it, with a slot at its executor.
    async fn apply(
        &self,
        config: &ProjectConfig,
        applied: &[ProjectId],
        slot: Option<ExecutorSlot>,
    ) -> Result<JobOutcome, NotRun> {
        let (ctx, work) = (self.ctx, self.work);
        work.cancel.check()?;
        if let Some(failure) = self.open_before(config, applied) {
            return Err(failure.into());
        }
        let planned = self.plans_to_apply.plan(&config.id);
        let mut preconditions = Preconditions::load(ctx, work, config, &work.cancel).await?;
        preconditions.draft = self.current.draft(ctx, work, config).await;
        preconditions.apply = planned.map(|plan| self.preconditions(config, plan, applied, None));
        preconditions.check(ctx).await?;
        let plan = planned.ok_or_else(|| self.no_plan(config))?;
        self.outputs_are_there(plan, applied)?;
        let last_activity = || ctx.store.read(|view| view.last_activity());
        let mut activity = last_activity().await?;
        self.require(config, plan, self.facts).await?;
        let (spec, tree) = job::tree_of_plan(ctx, work, self.prepared, config, plan).await?;
        let place = ApplyPlace::find(ctx, work, config, plan, &work.cancel).await?;
        let tree = place.tree(tree);
        let dir = job::project_dir(&tree.root, &config.id.dir)?;
        let _directories = job::lock_directories(ctx, &tree.root, &dir, &plan.dependencies).await;
        let tool = job::resolve_tool(ctx, config, &tree).await?;
        if tool.to_string() != plan.tool {
            let because = format!("it was made with {}, and now {tool} would apply it", plan.tool);
            return Err(Failure::StalePlan { because }.into());
        }
        // From here on the apply waits for nothing else.
        if let Some(failure) = self.current.refusal(ctx, work).await {
            return Err(failure.into());
        }
        if let Some(failure) = self.current.draft(ctx, work, config).await {
            return Err(failure.into());
        }
        if let Some(failure) = self.current.refuse_stale(ctx, work, plan).await {
            return Err(failure.into());
        }
        let repo = work.pull.id.repo.clone();
        if self.facts.are_old() || ctx.store.read(move |view| view.closed_since(&repo, activity)).await? {
            activity = last_activity().await?;
            self.require(config, plan, &PullFacts::default()).await?;
        }
        let ready = Ready { tree: spec, place: Place::new(tree, dir, &config.id, tool) };
        let reference = PlanReference { approved: place.approved.clone(), ..PlanReference::from(plan) };
        let first = bring(ctx, config, &reference, &ready.place, &config.workflow.apply, place.executor).await?;
        preconditions.apply = Some(self.preconditions(config, plan, applied, Some(activity)));
        let (project, entry) = (wanted_lock(ctx, work, config), end::entry(work, config, plan, "begun"));
        let start = ApplyStart { preconditions, project, entry, slot };
        let (job, plan) = start.commit(ctx, work, config, |_, _, _| Ok(())).await?;
        let to_apply = PlanToApply { plan: &plan, approved: reference.approved, first };
        let outcome = self.run_job(job, config, to_apply, &ready).await;
        place.leave().await;
        Ok(outcome?)
    }

    /// Returns the preconditions of a plan. `activity` is the last activity before its requirements were checked; absent before that.
    fn preconditions(
        &self,
        config: &ProjectConfig,
        plan: &PlanRecord,
        applied: &[ProjectId],
        activity: Option<i64>,
    ) -> ApplyPreconditions {
        let (work, after_merge) = (self.work, self.work.after_merge.is_some());
        let wants_all_planned = config.wants_all_planned() && !work.command.only && !after_merge;
        let made_with_old_outputs = || self.made_with_old_outputs().into_iter().chain([config.id.clone()]).collect();
        let of_pull = PullPreconditions {
            head: work.pull.head.commit.clone(),
            base_branch: work.pull.base.branch.clone(),
            config: config.clone(),
            max_age: plan_limit(self.ctx, config),
            after_merge,
            is_automatic: auto_apply::is_automatic(work),
            guarded: merged::is_guarded(work),
            wants_undiverged: !after_merge && self.wanted(config, plan).contains(&Requirement::Undiverged),
            all_planned_but: wants_all_planned.then(made_with_old_outputs),
            applied: applied.to_vec(),
            activity,
        };
        ApplyPreconditions { plan: plan.clone(), of: PlanOwner::Pull(Box::new(of_pull)) }
    }

    /// Returns the refusal of a destroy while projects that stay have something to apply, which may still use what it destroys.
    fn open_before(&self, config: &ProjectConfig, applied: &[ProjectId]) -> Option<Failure> {
        if !config.deleted || self.work.command.only {
            return None;
        }
        let open = self.plans_to_apply.open_before_destroys(applied);
        named(open.into_iter()).map(|open| {
            let command = command_for(&self.ctx.rendering.executable, CommandName::Apply, &config.id, &[]);
            let because = format!(
                "{open} of this pull request must be applied first, and may still use what this destroys. To destroy it before: \
                 `{command} --only`"
            );
            Failure::Refused { reason: Reason::Dependency, because }
        })
    }

    /// Returns the requirements of a project, with those that its other keys imply.
    fn wanted(&self, config: &ProjectConfig, plan: &PlanRecord) -> Vec<Requirement> {
        let mut wanted = config.apply_requirements.clone();
        let mut also = |requirement, is_wanted| {
            if is_wanted && !wanted.contains(&requirement) {
                wanted.push(requirement);
            }
        };
        // Rules for approvals imply the requirement.
        also(Requirement::Approved, config.approvals.is_some());
        let is_automatic = auto_apply::is_automatic(self.work);
        also(Requirement::Approved, is_automatic && config.auto_apply.and(plan.auto_apply) == AutoApply::Approved);
        // In mode `strict` an apply must not undo merged changes of others, which the head alone does not contain.
        let is_head_alone = self.ctx.checkouts.strategy == Strategy::Branch;
        also(Requirement::Undiverged, is_head_alone && plan.inputs.is_some());
        // Nobody has seen what the base branch has added to a deleted project since.
        also(Requirement::Undiverged, config.deleted);
        wanted
    }

    /// Checks the requirements of the project's apply, by these facts.
    async fn require(&self, config: &ProjectConfig, plan: &PlanRecord, facts: &PullFacts) -> Result<(), NotRun> {
        let (ctx, work, wanted) = (self.ctx, self.work, self.wanted(config, plan));
        let checked = requirements::check(ctx, work, config, &wanted, facts, self.prepared, Some(plan));
        let (mut checks, remarks) = checked.await?;
        checks.extend(policies::requirement(ctx, work, config, plan).await?);
        checks.splice(0..0, guards::requirements(ctx, work, config, plan).await?);
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
        let forced = work.command.force;
        let goes = |check: &RequirementCheck| check.met || (forced && requirements::can_be_forced(&check.name));
        match checks.iter().all(goes) {
            true => {
                let unmet: Vec<_> = checks.iter().filter(|check| !check.met).collect();
                self.note_forced(&unmet);
                self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(guards::remarks(work, config, plan));
                Ok(())
            }
            false => Err(Failure::Requirements(checks).into()),
        }
    }

    /// Adds remarks on the requirements that `--force` has overridden.
    fn note_forced(&self, unmet: &[&RequirementCheck]) {
        let command = &self.work.command;
        let told = unmet.iter().map(|check| {
            let (user, why) = (&command.user, command.why.as_deref().unwrap_or_default());
            format!(
                "{user} applied it with `--force` (reason: {why}) although this is not met: {}: {}.",
                check.name, check.detail
            )
        });
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
    }

    async fn run_job(
        &self,
        mut job: JobRun<'_>,
        config: &ProjectConfig,
        to_apply: PlanToApply<'_>,
        ready: &Ready,
    ) -> Result<JobOutcome> {
        let (ctx, work, plan) = (self.ctx, self.work, to_apply.plan.record());
        let (outcome, errored) = stage::run(&mut job, config, to_apply, ready, self.facts).await?;
        work.cancel.note_change();
        remove_plan_files(ctx, std::slice::from_ref(plan)).await;
        if !plan.summary.no_changes {
            self.outputs_changed(config);
        }
        let outcome = job.outcome(outcome);
        let remark = state_locks::remark(ctx, &work.pull.id, &outcome).await;
        self.remarks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(remark.into_iter().chain(parts::remark(ctx, &outcome)).chain(verification::remark(ctx, &outcome)));
        let change = end::change(ctx, &job, config, plan, &outcome, errored).await;
        if !self.alone {
            return job.end(outcome, change).await;
        }
        let end = job.ended(outcome, change);
        let outcome = end.outcome.clone();
        work.unrecorded.put(end);
        Ok(outcome)
    }
}
