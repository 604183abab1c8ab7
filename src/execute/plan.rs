//! The `plan` command: which projects, their locks, and the answer; what each project does is in [`projects`].

mod projects;

use super::prepare::{self, Need, Prepared, Stop, Wanted};
use super::requirements::PullFacts;
use super::{Answer, Context, Ended, StatusUpdate, Why, Work, hooks, left, stopped, varfiles};
use crate::checkout::inside;
use crate::config::LockMode;
use crate::domain::ProjectId;
use crate::domain::command::Trigger;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::domain::reply::Message;
use crate::domain::state::{LockHolder, PlanRecord, ProjectLock};
use crate::schedule::{Refusal, Schedule};
use crate::store::LockAttempt;
use anyhow::Result;
use jiff::Timestamp;
use projects::PlanRun;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Runs it.
pub(super) async fn run(ctx: &Context, work: &Work) -> Result<Ended> {
    super::begin(ctx, work).await?;
    let prepared = match prepare::check_out(ctx, work, Need::Changes).await {
        Ok(prepared) => prepared,
        Err(stop) => return answer_stop(ctx, work, stop).await,
    };
    if let Some(answer) = hooks::before(ctx, work, &prepared.tree).await? {
        answer.record(ctx, work).await?;
        return Ok(Ended::Answered);
    }
    let ended = match plan(ctx, work, &prepared).await {
        Ok(Some(answer)) => {
            answer.record(ctx, work).await?;
            Ended::Answered
        }
        Ok(None) => stopped(ctx, work, work.cancel.why().cloned().unwrap_or(Why::Shutdown)).await?,
        Err(stop) => answer_stop(ctx, work, stop).await?,
    };
    if ended == Ended::Answered {
        hooks::after(ctx, work, &prepared.tree).await;
    }
    Ok(ended)
}

/// The answer to a command that ended before its projects began.
pub(super) async fn answer_stop(ctx: &Context, work: &Work, stop: Stop) -> Result<Ended> {
    let answer = match stop {
        Stop::Fault(fault) => Answer::error(fault),
        Stop::Refused(Refusal::Silent) => Answer { body: None, statuses: StatusUpdate::AfterPlan },
        Stop::Refused(refusal) => Answer::error(refusal_fault(refusal)),
        Stop::Cancelled => match work.cancel.why().cloned() {
            Some(Why::Person(user)) => Answer::error(Fault {
                reason: Reason::Cancelled,
                message: format!("Cancelled by {user} before any project began"),
                output: String::new(),
            }),
            why => return stopped(ctx, work, why.unwrap_or(Why::Shutdown)).await,
        },
        Stop::Other(error) => return Err(error),
    };
    answer.record(ctx, work).await?;
    Ok(Ended::Answered)
}

pub(super) fn refusal_fault(refusal: Refusal) -> Fault {
    let message = match refusal {
        Refusal::Target(text) => text,
        Refusal::Config(error) => error.to_string(),
        Refusal::Silent => String::new(),
    };
    Fault { reason: Reason::Config, message, output: String::new() }
}

/// The answer; absent when the command was stopped for a reason that takes its delivery elsewhere.
async fn plan(ctx: &Context, work: &Work, prepared: &Prepared) -> Result<Option<Answer>, Stop> {
    if let Some(path) = varfiles::refused(&work.command.extra_args, &ctx.settings.var_file_allowlist) {
        return Err(Stop::Fault(var_file_fault(ctx, path)));
    }
    let schedule = prepare::schedule(ctx, work, prepared, Wanted::Plan).await?;
    let (attempts, earlier) = take_locks(ctx, work, &schedule).await?;
    if schedule.groups.iter().all(Vec::is_empty) {
        return Ok(Some(nothing_to_plan(ctx, work)));
    }
    let facts = PullFacts::default();
    let remarks = Mutex::new(Vec::new());
    let dirs: Vec<String> = schedule.groups.iter().flatten().map(|config| config.id.dir.clone()).collect();
    let run = PlanRun { ctx, work, prepared, facts: &facts, remarks: &remarks, earlier: &earlier, dirs: &dirs };
    let outcomes = run.groups(schedule, attempts).await?;
    let cancelled = outcomes.iter().any(|o| matches!(o.outcome, Outcome::Failed(Failure::Cancelled { .. })));
    if cancelled && !matches!(work.cancel.why(), Some(Why::Person(_))) {
        return Ok(None);
    }
    let mut remarks = remarks.into_inner().unwrap_or_else(PoisonError::into_inner);
    remarks.sort();
    remarks.dedup();
    Ok(Some(Answer::results(work, outcomes, remarks, StatusUpdate::AfterPlan)))
}

pub(super) fn var_file_fault(ctx: &Context, path: &str) -> Fault {
    let roots: Vec<String> = ctx.settings.var_file_allowlist.iter().map(|root| root.display().to_string()).collect();
    let message = format!(
        "`-var-file {path}` is not allowed: use a file of the repository, or one below {} (`--var-file-allowlist`)",
        roots.join(", ")
    );
    Fault { reason: Reason::NotPermitted, message, output: String::new() }
}

fn nothing_to_plan(ctx: &Context, work: &Work) -> Answer {
    let settings = &ctx.settings;
    let autoplan = work.command.trigger == Trigger::Autoplan;
    let quiet = settings.silence_vcs_status_no_projects || (autoplan && settings.silence_vcs_status_no_plans);
    let statuses = if quiet { StatusUpdate::Nothing } else { StatusUpdate::These(ctx.statuses.nothing_to_do()) };
    let mut answer = Answer::message(Message::NoProjects {
        because: "No project of this repository is touched by this pull request.".into(),
    });
    if autoplan || settings.silence_no_projects {
        answer.body = None;
    }
    answer.statuses = statuses;
    answer
}

/// One commit: earlier plans go, locks of projects that are no longer planned are freed, the others are taken.
/// A plan of everything starts over; a targeted one leaves other projects alone, unless the head has moved.
async fn take_locks(
    ctx: &Context,
    work: &Work,
    schedule: &Schedule,
) -> Result<(Vec<(ProjectId, LockAttempt)>, Vec<PlanRecord>)> {
    let pull = work.pull.id.clone();
    let head = work.pull.head.commit.clone();
    let everything = work.command.target.is_all();
    let holder = holder(work);
    let locking = !ctx.settings.disable_repo_locking;
    let projects: Vec<(ProjectId, LockMode)> =
        schedule.groups.iter().flatten().map(|config| (config.id.clone(), config.repo_locks)).collect();
    let (attempts, dropped) = ctx
        .store
        .write(move |tx| {
            let mut dropped = Vec::new();
            if everything {
                dropped = tx.discard_plans(&pull)?;
                for lock in tx.locks_of(&pull)? {
                    if !projects.iter().any(|(id, _)| *id == lock.project) {
                        tx.unlock_project(&pull.repo, &lock.project, &pull)?;
                    }
                }
            }
            if everything || tx.project_statuses(&pull)?.iter().any(|status| status.head != head) {
                tx.clear_project_statuses(&pull)?;
            }
            let mut attempts = Vec::new();
            for (project, mode) in projects {
                dropped.extend(tx.plans(&pull)?.into_iter().filter(|plan| plan.project == project));
                tx.discard_plan(&pull, &project)?;
                let attempt = if locking && mode == LockMode::OnPlan {
                    tx.lock_project(&ProjectLock {
                        repo: pull.repo.clone(),
                        project: project.clone(),
                        holder: holder.clone(),
                    })?
                } else {
                    LockAttempt::Acquired { new: false }
                };
                attempts.push((project, attempt));
            }
            Ok((attempts, dropped))
        })
        .await?;
    remove_plan_files(ctx, &dropped).await;
    Ok((attempts, dropped))
}

pub(super) fn holder(work: &Work) -> LockHolder {
    LockHolder {
        pull: work.pull.id.clone(),
        title: work.pull.title.clone(),
        url: work.pull.url.clone(),
        user: work.command.user.clone(),
        since: Timestamp::now(),
    }
}

/// Stored files of plans that no record names any more.
pub async fn remove_plan_files(ctx: &Context, plans: &[PlanRecord]) {
    for plan in plans {
        let archive = plan.left.archive.as_ref().map(|_| left::archive_path(&plan.id));
        for path in plan.path.iter().chain(&archive) {
            let _ = tokio::fs::remove_file(ctx.settings.data_dir.join(path)).await;
        }
    }
}

/// The project's directory in a tree, or why it cannot be used.
pub(super) fn project_dir(root: &Path, dir: &str) -> Result<PathBuf, Fault> {
    let fault = |message: String| Fault { reason: Reason::Config, message, output: String::new() };
    let missing = || fault(format!("The directory `{dir}` does not exist at this commit. Was it deleted or renamed?"));
    if std::fs::symlink_metadata(root.join(dir)).is_err() {
        return Err(missing());
    }
    let path = inside(root, dir).map_err(|error| fault(format!("The directory `{dir}` cannot be used: {error:#}")))?;
    if path.is_dir() { Ok(path) } else { Err(missing()) }
}
