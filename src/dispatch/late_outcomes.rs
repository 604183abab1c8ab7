//! Outcomes of jobs that ended after they had been reported as interrupted: on a server deposed meanwhile, or on an executor. They are
//! recorded, and reported as late ends.

use super::inner::Inner;
use super::recorder::Commit;
use crate::domain::JobId;
use crate::domain::command::CommandName;
use crate::domain::drift::DriftApplyEnd;
use crate::domain::outcome::{JobOutcome, Outcome};
use crate::domain::reply::Message;
use crate::domain::state::{Effect, Job, JobState, ProjectState, ProjectStatus, StateLockTrace};
use crate::execute::abandoned;
use crate::execute::automerge::Automerger;
use crate::execute::errored_state::{errored_here, errored_words, keep_errored};
use crate::execute::late_job::LateJob;
use crate::execute::notices::NoticeWriter;
use crate::locks::LockEvent;
use crate::render::statuses::Statuses;
use crate::store::{KeptFile, Tx};
use crate::vault::inbox::LateOutcome;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use jiff::Timestamp;

/// A job that has ended after its interruption was reported.
struct LateOutcomeOf {
    /// Its record, before.
    job: Job,
    outcome: JobOutcome,
    /// State that Terraform could not save.
    errored: Option<KeptFile>,
    /// Place of its end, for people.
    place: String,
    state_lock: StateLockTrace,
}

/// Records the outcome. Does nothing if it is recorded already, or the job is unknown. Fails if it cannot be parsed.
pub(super) async fn record(inner: &Inner, end: LateOutcome) -> Result<()> {
    let what = || format!("the end of job {}", end.job);
    let outcome: JobOutcome = serde_json::from_value(end.outcome.clone()).with_context(what)?;
    let id = JobId::parse(&end.job).with_context(|| format!("{:?} is no id of a job", end.job))?;
    let Some(job) = inner.ctx.store.read(move |view| view.job(&id)).await? else {
        tracing::warn!(job = end.job, "a job that is not known has ended after all");
        return Ok(());
    };
    if !is_in_doubt(&job) {
        return Ok(());
    }
    let errored = match &end.errored_state {
        Some(text) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).with_context(what)?;
            keep_errored(&inner.ctx, &job.id, bytes).await?
        }
        None => errored_here(&inner.ctx, &job.id).await?,
    };
    let place = "on a server that had lost contact".to_owned();
    // It ended by itself, and released its state lock.
    let state_lock = StateLockTrace { untold: false, left: None, ..job.state_lock.clone() };
    tell(inner, LateOutcomeOf { job, outcome, errored, place, state_lock }).await
}

/// Records the outcome of a job that was given up, and that its executor has ended. Does nothing if it is recorded already.
pub(super) async fn record_on_executor(inner: &Inner, job: Job, end: &LateJob) -> Result<()> {
    let executor = job.remote.as_ref().map(|remote| remote.executor.as_str()).unwrap_or_default();
    let place = format!("on the executor `{executor}`, which had stopped reporting");
    let (outcome, errored, state_lock) = (end.outcome.clone(), end.errored.clone(), end.state_lock.clone());
    tell(inner, LateOutcomeOf { job, outcome, errored, place, state_lock }).await
}

/// Returns true if nobody knows how the job has ended.
fn is_in_doubt(job: &Job) -> bool {
    matches!(job.state, JobState::Interrupted | JobState::Running)
}

async fn tell(inner: &Inner, late: LateOutcomeOf) -> Result<()> {
    let effects = inner.answer(&late.job.pull, None, message(inner, &late));
    let LateOutcomeOf { job, outcome, errored, state_lock, .. } = late;
    let late_apply = late_apply(inner, &outcome);
    let (statuses, of) = (inner.ctx.statuses.clone(), job.pull.clone());
    let (automerger, notifier) = (Automerger::new(&inner.ctx), inner.ctx.notifier.clone());
    let notices = NoticeWriter::new(&inner.ctx);
    let after = notices.clone();
    let recorded = Commit::about(&job.pull).record_with(inner, move |tx| {
        let Some(now) = tx.job(&job.id)?.filter(is_in_doubt) else { return Ok(false) };
        let counts = put_status(tx, &statuses, &job, &outcome)?;
        let ended = Job {
            state: if outcome.outcome.is_success() { JobState::Succeeded } else { JobState::Failed },
            finished: Some(Timestamp::now()),
            summary: statuses.one_line(&outcome),
            outcome: Some(outcome),
            state_lock,
            ..now
        };
        record_end(tx, &notices, &ended, late_apply)?;
        errored.iter().try_for_each(|file| tx.keep_file(file))?;
        tx.post(&ended.pull, effects)?;
        abandoned::notify_late(tx, &notifier, &ended)?;
        match tx.run(&ended.run)?.filter(|_| counts) {
            Some(run) => automerger.record(tx, &run, ended.outcome.as_slice()),
            None => Ok(false),
        }
    });
    let merges = recorded.await?;
    after.after_commit(&inner.ctx).await;
    if merges {
        inner.ctx.outbox.wake_merge(&of);
    }
    inner.ctx.notifier.wake();
    Ok(())
}

/// Records the project's status after an apply, and posts it. Returns false for another command, and where a later command has set the
/// status: its result takes precedence.
fn put_status(tx: &Tx<'_>, statuses: &Statuses, job: &Job, outcome: &JobOutcome) -> Result<bool> {
    let of_project = tx.project_statuses(&job.pull)?.into_iter().find(|one| one.project == outcome.project);
    let last = of_project.filter(|last| outcome.command == CommandName::Apply && last.job.as_ref() == Some(&job.id));
    let Some(last) = last else { return Ok(false) };
    let part = outcome.outcome.part();
    let state = if outcome.outcome.is_success() { ProjectState::after_apply(part) } else { ProjectState::ApplyErrored };
    tx.put_project_status(&job.pull, &ProjectStatus { state, updated: Timestamp::now(), ..last })?;
    let all = statuses.apply(&tx.project_statuses(&job.pull)?);
    let told = [statuses.project(outcome), all].map(|status| Effect::Status { commit: job.head.clone(), status });
    tx.post(&job.pull, told)?;
    Ok(true)
}

/// Records the end of the job. It changed the state until now, so plans made since it was reported as interrupted are invalidated.
/// If another job is changing the state, the end of that one invalidates them.
fn record_end(tx: &Tx<'_>, notices: &NoticeWriter, ended: &Job, late_apply: DriftApplyEnd) -> Result<()> {
    tx.put_job(ended)?;
    if ended.pull.is_branch() {
        tx.end_remedy(&ended.pull.repo, &ended.id, late_apply)?;
    }
    let Some(project) = ended.project.clone().filter(|_| ended.changes_state()) else { return Ok(()) };
    let is_again =
        |job: &Job| job.changes_state() && job.pull.repo == ended.pull.repo && job.project.as_ref() == Some(&project);
    if tx.unfinished_jobs()?.iter().any(is_again) {
        return Ok(());
    }
    let (pull, at) = (ended.pull.clone(), Timestamp::now());
    let changed = LockEvent::StateChanged { pull, project: project.clone(), outputs: true, at };
    for plan in notices.record(tx, &changed)?.dropped() {
        if plan.pull == ended.pull && plan.project == project {
            let discarded = ProjectStatus::without_job(plan.project, ProjectState::PlanDiscarded, plan.head);
            tx.put_project_status(&plan.pull, &discarded)?;
        }
    }
    Ok(())
}

/// Returns the end of a remediation's apply.
fn late_apply(inner: &Inner, outcome: &JobOutcome) -> DriftApplyEnd {
    let error = (!outcome.outcome.is_success()).then(|| inner.ctx.statuses.one_line(outcome));
    DriftApplyEnd { output: String::new(), error }
}

fn message(inner: &Inner, late: &LateOutcomeOf) -> Message {
    let LateOutcomeOf { job, outcome, errored, place, .. } = late;
    let output = match &outcome.outcome {
        Outcome::Applied(applied) => applied.output.clone(),
        Outcome::Ran { output } => output.clone(),
        Outcome::Errored(fault) => fault.output.clone(),
        _ => String::new(),
    };
    let mut because = format!(
        "The `{}` reported as interrupted has finished {place}: {}.",
        outcome.command.spoken(),
        inner.ctx.statuses.one_line(outcome)
    );
    let words = errored_words(&job.id);
    if errored.is_some() && !because.contains(&words) {
        because = format!("{because} {words}.");
    }
    Message::LateEnd { project: outcome.project.clone(), because, output: inner.ctx.redactor.redact(&output) }
}
