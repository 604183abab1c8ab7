//! Times of the steps of jobs that have ended. They are dropped with their job.

use super::{Tx, View, json};
use anyhow::Result;
use rusqlite::params;
use tidelock_core::domain::JobId;
use tidelock_core::domain::job_times::JobTimes;

impl View<'_> {
    /// Returns the times of a job; empty if none are recorded.
    pub fn job_times(&self, job: &JobId) -> Result<JobTimes> {
        let times = self.record("SELECT record FROM job_times WHERE job = ?1", [job.as_str()])?;
        Ok(times.unwrap_or_default())
    }
}

impl Tx<'_> {
    /// Records the times of a job, in place of earlier ones. Of a job without steps nothing is recorded.
    pub fn put_job_times(&self, job: &JobId, times: &JobTimes) -> Result<()> {
        if !times.steps.is_empty() {
            self.execute(
                "INSERT INTO job_times (job, record) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE SET record = excluded.record",
                params![job.as_str(), json(times)?],
            )?;
        }
        Ok(())
    }
}
