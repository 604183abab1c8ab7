//! Jobs that went on at executors after the server that had begun them was gone: this server follows them to their ends, records these with
//! all that follows from them, and answers the command.

use super::answer::CommandAnswer;
use super::applicable_plans::ApplicablePlans;
use super::apply::{self, end, stage};
use super::command_run::{CommandRun, Ended, audit_entry};
use super::context::Context;
use super::job::JobRun;
use super::job_end::JobChange;
use super::plan::{remove_plan_files, wanted_lock};
use super::status_update::StatusUpdate;
use super::{parts, recorder, state_commands, state_locks};
use crate::domain::command::CommandName;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::state::{Job, PlanRecord};
use crate::executors::Asked;
use crate::runner::result::Ran;
use crate::runner::spec::{JobSpec, PlanUse};
use crate::vault::jobs::{Created, JobObjects};
use anyhow::{Context as _, Result, anyhow};
use futures::StreamExt as _;
use std::time::Duration;

/// Jobs of one command that are followed at the same time. A job that is not followed yet goes on, too.
const AT_ONCE: usize = 50;
/// Time between SIGINT and SIGKILL for a job whose result nobody wants.
const GRACE: Duration = Duration::from_secs(10);

/// Follows the unfinished jobs of a run that changes states, goes on with its other projects, and answers it.
pub(super) async fn finish(ctx: &Context, work: &mut CommandRun) -> Result<Ended> {
    let id = work.run.id.clone();
    let jobs = ctx.store.read(move |view| view.jobs_of(&id)).await?;
    let begun: Vec<_> = jobs.into_iter().filter(|job| job.project.is_some()).map(|job| ended(ctx, work, job)).collect();
    // All of them, although one may break.
    let ended: Vec<_> = futures::stream::iter(begun).buffered(AT_ONCE).collect().await;
    let (mut outcomes, mut remarks) = (Vec::new(), Vec::new());
    for outcome in ended {
        let outcome = outcome?;
        remarks.extend(state_locks::remark(ctx, &work.pull.id, &outcome).await);
        remarks.extend(parts::remark(ctx, &outcome));
        outcomes.push(outcome);
    }
    let all_well = outcomes.iter().all(|outcome| outcome.outcome.is_success());
    work.begun_before = outcomes;
    let has_others = has_others(ctx, work).await?;
    // An apply after the merge is bound to what was compared before it.
    if has_others && all_well && remarks.is_empty() && work.pull.is_open() && !work.cancel.token.is_cancelled() {
        return apply::run(ctx, work).await;
    }
    if has_others {
        remarks.push("Projects that are not named here had not begun: their plans can still be applied.".to_owned());
    }
    recorder::answer(ctx, work, CommandAnswer::results(work, Vec::new(), remarks, StatusUpdate::Nothing)).await
}

/// Returns true if there are plans for the command that were not applied by it.
async fn has_others(ctx: &Context, work: &CommandRun) -> Result<bool> {
    match work.command.name {
        CommandName::Apply => Ok(!ApplicablePlans::load(ctx, work).await?.is_empty()),
        _ => Ok(false),
    }
}

/// Returns the outcome of a job, after it has ended.
async fn ended(ctx: &Context, work: &CommandRun, job: Job) -> Result<JobOutcome> {
    if let Some(outcome) = job.outcome {
        return Ok(outcome);
    }
    let objects = job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote));
    let objects = objects.with_context(|| format!("job {} has ended without an outcome", job.id))?;
    let Some(TakenUp { job, spec, ran }) = take_up(ctx, work, job, &objects).await? else {
        return Err(anyhow!("a job of an executor has no specification, and has begun"));
    };
    let config = &spec.project;
    if let PlanUse::Apply(plan) = &spec.plan {
        let id = plan.id.clone();
        let plan =
            ctx.store.read(move |view| view.consumed_plan(&id)).await?.context("the plan of an apply is gone")?;
        return applied(ctx, job, &spec, &plan, ran).await;
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

async fn applied(ctx: &Context, job: JobRun<'_>, spec: &JobSpec, plan: &PlanRecord, ran: Ran) -> Result<JobOutcome> {
    let config = &spec.project;
    let (outcome, errored) = stage::outcome(&job, config, plan, ran).await;
    job.work.cancel.note_change();
    remove_plan_files(ctx, std::slice::from_ref(plan)).await;
    let outcome = job.outcome(outcome);
    let change = end::change(ctx, &job, config, plan, &outcome, errored).await;
    job.end(outcome, change).await
}

/// A job that was followed to its end.
pub(super) struct TakenUp<'a> {
    pub(super) job: JobRun<'a>,
    pub(super) spec: JobSpec,
    pub(super) ran: Ran,
}

/// Follows a job of an earlier server to its end. `None` if that server had stored no specification: then nothing was started, and nothing
/// ever will be.
///
/// # Errors
///
/// [`super::job::JobLeft`], if the job goes on without this server, too.
pub(super) async fn take_up<'a>(
    ctx: &'a Context,
    work: &'a CommandRun,
    job: Job,
    objects: &JobObjects,
) -> Result<Option<TakenUp<'a>>> {
    let id = job.id.clone();
    let Some(spec) = ctx.executors.stored_spec(objects).await? else {
        return match ctx.executors.withdraw(objects).await? {
            Created::Ours => Ok(None),
            Created::Theirs(_) => Err(anyhow!("job {id} has begun without a specification")),
        };
    };
    tracing::info!(job = %id, "a job that went on at an executor is taken up");
    // Its log is read again from the beginning.
    ctx.logs.remove(&id);
    let mut job = JobRun::taken_up(ctx, work, job, &spec)?;
    let ran = job.follow(objects, &spec.job).await?;
    Ok(Some(TakenUp { job, spec: spec.job, ran }))
}

/// Stops a job whose result nobody wants, and waits for its end. Its record is not changed.
pub(crate) async fn stop(ctx: &Context, job: &Job) -> Result<()> {
    let Some(objects) = job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote)) else { return Ok(()) };
    let asked = Asked::default();
    asked.stop.cancel();
    let followed = ctx.executors.follow(&objects, &|_| {}, &asked, GRACE).await?;
    tracing::info!(job = %job.id, "a job that went on at an executor was stopped: {followed}");
    ctx.executors.clean(&objects).await;
    Ok(())
}
