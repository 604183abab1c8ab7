//! Ends abandoned jobs, each with its commit status, so that nobody waits for them. They are recorded as running, but the process or task
//! that ran them was killed, stopped early, or could not record their end.

use super::notices::post_invalidated;
use crate::domain::command::{Command, CommandName, Trigger};
use crate::domain::notification::Notification;
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{CommitStatus, Effect, Job, JobState, ProjectState, ProjectStatus, StatusState};
use crate::locks::LockEvent;
use crate::notifications::{ApplyEnd, Notifier};
use crate::render::statuses::Statuses;
use crate::store::Tx;
use anyhow::Result;
use jiff::Timestamp;

/// Kind of the record of a hook that runs before a command.
pub(super) const PRE_HOOK: &str = "pre_workflow_hook";
/// Kind of the record of a hook that runs after one.
pub(super) const POST_HOOK: &str = "post_workflow_hook";

/// The part of an abandoned job that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostPart {
    /// Its process: Terraform may have been killed while it held the lock on its state.
    Process,
    /// The record of its end.
    Record,
}

/// Ends, in this transaction, all jobs that are recorded as running and for which `is_abandoned` returns true. Returns their new records.
/// `because` is one line for people.
pub(crate) fn end(
    tx: &Tx<'_>,
    statuses: &Statuses,
    because: &str,
    lost: LostPart,
    is_abandoned: impl Fn(&Job) -> bool,
) -> Result<Vec<Job>> {
    let mut ended = Vec::new();
    for mut job in tx.unfinished_jobs()?.into_iter().filter(is_abandoned) {
        let status = status(statuses, &job, because);
        job.state = JobState::Interrupted;
        job.finished = Some(Timestamp::now());
        because.clone_into(&mut job.summary);
        job.state_lock.untold |= lost == LostPart::Process && job.project.is_some() && job.locks_state();
        tx.put_job(&job)?;
        if job.kind == CommandName::Apply.as_str() {
            end_apply(tx, statuses, &job)?;
        }
        tx.post(&job.pull, status.map(|status| Effect::Status { commit: job.head.clone(), status }))?;
        ended.push(job);
    }
    Ok(ended)
}

/// Records the notifications of the end of an apply that its own command did not record.
pub(crate) fn notify(tx: &Tx<'_>, notifier: &Notifier, job: &Job) -> Result<()> {
    notifications(tx, notifier, job)?.iter().try_for_each(|one| tx.notify(one))
}

/// Does the same for an apply whose interruption was reported before.
pub(crate) fn notify_late(tx: &Tx<'_>, notifier: &Notifier, job: &Job) -> Result<()> {
    for mut one in notifications(tx, notifier, job)? {
        // Receivers may drop a notification with the id of an earlier one.
        one.id.push_str("-late");
        tx.notify(&one)?;
    }
    Ok(())
}

fn notifications(tx: &Tx<'_>, notifier: &Notifier, job: &Job) -> Result<Vec<Notification>> {
    let (Some(project), Some(pull)) = (&job.project, tx.pull(&job.pull)?) else { return Ok(Vec::new()) };
    if job.kind != CommandName::Apply.as_str() {
        return Ok(Vec::new());
    }
    let command = Command::new(CommandName::Apply, Trigger::Comment, job.user.clone());
    let success = job.outcome.as_ref().is_some_and(|outcome| outcome.outcome.is_success());
    let (job, reason) = (&job.id, job.summary.as_str());
    Ok(notifier.of_apply(&ApplyEnd { job, project, pull: &pull, command: &command, success, reason }))
}

/// Invalidates plans on the state of an apply with an unknown end, and marks its project as errored unless a later command updated it.
fn end_apply(tx: &Tx<'_>, statuses: &Statuses, job: &Job) -> Result<()> {
    let Some(project) = &job.project else { return Ok(()) };
    let (pull, at) = (job.pull.clone(), Timestamp::now());
    let changed = LockEvent::StateChanged { pull, project: project.clone(), outputs: true, at };
    post_invalidated(tx, statuses, &tx.record_lock_event(&changed)?.invalidated)?;
    if job.pull.is_branch() {
        return Ok(());
    }
    let before = tx.project_statuses(&job.pull)?.into_iter().find(|status| status.project == *project);
    if before.as_ref().is_some_and(|status| status.updated > job.started) {
        return Ok(());
    }
    let status = ProjectStatus {
        project: project.clone(),
        state: ProjectState::ApplyErrored,
        head: job.head.clone(),
        summary: before.and_then(|status| status.summary),
        job: Some(job.id.clone()),
        updated: Timestamp::now(),
        waits_for: Vec::new(),
    };
    tx.put_project_status(&job.pull, &status)
}

/// Returns the final version of the commit status that the job has set to pending; `None` if it has none.
fn status(statuses: &Statuses, job: &Job, because: &str) -> Option<CommitStatus> {
    if matches!(job.kind.as_str(), PRE_HOOK | POST_HOOK) {
        // While a hook runs, its summary is its description.
        let description = Some(&job.summary).filter(|text| !text.is_empty())?;
        return Some(statuses.hook(job.kind == PRE_HOOK, description, StatusState::Failure, because, &job.id));
    }
    let command = CommandName::of_word(&job.kind).filter(|command| command.spec().has_status)?;
    let fault = Fault { reason: Reason::Interrupted, message: because.to_owned(), output: String::new() };
    Some(statuses.project(&JobOutcome {
        command,
        project: job.project.clone()?,
        job: Some(job.id.clone()),
        millis: 0,
        tool: None,
        silenced: false,
        outcome: Outcome::Errored(fault),
    }))
}
