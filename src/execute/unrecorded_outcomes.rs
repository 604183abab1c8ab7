//! Ends of jobs that are not recorded yet: their changes are reported, and recorded as soon as possible.

use super::command_run::CommandRun;
use super::context::Context;
use super::errored_state;
use super::job_end::JobEnd;
use std::sync::{Mutex, PoisonError};

/// Ends of jobs that the command's answer records: that of an apply's only job, and those whose own commit failed.
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

/// Leaves the end of a job that changed something to the server that leads now. That follows a job at an executor by itself.
pub(super) async fn pass_on(ctx: &Context, work: &CommandRun, end: &JobEnd) {
    if let Some(job) = &end.outcome.job
        && work.command.name.changes_state()
        && end.facts().job.remote.is_none()
    {
        errored_state::leave_late_outcome(ctx, job, &end.outcome).await;
    }
}
