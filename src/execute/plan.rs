//! The `plan` command: which projects, their locks, and the answer; what each project does is in [`projects`].

mod projects;

use super::prepare::{self, Need, Prepared, Stop, Wanted};
use super::requirements::PullFacts;
use super::{Answer, Context, Ended, StatusUpdate, Why, Work, hooks, stopped};
use crate::config::LockMode;
use crate::domain::ProjectId;
use crate::domain::command::Trigger;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::domain::reply::Message;
use crate::domain::state::{LockHolder, PlanRecord, ProjectLock};
use crate::runner::local::archive_path;
use crate::schedule::{Refusal, Schedule};
use crate::store::LockAttempt;
use anyhow::Result;
use jiff::Timestamp;
use projects::PlanRun;
use std::collections::BTreeSet;
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
    let answer = match plan(ctx, work, &prepared).await {
        Ok(Some(answer)) => answer,
        Ok(None) => return stopped(ctx, work, work.cancel.why().cloned().unwrap_or(Why::Shutdown)).await,
        Err(stop) => return answer_stop_with_hooks(ctx, work, &prepared, stop).await,
    };
    hooks::answer_before(ctx, work, &prepared.tree, answer).await
}

/// The answer to a command that ended before its projects began.
pub(super) async fn answer_stop(ctx: &Context, work: &Work, stop: Stop) -> Result<Ended> {
    match answer_to(work, stop)? {
        Ok(answer) => answer.record(ctx, work).await?,
        Err(why) => return stopped(ctx, work, why).await,
    }
    Ok(Ended::Answered)
}

/// The same answer, not recorded; the inner error is a reason that takes the command's delivery elsewhere.
fn answer_to(work: &Work, stop: Stop) -> Result<Result<Answer, Why>> {
    Ok(Ok(match stop {
        Stop::Fault(fault) => Answer::error(fault),
        Stop::Refused(Refusal::Silent) => Answer { body: None, statuses: StatusUpdate::AfterPlan },
        Stop::Refused(refusal) => Answer::error(refusal_fault(refusal)),
        Stop::Cancelled => match work.cancel.why().cloned() {
            Some(Why::Person(user)) => Answer::error(Fault {
                reason: Reason::Cancelled,
                message: format!("Cancelled by {user} before any project began"),
                output: String::new(),
            }),
            why => return Ok(Err(why.unwrap_or(Why::Shutdown))),
        },
        Stop::Other(error) => return Err(error),
    }))
}

/// Records the answer to a command that ended after its pre-workflow hooks, and runs those after it.
pub(super) async fn answer_stop_with_hooks(
    ctx: &Context,
    work: &Work,
    prepared: &Prepared,
    stop: Stop,
) -> Result<Ended> {
    let answer = match answer_to(work, stop)? {
        Ok(answer) => answer,
        Err(why) => return stopped(ctx, work, why).await,
    };
    hooks::answer_before(ctx, work, &prepared.tree, answer).await
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
    let schedule = prepare::schedule(ctx, work, prepared, Wanted::Plan).await?;
    let (attempts, earlier) = take_locks(ctx, work, &schedule).await?;
    if schedule.groups.iter().all(Vec::is_empty) {
        return Ok(Some(nothing_to_plan(ctx, work)));
    }
    let facts = PullFacts::default();
    let remarks = Mutex::new(Vec::new());
    let pull = work.pull.id.clone();
    let others = ctx.store.read(move |view| view.project_statuses(&pull)).await?;
    let planned = schedule.groups.iter().flatten().map(|config| &config.id);
    let dirs: BTreeSet<String> =
        planned.chain(others.iter().map(|status| &status.project)).map(|id| id.dir.clone()).collect();
    let dirs: Vec<String> = dirs.into_iter().collect();
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

/// One commit: earlier plans go, locks of projects that are no longer planned are freed (unless something was applied under
/// them), the others are taken.
/// A plan of everything starts over; a targeted one leaves other projects alone, unless the head has moved.
async fn take_locks(
    ctx: &Context,
    work: &Work,
    schedule: &Schedule,
) -> Result<(Vec<(ProjectId, LockAttempt)>, Vec<PlanRecord>)> {
    let pull = work.pull.id.clone();
    let head = work.pull.head.commit.clone();
    let everything = work.command.target.is_all();
    let locking = !ctx.settings.disable_repo_locking;
    let projects: Vec<(ProjectLock, LockMode)> =
        (schedule.groups.iter().flatten()).map(|config| (project_lock(work, &config.id), config.repo_locks)).collect();
    let (attempts, dropped) = ctx
        .store
        .write(move |tx| {
            let mut dropped = Vec::new();
            if everything {
                dropped = tx.discard_plans(&pull)?;
                for lock in tx.locks_of(&pull)? {
                    if !projects.iter().any(|(wanted, _)| wanted.project == lock.project) {
                        tx.unlock_unplanned(&pull.repo, &lock.project, &pull)?;
                    }
                }
            }
            if everything || tx.project_statuses(&pull)?.iter().any(|status| status.head != head) {
                tx.clear_project_statuses(&pull)?;
            }
            let mut attempts = Vec::new();
            for (lock, mode) in projects {
                let project = lock.project.clone();
                dropped.extend(tx.plans(&pull)?.into_iter().filter(|plan| plan.project == project));
                tx.discard_plan(&pull, &project)?;
                let attempt = if locking && mode == LockMode::OnPlan {
                    tx.lock_project(&lock)?
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

fn holder(work: &Work) -> LockHolder {
    LockHolder {
        pull: work.pull.id.clone(),
        title: work.pull.title.clone(),
        url: work.pull.url.clone(),
        user: work.command.user.clone(),
        since: Timestamp::now(),
    }
}

/// The lock that a command takes for a project of its pull request.
pub(super) fn project_lock(work: &Work, project: &ProjectId) -> ProjectLock {
    ProjectLock { repo: work.pull.id.repo.clone(), project: project.clone(), holder: holder(work), applied: false }
}

/// Stored files of plans that no record names any more.
pub async fn remove_plan_files(ctx: &Context, plans: &[PlanRecord]) {
    for plan in plans {
        let archive = plan.left.archive.as_ref().map(|_| archive_path(&plan.id));
        for path in plan.path.iter().chain(&archive) {
            let _ = tokio::fs::remove_file(ctx.settings.data_dir.join(path)).await;
        }
    }
}
