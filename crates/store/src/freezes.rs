//! Repositories that are frozen by hand.

use super::{Tx, View, json, micros};
use anyhow::Result;
use rusqlite::params;
use tidelock_core::domain::RepoId;
use tidelock_core::domain::freeze::Freeze;

impl View<'_> {
    /// Returns the freeze of a repository, if there is one.
    pub fn freeze_of(&self, repo: &RepoId) -> Result<Option<Freeze>> {
        self.record("SELECT record FROM freezes WHERE repo = ?1", [repo.to_string()])
    }

    /// Returns the freezes of all repositories, oldest first.
    pub fn freezes(&self) -> Result<Vec<Freeze>> {
        self.records("SELECT record FROM freezes ORDER BY since, seq", [])
    }
}

impl Tx<'_> {
    /// Freezes a repository. Returns false and changes nothing if it is frozen already.
    pub fn freeze(&self, freeze: &Freeze) -> Result<bool> {
        let added = self.execute(
            "INSERT INTO freezes (repo, since, record) VALUES (?1, ?2, ?3) ON CONFLICT (repo) DO NOTHING",
            params![freeze.repo.to_string(), micros(freeze.since), json(freeze)?],
        )?;
        Ok(added == 1)
    }

    /// Lifts the freeze of a repository and returns it.
    pub fn unfreeze(&self, repo: &RepoId) -> Result<Option<Freeze>> {
        let freeze = self.freeze_of(repo)?;
        self.execute("DELETE FROM freezes WHERE repo = ?1", [repo.to_string()])?;
        Ok(freeze)
    }
}
