//! Jobs that went on at executors after the server that had begun them was gone: this server follows them to their ends, records these with
//! all that follows from them, and answers the command.

use super::answer::CommandAnswer;
use super::applicable_plans::ApplicablePlans;
use super::apply::{self, end, stage};
use super::command_run::{CommandRun, Ended, audit_entry};
use super::context::Context;
use super::drift;
use super::job::{APPLY_GRACE, JobLeft, JobRun, follow, is_left};
use super::job_end::JobChange;
use super::plan::{remove_plan_files, wanted_lock};
use super::recorder::{self, Changed};
use super::status_update::StatusUpdate;
use super::{make_room, merged, parts, permissions, state_commands, state_locks, verification};
use crate::comment::command_for;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{Job, PlanRecord};
use crate::executors::{Beginning, ErroredState, FollowRequest, Followed, StoredSpec};
use crate::runner::result::Ran;
use crate::runner::spec::{JobSpec, PlanUse};
use crate::vault::jobs::JobObjects;
use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Jobs of one command that are followed at the same time. A job that is not followed yet goes on, too.
const AT_ONCE: usize = 50;
/// Time between SIGINT and SIGKILL for a job whose result nobody wants.
const GRACE: Duration = Duration::from_secs(10);

/// What becomes of the projects of a command that had not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemainingProjects {
    /// They are applied, if all that had begun were.
    Apply,
    /// They stay planned.
    Leave,
}

/// Follows the unfinished jobs of a run that changes states, goes on with its other projects, and answers it.
pub(super) async fn finish(ctx: &Context, work: &mut CommandRun, others: RemainingProjects) -> Result<Ended> {
    let id = work.run.id.clone();
    let jobs = ctx.store.read(move |view| view.jobs_of(&id)).await?;
    let begun: Vec<_> = jobs.into_iter().filter(|job| job.project.is_some()).map(|job| ended(ctx, work, job)).collect();
    let ended: Vec<_> = futures::stream::iter(begun).buffered(AT_ONCE).collect().await;
    // A job that goes on comes before an error: the next server answers then.
    if ended.iter().any(|one| one.as_ref().is_err_and(is_left)) {
        return Err(JobLeft.into());
    }
    let (mut errors, mut remarks) = (Vec::new(), Vec::new());
    for outcome in ended {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        remarks.extend(state_locks::remark(ctx, &work.pull.id, &outcome).await);
        remarks.extend(parts::remark(ctx, &outcome));
        remarks.extend(verification::remark(ctx, &outcome));
        work.begun_before.push(outcome);
    }
    if let Some(error) = errors.into_iter().next() {
        return Err(error);
    }
    let all_well = work.begun_before.iter().all(|outcome| outcome.outcome.is_success());
    let has_others = has_others(ctx, work).await?;
    let goes_on = has_others && others == RemainingProjects::Apply && all_well && remarks.is_empty();
    if goes_on && !work.cancel.token.is_cancelled() && permissions::refused_everywhere(ctx, work).await.is_none() {
        // Without room on the disk nothing begins.
        if let Ok(_room) = make_room(ctx, work).await {
            return apply::run(ctx, work).await;
        }
    }
    if has_others {
        remarks.push("Projects not listed here were not started; their plans can still be applied.".to_owned());
    }
    recorder::answer(ctx, work, CommandAnswer::results(work, Vec::new(), remarks, StatusUpdate::Nothing)).await
}

/// Returns true if there are plans for the command that were not applied by it.
async fn has_others(ctx: &Context, work: &CommandRun) -> Result<bool> {
    match work.command.name {
        CommandName::Apply => {
            let plans = ApplicablePlans::load(ctx, work).await?.projects();
            Ok(plans.iter().any(|project| merged::means(&work.command, project)))
        }
        _ => Ok(false),
    }
}

/// Returns the outcome of a job, after it has ended.
///
/// # Errors
///
/// [`JobLeft`], or that this server does not lead any more.
pub(super) async fn ended(ctx: &Context, work: &CommandRun, job: Job) -> Result<JobOutcome> {
    if let Some(outcome) = job.outcome {
        return Ok(outcome);
    }
    let objects = job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote));
    let Some(objects) = objects else { return ended_without_spec(ctx, work, job, MissingSpec::Unusable).await };
    let (job, spec, ran) = match take_up(ctx, work, job.clone(), &objects).await? {
        Taken::Ran(ended) => {
            let TakenUp { job, spec, ran } = *ended;
            (job, spec, ran)
        }
        Taken::NotStarted => return ended_without_spec(ctx, work, job, MissingSpec::NotStarted).await,
        Taken::Unusable => {
            // It may run. Nothing else of this project may begin before its end.
            let why = match follow(ctx, work, &objects, &|_| {}, APPLY_GRACE, Beginning::Earlier).await {
                Followed::Left => return Err(JobLeft.into()),
                Followed::NotStarted(_) => MissingSpec::NotStarted,
                Followed::Ended(_) | Followed::Lost(_) => MissingSpec::Unusable,
            };
            return ended_without_spec(ctx, work, job, why).await;
        }
    };
    let config = &spec.project;
    if let PlanUse::Apply(plan) = &spec.plan {
        let id = plan.id.clone();
        return match ctx.store.read(move |view| view.consumed_plan(&id)).await? {
            Some(plan) => applied(ctx, job, &spec, &plan, ran).await,
            None => ended_without_spec(ctx, work, job.record, MissingSpec::Unusable).await,
        };
    }
    work.cancel.note_change();
    let outcome = job.failed(config, &ran).unwrap_or(Outcome::Ran { output: ran.output });
    let outcome = job.outcome(outcome);
    let change = match work.command.name {
        CommandName::ForceUnlock => {
            let result = if outcome.outcome.is_success() { "state lock freed" } else { "state lock not freed" };
            JobChange::Audited(audit_entry(work, &config.id, result.to_owned()))
        }
        _ => {
            let is_strict = wanted_lock(ctx, work, config).is_strict();
            state_commands::state_changed(work, config, &outcome, is_strict)
        }
    };
    job.end(outcome, change).await
}

/// Reason that a job has no specification to go by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingSpec {
    /// It was never started.
    NotStarted,
    /// This server cannot read it. The job may have changed something.
    Unusable,
}

/// Records the end of a job of which only the record is known.
async fn ended_without_spec(ctx: &Context, work: &CommandRun, job: Job, why: MissingSpec) -> Result<JobOutcome> {
    let project = job.project.clone().context("a job without a project")?;
    let verb = work.command.name.spoken();
    let plan = |of_drift_run: &str| match job.pull.is_branch() {
        true => of_drift_run.to_owned(),
        false => format!("`{}`", command_for(&ctx.rendering.executable, CommandName::Plan, &project, &[])),
    };
    let message = match why {
        MissingSpec::NotStarted => format!(
            "The server ended before the executor had the `{verb}`, so nothing was run. Its plan is used up: {} makes a new one",
            plan("another remediation")
        ),
        MissingSpec::Unusable => format!(
            "The `{verb}` continued on its executor, but this server cannot read its result. Its changes remain; {} shows the difference",
            plan("a new detection")
        ),
    };
    let outcome = JobOutcome {
        command: work.command.name,
        project,
        job: Some(job.id.clone()),
        millis: 0,
        tool: None,
        silenced: false,
        outcome: Outcome::Errored(Fault { reason: Reason::Interrupted, message, output: String::new() }),
    };
    let changed = if why == MissingSpec::Unusable { Changed::Perhaps } else { Changed::Nothing };
    recorder::end_unread(ctx, work, job, outcome.clone(), changed).await?;
    Ok(outcome)
}

async fn applied(ctx: &Context, job: JobRun<'_>, spec: &JobSpec, plan: &PlanRecord, ran: Ran) -> Result<JobOutcome> {
    let config = &spec.project;
    let (outcome, errored) = stage::outcome(&job, config, plan, ran).await;
    job.work.cancel.note_change();
    remove_plan_files(ctx, std::slice::from_ref(plan)).await;
    let outcome = job.outcome(outcome);
    let change = match job.record.pull.is_branch() {
        true => drift::end_of_taken_up(ctx, job.work, plan, &outcome, errored).await?,
        false => end::change(ctx, &job, config, plan, &outcome, errored).await,
    };
    job.end(outcome, change).await
}

/// A job that was followed to its end.
pub(super) struct TakenUp<'a> {
    pub(super) job: JobRun<'a>,
    pub(super) spec: JobSpec,
    pub(super) ran: Ran,
}

/// Result of taking a job up.
pub(super) enum Taken<'a> {
    /// It has ended.
    Ran(Box<TakenUp<'a>>),
    /// Its server had stored no specification: nothing was started, and nothing ever will be.
    NotStarted,
    /// This server cannot read its specification. The job may run.
    Unusable,
}

/// Follows a job of an earlier server to its end.
///
/// # Errors
///
/// [`JobLeft`], if the job goes on without this server, too.
pub(super) async fn take_up<'a>(
    ctx: &'a Context,
    work: &'a CommandRun,
    job: Job,
    objects: &JobObjects,
) -> Result<Taken<'a>> {
    let id = job.id.clone();
    let found = tokio::select! {
        found = ctx.executors.stored_spec(objects) => found,
        () = work.cancel.leave.cancelled() => return Err(JobLeft.into()),
    };
    let spec = match found {
        StoredSpec::Found(spec) => spec,
        StoredSpec::Withdrawn => return Ok(Taken::NotStarted),
        StoredSpec::Unusable(why) => {
            tracing::error!(job = %id, "the specification of a job at an executor cannot be used: {why}");
            return Ok(Taken::Unusable);
        }
    };
    tracing::info!(job = %id, "a job that went on at an executor is taken up");
    // Its log is read again from the beginning.
    ctx.logs.remove(&id);
    let mut job = JobRun::taken_up(ctx, work, job, &spec)?;
    let ran = job.follow(objects, &spec.job, Beginning::Earlier).await?;
    Ok(Taken::Ran(Box::new(TakenUp { job, spec: spec.job, ran })))
}

/// Stops a job whose result nobody wants, and records its end.
pub(crate) async fn end(ctx: &Context, job: &Job, leave: &CancellationToken) -> Result<Stopped> {
    let objects = job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote));
    if let Some(objects) = &objects {
        let asked = FollowRequest::leaving_with(leave);
        asked.stop("its result is not wanted any more".to_owned());
        let followed = ctx.executors.follow(objects, &|_| {}, &asked, GRACE, Beginning::Earlier).await;
        tracing::info!(job = %job.id, "a job that went on at an executor was stopped: {followed}");
        if followed == Followed::Left {
            return Ok(Stopped::Left);
        }
    }
    recorder::end_stopped(ctx, job).await?;
    if let Some(objects) = &objects {
        // It changes no state.
        ctx.executors.clean(objects, ErroredState::Recorded).await;
    }
    Ok(Stopped::Recorded)
}

/// Result of stopping a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Its end is recorded.
    Recorded,
    /// This server stops first.
    Left,
}
