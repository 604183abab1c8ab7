//! Commands whose jobs went on at executors while no server led: this server follows the jobs and answers the commands.

use super::actor::{fetch_pull, later};
use super::inner::Inner;
use super::queues::{Item, TakenUpRun, Task};
use super::resume;
use crate::domain::command::Command;
use crate::domain::state::{Delivery, Job, Run};
use crate::domain::{Head, PullId, PullRequest};
use crate::execute::merged::{self, AfterMerge};
use crate::execute::{self, CancelReason, CommandRun, Ended, RemainingProjects};
use crate::store::is_deposed;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause before jobs are followed again after that broke off.
pub(super) const AFTER_BREAK: Duration = Duration::from_secs(30);
/// Time limit of a fetch for a command that is taken up.
const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// Pause between two looks for jobs that nobody wants any more.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Returns true if a run with these jobs is taken up: one of them goes on at an executor, or one was left there and has ended, and none that
/// an earlier process ran is in doubt.
pub(super) fn goes_on(jobs: &[Job]) -> bool {
    let unfinished = |job: &Job| job.finished.is_none();
    jobs.iter().any(|job| unfinished(job) && job.remote.is_some())
        || (jobs.iter().any(|job| job.remote.is_some()) && !jobs.iter().any(unfinished))
}

/// Returns the item with which an actor follows the jobs of a run. `command`: that of its delivery; without one, only the projects that had
/// begun are known.
pub(super) fn item(run: &Run, command: Option<Command>, delivery: Option<&Delivery>, pause: Duration) -> Item {
    let received = delivery.map_or_else(Timestamp::now, |delivery| delivery.received);
    let others = if command.is_some() { RemainingProjects::Apply } else { RemainingProjects::Leave };
    let command = command.unwrap_or_else(|| Command::new(run.command, run.trigger, run.user.clone()));
    let taken_up = TakenUpRun { run: run.clone(), command, others, pause, cancelled_by: None };
    Item { cause: run.cause.clone(), received, task: Task::TakeUp(Box::new(taken_up)) }
}

/// Stops unwanted jobs for as long as this server leads.
pub(super) async fn run(inner: Arc<Inner>) {
    while !inner.actors.draining() {
        if let Err(error) = stop_unwanted(&inner.now(), None, &CancellationToken::new()).await {
            if is_deposed(&error) {
                return;
            }
            tracing::error!(error = format!("{error:#}"), "jobs that are not wanted any more could not be stopped");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Stops jobs at executors whose run has ended without them, such as a plan of a head that is not planned any more: all, or those of one
/// pull request. A job that may change something is never stopped unasked.
pub(super) async fn stop_unwanted(inner: &Arc<Inner>, pull: Option<&PullId>, leave: &CancellationToken) -> Result<()> {
    let pull = pull.cloned();
    let unwanted = inner.ctx.store.read(move |view| {
        let mut jobs = view.unfinished_jobs()?;
        jobs.retain(|job| {
            job.remote.is_some() && !job.changes_state() && pull.as_ref().is_none_or(|of| *of == job.pull)
        });
        let mut unwanted = Vec::new();
        for job in jobs {
            if view.run(&job.run)?.is_none_or(|run| run.finished.is_some()) {
                unwanted.push(job);
            }
        }
        Ok(unwanted)
    });
    let stopping = unwanted.await?;
    let stopping = stopping.iter().map(|job| execute::taken_up::end(&inner.ctx, job, leave));
    futures::future::try_join_all(stopping).await.map(drop)
}

/// Follows the jobs of a run as the running command of its pull request.
pub(super) async fn follow(inner: &Arc<Inner>, taken_up: TakenUpRun, item: &Item) -> Result<()> {
    let TakenUpRun { run, command, others, pause, cancelled_by } = taken_up;
    let id = run.pull.clone();
    let cancel = inner.actors.run(&id, command.name, &run.head);
    if let Some(user) = cancelled_by {
        cancel.cancel(CancelReason::Person(user));
    }
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = cancel.leave.cancelled() => return later(inner, &id, &item.cause).await,
    }
    let pull = pull_request(inner, &run).await?;
    let owed = merged::owed(&inner.ctx, &pull, &command).await?;
    let after_merge = owed.map(|owed| AfterMerge { owed, pull: pull.clone(), guarded: None, files: None });
    let rules = inner.ctx.global.rules(&id.repo, &pull.base.branch);
    // An apply after the merge is bound to what was compared before it.
    let is_served = pull.is_open() && rules.branch_allowed && pull.head.commit == run.head;
    let others = if is_served { others } else { RemainingProjects::Leave };
    // The jobs are of this head, whatever was pushed since.
    let head = Head { commit: run.head.clone(), ..pull.head.clone() };
    let pull = PullRequest { head, ..pull };
    if after_merge.is_some() {
        // Whether merged changes are satisfied is read in the mirror, which a new machine lacks.
        match tokio::time::timeout(FETCH_LIMIT, execute::fetch(&inner.ctx, &pull)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(pull = %id, "its commits cannot be fetched: {error}"),
            Err(_) => tracing::warn!(pull = %id, "its commits cannot be fetched in time"),
        }
    }
    let mut work = CommandRun { after_merge, ..CommandRun::new(run, pull, command, rules, cancel) };
    match execute::take_up(&inner.ctx, &mut work, others).await {
        Ended::Answered { follows: Some(next) } => resume::take_up(inner, *next),
        Ended::Answered { follows: None } => {}
        Ended::Stopped(_) => later(inner, &id, &item.cause).await?,
    }
    Ok(())
}

/// Returns the pull request as the host has it now, or as it was recorded if the host does not answer.
async fn pull_request(inner: &Inner, run: &Run) -> Result<PullRequest> {
    match fetch_pull(inner, &run.pull).await {
        Ok(pull) => Ok(pull),
        Err(error) => {
            tracing::warn!(pull = %run.pull, "its record is taken, the host does not answer: {error}");
            let id = run.pull.clone();
            inner.ctx.store.read(move |view| view.pull(&id)).await?.context("a pull request that is not known")
        }
    }
}
