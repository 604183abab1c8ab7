//! Jobs on an executor: stores what they read, follows them, and takes their results back.

use super::super::admission::Permit;
use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::measured;
use super::super::not_run::NotRun;
use super::super::prepare::Stop;
use super::{JobRun, Ready};
use crate::checkout::PackedGit;
use crate::config::ProjectConfig;
use crate::config::executors::ExecutorName;
use crate::domain::command::{CommandName, Trigger};
use crate::domain::state::{PlanRecord, RemoteJob};
use crate::executors::{
    self, Beginning, CollectProblem, FollowRequest, Followed, FollowedLine, FollowedLines, PackProblem, plan_tree,
    random_key,
};
use crate::meters::RunPhase;
use crate::runner::result::{Ending, Ran, StepProblem};
use crate::runner::spec::{JobSpec, PlanUse};
use crate::vault::jobs::JobObjects;
use anyhow::{Context as _, Result};
use backon::BackoffBuilder as _;
use serde_json::Value;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Time within which a job of a drift run has to begin at its executor.
const DRIFT_BEGINS_WITHIN: Duration = Duration::from_secs(1800);

/// First and longest pause between attempts to store the result of a job, before jitter.
const BETWEEN_COLLECTIONS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// Time for which the result of a job is tried to be stored. A state that Terraform could not save stays in the bucket after that.
const COLLECT_FOR: Duration = Duration::from_secs(600);

/// A job that goes on without this server, which stops.
#[derive(Debug, thiserror::Error)]
#[error("a job goes on at its executor")]
pub(in super::super) struct JobLeft;

/// Returns true if a job goes on without this server.
pub(in super::super) fn is_left(error: &anyhow::Error) -> bool {
    error.is::<JobLeft>()
}

/// Returns the name of the executor of a job; `None` if the server runs it.
pub(in super::super) fn executor<'c>(ctx: &Context, work: &CommandRun, config: &'c ProjectConfig) -> Option<&'c str> {
    let of_stage = match work.command.name {
        CommandName::Plan | CommandName::PolicyCheck => &config.executors.plan,
        CommandName::Apply | CommandName::Import | CommandName::StateRm | CommandName::ForceUnlock => {
            &config.executors.apply
        }
        _ => return None,
    };
    match of_stage {
        ExecutorName::Named(name) if ctx.executors.has(name) => Some(name),
        _ => None,
    }
}

/// A place at an executor, for a job that has not begun.
pub(in super::super) struct ExecutorSlot {
    pub(super) remote: RemoteJob,
    pub(super) permit: OwnedSemaphorePermit,
}

impl ExecutorSlot {
    /// Waits for a place at the executor of a job. `None` if the server runs the job. Preconditions are checked after it.
    pub(in super::super) async fn wait(
        ctx: &Context,
        work: &CommandRun,
        config: &ProjectConfig,
    ) -> Result<Option<ExecutorSlot>, NotRun> {
        let Some(name) = executor(ctx, work, config) else { return Ok(None) };
        let began = Instant::now();
        let permit = tokio::select! {
            biased;
            () = work.cancel.leave.cancelled() => return Err(anyhow::Error::from(JobLeft).into()),
            () = work.cancel.token.cancelled() => return Err(Stop::Cancelled.into()),
            permit = ctx.executors.slot(name, &work.run.id, &config.id) => permit.context("an executor is gone")?,
        };
        measured::phase(ctx, &work.run.id, RunPhase::Wait, began.elapsed());
        Ok(Some(ExecutorSlot { remote: RemoteJob { executor: name.to_owned(), key: random_key()? }, permit }))
    }
}

/// Waits until the server has room for a job, unless it runs at an executor.
pub(in super::super) async fn enter<'c>(
    ctx: &'c Context,
    work: &CommandRun,
    slot: Option<&ExecutorSlot>,
) -> Option<Permit<'c>> {
    if slot.is_some() {
        return None;
    }
    let began = Instant::now();
    let permit = ctx.admission.enter_when_free().await;
    measured::phase(ctx, &work.run.id, RunPhase::Wait, began.elapsed());
    Some(permit)
}

impl JobRun<'_> {
    /// Runs the job's steps on its executor.
    ///
    /// # Errors
    ///
    /// [`JobLeft`], if the job goes on without this server.
    pub(super) async fn run_remote(
        &mut self,
        remote: &RemoteJob,
        spec: &JobSpec,
        ready: &Ready,
        plan: Option<&PlanRecord>,
    ) -> Result<Ran> {
        let ctx = self.ctx;
        let objects = ctx.executors.objects(remote).context("a job with a wrong key")?;
        if let Err(problem) = self.store(&objects, spec, ready, plan).await {
            let why = match problem {
                PackProblem::TooLarge(why) => why,
                PackProblem::Other(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(job = %self.record.id, error, "a job for an executor could not be stored");
                    ctx.redactor.redact(&error)
                }
            };
            return Ok(executors::not_started(spec, &remote.executor, why));
        }
        self.log.line(&format!("[tidelock: this job runs on the executor {}]", remote.executor));
        self.follow(&objects, spec, Beginning::Own).await
    }

    async fn store(
        &mut self,
        objects: &JobObjects,
        spec: &JobSpec,
        ready: &Ready,
        plan: Option<&PlanRecord>,
    ) -> Result<(), PackProblem> {
        let (ctx, executor) = (self.ctx, objects.prefix().executor());
        let tree = match plan.and_then(|plan| Some((plan, plan.tree.as_ref()?))) {
            Some((plan, tree)) => ctx.executors.tree_of_plan(objects, tree, &plan.head, &plan.base).await?,
            None => {
                let git = if spec.tree.history { PackedGit::History } else { PackedGit::Commit };
                let (packed, place) = (&self.work.packed_trees, spec.project.id.label());
                ctx.executors.pack(executor, &ctx.checkouts, &ready.place.tree, git, packed, &place).await?
            }
        };
        if matches!(spec.plan, PlanUse::Make { .. }) {
            self.plan_tree = Some(plan_tree(&tree));
        }
        Ok(ctx.executors.store(objects, spec.clone(), tree).await?)
    }

    /// Follows the job to its end, also one that an earlier server has started.
    ///
    /// # Errors
    ///
    /// [`JobLeft`], if the job goes on without this server.
    pub(in super::super) async fn follow(
        &mut self,
        objects: &JobObjects,
        spec: &JobSpec,
        beginning: Beginning,
    ) -> Result<Ran> {
        let (ctx, work, executor) = (self.ctx, self.work, objects.prefix().executor());
        let started = tokio::time::Instant::now();
        let log = |line: FollowedLine<'_>| match line {
            FollowedLine::Sent(line) => self.output(&ctx.redactor.redact(line)),
            FollowedLine::Note(line) => self.log.line(&ctx.redactor.redact(line)),
        };
        let followed = tokio::select! {
            followed = follow(ctx, work, objects, &log, spec.limits.grace, beginning) => followed,
            never = self.note_long_apply(started) => match never {},
        };
        let ran = match followed {
            Followed::Left => return Err(JobLeft.into()),
            Followed::Ended(result) => match self.collect(objects, spec, &result).await? {
                ran if ran.ending == Ending::Stopped && !work.cancel.token.is_cancelled() => {
                    ended_elsewhere(objects, ran).await
                }
                ran => ran,
            },
            Followed::NotStarted(_) if work.cancel.token.is_cancelled() => {
                Ran { ending: Ending::Stopped, ..executors::not_started(spec, executor, String::new()) }
            }
            Followed::NotStarted(why) => executors::not_started(spec, executor, why),
            Followed::Lost(why) => executors::lost(spec, executor, why),
        };
        self.notes(&ran);
        Ok(ran)
    }

    /// Takes the job's result over. If a file cannot be stored now, tries again: the job's objects are the only copy.
    ///
    /// # Errors
    ///
    /// [`JobLeft`], if this server stops first.
    async fn collect(&self, objects: &JobObjects, spec: &JobSpec, result: &Value) -> Result<Ran> {
        let (ctx, cancel, executor) = (self.ctx, &self.work.cancel, objects.prefix().executor());
        let mut pauses = tidelock_retry::jittered(BETWEEN_COLLECTIONS.0, BETWEEN_COLLECTIONS.1).build();
        let (mut told, since) = (None, tokio::time::Instant::now());
        loop {
            let why = match ctx.executors.collect(objects, spec, result.clone(), &ctx.redactor).await {
                Ok(ran) => return Ok(ran),
                Err(CollectProblem::Unusable(why)) => {
                    return Ok(executors::lost(spec, executor, format!("its result cannot be used: {why}")));
                }
                Err(CollectProblem::NotNow(why)) => why,
            };
            if since.elapsed() >= COLLECT_FOR {
                let minutes = COLLECT_FOR.as_secs() / 60;
                let why = format!("its result could not be stored for {minutes} minutes: {why}");
                return Ok(executors::lost(spec, executor, why));
            }
            if told.as_ref() != Some(&why) {
                tracing::error!(job = %self.record.id, "the result of a job cannot be stored now, and is tried again: {why}");
                self.log.line("[tidelock: the server cannot store the job's result now, and tries again]");
                told = Some(why);
            }
            let stopped = async {
                cancel.token.cancelled().await;
                if spec.command.name.changes_state() && !cancel.is_leaving() {
                    // What has been done is done.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = cancel.leave.cancelled() => return Err(JobLeft.into()),
                () = stopped => {
                    if cancel.is_leaving() {
                        return Err(JobLeft.into());
                    }
                    return Ok(Ran { ending: Ending::Stopped, ..executors::not_started(spec, executor, String::new()) });
                }
                () = tokio::time::sleep(pauses.next().unwrap_or(BETWEEN_COLLECTIONS.1)) => {}
            }
        }
    }

    /// Returns the result of a job that was given up before, and notes what it tells of the state lock.
    ///
    /// # Errors
    ///
    /// If it is not what a job gives back.
    pub(in super::super) async fn late(&mut self, objects: &JobObjects, spec: &JobSpec, result: Value) -> Result<Ran> {
        let ran = self.ctx.executors.collect(objects, spec, result, &self.ctx.redactor).await?;
        self.log.line("[tidelock: this job had been given up, and has ended after all]");
        self.notes(&ran);
        Ok(ran)
    }
}

/// Returns the result of a job that stopped before it could change anything, and not because of this server.
async fn ended_elsewhere(objects: &JobObjects, ran: Ran) -> Ran {
    let why = match objects.cancelled().await {
        // An earlier server asked for it.
        Ok(Some(why)) => why,
        _ => "the engine stopped it, for example to drain the node".to_owned(),
    };
    let executor = objects.prefix().executor().to_owned();
    Ran { ending: Ending::Broken(StepProblem::EndedElsewhere { executor, why }), ..ran }
}

/// Follows a job of a command to its end. A cancellation of the command is passed on to the job, and a shutdown leaves it running.
pub(in super::super) async fn follow(
    ctx: &Context,
    work: &CommandRun,
    objects: &JobObjects,
    log: FollowedLines<'_>,
    grace: Duration,
    beginning: Beginning,
) -> Followed {
    // Nobody can cancel a drift run, and one that waits holds up the next. What an earlier server did not get to begin is not begun now,
    // when the branch may have moved.
    let begins_within = (work.command.trigger == Trigger::Drift).then_some(match beginning {
        Beginning::Own => DRIFT_BEGINS_WITHIN,
        Beginning::Earlier => Duration::ZERO,
    });
    let asked = FollowRequest::beginning_within(begins_within);
    tokio::select! {
        followed = ctx.executors.follow(objects, log, &asked, grace, beginning) => followed,
        never = pass_on(ctx, work, objects.prefix().executor(), &asked) => match never {},
    }
}

/// Passes a cancellation on to the job. A shutdown leaves it running, if it can, and if the next server wants its result.
async fn pass_on(ctx: &Context, work: &CommandRun, executor: &str, asked: &FollowRequest) -> Infallible {
    let is_left = ctx.executors.outlives_server(executor) && !work.looks_for_drift();
    let stopped = async {
        work.cancel.token.cancelled().await;
        if !is_left || !work.cancel.is_leaving() {
            asked.stop(format!("cancelled by {}", work.cancel.by()));
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = work.cancel.leave.cancelled(), if is_left => {}
        () = stopped => {}
    }
    asked.leave.cancel();
    std::future::pending().await
}
