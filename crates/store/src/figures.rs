//! Figures of the state for metrics.

use super::View;
use anyhow::Result;
use jiff::Timestamp;
use tidelock_core::domain::state::ApplyLock;

/// Numbers of rows that metrics show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFigures {
    /// Project locks.
    pub locks: u32,
    /// Time since which the oldest of them is held.
    pub oldest_lock: Option<Timestamp>,
    /// Waits of pull requests for projects: one for each pull request and project.
    pub waits: u32,
    /// Projects that have an owner, in mode `strict`.
    pub owned: u32,
    /// Those of them whose pull request is merged or closed.
    pub owed: u32,
    /// Plan files that are kept for an apply.
    pub plans: u32,
    /// Projects whose last check has found drift, by branch.
    pub drifted: u32,
    /// End of the last scheduled detection of the repository where it is longest ago.
    pub oldest_drift_check: Option<Timestamp>,
    /// Time since which all applies are stopped.
    pub applies_stopped: Option<Timestamp>,
}

impl View<'_> {
    /// Returns the figures.
    pub fn figures(&self) -> Result<StateFigures> {
        let (locks, oldest): (u32, Option<i64>) = self
            .connection
            .prepare_cached("SELECT count(*), min(since) FROM locks")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let apply_lock: Option<ApplyLock> = self.apply_lock()?;
        let checked = self.drift_checks()?.into_iter().filter_map(|check| check.end);
        Ok(StateFigures {
            locks,
            oldest_lock: oldest.map(Timestamp::from_microsecond).transpose()?,
            waits: self.number("SELECT count(*) FROM waiters")?,
            owned: self.number("SELECT count(*) FROM owners")?,
            owed: self.number(
                "SELECT count(*) FROM owners WHERE state IN ('merged_unapplied', 'closed_applied', 'merged_unknown')",
            )?,
            // Rows of plans are large, and no index has those that are not used up; the file of a plan is dropped with its use.
            plans: self.number("SELECT count(*) FROM kept_files WHERE path >= 'plans/' AND path < 'plans0'")?,
            // As `DriftFinding::has_drift` says.
            drifted: self.number(
                "SELECT count(*) FROM drift WHERE json_extract(record, '$.finding.planned.no_changes') = 0
                 OR json_extract(record, '$.finding.planned.changes_outside') = 1",
            )?,
            oldest_drift_check: checked.map(|end| end.at).min(),
            applies_stopped: apply_lock.map(|lock| lock.since),
        })
    }

    fn number(&self, sql: &str) -> Result<u32> {
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }
}
