//! Rows of owners in mode `strict`, and what pull requests change. What an event makes of them is decided in `locks`.

use super::locks::name_of;
use super::{Tx, View, json};
use anyhow::{Result, ensure};
use rusqlite::params;
use tidelock_core::domain::ownership::{ChangedProjects, OwnerState, ProjectOwner};
use tidelock_core::domain::state::lock_key;
use tidelock_core::domain::{ProjectId, PullId, RepoId};
use tidelock_core::locks::{WantedLock, World};

impl View<'_> {
    /// All owners, oldest first.
    pub fn owners(&self) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners ORDER BY seq", [])
    }

    /// Owners whose pull request is over and that somebody has to end, oldest first.
    pub fn owed(&self) -> Result<Vec<ProjectOwner>> {
        let sql = "SELECT record FROM owners WHERE state IN ('merged_unapplied', 'closed_applied') ORDER BY seq";
        let mut owed: Vec<ProjectOwner> = self.records(sql, [])?;
        owed.extend(self.unknown_merges()?);
        Ok(owed)
    }

    /// Merges of which it is not known yet what they change, oldest first.
    pub fn unknown_merges(&self) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners WHERE state = 'merged_unknown' ORDER BY seq", [])
    }

    /// What a pull request owns, oldest first.
    pub fn owners_of(&self, pull: &PullId) -> Result<Vec<ProjectOwner>> {
        self.records("SELECT record FROM owners WHERE pull = ?1 ORDER BY seq", [pull.to_string()])
    }

    /// Projects that a merged pull request has not applied yet, oldest first.
    pub fn owed_projects(&self, pull: &PullId) -> Result<Vec<ProjectId>> {
        let mut owners = self.owners_of(pull)?;
        owners.retain(|owner| owner.state == OwnerState::MergedUnapplied);
        Ok(owners.into_iter().map(|owner| owner.project).collect())
    }

    /// The owners of a project's state, under whatever name, oldest first, and the merges of which it is not known yet whether they change it.
    pub fn owners_of_state(&self, repo: &RepoId, project: &ProjectId) -> Result<Vec<ProjectOwner>> {
        self.records(
            "SELECT record FROM owners
             WHERE host = ?1 AND repo = ?2 AND (dir = ?3 AND workspace = ?4 OR dir = '') ORDER BY seq",
            params![repo.host, repo.full_name(), project.dir, project.workspace],
        )
    }

    /// What a pull request changes, as it was last planned.
    pub fn changed_projects(&self, pull: &PullId) -> Result<Option<ChangedProjects>> {
        self.record("SELECT record FROM changed_projects WHERE pull = ?1", [pull.to_string()])
    }

    /// Adds what decides whether a change of a project's state may begin: what the pull request changes, and plans for the project.
    pub(super) fn add_for_change(&self, world: &mut World, wanted: &WantedLock) -> Result<()> {
        let (repo, project) = (&wanted.lock.repo, &wanted.lock.project);
        if wanted.is_strict() {
            world.changed = self.changed_projects(&wanted.lock.holder.pull)?;
            world.plans = self.plans_of_state(repo, project)?;
        }
        Ok(())
    }

    /// Adds the plans that others have for a project whose state was changed, where the pull request owns it, or a drift run has changed it.
    pub(super) fn add_plans_of_changed(&self, world: &mut World, pull: &PullId, project: &ProjectId) -> Result<()> {
        let owners = self.owners_of_state(&pull.repo, project)?;
        if pull.is_branch() || owners.iter().any(|owner| owner.holder.pull == *pull) {
            let others = self.plans_of_state(&pull.repo, project)?;
            world.plans.extend(others.into_iter().filter(|plan| plan.pull != *pull));
        }
        Ok(())
    }

    /// Adds what a pull request that is closed changes and has come to, and of a merged one the plans that others have for it.
    pub(super) fn add_of_closed(&self, world: &mut World, pull: &PullId, is_merged: bool) -> Result<()> {
        world.changed = self.changed_projects(pull)?;
        if is_merged {
            world.seen = self.all_seen_plans(pull)?;
        }
        let changed = world.changed.iter().filter(|_| is_merged).flat_map(|changed| changed.strict());
        for project in changed {
            let others = self.plans_of_state(&pull.repo, project)?;
            world.plans.extend(others.into_iter().filter(|plan| plan.pull != *pull));
        }
        let statuses = self.project_statuses(pull)?;
        world.statuses = statuses.into_iter().map(|status| (pull.clone(), status)).collect();
        Ok(())
    }
}

impl Tx<'_> {
    /// Records what a pull request changes, in place of what was known of an earlier head.
    pub fn put_changed_projects(&self, changed: &ChangedProjects) -> Result<()> {
        self.execute(
            "INSERT INTO changed_projects (pull, record) VALUES (?1, ?2)
             ON CONFLICT (pull) DO UPDATE SET record = excluded.record",
            params![changed.pull.to_string(), json(changed)?],
        )?;
        Ok(())
    }

    /// Forgets what a pull request changes.
    pub fn forget_changed_projects(&self, pull: &PullId) -> Result<()> {
        self.execute("DELETE FROM changed_projects WHERE pull = ?1", [pull.to_string()])?;
        Ok(())
    }

    /// A pull request owns a project once: a second time is an error.
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

    /// An owner has another name; its place among the owners stays.
    pub(super) fn rename_owner(&self, from: &ProjectId, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(from, &owner.holder.pull, owner)?;
        self.forget_seen_plans_of(&ProjectOwner { project: from.clone(), ..owner.clone() })
    }

    pub(super) fn update_owner(&self, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(&owner.project, &owner.holder.pull, owner)
    }

    /// Another pull request is the owner from now on.
    pub(super) fn pass_owner(&self, from: &PullId, owner: &ProjectOwner) -> Result<()> {
        self.replace_owner(&owner.project, from, owner)
    }

    /// Writes an owner in place of the one that this pull request was of this project.
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
