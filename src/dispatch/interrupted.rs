//! Jobs whose process ended before they did: their outcome for people, and its record.

use super::inner::Inner;
use crate::domain::ProjectId;
use crate::domain::command::CommandName;
use crate::domain::outcome::{Fault, JobOutcome, Outcome, Reason};
use crate::domain::state::{Effect, Job, JobState, ProjectState, ProjectStatus, Run};
use crate::execute::abandoned;
use crate::execute::errored_state;
use crate::execute::notices::NoticeWriter;
use crate::execute::state_locks::after_kill;
use crate::locks::LockEvent;
use crate::notifications::Notifier;
use crate::render::statuses::Statuses;
use crate::runner::local::state_lock::LockEvidence;
use crate::store::{KeptFile, Tx};
use anyhow::Result;
use jiff::Timestamp;

/// Reason why a command was not finished.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// The process ended.
    Killed,
    /// It panicked, or could not record what it had to.
    Broke,
}

impl How {
    /// Returns the summary of its jobs.
    pub(super) fn summary(self) -> &'static str {
        match self {
            How::Killed => INTERRUPTED,
            How::Broke => BROKE,
        }
    }
}

/// Summary of a job that ended because its process did.
pub(super) const INTERRUPTED: &str = "the server ended before it did";
/// Summary of a job whose command broke off.
pub(super) const BROKE: &str = "something broke inside the server";

/// A job that this server or an earlier one has interrupted.
pub(super) struct Interrupted<'a> {
    pub(super) run: &'a Run,
    pub(super) job: Job,
    pub(super) outcome: JobOutcome,
    pub(super) because: &'static str,
}

impl Interrupted<'_> {
    /// Records its end, with all that follows from it.
    pub(super) fn record(
        self,
        tx: &Tx<'_>,
        statuses: &Statuses,
        notices: &NoticeWriter,
        notifier: &Notifier,
    ) -> Result<()> {
        let Interrupted { run, mut job, outcome, because } = self;
        let project = outcome.project.clone();
        if run.command == CommandName::Apply {
            let status = ProjectStatus::without_job(project.clone(), ProjectState::ApplyErrored, run.head.clone());
            tx.put_project_status(&run.pull, &ProjectStatus { job: Some(job.id.clone()), ..status })?;
            let (pull, at) = (run.pull.clone(), Timestamp::now());
            notices.record(tx, &LockEvent::StateChanged { pull, project, outputs: true, at })?;
            let status = statuses.project(&outcome);
            tx.post(&run.pull, [Effect::Status { commit: run.head.clone(), status }])?;
        }
        job.state = JobState::Interrupted;
        job.finished = Some(Timestamp::now());
        job.summary = because.into();
        job.outcome = Some(outcome);
        tx.put_job(&job)?;
        abandoned::notify(tx, notifier, &job)
    }
}

/// Returns the recorded outcome of a job, or one that says that it was interrupted, with the known details.
pub(super) async fn outcome_of(
    inner: &Inner,
    run: &Run,
    job: &mut Job,
    how: How,
    kept: &mut Vec<KeptFile>,
) -> JobOutcome {
    if let Some(outcome) = &job.outcome {
        return outcome.clone();
    }
    let project = job.project.clone().unwrap_or(ProjectId { dir: ".".into(), workspace: "default".into(), name: None });
    let mut errored = None;
    for root in inner.ctx.checkouts.tree_paths(&run.pull, &project.workspace) {
        if errored.is_none() {
            let found = inner.ctx.runner.errored_state_or_none(&job.id, &project.dir, job.started, &root).await;
            if let Some(state) = found {
                errored = errored_state::kept_file_or_none(&inner.ctx, state.path).await;
            }
        }
    }
    let saved = errored.as_ref().map_or(String::new(), |_| format!(" {}.", errored_state::errored_words(&job.id)));
    kept.extend(errored);
    let verb = run.command.spoken();
    let left = inner.ctx.runner.left_lock(job).await;
    let lock = after_kill(&inner.ctx, &project, &left);
    if let LockEvidence::Local(found) = left {
        job.state_lock.left = Some(found);
    }
    let what = if how == How::Killed { "The server ended" } else { "The server had an internal error" };
    let message = format!(
        "{what} while `{verb}` ran. Changes made until then remain; the server does not repeat it. {lock}{saved}"
    );
    let millis = Timestamp::now().duration_since(job.started).as_millis();
    JobOutcome {
        command: run.command,
        project,
        job: Some(job.id.clone()),
        millis: u64::try_from(millis).unwrap_or_default(),
        tool: None,
        silenced: false,
        outcome: Outcome::Errored(Fault { reason: Reason::Interrupted, message, output: String::new() }),
    }
}
