//! Jobs that ended at an executor after they had been given up: their outcomes.

use super::apply::stage;
use super::cancel::Cancel;
use super::command_run::CommandRun;
use super::context::Context;
use super::errored_state::{errored_path, kept_file_or_none};
use super::job::JobRun;
use super::job_end::{JobChange, JobEnd};
use crate::domain::outcome::{Applied, JobOutcome, Outcome};
use crate::domain::state::{Job, StateLockTrace};
use crate::domain::{Head, PullRequest};
use crate::executors::spec::RemoteSpec;
use crate::executors::{CollectProblem, ErroredState, LateJobEnd, StoredSpec};
use crate::runner::result::Ran;
use crate::runner::spec::PlanUse;
use crate::store::KeptFile;
use crate::terraform::summary::apply_counts;
use crate::vault::jobs::JobObjects;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The end of a job that had been given up. It is not recorded yet.
pub(crate) struct LateJob {
    pub(crate) outcome: JobOutcome,
    /// State that Terraform could not save.
    pub(crate) errored: Option<KeptFile>,
    /// What is known of its lock on the state.
    pub(crate) state_lock: StateLockTrace,
    /// Dropped with the end, so that readers of the log see its end only once the record has it.
    _end: JobEnd,
}

/// Result of a look for the late end of a job.
pub(crate) enum LateLook {
    /// It has changed a state, and has ended.
    Ended(Box<LateJob>),
    /// It has not ended yet, and may never.
    Awaited,
    /// There is nothing to record of it.
    Nothing,
}

/// Looks for the late end of a job whose interruption is recorded.
pub(crate) async fn look(ctx: &Context, job: &Job) -> Result<LateLook> {
    let Some(objects) = objects(ctx, job) else { return Ok(LateLook::Nothing) };
    Ok(match ctx.executors.late_end(&objects, errored_state(ctx, job).await?).await? {
        LateJobEnd::Awaited => LateLook::Awaited,
        LateJobEnd::Ended(result) if job.changes_state() => {
            LateLook::Ended(Box::new(end(ctx, job.clone(), &objects, result).await?))
        }
        LateJobEnd::Ended(_) | LateJobEnd::Never => LateLook::Nothing,
    })
}

async fn errored_state(ctx: &Context, job: &Job) -> Result<ErroredState> {
    let path = errored_path(&job.id);
    let is_recorded =
        !job.changes_state() || ctx.store.read(move |view| Ok(!view.kept_files(&path)?.is_empty())).await?;
    Ok(if is_recorded { ErroredState::Recorded } else { ErroredState::NotRecorded })
}

/// Returns true if the result of a late job cannot be used, however often it is read. Its objects stay until they are swept.
pub(crate) fn is_final(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(CollectProblem::Unusable(_)))
}

/// Deletes the objects of a job whose end is recorded, or of which none is awaited.
pub(crate) async fn discard(ctx: &Context, job: &Job) -> Result<()> {
    match objects(ctx, job) {
        Some(objects) => Ok(ctx.executors.discard(&objects).await?),
        None => Ok(()),
    }
}

fn objects(ctx: &Context, job: &Job) -> Option<JobObjects> {
    job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote))
}

/// Returns the end of a job that changes a state, by the result that it has stored late.
async fn end(ctx: &Context, job: Job, objects: &JobObjects, result: Value) -> Result<LateJob> {
    let StoredSpec::Found(spec) = ctx.executors.stored_spec(objects).await else {
        bail!("its specification is gone, or of another version");
    };
    let (pull, run) = (job.pull.clone(), job.run.clone());
    let (pull, run) = ctx.store.read(move |view| Ok((view.pull(&pull)?, view.run(&run)?))).await?;
    // A drift run has no record of a pull request.
    let pull = pull.or_else(|| job.pull.is_branch().then(|| spec.job.tree.pull.clone()));
    let (pull, run) = pull.zip(run).context("its run is not known any more")?;
    let head = Head { commit: run.head.clone(), ..pull.head.clone() };
    let pull = PullRequest { head, ..pull };
    let rules = ctx.global.rules(&pull.id.repo, &pull.base.branch);
    let work = CommandRun::new(run, pull, spec.job.command.clone(), rules, Cancel::default());
    let mut job = JobRun::taken_up(ctx, &work, job, &spec)?;
    let ran = job.late(objects, &spec.job, result).await?;
    let (outcome, errored) = outcome(&job, &spec, ran).await?;
    let outcome = job.outcome(outcome);
    let end = job.ended_again(outcome.clone(), JobChange::Nothing);
    let state_lock = end.facts().job.state_lock.clone();
    Ok(LateJob { outcome, errored, state_lock, _end: end })
}

async fn outcome(job: &JobRun<'_>, spec: &RemoteSpec, ran: Ran) -> Result<(Outcome, Option<KeptFile>)> {
    let (ctx, config) = (job.ctx, &spec.job.project);
    if let PlanUse::Apply(plan) = &spec.job.plan {
        let id = plan.id.clone();
        // Another plan of the project may have replaced it since.
        if let Some(plan) = ctx.store.read(move |view| view.consumed_plan(&id)).await? {
            return Ok(stage::outcome(job, config, &plan, ran).await);
        }
    }
    let errored = match &ran.errored_state {
        Some(state) => kept_file_or_none(ctx, state.path.clone()).await,
        None => None,
    };
    let outcome = job.failed(config, &ran).unwrap_or_else(|| match &spec.job.plan {
        PlanUse::Apply(_) => {
            let (added, changed, destroyed) = apply_counts(&ran.output).unwrap_or_default();
            let (output, verification) = (ran.output, ran.verification);
            Outcome::Applied(Applied { added, changed, destroyed, output, part: None, verification })
        }
        _ => Outcome::Ran { output: ran.output },
    });
    Ok((outcome, errored))
}
