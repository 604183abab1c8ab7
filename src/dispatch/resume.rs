//! Work that an earlier process left unfinished, resumed at the start. A plan continues; an apply that had begun is reported as
//! interrupted.

use super::actor::{enqueue, wake};
use super::inner::Inner;
use super::interrupted::{BROKE, How, INTERRUPTED, Interrupted, outcome_of};
use super::queues::{Item, Task};
use super::recorder::{self, Commit};
use super::{drift, merge_group, replans, repository_commands, requests, take_up};
use crate::comment::{self, Parsed};
use crate::domain::command::{Command, CommandName};
use crate::domain::outcome::JobOutcome;
use crate::domain::reply::{Message, Reply, ReplyBody, Results};
use crate::domain::state::{Cause, Delivery, Effect, Job, Run};
use crate::domain::waiting::Replan;
use crate::domain::{Event, PullAction, PullId, PullRequest};
use crate::execute;
use crate::execute::abandoned::{self, LostPart};
use crate::execute::automerge::Automerger;
use crate::execute::measured;
use crate::execute::notices::NoticeWriter;
use crate::runner::local::state_lock::LockEvidence;
use crate::store::Tx;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// Resumes all unfinished deliveries, oldest first, and the re-plans that have a run.
pub(super) async fn recover(inner: &Arc<Inner>) -> Result<()> {
    let (deliveries, replans, runs) = inner
        .ctx
        .store
        .read(|view| Ok((view.unfinished_deliveries()?, view.replans()?, view.unfinished_runs()?)))
        .await
        .context("reading what is unfinished")?;
    if !deliveries.is_empty() || !replans.is_empty() {
        tracing::info!(
            deliveries = deliveries.len(),
            replans = replans.len(),
            "taking up what an earlier process left"
        );
    }
    let is_unfinished = |cause: &Cause| match cause {
        Cause::Delivery(identity) => deliveries.iter().any(|(delivery, _)| delivery.identity == *identity),
        Cause::Replan(id) => replans.iter().any(|replan| replan.id == *id),
        Cause::None => false,
    };
    let mut items = Vec::new();
    for run in runs.iter().filter(|run| !is_unfinished(&run.cause)) {
        if run.pull.is_branch() && run.command == CommandName::Apply {
            drift::end_cut_applies(inner, run).await?;
        } else if let Some(item) = taken_up(inner, run, None, How::Killed).await? {
            items.push((run.pull.clone(), item));
        } else {
            end_run(inner, run, None).await?;
        }
    }
    for (delivery, _) in deliveries {
        let Some(pull) = delivery.event.pull_id().cloned() else { continue };
        let mut is_answered = false;
        let cause = Cause::Delivery(delivery.identity.clone());
        for run in runs.iter().filter(|run| run.cause == cause) {
            match go_on(inner, run, Some(&delivery), How::Killed).await? {
                Resumption::Again => continue,
                Resumption::Answered => {}
                Resumption::TakenUp(item) => items.push((pull.clone(), *item)),
            }
            is_answered = true;
        }
        if is_answered {
            continue;
        }
        match task(inner, &delivery) {
            Some(task) => items.push((pull, Item { cause, received: delivery.received, task })),
            None => inner.answer_delivery(&pull, &cause, None, None).await?,
        }
    }
    let begun = begun_replans(inner, replans, &runs).await?;
    sweep(inner, INTERRUPTED).await?;
    for job in inner.ctx.store.read(|view| view.untold_jobs()).await? {
        inner.ctx.orphaned_locks.add(&job);
    }
    // Before the commands, of which one may cancel them.
    begun.into_iter().for_each(|replan| replans::take_up(inner, replan));
    for (pull, item) in items {
        match &item.task {
            Task::Command { command, .. }
                if command.name == CommandName::Cancel || repository_commands::is_repository_command(command) =>
            {
                inner.route(pull, item).await;
            }
            _ => enqueue(inner, pull, item),
        }
    }
    for pull in inner.ctx.orphaned_locks.pulls() {
        wake(inner, pull);
    }
    Ok(())
}

/// Ends the jobs of re-plans that have a run, and returns these re-plans. `replans` enqueues the others, behind the commands of people.
async fn begun_replans(inner: &Arc<Inner>, mut replans: Vec<Replan>, runs: &[Run]) -> Result<Vec<Replan>> {
    replans.retain(|replan| runs.iter().any(|run| run.cause == Cause::Replan(replan.id)));
    for replan in &replans {
        for run in runs.iter().filter(|run| run.cause == Cause::Replan(replan.id)) {
            go_on(inner, run, None, How::Killed).await?;
        }
    }
    Ok(replans)
}

/// Ends a command of this process that broke off, with its jobs and statuses, and posts that, unless it was answered before.
pub(super) async fn broken_off(inner: &Arc<Inner>, pull: &PullId, cause: &Cause) -> Result<()> {
    let of = cause.clone();
    let (delivery, has_replan, runs) = inner
        .ctx
        .store
        .read(move |view| {
            let mut deliveries = view.unfinished_deliveries()?.into_iter().map(|(delivery, _)| delivery);
            let delivery = deliveries.find(|delivery| of.delivery() == Some(&delivery.identity));
            let has_replan = view.replans()?.iter().any(|replan| of == Cause::Replan(replan.id));
            Ok((delivery, has_replan, view.unfinished_runs_of(&of)?))
        })
        .await?;
    let is_unfinished = delivery.is_some() || has_replan;
    let mut told = !is_unfinished;
    for run in &runs {
        if !is_unfinished {
            match taken_up(inner, run, None, How::Broke).await? {
                Some(item) => enqueue(inner, pull.clone(), item),
                None => end_run(inner, run, Some(BROKE)).await?,
            }
            continue;
        }
        match go_on(inner, run, delivery.as_ref(), How::Broke).await? {
            Resumption::Again => continue,
            Resumption::Answered => {}
            Resumption::TakenUp(item) => enqueue(inner, pull.clone(), *item),
        }
        told = true;
    }
    sweep(inner, BROKE).await?;
    if told {
        return Ok(());
    }
    if let Some(Delivery { event: Event::MergeGroup(event), .. }) = &delivery {
        return merge_group::broke(inner, event, cause).await;
    }
    let because = "The server had an internal error; its log has the details. Comment the command again.".to_owned();
    inner.answer_delivery(pull, cause, None, Some(Message::Interrupted { because })).await
}

/// Ends all jobs that are recorded as running and that this process does not run, each with its status.
async fn sweep(inner: &Inner, because: &'static str) -> Result<()> {
    let (logs, statuses) = (inner.ctx.logs.clone(), inner.ctx.statuses.clone());
    let ended = recorder::transaction(inner, move |tx| {
        abandoned::end(tx, &statuses, because, LostPart::Process, |job| !logs.may_run(job))
    });
    for job in ended.await? {
        tracing::warn!(pull = %job.pull, job = job.id.as_str(), kind = job.kind, "a job that no process ran is recorded as ended: {because}");
        inner.ctx.orphaned_locks.add(&job);
        inner.ctx.outbox.wake(&job.pull);
    }
    Ok(())
}

/// Enqueues the recorded closings of pull requests that the outbox has merged.
pub(super) async fn take_closings(inner: Arc<Inner>, mut closings: Receiver<Delivery>) {
    while let Some(delivery) = closings.recv().await {
        take_up(&inner.now(), delivery);
    }
}

/// Enqueues a delivery that this server has recorded by itself.
pub(super) fn take_up(inner: &Arc<Inner>, delivery: Delivery) {
    if let (Some(pull), Some(task)) = (delivery.event.pull_id().cloned(), task(inner, &delivery)) {
        enqueue(inner, pull, Item { cause: delivery.identity.into(), received: delivery.received, task });
    }
}

/// Returns the task of a recorded delivery; absent if today's settings give it none.
fn task(inner: &Inner, delivery: &Delivery) -> Option<Task> {
    match &delivery.event {
        Event::Comment(comment) => {
            match comment::parse(&comment.body, &comment.author, &inner.names_or_default(&comment.pull.repo)) {
                Parsed::Command(command) => Some(Task::Command { comment: comment.clone(), command }),
                _ => None,
            }
        }
        Event::Pull(event) if matches!(event.action, PullAction::Closed { .. }) => {
            Some(Task::Closed(Box::new(event.clone())))
        }
        Event::Pull(event) => Some(Task::Autoplan(Box::new(event.clone()))),
        Event::MergeGroup(event) => Some(Task::MergeGroup(event.clone())),
        Event::FollowUp(follow_up) => Some(Task::FollowUp(follow_up.clone())),
        Event::AutoApply(event) => Some(Task::AutoApply(event.clone())),
        Event::Request(event) => Some(requests::task(inner, event)),
        Event::Push(_) | Event::Check(_) | Event::Verdict(_) | Event::Ping | Event::Other(_) => None,
    }
}

/// Result of handling a run that another process began, or that broke off here.
enum Resumption {
    /// The run is answered: Terraform may have changed something, so the command is not repeated.
    Answered,
    /// The item follows its jobs, which go on at executors, and answers it.
    TakenUp(Box<Item>),
    /// Its cause has to be handled again. A plan then continues where it was ([`to_go_on`]): plans are kept, and interrupted jobs run again.
    Again,
}

/// Handles a run that another process began, or that broke off here; any leader can. `delivery` is its cause; absent for a re-plan.
async fn go_on(inner: &Arc<Inner>, run: &Run, delivery: Option<&Delivery>, how: How) -> Result<Resumption> {
    let mut begun = begun_jobs(inner, run).await?;
    if !run.command.changes_state() || begun.is_empty() {
        match how {
            How::Killed if execute::may_go_on(run.command) => {
                end_jobs(inner, run, INTERRUPTED, |_| Ok(())).await?;
            }
            How::Killed => end_run(inner, run, None).await?,
            How::Broke => end_run(inner, run, Some(BROKE)).await?,
        }
        return Ok(Resumption::Again);
    }
    if let Some(item) = taken_up(inner, run, delivery, how).await? {
        return Ok(Resumption::TakenUp(Box::new(item)));
    }
    let (mut outcomes, mut kept) = (Vec::with_capacity(begun.len()), Vec::new());
    for job in &mut begun {
        outcomes.push(outcome_of(inner, run, job, how, &mut kept).await);
    }
    let effects = interrupted_reply(inner, run, delivery, outcomes.clone()).await?;
    let (ended, statuses, because) = (run.clone(), inner.ctx.statuses.clone(), how.summary());
    let commit = Commit::about(&run.pull).posts(effects).done(&run.cause, because);
    let (notices, automerger) = (NoticeWriter::new(&inner.ctx), Automerger::new(&inner.ctx));
    let (after, notifier) = (notices.clone(), inner.ctx.notifier.clone());
    let recorded = commit.record_with(inner, move |tx| {
        let (pull, all) = (&ended.pull, outcomes.clone());
        for (job, outcome) in begun.into_iter().zip(outcomes).filter(|(job, _)| job.finished.is_none()) {
            Interrupted { run: &ended, job, outcome, because }.record(tx, &statuses, &notices, &notifier)?;
        }
        if ended.command == CommandName::Apply {
            let status = statuses.apply(&tx.project_statuses(pull)?);
            tx.post(pull, [Effect::Status { commit: ended.head.clone(), status }])?;
        }
        kept.iter().try_for_each(|file| tx.keep_file(file))?;
        let merges = automerger.record(tx, &ended, &all)?;
        tx.put_run(&Run { finished: Some(Timestamp::now()), ..ended.clone() })?;
        Ok(merges)
    });
    let merges = recorded.await?;
    after.after_commit(&inner.ctx).await;
    if merges {
        inner.ctx.outbox.wake_merge(&run.pull);
    }
    inner.ctx.notifier.wake();
    measured::left_run_ended(&inner.ctx, run);
    Ok(Resumption::Answered)
}

/// Returns the jobs of a run that are about a project.
async fn begun_jobs(inner: &Inner, run: &Run) -> Result<Vec<Job>> {
    let id = run.id.clone();
    let jobs = inner.ctx.store.read(move |view| view.jobs_of(&id)).await?;
    Ok(jobs.into_iter().filter(|job| job.project.is_some()).collect())
}

/// Returns the item that follows the jobs of a run which go on at executors, if it has any and changes states. Its other jobs are recorded
/// as interrupted.
async fn taken_up(inner: &Arc<Inner>, run: &Run, delivery: Option<&Delivery>, how: How) -> Result<Option<Item>> {
    let jobs = begun_jobs(inner, run).await?;
    if !run.command.changes_state() || !take_up::goes_on(&jobs) {
        return Ok(None);
    }
    for mut job in jobs.into_iter().filter(|job| job.finished.is_none() && job.remote.is_none()) {
        let mut kept = Vec::new();
        let outcome = outcome_of(inner, run, &mut job, how, &mut kept).await;
        let (run, statuses, notices) = (run.clone(), inner.ctx.statuses.clone(), NoticeWriter::new(&inner.ctx));
        let (after, notifier) = (notices.clone(), inner.ctx.notifier.clone());
        let recorded = Commit::about(&run.pull.clone()).record_with(inner, move |tx| {
            Interrupted { run: &run, job, outcome, because: how.summary() }
                .record(tx, &statuses, &notices, &notifier)?;
            kept.iter().try_for_each(|file| tx.keep_file(file))
        });
        recorded.await?;
        after.after_commit(&inner.ctx).await;
    }
    let pause = if how == How::Broke { take_up::AFTER_BREAK } else { Duration::ZERO };
    Ok(Some(take_up::item(run, command_of(inner, delivery), delivery, pause)))
}

/// Returns the command of a delivery, with its arguments; `None` if today's settings read none in it.
fn command_of(inner: &Inner, delivery: Option<&Delivery>) -> Option<Command> {
    match delivery.and_then(|delivery| task(inner, delivery)) {
        Some(Task::Command { command, .. }) => Some(*command),
        Some(Task::FollowUp(follow_up)) => Some(follow_up.command),
        _ => None,
    }
}

async fn interrupted_reply(
    inner: &Inner,
    run: &Run,
    delivery: Option<&Delivery>,
    outcomes: Vec<JobOutcome>,
) -> Result<Vec<Effect>> {
    let command = command_of(inner, delivery);
    let command = command.unwrap_or_else(|| Command::new(run.command, run.trigger, run.user.clone()));
    let pull = run.pull.clone();
    let (base, waiting) = inner.ctx.store.read(move |view| Ok((view.pull(&pull)?, view.plans(&pull)?))).await?;
    let remarks = if waiting.is_empty() {
        Vec::new()
    } else {
        vec!["Projects not listed here were not started; their plans can still be applied.".to_owned()]
    };
    let base_branch = base.map(|pull| pull.base.branch).unwrap_or_default();
    let body = ReplyBody::Results(Results { outcomes, base_branch, remarks });
    let reply =
        Reply { command: Some(command), head: Some(run.head.clone()), ..Reply::new(run.id.clone(), &run.pull, body) };
    Ok(inner.ctx.comments(&reply))
}

/// Returns the unfinished run of this cause that the command continues; absent if it begins anew. Ends the other runs of the cause.
pub(super) async fn to_go_on(
    inner: &Inner,
    cause: &Cause,
    pull: &PullRequest,
    command: &Command,
) -> Result<Option<Run>> {
    let of = cause.clone();
    let mut found = None;
    for run in inner.ctx.store.read(move |view| view.unfinished_runs_of(&of)).await? {
        let is_same = run.command == command.name && run.head == pull.head.commit;
        if is_same && found.is_none() && execute::may_go_on(run.command) {
            found = Some(run);
        } else {
            end_run(inner, &run, None).await?;
        }
    }
    Ok(found)
}

/// Returns true if this cause has an unfinished run that plans: an apply after the merge plans first.
pub(super) async fn was_planning(inner: &Inner, cause: &Cause) -> Result<bool> {
    let of = cause.clone();
    let runs = inner.ctx.store.read(move |view| view.unfinished_runs_of(&of)).await?;
    Ok(runs.iter().any(|run| run.command == CommandName::Plan))
}

/// Marks a run, and its jobs that still seem to run, as ended; with `failed`, its combined status says so too. Jobs that go on at executors
/// are stopped by [`take_up::run`].
async fn end_run(inner: &Inner, run: &Run, failed: Option<&'static str>) -> Result<()> {
    let (ended, statuses) = (run.clone(), inner.ctx.statuses.clone());
    end_jobs(inner, run, failed.unwrap_or(INTERRUPTED), move |tx| {
        if let Some(because) = failed.filter(|_| ended.command.spec().has_status) {
            let status = statuses.failed(ended.command, because);
            tx.post(&ended.pull, [Effect::Status { commit: ended.head.clone(), status }])?;
        }
        tx.put_run(&Run { finished: Some(Timestamp::now()), ..ended })
    })
    .await
}

/// Marks the jobs of a run that still seem to run on this machine as ended, with `change` in the same commit.
async fn end_jobs(
    inner: &Inner,
    run: &Run,
    because: &'static str,
    change: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let id = run.id.clone();
    let mut left = HashMap::new();
    for job in inner.ctx.store.read(move |view| view.jobs_of(&id)).await? {
        if job.finished.is_none() && job.project.is_some() && job.locks_state() {
            left.insert(job.id.clone(), inner.ctx.runner.left_lock(&job).await);
        }
    }
    let statuses = inner.ctx.statuses.clone();
    let of_run = run.id.clone();
    let ended = Commit::about(&run.pull).record_with(inner, move |tx| {
        let mut ended =
            abandoned::end(tx, &statuses, because, LostPart::Process, |job| job.run == of_run && job.remote.is_none())?;
        for job in &mut ended {
            let found = left.remove(&job.id);
            job.state_lock.untold = found.as_ref().is_some_and(|found| *found != LockEvidence::Nothing);
            if let Some(LockEvidence::Local(lock)) = found {
                job.state_lock.left = Some(lock);
            }
            tx.put_job(job)?;
        }
        change(tx)?;
        Ok(ended)
    });
    ended.await?.iter().for_each(|job| inner.ctx.orphaned_locks.add(job));
    Ok(())
}
