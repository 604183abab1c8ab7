//! Ends of jobs that are not recorded yet: what has been changed is told, and recorded as soon as that can be.

use super::command_run::CommandRun;
use super::context::Context;
use super::errored_state;
use crate::domain::outcome::JobOutcome;
use crate::store::Tx;
use crate::store::logs::LogWriter;
use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Part of a commit; where that fails, of the next one.
pub(super) type Recording = dyn Fn(&Tx<'_>) -> Result<()> + Send + Sync;

/// The end of a job that is not recorded yet.
pub(super) struct JobEnd {
    /// What it came to.
    pub(super) outcome: JobOutcome,
    /// Records it.
    record: Arc<Recording>,
    /// Who follows the log sees its end when the record says so too.
    _log: LogWriter,
}

impl JobEnd {
    /// An end with what records it, of a job whose log has no more lines.
    pub(super) fn new(outcome: JobOutcome, record: Arc<Recording>, log: LogWriter) -> JobEnd {
        JobEnd { outcome, record, _log: log }
    }

    /// What records it.
    pub(super) fn recording(&self) -> Arc<Recording> {
        Arc::clone(&self.record)
    }
}

/// Ends of jobs that the command's answer records: that of an only job, for which nobody waits without the answer, and those whose own
/// commit failed.
#[derive(Default)]
pub(crate) struct UnrecordedOutcomes(Mutex<Vec<JobEnd>>);

impl UnrecordedOutcomes {
    /// One more.
    pub(super) fn put(&self, end: JobEnd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }

    /// All of them; none is left.
    pub(super) fn take(&self) -> Vec<JobEnd> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Leaves the end of a job that changed something to the server that leads now.
pub(super) async fn pass_on(ctx: &Context, work: &CommandRun, outcome: &JobOutcome) {
    if let Some(job) = &outcome.job
        && work.command.name.changes_state()
    {
        errored_state::leave_late_outcome(ctx, job, outcome).await;
    }
}
