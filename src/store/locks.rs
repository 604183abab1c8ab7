//! Project locks and the apply lock. The rules are pure functions; the tables only keep what they say.
//!
//! A project lock is known by host, repository, directory, workspace and project name (Atlantis leaves out the host, so that
//! repositories of the same name on two hosts block each other there).

use super::{Tx, View, json, micros};
use crate::domain::state::{ApplyLock, LockHolder, ProjectLock};
use crate::domain::{ProjectId, PullId, RepoId};
use anyhow::{Result, ensure};
use rusqlite::params;

/// A try to take a project lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockAttempt {
    /// Ours; `new` unless this pull request had it before.
    Acquired {
        /// It was free.
        new: bool,
    },
    /// Another pull request has it.
    HeldBy(Box<LockHolder>),
}

/// What comes of `pull` trying to take a lock that `current` holds: free and one's own are given, anybody else's is not.
fn attempt(current: Option<LockHolder>, pull: &PullId) -> LockAttempt {
    match current {
        None => LockAttempt::Acquired { new: true },
        Some(holder) if may_release(&holder, pull) => LockAttempt::Acquired { new: false },
        Some(holder) => LockAttempt::HeldBy(Box::new(holder)),
    }
}

/// Whether a plan that failed, or that is not made any more, frees the lock: not one under which something was applied.
fn is_freed_by_planning(lock: &ProjectLock, pull: &PullId) -> bool {
    may_release(&lock.holder, pull) && !lock.applied
}

/// Only the pull request that holds a lock gives it back.
fn may_release(holder: &LockHolder, pull: &PullId) -> bool {
    holder.pull == *pull
}

impl View<'_> {
    /// All project locks, oldest first.
    pub fn locks(&self) -> Result<Vec<ProjectLock>> {
        self.records("SELECT record FROM locks ORDER BY seq", [])
    }

    /// Project locks of a pull request, oldest first.
    pub fn locks_of(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        self.records("SELECT record FROM locks WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// The project lock that a link names: with the host ([`ProjectLock::id`]), or with Atlantis' key alone ([`ProjectLock::key`]), as
    /// earlier versions wrote links. None where locks of several hosts have that key: nobody knows which one is meant.
    pub fn lock_by_key(&self, key: &str) -> Result<Option<ProjectLock>> {
        if let Some((host, rest)) = key.split_once('/')
            && let Some(lock) = self.record("SELECT record FROM locks WHERE host = ?1 AND key = ?2", [host, rest])?
        {
            return Ok(Some(lock));
        }
        let mut found = self.records("SELECT record FROM locks WHERE key = ?1 LIMIT 2", [key])?;
        Ok(found.pop().filter(|_| found.is_empty()))
    }

    /// The stop on all applies, if it is set.
    pub fn apply_lock(&self) -> Result<Option<ApplyLock>> {
        self.record("SELECT record FROM apply_lock", [])
    }

    /// The lock of a project, whoever holds it.
    pub fn project_lock(&self, repo: &RepoId, project: &ProjectId) -> Result<Option<ProjectLock>> {
        let name = project.name.as_deref().unwrap_or("");
        self.record(
            "SELECT record FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5",
            params![repo.host, repo.full_name(), project.dir, project.workspace, name],
        )
    }
}

impl Tx<'_> {
    /// Takes a project lock for its holder's pull request. One that it has already stays as it is, `since` included.
    pub fn lock_project(&self, lock: &ProjectLock) -> Result<LockAttempt> {
        let current = self.project_lock(&lock.repo, &lock.project)?.map(|lock| lock.holder);
        let attempt = attempt(current, &lock.holder.pull);
        if attempt == (LockAttempt::Acquired { new: true }) {
            self.execute(
                "INSERT INTO locks (host, repo, dir, workspace, name, key, pull, since, record)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    lock.repo.host,
                    lock.repo.full_name(),
                    lock.project.dir,
                    lock.project.workspace,
                    lock.project.name.as_deref().unwrap_or(""),
                    lock.key(),
                    lock.holder.pull.to_string(),
                    micros(lock.holder.since),
                    json(lock)?
                ],
            )?;
        }
        Ok(attempt)
    }

    /// Notes that something is applied under a lock of this pull request: it stays until [`Tx::unlock_project`] or
    /// [`Tx::unlock_pull`]. Nothing where it does not hold the lock.
    pub fn keep_lock(&self, repo: &RepoId, project: &ProjectId, pull: &PullId) -> Result<()> {
        if let Some(lock) = self.project_lock(repo, project)?
            && is_freed_by_planning(&lock, pull)
        {
            let name = project.name.as_deref().unwrap_or("");
            let kept = json(&ProjectLock { applied: true, ..lock })?;
            self.execute(
                "UPDATE locks SET record = ?6
                 WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5",
                params![repo.host, repo.full_name(), project.dir, project.workspace, name, kept],
            )?;
        }
        Ok(())
    }

    /// Gives back the lock of a project that has no plan, unless something was applied under it; whether it did.
    pub fn unlock_unplanned(&self, repo: &RepoId, project: &ProjectId, pull: &PullId) -> Result<bool> {
        match self.project_lock(repo, project)? {
            Some(lock) if is_freed_by_planning(&lock, pull) => self.unlock_project(repo, project, pull),
            _ => Ok(false),
        }
    }

    /// Gives a project lock back, if that pull request has it; whether it had.
    pub fn unlock_project(&self, repo: &RepoId, project: &ProjectId, pull: &PullId) -> Result<bool> {
        match self.project_lock(repo, project)? {
            Some(lock) if may_release(&lock.holder, pull) => {
                let name = project.name.as_deref().unwrap_or("");
                let gone = self.execute(
                    "DELETE FROM locks WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5",
                    params![repo.host, repo.full_name(), project.dir, project.workspace, name],
                )?;
                ensure!(gone == 1, "the lock {} is there twice or not at all", lock.key());
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Gives back all project locks of a pull request and returns them, oldest first.
    pub fn unlock_pull(&self, pull: &PullId) -> Result<Vec<ProjectLock>> {
        let locks = self.locks_of(pull)?;
        self.execute("DELETE FROM locks WHERE pull = ?1", [pull.to_string()])?;
        Ok(locks)
    }

    /// Stops all applies, or lets them go on.
    pub fn set_apply_lock(&self, lock: Option<&ApplyLock>) -> Result<()> {
        match lock {
            Some(lock) => self.execute(
                "INSERT INTO apply_lock (id, record) VALUES (1, ?1)
                 ON CONFLICT (id) DO UPDATE SET record = excluded.record",
                [json(lock)?],
            )?,
            None => self.execute("DELETE FROM apply_lock WHERE id = 1", [])?,
        };
        Ok(())
    }
}
