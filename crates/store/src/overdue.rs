//! Projects that pull requests hold, for the notification that one is held for long.

use super::{Tx, View, json};
use anyhow::Result;
use jiff::Timestamp;
use rusqlite::params;
use tidelock_core::domain::state::LockHolder;
use tidelock_core::domain::{ProjectId, PullId, RepoId};

/// A project that a pull request holds: with a project lock, or as its owner in mode `strict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldProject {
    /// The repository.
    pub repo: RepoId,
    /// The project.
    pub project: ProjectId,
    /// The holder.
    pub holder: LockHolder,
}

impl View<'_> {
    /// Returns the projects whose pull requests were not notified that they hold them for long, oldest lock first. The hold of a drift run
    /// is none of a pull request. A merge whose changed projects are unknown has no project.
    pub fn untold_holds(&self) -> Result<Vec<HeldProject>> {
        let locks = self.locks()?.into_iter();
        let locks = locks.map(|lock| HeldProject { repo: lock.repo, project: lock.project, holder: lock.holder });
        let owners = self.owners()?.into_iter().filter(|owner| !owner.is_unknown());
        let owners = owners.map(|owner| HeldProject { repo: owner.repo, project: owner.project, holder: owner.holder });
        let is_untold = |held: &HeldProject| held.holder.overdue.is_none() && !held.holder.pull.is_branch();
        Ok(locks.chain(owners).filter(is_untold).collect())
    }

    /// Returns the projects that a pull request holds since this time or before, and was not notified of.
    fn untold_holds_of(&self, pull: &PullId, until: Timestamp) -> Result<Vec<HeldProject>> {
        let mut holds = self.untold_holds()?;
        holds.retain(|held| held.holder.pull == *pull && held.holder.since <= until);
        Ok(holds)
    }
}

impl Tx<'_> {
    /// Records that a pull request is notified of all projects that it holds since `until` or before. Returns those that it was not notified
    /// of yet.
    pub fn note_overdue(&self, pull: &PullId, until: Timestamp, at: Timestamp) -> Result<Vec<HeldProject>> {
        let holds = self.untold_holds_of(pull, until)?;
        for mut lock in self.locks_of(pull)?.into_iter().filter(|lock| is_of(&holds, &lock.project)) {
            lock.holder.overdue = Some(at);
            self.execute(
                "UPDATE locks SET record = ?2 WHERE pull = ?1 AND key = ?3",
                params![pull.to_string(), json(&lock)?, lock.key()],
            )?;
        }
        for mut owner in self.owners_of(pull)?.into_iter().filter(|owner| is_of(&holds, &owner.project)) {
            owner.holder.overdue = Some(at);
            self.update_owner(&owner)?;
        }
        Ok(holds)
    }
}

fn is_of(holds: &[HeldProject], project: &ProjectId) -> bool {
    holds.iter().any(|held| held.project == *project)
}
