//! What drift runs have found: the last of each project and branch.

use super::locks::name_of;
use super::{Tx, View, json, micros, rows};
use crate::domain::drift::{DriftBlock, ProjectDrift};
use crate::domain::state::Job;
use crate::domain::{ProjectId, RepoId};
use crate::locks::drift_block;
use anyhow::Result;
use rusqlite::params;

/// Most projects of a repository, on all branches, of which the last finding is kept.
const MAX_KEPT: usize = 2_000;

impl View<'_> {
    /// The last findings of a repository, by branch and project.
    pub fn drift_in(&self, repo: &RepoId) -> Result<Vec<ProjectDrift>> {
        self.records(
            "SELECT record FROM drift WHERE host = ?1 AND repo = ?2 ORDER BY branch, dir, workspace, name",
            [&repo.host, &repo.full_name()],
        )
    }

    /// The pull request that keeps drift runs off a project; by its directory and workspace, which name its state.
    pub fn drift_block(&self, repo: &RepoId, project: &ProjectId) -> Result<Option<DriftBlock>> {
        let place = params![repo.host, repo.full_name(), project.dir, project.workspace];
        let locks = self.records(
            "SELECT record FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
            place,
        )?;
        let owners = self.records(
            "SELECT record FROM owners WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
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
    /// Records what was found of a project, in place of what was found before. The oldest findings of its repository go where there are
    /// too many.
    pub fn put_drift(&self, found: &ProjectDrift) -> Result<()> {
        let (repo, project) = (&found.repo, &found.project);
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
}
