//! Counts, measures and traces runs, jobs and their phases.

use super::answer::CommandAnswer;
use super::command_run::CommandRun;
use super::context::Context;
use super::request_refused::RequestRefused;
use super::status_update::StatusUpdate;
use super::traced;
use crate::domain::drift::{DRIFT_JOB, DriftDetection, DriftFinding, ProjectDrift};
use crate::domain::job_times::StepTime;
use crate::domain::outcome::{Failure, JobOutcome, Outcome, Reason};
use crate::domain::reply::{Message, ReplyBody};
use crate::domain::state::Run;
use crate::domain::{JobId, RunId};
use crate::meters::{EndedJob, EndedRun, RunPhase, WorkResult};
use jiff::Timestamp;
use std::time::Duration;

/// Counts a run of this process that has ended.
pub(super) fn run_ended(ctx: &Context, work: &CommandRun, result: WorkResult) {
    let command = if work.looks_for_drift() { DRIFT_JOB } else { work.command.name.as_str() };
    count(ctx, &work.run, command, result);
}

/// Counts a run that an earlier server, or a part of this one that broke off, has left.
pub(crate) fn left_run_ended(ctx: &Context, run: &Run) {
    count(ctx, run, run.command.as_str(), WorkResult::Error);
}

fn count(ctx: &Context, run: &Run, command: &'static str, result: WorkResult) {
    let took = since(run.started);
    traced::run(ctx, run, command, result);
    ctx.meters.run_ended(EndedRun { command, trigger: run.trigger, repo: &run.pull.repo, result, took });
}

/// Returns the time since then; zero if the clock was set back.
pub(crate) fn since(then: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(then)).unwrap_or_default()
}

/// Counts a job that has ended.
pub(super) fn job_ended(ctx: &Context, work: &CommandRun, began: Timestamp, outcome: &JobOutcome) {
    let command = if work.looks_for_drift() { DRIFT_JOB } else { outcome.command.as_str() };
    let (repo, project, took) = (&work.pull.id.repo, &outcome.project, Duration::from_millis(outcome.millis));
    let result = of_outcome(&outcome.outcome);
    traced::job(ctx, &work.run.id, command, began, outcome, result);
    ctx.meters.job_ended(EndedJob { command, repo, project, result, took });
}

/// Measures a phase of a run that ends now.
pub(super) fn phase(ctx: &Context, run: &RunId, phase: RunPhase, took: Duration) {
    traced::phase(ctx, run, phase.as_str(), took);
    ctx.meters.phase(phase, took);
}

/// Measures the steps of a job.
pub(super) fn steps(ctx: &Context, run: &RunId, job: &JobId, steps: &[StepTime]) {
    traced::steps(ctx, run, job, steps);
    for StepTime { kind, millis, .. } in steps {
        ctx.meters.phase(RunPhase::Step(kind.as_str()), Duration::from_millis(*millis));
    }
}

/// Returns the result of a drift run.
pub(super) fn of_drift(found: Result<&DriftDetection, &RequestRefused>) -> WorkResult {
    let has_failed = |(row, _): &(ProjectDrift, _)| matches!(row.finding, DriftFinding::Failed(_));
    match found {
        Ok(found) if found.projects.iter().any(has_failed) => WorkResult::Error,
        Ok(_) => WorkResult::Success,
        Err(RequestRefused::Stopped) => WorkResult::Stopped,
        Err(RequestRefused::Broken(_) | RequestRefused::Host(_)) => WorkResult::Error,
        Err(_) => WorkResult::Failure,
    }
}

/// Returns the result of a run with this answer: that of its worst project.
pub(super) fn of_answer(answer: &CommandAnswer) -> WorkResult {
    let checked = answer.policies.iter().flat_map(|checked| &checked.outcomes);
    let results = answer.outcomes().iter().chain(checked).map(|outcome| of_outcome(&outcome.outcome));
    let of_all = match &answer.body {
        Some(ReplyBody::CommandError(fault)) => of_reason(fault.reason),
        Some(ReplyBody::Message(Message::HookFailed { .. })) => WorkResult::Error,
        _ if matches!(answer.statuses, StatusUpdate::Failed(_)) => WorkResult::Failure,
        _ => WorkResult::Success,
    };
    results.chain([of_all]).max_by_key(|result| weight(*result)).unwrap_or(of_all)
}

/// Returns the order of results from harmless to bad. A run with a stopped project is stopped, unless another one broke.
fn weight(result: WorkResult) -> u8 {
    match result {
        WorkResult::Success => 0,
        WorkResult::Failure => 1,
        WorkResult::Stopped => 2,
        WorkResult::Error => 3,
    }
}

fn of_outcome(outcome: &Outcome) -> WorkResult {
    match outcome {
        Outcome::Failed(Failure::Cancelled { .. }) => WorkResult::Stopped,
        Outcome::Errored(fault) => of_reason(fault.reason),
        outcome if outcome.is_success() => WorkResult::Success,
        _ => WorkResult::Failure,
    }
}

fn of_reason(reason: Reason) -> WorkResult {
    match reason {
        Reason::Cancelled => WorkResult::Stopped,
        Reason::Locked
        | Reason::Frozen
        | Reason::Requirement
        | Reason::Dependency
        | Reason::StalePlan
        | Reason::NoPlan
        | Reason::NotPlanned
        | Reason::NotPermitted => WorkResult::Failure,
        _ => WorkResult::Error,
    }
}
