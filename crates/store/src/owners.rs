//! Rows of owners in mode `strict`, and of the projects that pull requests change. `locks` of the core crate decides about events.

use super::locks::name_of;
use super::{Tx, View, json};
use anyhow::{Result, ensure};
use rusqlite::params;
use tidelock_core::domain::ownership::{ChangedProjects, OwnerState, ProjectOwner};
use tidelock_core::domain::state::lock_key;
use tidelock_core::domain::{ProjectId, PullId, RepoId};

impl View<'_> {
    /// Returns all owners, oldest first.
    pub fn owners(&self) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners ORDER BY seq", [])
    }

    /// Returns owners whose pull request is merged or closed and that need an action to end, oldest first. Merges whose changed projects
    /// are not known follow.
    pub fn owed(&self) -> Result<Vec<ProjectOwner>> {
        let sql = "SELECT record FROM owners WHERE state IN ('merged_unapplied', 'closed_applied') ORDER BY seq";
        let mut owed: Vec<ProjectOwner> = self.records(sql, [])?;
        owed.extend(self.unknown_merges()?);
        Ok(owed)
    }

    /// Returns merges whose changed projects are not known yet, oldest first.
    pub fn unknown_merges(&self) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners WHERE state = 'merged_unknown' ORDER BY seq", [])
    }

    /// Returns the projects that a pull request owns, oldest first.
    pub fn owners_of(&self, pull: &PullId) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Returns the projects that a merged pull request has not applied yet, oldest first.
    pub fn owed_projects(&self, pull: &PullId) -> Result<Vec<ProjectId>> {
        let mut owners = self.owners_of(pull)?;
        owners.retain(|owner| owner.state == OwnerState::MergedUnapplied);
        Ok(owners.into_iter().map(|owner| owner.project).collect())
    }

    /// Returns the owners of a project's state, under any name, and merges whose changed projects are not known yet, oldest first.
    pub fn owners_of_state(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<ProjectOwner>> {
        self.records(
            "SELECT record FROM owners
             WHERE host = ?1 AND repo = ?2 AND (dir = ?3 AND workspace = ?4 OR dir = '') ORDER BY seq",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }

    /// Returns the projects that a pull request changes, as last planned.
    pub fn changed_projects(&self, pull: &PullId) -> Result<Option<ChangedProjects>> {
        self.record("SELECT record FROM changed_projects WHERE pull = ?1", [pull.to_string()])
    }
}

impl Tx<'_> {
    /// Records the projects that a pull request changes, in place of those of an earlier head.
    pub fn put_changed_projects(&self, changed: &ChangedProjects) -> Result<()> {
        self.execute(
            "INSERT INTO changed_projects (pull, record) VALUES (?1, ?2)
             ON CONFLICT (pull) DO UPDATE SET record = excluded.record",
            params![changed.pull.to_string(), json(changed)?],
        )?;
        Ok(())
    }

    /// Drops the record of the projects that a pull request changes.
    pub fn forget_changed_projects(&self, pull: &PullId) -> Result<()> {
        self.execute("DELETE FROM changed_projects WHERE pull = ?1", [pull.to_string()])?;
        Ok(())
    }

    /// Inserts an owner. Fails if the pull request owns the project already.
    pub(super) fn insert_owner(&self, owner: &ProjectOwner) -> Result<()> {
        self.execute(
            "INSERT INTO owners (host, repo, dir, workspace, name, pull, state, record)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                owner.repo.host,
                owner.repo.full_name(),
                owner.project.dir,
                owner.project.workspace,
                name_of(&owner.project),
                owner.holder.pull.to_string(),
                owner.state.as_str(),
                json(owner)?
            ],
        )?;
        Ok(())
    }

    /// Changes the project's name of an owner, which keeps its place among the owners.
    pub(super) fn rename_owner(&self, from: &ProjectId, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(from, &owner.holder.pull, owner)?;
        self.forget_seen_plans_of(&ProjectOwner { project: from.clone(), ..owner.clone() })
    }

    pub(super) fn update_owner(&self, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(&owner.project, &owner.holder.pull, owner)
    }

    /// Makes another pull request the owner.
    pub(super) fn pass_owner(&self, from: &PullId, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(&owner.project, from, owner)
    }

    /// Replaces the owner row of this project and pull request.
    fn replace_owner(&self, project: &ProjectId, pull: &PullId, owner: &ProjectOwner) -> Result<()> {
        let repo = &owner.repo;
        let changed = self.execute(
            "UPDATE owners SET name = ?7, pull = ?8, state = ?9, record = ?10
             WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5 AND pull = ?6",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                pull.to_string(),
                name_of(&owner.project),
                owner.holder.pull.to_string(),
                owner.state.as_str(),
                json(owner)?
            ],
        )?;
        ensure!(changed == 1, "the owner {pull} of {} is not there", lock_key(repo, project));
        Ok(())
    }

    pub(super) fn delete_owner(&self, owner: &ProjectOwner) -> Result<()> {
        let (repo, project) = (&owner.repo, &owner.project);
        let gone = self.execute(
            "DELETE FROM owners
             WHERE host = ?1 AND repo = ?2 AND dir = ?3 AND workspace = ?4 AND name = ?5 AND pull = ?6",
            params![
                repo.host,
                repo.full_name(),
                project.dir,
                project.workspace,
                name_of(project),
                owner.holder.pull.to_string()
            ],
        )?;
        ensure!(gone == 1, "the owner {} of {} is not there", owner.holder.pull, owner.key());
        self.forget_seen_plans_of(owner)
    }
}
