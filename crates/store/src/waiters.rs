//! Rows of pull requests that wait for projects.

use super::locks::name_of;
use super::{Tx, View, json, micros};
use anyhow::{Result, ensure};
use rusqlite::params;
use tidelock_core::domain::waiting::WaitingPull;
use tidelock_core::domain::{ProjectId, PullId, RepoId};

impl View<'_> {
    /// Returns all waiters, oldest first.
    pub fn waiters(&self) -> Result<Vec<WaitingPull>> {
        self.records("SELECT record FROM waiters ORDER BY seq", [])
    }

    /// Returns the waits of a pull request, oldest first.
    pub fn waits_of(&self, pull: &PullId) -> Result<Vec<WaitingPull>> {
        self.records("SELECT record FROM waiters WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Returns the waiters for a project's state, under any name, the first in line first.
    pub fn line(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<WaitingPull>> {
        self.records(
            "SELECT record FROM waiters WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 ORDER BY seq",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }
}

impl Tx<'_> {
    pub(super) fn insert_waiter(&self, waiter: &WaitingPull) -> Result<()> {
        let (repo, project) = (&waiter.pull.repo, &waiter.project);
        self.execute(
            "INSERT INTO waiters (host, repo, dir, workspace, name, pull, since, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                waiter.pull.to_string(),
                micros(waiter.since),
                json(waiter)?
            ],
        )?;
        Ok(())
    }

    pub(super) fn delete_waiter(&self, waiter: &WaitingPull) -> Result<()> {
        let (repo, project) = (&waiter.pull.repo, &waiter.project);
        let gone = self.execute(
            "DELETE FROM waiters
             WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5 AND pull = ?6",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                waiter.pull.to_string()
            ],
        )?;
        ensure!(gone == 1, "{} does not wait for {}", waiter.pull, project.label());
        Ok(())
    }
}
