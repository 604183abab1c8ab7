//! Schedules of runs that have not ended, and the claims of their projects. They are dropped when their run ends.

use super::{Tx, View, json};
use anyhow::Result;
use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::state::JobState;
use tidelock_core::domain::{JobId, ProjectId, RunId};

impl View<'_> {
    /// Returns the recorded schedule of a run; absent if there is none, or the run has ended.
    pub fn schedule<T: DeserializeOwned>(&self, run: &RunId) -> Result<Option<T>> {
        self.record("SELECT record FROM schedules WHERE run = ?1", [run.as_str()])
    }
}

/// Claim of a project of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No job of the run had the project before.
    First,
    /// An earlier job of the run had it, and has ended.
    Again,
}

impl Tx<'_> {
    /// Records the schedule of a run, in place of an earlier one.
    pub fn put_schedule(&self, run: &RunId, schedule: &impl Serialize) -> Result<()> {
        self.execute(
            "INSERT INTO schedules (run, record) VALUES (?1, ?2) ON CONFLICT (run) DO UPDATE SET record = excluded.record",
            params![run.as_str(), json(schedule)?],
        )?;
        Ok(())
    }

    /// Claims a project of a run for a job that is about to begin; `None` if it must not begin. A project that another job has claimed is
    /// claimed again only after that job has ended, and for a command that changes no state.
    pub fn claim(&self, run: &RunId, project: &ProjectId, job: &JobId, command: CommandName) -> Result<Option<Claim>> {
        let key = json(project)?;
        let holder: Option<JobId> = (self.connection)
            .prepare_cached("SELECT job FROM claims WHERE run = ?1 AND project = ?2")?
            .query_row(params![run.as_str(), key], |row| row.get(0).map(JobId::stored))
            .optional()?;
        if let Some(holder) = &holder {
            let is_running = self.job(holder)?.is_some_and(|job| job.state == JobState::Running);
            if is_running || command.changes_state() {
                return Ok(None);
            }
        }
        self.execute(
            "INSERT INTO claims (run, project, job) VALUES (?1, ?2, ?3)
             ON CONFLICT (run, project) DO UPDATE SET job = excluded.job",
            params![run.as_str(), key, job.as_str()],
        )?;
        Ok(Some(if holder.is_some() { Claim::Again } else { Claim::First }))
    }

    /// Returns the number of projects of a run that have a job, running or ended, counted up to `limit`.
    pub fn claims_of(&self, run: &RunId, limit: usize) -> Result<usize> {
        let mut claims = self.connection.prepare_cached("SELECT 1 FROM claims WHERE run = ?1 LIMIT ?2")?;
        let claims = claims.query_map(params![run.as_str(), i64::try_from(limit)?], |_| Ok(()))?;
        Ok(claims.collect::<rusqlite::Result<Vec<()>>>()?.len())
    }

    /// Drops schedule and claims of a run that has ended.
    pub(super) fn drop_schedule(&self, run: &RunId) -> Result<()> {
        self.execute("DELETE FROM schedules WHERE run = ?1", [run.as_str()])?;
        self.execute("DELETE FROM claims WHERE run = ?1", [run.as_str()])?;
        Ok(())
    }
}
