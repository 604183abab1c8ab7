//! Ends of jobs that are not recorded yet: their changes are reported, and recorded as soon as possible.

use super::command_run::CommandRun;
use super::context::Context;
use super::errored_state;
use crate::domain::outcome::JobOutcome;
use crate::store::Tx;
use crate::store::logs::LogWriter;
use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Part of a commit; if that fails, part of the next one.
pub(super) type Recording = dyn Fn(&Tx<'_>) -> Result<()> + Send + Sync;

/// The end of a job that is not recorded yet.
pub(super) struct JobEnd {
    pub(super) outcome: JobOutcome,
    /// Change that records the end.
    record: Arc<Recording>,
    /// Dropped with the end, so that readers of the log see its end only once the record has it.
    _log: LogWriter,
}

impl JobEnd {
    /// Creates the end of a job whose log has no more lines.
    pub(super) fn new(outcome: JobOutcome, record: Arc<Recording>, log: LogWriter) -> JobEnd {
        JobEnd { outcome, record, _log: log }
    }

    /// Returns the change that records the end.
    pub(super) fn recording(&self) -> Arc<Recording> {
        Arc::clone(&self.record)
    }
}

/// Ends of jobs that the command's answer records: that of a single job, for which nobody waits without the answer, and those whose own
/// commit failed.
#[derive(Default)]
pub(crate) struct UnrecordedOutcomes(Mutex<Vec<JobEnd>>);

impl UnrecordedOutcomes {
    /// Adds an end.
    pub(super) fn put(&self, end: JobEnd) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }

    /// Removes and returns all ends.
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
