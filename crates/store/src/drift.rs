//! The last finding of drift runs for each project and branch, the last scheduled detection of each repository, and remediations of drift.

use super::locks::name_of;
use super::{Tx, View, json, micros, rows};
use anyhow::Result;
use rusqlite::params;
use tidelock_core::domain::drift::{DriftApplyEnd, DriftBlock, DriftCheck, DriftCheckEnd, ProjectDrift, Remediation};
use tidelock_core::domain::state::Job;
use tidelock_core::domain::{JobId, ProjectId, RepoId, RunId};
use tidelock_core::locks::drift_block;

/// Maximum number of findings that are kept of a repository, on all branches.
const MAX_KEPT: usize = 2_000;
/// Maximum number of remediations that are kept of a repository.
const MAX_REMEDIATIONS: usize = 100;

impl View<'_> {
    /// Returns the last findings of a repository, by branch and project.
    pub fn drift_in(&self, repo: &RepoId) -> Result<Vec<ProjectDrift>> {
        self.records(
            "SELECT record FROM drift WHERE host = ?1 AND repo = ?2 ORDER BY branch, dir, workspace, name",
            [&repo.host, &repo.full_name()],
        )
    }

    /// Returns the last scheduled detections of all repositories.
    pub fn drift_checks(&self) -> Result<Vec<DriftCheck>> {
        self.records("SELECT record FROM drift_checks ORDER BY host, repo", [])
    }

    /// Returns the last scheduled detection of a repository.
    pub fn drift_check(&self, repo: &RepoId) -> Result<Option<DriftCheck>> {
        self.record("SELECT record FROM drift_checks WHERE host = ?1 AND repo = ?2", [&repo.host, &repo.full_name()])
    }

    /// Returns one remediation of a repository.
    pub fn remediation(&self, repo: &RepoId, id: &RunId) -> Result<Option<Remediation>> {
        let found: Option<Remediation> = self.record("SELECT record FROM remediations WHERE id = ?1", [id.as_str()])?;
        Ok(found.filter(|found| found.repo == *repo))
    }

    /// Returns the remediations of a repository, the latest first.
    pub fn remediations(&self, repo: &RepoId) -> Result<Vec<Remediation>> {
        self.records(
            "SELECT record FROM remediations WHERE host = ?1 AND repo = ?2 ORDER BY started DESC, seq DESC",
            [&repo.host, &repo.full_name()],
        )
    }

    /// Returns the pull request that blocks drift runs of a project, by its directory and workspace, which identify the state.
    pub fn drift_block(&self, repo: &RepoId, project: &ProjectId) -> Result<Option<DriftBlock>> {
        let place = params![repo.host, repo.full_name(), project.dir, project.workspace];
        let locks = self.records(
            "SELECT record FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
            place,
        )?;
        let owners = self.records(
            "SELECT record FROM owners
             WHERE host = ?1 AND repo = ?2 AND (dir = ?3 AND workspace = ?4 OR dir = '') ORDER BY seq",
            place,
        )?;
        let is_here = |job: &Job| {
            job.pull.repo == *repo
                && job
                    .project
                    .as_ref()
                    .is_some_and(|known| known.dir == project.dir && known.workspace == project.workspace)
        };
        let mut running = self.unfinished_jobs()?;
        running.retain(is_here);
        Ok(drift_block(&locks, &owners, &running))
    }
}

impl Tx<'_> {
    /// Records the finding of a project and replaces the last one. Drops the oldest findings of a repository with more than 2,000.
    pub fn put_drift(&self, found: &ProjectDrift) -> Result<()> {
        let (repo, project) = (&found.repo, &found.project);
        let earlier: Option<ProjectDrift> = self.record(
            "SELECT record FROM drift
             WHERE host = ?1 AND repo = ?2 AND branch = ?3 AND dir = ?4 AND workspace = ?5 AND name = ?6",
            params![repo.host, repo.full_name(), found.branch, project.dir, project.workspace, name_of(project)],
        )?;
        let found = &found.clone().after(earlier.as_ref());
        self.execute(
            "INSERT INTO drift (host, repo, branch, dir, workspace, name, checked, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (host, repo, branch, dir, workspace, name)
             DO UPDATE SET checked = excluded.checked, record = excluded.record",
            params![
                repo.host,
                repo.full_name(),
                found.branch,
                project.dir,
                project.workspace,
                name_of(project),
                micros(found.checked),
                json(found)?
            ],
        )?;
        self.execute(
            "DELETE FROM drift WHERE seq IN (
               SELECT seq FROM drift WHERE host = ?1 AND repo = ?2 ORDER BY checked DESC LIMIT -1 OFFSET ?3)",
            params![repo.host, repo.full_name(), rows(MAX_KEPT)],
        )?;
        Ok(())
    }

    /// Drops the findings of a branch on projects that it does not have any more.
    pub fn drop_drift_of(&self, repo: &RepoId, branch: &str, is_gone: impl Fn(&ProjectId) -> bool) -> Result<()> {
        for found in self.drift_in(repo)?.iter().filter(|found| found.branch == branch) {
            let project = &found.project;
            if is_gone(project) {
                self.execute(
                    "DELETE FROM drift
                     WHERE host = ?1 AND repo = ?2 AND branch = ?3 AND dir = ?4 AND workspace = ?5 AND name = ?6",
                    params![repo.host, repo.full_name(), branch, project.dir, project.workspace, name_of(project)],
                )?;
            }
        }
        Ok(())
    }

    /// Records a scheduled detection, in place of the last one of its repository.
    pub fn put_drift_check(&self, check: &DriftCheck) -> Result<()> {
        self.execute(
            "INSERT INTO drift_checks (host, repo, record) VALUES (?1, ?2, ?3)
             ON CONFLICT (host, repo) DO UPDATE SET record = excluded.record",
            params![check.repo.host, check.repo.full_name(), json(check)?],
        )?;
        Ok(())
    }

    /// Drops the record of the last scheduled detection of a repository.
    pub fn forget_drift_check(&self, repo: &RepoId) -> Result<()> {
        self.execute("DELETE FROM drift_checks WHERE host = ?1 AND repo = ?2", [&repo.host, &repo.full_name()])?;
        Ok(())
    }

    /// Records the end of a scheduled detection. No effect if it has one, or if the detection of a later time has begun.
    pub fn end_drift_check(&self, check: &DriftCheck, end: DriftCheckEnd) -> Result<()> {
        match self.drift_check(&check.repo)? {
            Some(known) if known.due == check.due && known.end.is_none() => {
                self.put_drift_check(&DriftCheck { end: Some(end), ..known })
            }
            _ => Ok(()),
        }
    }

    /// Records a remediation or its new state. Drops the oldest of a repository with more than 100.
    pub fn put_remediation(&self, remediation: &Remediation) -> Result<()> {
        let repo = &remediation.repo;
        self.execute(
            "INSERT INTO remediations (id, host, repo, started, record) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (id) DO UPDATE SET record = excluded.record",
            params![
                remediation.id.as_str(),
                repo.host,
                repo.full_name(),
                micros(remediation.started),
                json(remediation)?
            ],
        )?;
        self.execute(
            "DELETE FROM remediations WHERE seq IN (
               SELECT seq FROM remediations WHERE host = ?1 AND repo = ?2 ORDER BY started DESC LIMIT -1 OFFSET ?3)",
            params![repo.host, repo.full_name(), rows(MAX_REMEDIATIONS)],
        )?;
        Ok(())
    }

    /// Records the end of a remediation's apply that its own server could not record. After a success the project has no drift any more,
    /// unless it was checked again since its plan. Does nothing if the remediation is no longer kept.
    pub fn end_remedy(&self, repo: &RepoId, job: &JobId, end: DriftApplyEnd) -> Result<()> {
        for mut remediation in self.remediations(repo)? {
            let Some(project) = remediation.applied_by(job) else { continue };
            let is_success = end.error.is_none();
            project.end_apply(end);
            let found = &project.found;
            let is_newer = |known: &ProjectDrift| {
                known.branch == found.branch && known.project == found.project && known.checked > found.checked
            };
            if is_success && !self.drift_in(repo)?.iter().any(is_newer) {
                self.put_drift(found)?;
            }
            return self.put_remediation(&remediation);
        }
        Ok(())
    }
}
