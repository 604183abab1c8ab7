//! Commands whose jobs went on at executors while no server led: this server follows the jobs and answers the commands.

use super::actor::{fetch_pull, later};
use super::inner::Inner;
use super::queues::{Item, Task};
use super::resume;
use crate::domain::command::Command;
use crate::domain::state::{Delivery, Job, Run};
use crate::domain::{Head, PullRequest};
use crate::execute::merged::{self, AfterMerge};
use crate::execute::{self, CommandRun, Ended};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::sync::Arc;

/// Returns true if a job of these goes on at an executor.
pub(super) fn goes_on(jobs: &[Job]) -> bool {
    jobs.iter().any(|job| job.finished.is_none() && job.remote.is_some())
}

/// Returns the item with which an actor follows the jobs of a run. `delivery` is the cause of the run; absent if it has none.
pub(super) fn item(run: &Run, command: Command, delivery: Option<&Delivery>) -> Item {
    let received = delivery.map_or_else(Timestamp::now, |delivery| delivery.received);
    let task = Task::TakeUp { run: Box::new(run.clone()), command: Box::new(command) };
    Item { cause: run.cause.clone(), received, task }
}

/// Follows the jobs of a run as the running command of its pull request.
pub(super) async fn follow(inner: &Arc<Inner>, run: Run, command: Command, item: &Item) -> Result<()> {
    let id = run.pull.clone();
    let pull = pull_request(inner, &run).await?;
    let owed = merged::owed(&inner.ctx, &pull, &command).await?;
    let after_merge = owed.map(|owed| AfterMerge { owed, pull: pull.clone(), guarded: None, files: None });
    // The jobs are of this head, whatever was pushed since.
    let head = Head { commit: run.head.clone(), ..pull.head.clone() };
    let pull = PullRequest { head, ..pull };
    let cancel = inner.actors.run(&id, command.name, &run.head);
    let rules = inner.ctx.global.rules(&id.repo, &pull.base.branch);
    let mut work = CommandRun { after_merge, ..CommandRun::new(run, pull, command, rules, cancel) };
    match execute::take_up(&inner.ctx, &mut work).await {
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
