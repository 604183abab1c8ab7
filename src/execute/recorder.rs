//! Commits of a run: facts, statuses, comments and audit entries that belong together, in one transaction each. No other module of
//! `execute` writes to the state.

use super::abandoned::{self, LostPart};
use super::answer::CommandAnswer;
use super::auto_apply;
use super::automerge::Automerger;
use super::cancel::CancelReason;
use super::command_run::{CommandRun, Ended, audit_entry, may_go_on};
use super::context::Context;
use super::job_end::JobEnd;
use super::measured;
use super::not_run::NotRun;
use super::notices::{NoticeWriter, is_failure};
use super::policies::CheckedPlans;
use super::prepare::Stop;
use super::unrecorded_outcomes;
use crate::domain::command::{Command, CommandName};
use crate::domain::drift::DriftApplyEnd;
use crate::domain::notification::Notification;
use crate::domain::outcome::JobOutcome;
use crate::domain::reply::{Reply, ReplyBody, Results};
use crate::domain::state::{CommitStatus, Effect, Job as JobRecord, JobState, ProjectState, ProjectStatus};
use crate::domain::{JobId, ProjectId};
use crate::locks::LockEvent;
use crate::meters::WorkResult;
use crate::notifications::JobFailure;
use crate::render::marker;
use crate::reply::comments::policy_reply_of;
use crate::store::{Claim, Tx, is_deposed};
use anyhow::{Result, bail};
use jiff::Timestamp;
use std::sync::Arc;

/// Maximum number of projects of one command that get a pending status; the others get only the status of their result.
const MAX_PENDING: usize = 10;
/// Summary of a job whose end could not be recorded, although its command went on.
const END_LOST: &str = "its end could not be recorded";
/// Summary of a job at an executor that was stopped after its command.
const STOPPED: &str = "it was stopped: its command had ended before it";

/// Returns true if this command posts a pending status: only if its end posts one too, and not with `--silence-vcs-status-no-projects`.
fn tells_pending(ctx: &Context, work: &CommandRun) -> bool {
    let settings = &ctx.settings;
    let unasked = work.command.trigger.is_unasked();
    // Hosts deliver statuses, each of which causes a look: one whose hooks run first must not set any.
    let is_look = auto_apply::is_automatic(work) && work.has_hooks();
    work.command.name.spec().has_status
        && !is_look
        && !(settings.silence_vcs_status_no_projects || (unasked && settings.silence_vcs_status_no_plans))
}

/// Records the run's beginning by itself, so that people see it before Terraform runs.
pub(super) async fn begin(ctx: &Context, work: &CommandRun) -> Result<()> {
    ctx.store.write(beginning(ctx, work)).await?;
    ctx.outbox.wake(&work.pull.id);
    Ok(())
}

/// Returns the change that records the run's beginning and its pending status, unless they are recorded already. Even then it records
/// `automerge`, which is known only with the schedule.
fn beginning(ctx: &Context, work: &CommandRun) -> impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static {
    let (run, pull, is_merged) = (work.run.clone(), work.pull.clone(), work.after_merge.is_some());
    let pending = tells_pending(ctx, work).then(|| ctx.statuses.pending(work.command.name));
    move |tx| {
        if let Some(known) = tx.run(&run.id)? {
            // A run that begins with its hooks learns of automerge when its schedule is made.
            return if known.automerge == run.automerge { Ok(()) } else { tx.put_run(&run) };
        }
        tx.put_run(&run)?;
        // After the merge, `pull` has the tip of the base branch as its head: the record keeps the head of the pull request.
        if !is_merged && !pull.id.is_branch() {
            tx.put_pull(&pull)?;
        }
        tx.begin_cause(&run.cause, &run.id)?;
        tx.post(&pull.id, pending.map(|status| Effect::Status { commit: pull.head.commit.clone(), status }))
    }
}

/// Commits the beginning of a job, with `change` in the same transaction. The job has claimed its project from then on. If `change` refuses,
/// it has begun nothing. `pending` is posted for the first [`MAX_PENDING`] projects of the run.
pub(super) async fn begin_job<C: Send + 'static>(
    ctx: &Context,
    work: &CommandRun,
    record: JobRecord,
    project: ProjectId,
    pending: Option<CommitStatus>,
    change: impl FnOnce(&Tx<'_>, &JobRecord) -> Result<C, NotRun> + Send + 'static,
) -> Result<C, NotRun> {
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let (begun, command) = (beginning(ctx, work), work.command.name);
    let written = ctx.store.write(move |tx| {
        begun(tx)?;
        let changed = match change(tx, &record) {
            Ok(changed) => changed,
            Err(NotRun::Stop(Stop::Other(error))) => return Err(error),
            Err(refused) => return Ok(Err(refused)),
        };
        let Some(claim) = tx.claim(&record.run, &project, &record.id, command)? else {
            bail!("another job has this project already");
        };
        tx.put_job(&record)?;
        // A job that was cut has left a status that says so.
        let is_told =
            pending.is_some() && (claim == Claim::Again || tx.claims_of(&record.run, MAX_PENDING + 1)? <= MAX_PENDING);
        let pending = pending.filter(|_| is_told);
        tx.post(&pull, pending.map(|status| Effect::Status { commit: head, status }))?;
        Ok(Ok(changed))
    });
    let begun = written.await?;
    ctx.outbox.wake_marks(&work.pull.id);
    begun
}

/// Commits the end of a job. If that fails for a command that changes states, the outcome is still reported, and its record is committed
/// with the command's answer.
pub(super) async fn end_job(ctx: &Context, work: &CommandRun, end: JobEnd) -> Result<JobOutcome> {
    let outcome = end.outcome.clone();
    match commit_end(ctx, &end).await {
        Err(error) if is_deposed(&error) => {
            unrecorded_outcomes::pass_on(ctx, work, &end).await;
            return Err(error);
        }
        Err(error) if work.command.name.changes_state() => {
            tracing::error!(pull = %work.pull.id, job = outcome.job.as_ref().map(JobId::as_str), error = format!("{error:#}"), "the end of a job could not be recorded yet");
            work.unrecorded.put(end);
        }
        recorded => recorded?,
    }
    ctx.outbox.wake_marks(&work.pull.id);
    ctx.notifier.wake();
    Ok(outcome)
}

/// Commits the end of a job by itself, and posts its notices.
async fn commit_end(ctx: &Context, end: &JobEnd) -> Result<()> {
    let (facts, notices) = (end.facts(), NoticeWriter::new(ctx));
    let writer = notices.clone();
    ctx.store.write(move |tx| facts.record(tx, &writer)).await?;
    clean(ctx, end);
    notices.after_commit(ctx).await;
    Ok(())
}

/// Removes the objects of a job on an executor, whose end is recorded. Nothing waits for it.
fn clean(ctx: &Context, end: &JobEnd) {
    let facts = end.facts();
    let objects = facts.job.remote.as_ref().and_then(|remote| ctx.executors.objects(remote));
    if let Some(objects) = objects {
        let (executors, errored) = (Arc::clone(&ctx.executors), facts.errored_state());
        tokio::spawn(async move { executors.clean(&objects, errored).await });
    }
}

/// Commits the end of a job at an executor of which only the record is known. `changed`: it may have changed a state.
pub(super) async fn end_unread(
    ctx: &Context,
    work: &CommandRun,
    job: JobRecord,
    outcome: JobOutcome,
    changed: Changed,
) -> Result<()> {
    let (notices, statuses, entry) =
        (NoticeWriter::new(ctx), ctx.statuses.clone(), audit_entry(work, &outcome.project, "failed".into()));
    let (writer, notifier) = (notices.clone(), ctx.notifier.clone());
    let written = ctx.store.write(move |tx| {
        let is_drift_run = job.pull.is_branch();
        // The end of a drift run's apply releases the project in any case.
        if changed == Changed::Perhaps || is_drift_run {
            let (pull, project, at) = (job.pull.clone(), outcome.project.clone(), Timestamp::now());
            writer.record(tx, &LockEvent::StateChanged { pull, project, outputs: true, at })?;
        }
        if is_drift_run {
            let end = DriftApplyEnd { output: String::new(), error: Some(statuses.one_line(&outcome)) };
            tx.end_remedy(&job.pull.repo, &job.id, end)?;
        } else if job.kind == CommandName::Apply.as_str() {
            let status =
                ProjectStatus::without_job(outcome.project.clone(), ProjectState::ApplyErrored, job.head.clone());
            tx.put_project_status(&job.pull, &ProjectStatus { job: Some(job.id.clone()), ..status })?;
            let status = statuses.project(&outcome);
            tx.post(&job.pull, [Effect::Status { commit: job.head.clone(), status }])?;
        }
        let state = if changed == Changed::Perhaps { JobState::Interrupted } else { JobState::Failed };
        let (summary, finished) = (statuses.one_line(&outcome), Some(Timestamp::now()));
        let ended = JobRecord { state, finished, summary, outcome: Some(outcome), ..job };
        tx.put_job(&ended)?;
        abandoned::notify(tx, &notifier, &ended)?;
        tx.audit(&entry)
    });
    written.await?;
    notices.after_commit(ctx).await;
    ctx.notifier.wake();
    Ok(())
}

/// Effect of a job on a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    Nothing,
    Perhaps,
}

/// Commits the end of a job on an executor that was stopped because its result is not wanted any more.
pub(super) async fn end_stopped(ctx: &Context, job: &JobRecord) -> Result<()> {
    let (id, statuses) = (job.id.clone(), ctx.statuses.clone());
    let ended =
        move |tx: &Tx<'_>| abandoned::end(tx, &statuses, STOPPED, LostPart::Record, |job| job.id == id).map(drop);
    ctx.store.write(ended).await
}

/// Commits the record of a workflow hook, with its status.
pub(super) async fn hook(ctx: &Context, work: &CommandRun, record: JobRecord, status: CommitStatus) -> Result<()> {
    let (pull, commit) = (work.pull.id.clone(), work.pull.head.commit.clone());
    // One of an automatic apply runs before it is known whether anything is due.
    let status = (!auto_apply::is_automatic(work)).then_some(Effect::Status { commit, status });
    let written = ctx.store.write(move |tx| {
        tx.put_job(&record)?;
        tx.post(&pull, status)
    });
    written.await?;
    ctx.outbox.wake_marks(&work.pull.id);
    Ok(())
}

/// Commits facts of a run that are not posted on the pull request yet.
pub(super) async fn facts<T: Send + 'static>(
    ctx: &Context,
    change: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    ctx.store.write(change).await
}

/// Commits the ends of a drift run's jobs that could not be recorded by themselves, with `change`.
pub(super) async fn ends_with(
    ctx: &Context,
    work: Option<&CommandRun>,
    change: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let ends = work.map(|work| work.unrecorded.take()).unwrap_or_default();
    let (jobs, notices): (Vec<_>, _) = (ends.iter().map(JobEnd::facts).collect(), NoticeWriter::new(ctx));
    let writer = notices.clone();
    let written = ctx.store.write(move |tx| {
        jobs.iter().try_for_each(|facts| facts.record(tx, &writer))?;
        change(tx)
    });
    written.await?;
    ends.iter().for_each(|end| clean(ctx, end));
    notices.after_commit(ctx).await;
    ctx.notifier.wake();
    Ok(())
}

/// Commits an outcome without a job. If that fails, the outcome is still reported with the command's answer.
pub(super) async fn refusal(
    ctx: &Context,
    work: &CommandRun,
    outcome: JobOutcome,
    change: impl FnOnce(&Tx<'_>) -> Result<()> + Send + 'static,
) -> Result<JobOutcome> {
    let status = work.command.name.spec().has_status.then(|| ctx.statuses.project(&outcome));
    let (pull, head) = (work.pull.id.clone(), work.pull.head.commit.clone());
    let recorded = ctx.store.write(move |tx| {
        change(tx)?;
        tx.post(&pull, status.map(|status| Effect::Status { commit: head, status }))
    });
    match recorded.await {
        Err(error) if is_deposed(&error) => Err(error),
        Err(error) => {
            tracing::error!(pull = %work.pull.id, error = format!("{error:#}"), "an outcome could not be recorded by itself");
            Ok(outcome)
        }
        Ok(()) => Ok(outcome),
    }
}

/// Commits the end of the run: its delivery or re-plan has ended, comments and statuses are in the outbox, and pending ends of jobs are recorded.
pub(super) async fn answer(ctx: &Context, work: &CommandRun, answer: CommandAnswer) -> Result<Ended> {
    let answer = work.with_begun_before(answer);
    let result = measured::of_answer(&answer);
    let ended = record_answer(ctx, work, answer).await?;
    measured::run_ended(ctx, work, result);
    Ok(ended)
}

async fn record_answer(ctx: &Context, work: &CommandRun, answer: CommandAnswer) -> Result<Ended> {
    let ends = work.unrecorded.take();
    if ends.is_empty() {
        return answer_with(ctx, work, answer, &ends).await;
    }
    let error = match answer_with(ctx, work, answer.clone(), &ends).await {
        Err(error) if !is_deposed(&error) => error,
        recorded => return recorded,
    };
    let (pull, run) = (&work.pull.id, work.run.id.as_str());
    tracing::error!(%pull, run, error = format!("{error:#}"), "the ends of jobs could not be recorded with the answer");
    // The answer reports the changes even if the end of a job cannot be recorded.
    commit_ends(ctx, work, &ends).await;
    answer_with(ctx, work, answer, &[]).await
}

/// Records the ends of jobs that no answer of this server will record.
pub(super) async fn unrecorded(ctx: &Context, work: &CommandRun) {
    commit_ends(ctx, work, &work.unrecorded.take()).await;
}

async fn commit_ends(ctx: &Context, work: &CommandRun, ends: &[JobEnd]) {
    let (pull, run) = (&work.pull.id, work.run.id.as_str());
    for end in ends {
        if let Err(error) = commit_end(ctx, end).await {
            pass_on_if_deposed(ctx, work, std::slice::from_ref(end), &error).await;
            tracing::error!(%pull, run, error = format!("{error:#}"), "the end of a job was not recorded");
        }
    }
}

/// Leaves the ends of jobs to the server that leads now, if they could not be recorded because this one does not lead any more.
async fn pass_on_if_deposed(ctx: &Context, work: &CommandRun, ends: &[JobEnd], error: &anyhow::Error) {
    if is_deposed(error) {
        for end in ends {
            unrecorded_outcomes::pass_on(ctx, work, end).await;
        }
    }
}

async fn answer_with(ctx: &Context, work: &CommandRun, answer: CommandAnswer, ends: &[JobEnd]) -> Result<Ended> {
    let mut run = work.run.clone();
    let executable = &ctx.rendering.executable;
    run.results = answer.body.as_ref().map(|body| marker::results(body, executable)).unwrap_or_default();
    let (automerger, mut merging) = (Automerger::new(ctx), answer.outcomes().to_vec());
    let notifications = failure_of_command(ctx, work, &answer);
    (run.fault, run.end) = (answer.fault(), Some(answer.end()));
    let (follows, next) = (answer.follows.clone(), answer.follows);
    let mut comments = answer.body.map(|body| ctx.comments(&work.reply(body))).unwrap_or_default();
    let mut policy_status = None;
    if let Some(CheckedPlans { outcomes, status }) = answer.policies {
        policy_status = status;
        merging.extend(outcomes.iter().cloned());
        run.results.extend(outcomes.iter().map(|outcome| marker::result(outcome, executable)));
        comments.extend(policy_comments(ctx, work, outcomes));
        // Comments are hidden last: the policy checks may be written over one of them.
        comments.sort_by_key(|effect| matches!(effect, Effect::Hide { .. }));
    }
    run.finished = Some(Timestamp::now());
    run.answered = true;
    let (pull, head, name) = (work.pull.id.clone(), work.pull.head.commit.clone(), work.command.name);
    let (statuses, update) = (ctx.statuses.clone(), answer.statuses);
    let fault = update.fault_of_pull(work);
    let jobs: Vec<_> = ends.iter().map(JobEnd::facts).collect();
    let begun = beginning(ctx, work);
    let (notices, is_merged) = (NoticeWriter::new(ctx), work.after_merge.is_some());
    let writer = notices.clone();
    let recorded = ctx
        .store
        .write(move |tx| {
            begun(tx)?;
            jobs.iter().try_for_each(|facts| facts.record(tx, &writer))?;
            if let Some(fault) = fault {
                tx.set_fault(&pull, fault.as_deref())?;
            }
            // This is the last record of the run: a job of it that still seems to run is abandoned.
            abandoned::end(tx, &statuses, END_LOST, LostPart::Record, |job| job.run == run.id)?;
            let told = update.resolve(tx, &statuses, &pull, &head, name)?;
            let told =
                told.into_iter().chain(policy_status).map(|status| Effect::Status { commit: head.clone(), status });
            tx.post(&pull, told.chain(comments))?;
            notifications.iter().try_for_each(|one| tx.notify(one))?;
            if name == CommandName::Plan {
                tx.tell_seen_plans(&pull, &run.id, run.finished.unwrap_or(run.started))?;
                if !is_merged {
                    writer.enqueue_overlaps(tx, &pull, &run.id)?;
                }
            }
            let merges = automerger.record(tx, &run, &merging)?;
            follows.iter().try_for_each(|next| tx.accept_delivery(next).map(drop))?;
            let looks = if is_merged { None } else { auto_apply::record_look(tx, &run, &merging)? };
            tx.end_cause(&run.cause, &format!("run {}", run.id))?;
            tx.put_run(&run)?;
            Ok((merges, looks))
        })
        .await;
    if let Err(error) = &recorded {
        pass_on_if_deposed(ctx, work, ends, error).await;
    }
    let (merges, looks) = recorded?;
    if merges {
        ctx.outbox.wake_merge(&work.pull.id);
    }
    ends.iter().for_each(|end| clean(ctx, end));
    work.cancel.note_answered();
    ctx.outbox.wake(&work.pull.id);
    notices.after_commit(ctx).await;
    ctx.notifier.wake();
    Ok(Ended::Answered { follows: next.or(looks).map(Box::new) })
}

/// Returns the notifications of a plan or an apply that broke before any project began.
fn failure_of_command(ctx: &Context, work: &CommandRun, answer: &CommandAnswer) -> Vec<Notification> {
    let Some(ReplyBody::CommandError(fault)) = &answer.body else { return Vec::new() };
    let command = work.command.name;
    if !matches!(command, CommandName::Plan | CommandName::Apply) || !is_failure(fault.reason) {
        return Vec::new();
    }
    let (id, pull, user) = (work.run.id.as_str(), &work.pull, &work.command.user);
    let reason = ctx.redactor.redact(&fault.message);
    ctx.notifier.of_failure(&JobFailure { id, command, project: None, pull, user, reason: &reason })
}

/// Returns the comments on the policy checks of a plan, which are a separate reply.
fn policy_comments(ctx: &Context, work: &CommandRun, mut outcomes: Vec<JobOutcome>) -> Vec<Effect> {
    if ctx.settings.quiet_policy_checks {
        outcomes.retain(|outcome| !outcome.outcome.is_success());
    }
    if outcomes.is_empty() {
        return Vec::new();
    }
    let results = Results { outcomes, base_branch: work.pull.base.branch.clone(), remarks: Vec::new() };
    let reply = Reply {
        run: policy_reply_of(&work.run.id),
        command: Some(Command { name: CommandName::PolicyCheck, ..work.command.clone() }),
        ..work.reply(ReplyBody::Results(results))
    };
    ctx.comments(&reply)
}

/// Ends a command that was stopped before it had an answer. It posts none, and dispatch continues with its cause. A plan that a shutdown
/// stops is not ended: the next leader resumes it.
pub(super) async fn stopped(ctx: &Context, work: &CommandRun, why: CancelReason) -> Result<Ended> {
    if why == CancelReason::Shutdown && may_go_on(work.command.name) {
        return Ok(Ended::Stopped(why));
    }
    let mut run = work.run.clone();
    run.finished = Some(Timestamp::now());
    ctx.store.write(move |tx| tx.put_run(&run)).await?;
    measured::run_ended(ctx, work, WorkResult::Stopped);
    Ok(Ended::Stopped(why))
}
