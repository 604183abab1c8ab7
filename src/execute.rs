//! Runs one command on one pull request: checkout, schedule, jobs, and the answer that is recorded with its results.
//!
//! [`run`] never fails: an error becomes the answer. Every visible effect is enqueued in the transaction that records its cause.

pub(crate) mod abandoned;
mod admission;
mod answer;
mod applicable_plans;
mod apply;
mod approval_error;
mod approvals;
mod arguments;
pub(crate) mod auto_apply;
pub(crate) mod automerge;
pub(crate) mod base_moves;
mod cancel;
mod capacity;
mod command_run;
mod context;
mod current;
mod deleted;
pub(crate) mod discarded;
mod discarded_approvals;
pub(crate) mod drift;
pub(crate) mod errored_state;
mod force_unlock;
mod groups;
mod guards;
mod hooks;
mod ids;
mod job;
mod job_end;
pub(crate) mod last_tree;
pub(crate) mod late_job;
mod lock;
pub(crate) mod measured;
mod memory;
pub(crate) mod merged;
pub(crate) mod merged_changes;
mod names;
mod not_run;
pub(crate) mod notices;
mod overtaken;
mod parts;
mod people;
pub(crate) mod permissions;
mod plan;
mod plan_files;
mod policies;
mod preconditions;
mod prepare;
mod recorder;
mod request_refused;
mod requirements;
mod secrets;
pub(crate) mod spare_trees;
mod state_commands;
pub(crate) mod state_locks;
mod status_update;
pub(crate) mod taken_up;
mod traced;
mod unrecorded_outcomes;
mod verification;

pub(crate) use crate::executors::{ExecutorUse, PlaceAtExecutor};

use crate::checkout::Using;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, Reason};
use crate::runner::local::RunFolder;
use crate::store::is_deposed;
use answer::CommandAnswer;
use anyhow::Result;
use futures::FutureExt as _;
use job::is_left;
use prepare::Stop;
use std::sync::Arc;
use tokio::sync::OwnedRwLockReadGuard;

pub(crate) use admission::Admission;
pub(crate) use answer::reply_without_run;
pub(crate) use cancel::{Cancel, CancelReason};
pub(crate) use capacity::{Capacity, before_restore};
pub(crate) use command_run::{CommandRun, Ended, may_go_on, new_run};
pub(crate) use context::{Context, calm};
pub(crate) use ids::{random_bits, random_id};
pub(crate) use plan::{remove_plan_files, waited_for};
pub(crate) use prepare::{fetch, read_config as read_repo_config, schedule_options};
pub(crate) use request_refused::RequestRefused;
pub(crate) use taken_up::RemainingProjects;

/// Runs a command to its answer.
pub(crate) async fn run(ctx: &Context, work: &mut CommandRun) -> Ended {
    let ended = with_capacity(ctx, work).await;
    answered(ctx, work, ended).await
}

/// Follows the jobs of a run that went on at executors, goes on with its other projects, and answers it.
pub(crate) async fn take_up(ctx: &Context, work: &mut CommandRun, others: RemainingProjects) -> Ended {
    let ended = taken_up::finish(ctx, work, others).await;
    answered(ctx, work, ended).await
}

/// Makes an error the answer, unless another server leads or a job goes on without this one.
async fn answered(ctx: &Context, work: &CommandRun, ended: Result<Ended>) -> Ended {
    let error = match ended {
        Ok(ended) => return ended,
        Err(error) => error,
    };
    if is_left(&error) {
        recorder::unrecorded(ctx, work).await;
        tracing::info!(pull = %work.pull.id, run = work.run.id.as_str(), "{error}");
        return Ended::Stopped(CancelReason::Shutdown);
    }
    if is_deposed(&error) {
        for end in work.unrecorded.take() {
            unrecorded_outcomes::pass_on(ctx, work, &end).await;
        }
        tracing::info!(pull = %work.pull.id, command = work.command.name.as_str(), "another server leads now: {error:#}");
        return Ended::Stopped(CancelReason::Shutdown);
    }
    tracing::error!(pull = %work.pull.id, command = work.command.name.as_str(), error = format!("{error:#}"), "command broke");
    let id = work.run.id.clone();
    if ctx.store.read(move |view| Ok(view.run(&id)?.is_some_and(|run| run.answered))).await.unwrap_or(false) {
        // The error came after the recorded answer, which stays the only one.
        return Ended::answered();
    }
    let fault = Fault {
        reason: Reason::Internal,
        message: ctx.redactor.redact(&format!("The server had an internal error: {error:#}")),
        output: String::new(),
    };
    match recorder::answer(ctx, work, CommandAnswer::error(fault)).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(pull = %work.pull.id, error = format!("{error:#}"), "the answer could not be recorded");
            Ended::Stopped(CancelReason::Shutdown)
        }
    }
}

/// Checks arguments, permissions and disk space, then runs the command.
async fn with_capacity(ctx: &Context, work: &mut CommandRun) -> Result<Ended> {
    let settings = &ctx.settings;
    if let Some(fault) = arguments::find_refused(&work.command, &settings.var_file_allowlist, &ctx.rendering.executable)
    {
        return recorder::answer(ctx, work, CommandAnswer::refusal(fault)).await;
    }
    if let Some(answer) = permissions::refused_everywhere(ctx, work).await {
        return recorder::answer(ctx, work, answer).await;
    }
    let _room = match make_room(ctx, work).await {
        Ok(room) => room,
        Err(stop) => return plan::answer_stop(ctx, work, stop).await,
    };
    match work.command.name {
        CommandName::Plan => plan::run(ctx, work).boxed().await,
        CommandName::Apply => apply::run(ctx, work).boxed().await,
        _ => state_commands::run(ctx, work).boxed().await,
    }
}

/// Home directory of a command's jobs, and guards: its binaries and checkouts are not removed to make room.
type Room = (Option<Arc<RunFolder>>, OwnedRwLockReadGuard<()>, Using);

/// Makes room for a command on the disk. Stops with a fault if there is none.
async fn make_room(ctx: &Context, work: &CommandRun) -> Result<Room, Stop> {
    let checkouts = ctx.checkouts.using(&work.pull.id).await?;
    if let Some(fault) = capacity::on_disk(ctx, work).await {
        return Err(Stop::Fault(fault));
    }
    let binaries = ctx.installer.using().await;
    Ok((ctx.runner.folder(&work.run.id, &work.pull.id), binaries, checkouts))
}
