//! Plans that went on at executors while no server led.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::job::JobLeft;
use super::super::not_run::NotRun;
use super::super::taken_up::{self, Stopped, Taken, TakenUp, take_up};
use super::super::{overtaken, plan, recorder};
use super::projects::{OfPull, PlanRun};
use crate::config::ProjectConfig;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{Job, PlanRecord};
use crate::executors::StoredSpec;
use crate::executors::spec::RemoteSpec;
use crate::runner::result::Ran;
use crate::runner::spec::PlanUse;
use anyhow::{Context as _, Result};

/// Returns the plans of a resumed run that went on at executors. Its other jobs there, such as policy checks, are stopped: they run again.
pub(super) async fn running(ctx: &Context, work: &CommandRun) -> Result<Vec<Job>> {
    let id = work.run.id.clone();
    let jobs = ctx.store.read(move |view| view.jobs_of(&id)).await?;
    let went_on = jobs.into_iter().filter(|job| job.finished.is_none() && job.remote.is_some());
    let (plans, others): (Vec<Job>, Vec<Job>) = went_on.partition(|job| job.kind == CommandName::Plan.as_str());
    futures::future::try_join_all(others.iter().map(|job| end(ctx, work, job))).await?;
    Ok(plans)
}

/// Stops a job, and records its end. What it would have done is done by another one.
async fn end(ctx: &Context, work: &CommandRun, job: &Job) -> Result<()> {
    match taken_up::end(ctx, job, &work.cancel.leave).await? {
        Stopped::Recorded => Ok(()),
        Stopped::Left => Err(JobLeft.into()),
    }
}

impl PlanRun<'_, OfPull<'_>> {
    /// Returns the outcome of a project whose plan went on at an executor. `None` if there is none, or it is stopped because it is a plan of
    /// another configuration or of a project that another pull request has now: then the project begins anew.
    pub(super) async fn take_up(&self, config: &ProjectConfig) -> Result<Option<JobOutcome>, NotRun> {
        let (ctx, work) = (self.ctx, self.work);
        let is_it = |job: &&Job| job.project.as_ref() == Some(&config.id);
        let Some(job) = self.of.running.iter().find(is_it) else { return Ok(None) };
        let remote = job.remote.as_ref().context("a job of no executor")?;
        let objects = ctx.executors.objects(remote).context("a job with a wrong key")?;
        let is_held = self.of.held.iter().any(|(id, _)| *id == config.id);
        let wanted = match ctx.executors.stored_spec(&objects).await {
            StoredSpec::Found(spec) if !is_held && job.head == work.pull.head.commit && is_of(&spec, config) => spec,
            StoredSpec::Found(_) | StoredSpec::Withdrawn | StoredSpec::Unusable(_) => {
                end(ctx, work, job).await?;
                return Ok(None);
            }
        };
        let (tree, since) = (wanted.tree, job.started);
        let meanwhile = recorder::facts(ctx, move |tx| overtaken::meanwhile(tx, since)).await?;
        let Taken::Ran(ended) = take_up(ctx, work, job.clone(), &objects).await? else {
            recorder::end_stopped(ctx, job).await?;
            return Ok(None);
        };
        let TakenUp { job, spec, ran } = *ended;
        let mut lock = plan::wanted_lock(ctx, work, config);
        lock.lock.holder.since = since;
        let (outcome, plan) = match (job.failed(config, &ran), ran, spec.plan) {
            (Some(outcome), ..) => (outcome, None),
            (None, Ran { plan: Some(made), output, .. }, PlanUse::Make { id, changes_key, .. }) => {
                let bound = job.bound_plan(config, id, tree.base, spec.tool.to_string(), made, &output);
                let (dependencies, may_depend_on_more) = (self.dependencies(config), self.may_depend_on_more(config));
                let bound = PlanRecord { dependencies, may_depend_on_more, ..bound };
                self.planned(config, bound, output, changes_key).await
            }
            (None, ran, _) => {
                let message = "The plan was made, and its executor did not give it back".to_owned();
                (Outcome::Errored(Fault { reason: Reason::Internal, message, output: ran.output }), None)
            }
        };
        Ok(Some(self.record_job_end(config, job, outcome, plan, meanwhile, lock).await?))
    }
}

/// Returns true if a job makes a plan of this configuration.
fn is_of(spec: &RemoteSpec, config: &ProjectConfig) -> bool {
    spec.job.project.digest() == config.digest() && matches!(spec.job.plan, PlanUse::Make { .. })
}
