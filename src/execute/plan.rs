//! The `plan` command: which projects, their locks, and the answer; what each project does is in [`projects`].

mod projects;

use super::prepare::{self, Need, Prepared, Stop, Wanted};
use super::requirements::PullFacts;
use super::{Answer, Context, Ended, StatusUpdate, Why, Work, hooks, stopped};
use crate::config::{LockMode, ProjectConfig};
use crate::domain::ProjectId;
use crate::domain::command::Trigger;
use crate::domain::outcome::{Failure, Fault, Outcome, Reason};
use crate::domain::reply::Message;
use crate::domain::state::{LockHolder, PlanRecord, ProjectLock};
use crate::locks::{self, LockEvent, Wanted as WantedLock};
use crate::runner::local::archive_path;
use crate::schedule::{Refusal, Schedule};
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
    let (held, earlier) = take_locks(ctx, work, &schedule).await?;
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
    let outcomes = run.groups(schedule, &held).await?;
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

/// One commit: earlier plans go, and locks are freed and taken. Projects that others hold, and the plans that went.
async fn take_locks(
    ctx: &Context,
    work: &Work,
    schedule: &Schedule,
) -> Result<(Vec<(ProjectId, Box<LockHolder>)>, Vec<PlanRecord>)> {
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let everything = work.command.target.is_all();
    let projects = schedule.groups.iter().flatten().map(|config| wanted_lock(ctx, work, config)).collect();
    let event = LockEvent::PlanBegins { pull: pull.clone(), projects, everything };
    let follows = ctx.store.write(move |tx| {
        let follows = tx.record_lock_event(&event)?;
        if everything || tx.project_statuses(&pull)?.iter().any(|status| status.head != head) {
            tx.clear_project_statuses(&pull)?;
        }
        Ok(follows)
    });
    let follows = follows.await?;
    let dropped = follows.dropped();
    remove_plan_files(ctx, &dropped).await;
    Ok((follows.held, dropped))
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

/// The lock that a command takes for a project of its pull request, and when.
pub(super) fn wanted_lock(ctx: &Context, work: &Work, config: &ProjectConfig) -> WantedLock {
    let (repo, project) = (work.pull.id.repo.clone(), config.id.clone());
    let mode = if ctx.settings.disable_repo_locking { LockMode::Disabled } else { config.repo_locks };
    WantedLock { lock: ProjectLock { repo, project, holder: holder(work), applied: false }, mode }
}

/// Why a project may not begin, in the words of its outcome.
pub(super) fn lock_failure(refusal: locks::Refusal) -> Failure {
    let not_permitted = |because: String| Failure::Refused { reason: Reason::NotPermitted, because };
    match refusal {
        locks::Refusal::HeldBy(holder) => Failure::Locked(holder),
        locks::Refusal::AppliesStopped(lock) => not_permitted(super::apply::apply_lock_text(&lock)),
        locks::Refusal::NoPlan => Failure::NoPlan { because: "Its plan was used or dropped meanwhile.".into() },
        locks::Refusal::NoLock => not_permitted("its lock is not there any more".into()),
        locks::Refusal::ApplyRuns { job } => not_permitted(format!("the job {job} changes it")),
    }
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
