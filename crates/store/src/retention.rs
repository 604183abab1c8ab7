//! Retention of finished records.

use super::{Tx, micros, rows};
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use rusqlite::params;
use std::cell::Cell;
use std::path::Path;
use tidelock_core::domain::JobId;

/// Retention of identities of handled deliveries: longer than a host can redeliver (GitHub: 30 days for the deliveries of an App).
const DELIVERIES: SignedDuration = SignedDuration::from_hours(35 * 24);

/// Retention of effects that are done or were given up, with their notes.
const EFFECTS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Retention of finished runs, jobs with their logs, and consumed plans.
const RUNS: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Maximum number of jobs with their logs; older finished ones are dropped at any age.
const JOBS_KEPT: i64 = 10_000;

/// Retention of closed pull requests without status, lock or plan, since their last activity.
const PULLS: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Retention of entries of the audit log.
const AUDIT: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Maximum number of rows of one kind that one call removes, so that other changes do not wait long. The next call continues.
const ROWS_AT_ONCE: i64 = 5_000;

/// Result of a call of [`Tx::prune`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// IDs of dropped jobs, whose logs can be removed.
    pub jobs: Vec<JobId>,
    /// Dropped jobs with a kept `errored.tfstate`, which can be removed.
    pub errored: Vec<JobId>,
    /// True if there may be more to drop.
    pub more: bool,
}

impl Tx<'_> {
    /// Drops records older than their retention: handled deliveries, done effects, runs, jobs, consumed plans, closed pull
    /// requests and audit entries, a bounded number of each. Unfinished, open or locked records stay. So does a job whose
    /// `errored.tfstate` may still be needed because its project was not applied since. The last job with which an open pull
    /// request has changed the state of a project stays, too.
    pub fn prune(&self, now: Timestamp) -> Result<Pruned> {
        let before = |age: SignedDuration| now.checked_sub(age).map_or(i64::MIN, micros);
        let more = Cell::new(false);
        let drop_old = |sql: &str, age| -> Result<()> {
            let gone = self.execute(sql, params![before(age), ROWS_AT_ONCE])?;
            more.set(more.get() || rows(gone) == ROWS_AT_ONCE);
            Ok(())
        };
        drop_old(
            "DELETE FROM deliveries WHERE seq IN
               (SELECT seq FROM deliveries WHERE finished IS NOT NULL AND finished < ?1 LIMIT ?2)",
            DELIVERIES,
        )?;
        drop_old(
            "DELETE FROM effects WHERE id IN (SELECT id FROM effects WHERE done IS NOT NULL AND done < ?1 LIMIT ?2)",
            EFFECTS,
        )?;
        // Before runs: a run whose jobs stay may have to stay, too.
        let (jobs, errored) = self.prune_jobs(before(RUNS))?;
        more.set(more.get() || rows(self.prune_runs(before(RUNS))?) == ROWS_AT_ONCE);
        drop_old(
            "DELETE FROM plans WHERE seq IN
               (SELECT seq FROM plans WHERE consumed_by IS NOT NULL AND made < ?1 LIMIT ?2)",
            RUNS,
        )?;
        drop_old(
            "DELETE FROM pulls WHERE seq IN
               (SELECT seq FROM pulls WHERE activity < ?1 AND NOT open
                  AND pull NOT IN (SELECT pull FROM project_statuses)
                  AND pull NOT IN (SELECT pull FROM locks)
                  AND pull NOT IN (SELECT pull FROM plans)
                LIMIT ?2)",
            PULLS,
        )?;
        drop_old("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ?1 LIMIT ?2)", AUDIT)?;
        Ok(Pruned { more: more.get() || rows(jobs.len()) == ROWS_AT_ONCE, jobs, errored })
    }

    /// Drops runs without jobs, and what they have refused. Returns their number.
    fn prune_runs(&self, before: i64) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(
            "DELETE FROM runs WHERE seq IN
               (SELECT seq FROM runs WHERE finished IS NOT NULL AND finished < ?1
                  AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.run = runs.id) LIMIT ?2)
             RETURNING id",
        )?;
        let ids = statement.query_map(params![before, ROWS_AT_ONCE], |row| row.get::<_, String>(0))?;
        let ids: Vec<String> = ids.collect::<rusqlite::Result<_>>()?;
        for id in &ids {
            self.execute("DELETE FROM refused_projects WHERE run = ?1", [id])?;
        }
        Ok(ids.len())
    }

    /// Drops jobs. Returns them, and those of them with an `errored.tfstate`.
    fn prune_jobs(&self, before: i64) -> Result<(Vec<JobId>, Vec<JobId>)> {
        let mut statement = self.connection.prepare_cached(
            "DELETE FROM jobs WHERE seq IN
               (SELECT seq FROM jobs AS old WHERE state <> 'running'
                  AND (started < ?1 OR seq <= (SELECT seq FROM jobs ORDER BY seq DESC LIMIT 1 OFFSET ?2))
                  AND (NOT EXISTS (SELECT 1 FROM kept_files WHERE path = 'errored/' || old.id || '.tfstate')
                    OR EXISTS (SELECT 1 FROM jobs AS later WHERE later.seq > old.seq AND later.state = 'succeeded'
                      AND json_extract(later.record, '$.kind') = 'apply'
                      AND json_extract(later.record, '$.project') = json_extract(old.record, '$.project')
                      AND json_extract(later.record, '$.pull.repo') = json_extract(old.record, '$.pull.repo')))
                  AND NOT (json_extract(old.record, '$.kind') IN ('apply', 'import', 'state_rm')
                    AND EXISTS (SELECT 1 FROM pulls WHERE pulls.pull = old.pull AND open)
                    AND NOT EXISTS (SELECT 1 FROM runs JOIN jobs AS later ON later.run = runs.id
                      WHERE runs.pull = old.pull AND later.seq > old.seq
                        AND json_extract(later.record, '$.kind') IN ('apply', 'import', 'state_rm')
                        AND json_extract(later.record, '$.project') = json_extract(old.record, '$.project')))
                ORDER BY seq LIMIT ?3)
             RETURNING id",
        )?;
        let ids = statement.query_map(params![before, JOBS_KEPT, ROWS_AT_ONCE], |row| row.get(0).map(JobId::stored))?;
        let ids: Vec<JobId> = ids.collect::<rusqlite::Result<_>>()?;
        let mut errored = Vec::new();
        for id in &ids {
            self.drop_log(id)?;
            self.execute("DELETE FROM job_times WHERE job = ?1", [id.as_str()])?;
            if self.kept_file(&errored_path(id))?.is_some() {
                self.drop_file(&errored_path(id))?;
                errored.push(id.clone());
            }
        }
        Ok((ids, errored))
    }
}

/// Returns the path of the state that Terraform could not save in a job.
fn errored_path(job: &JobId) -> String {
    format!("errored/{job}.tfstate")
}

/// Removes the `errored.tfstate` of a dropped job. Only for a file that a row named: any other may have no other copy.
pub fn remove_errored(data_dir: &Path, job: &JobId) {
    let path = data_dir.join(errored_path(job));
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::warn!(path = %path.display(), %error, "a failed state that is not needed any more could not be removed");
    }
}
