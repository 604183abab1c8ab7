//! Ids of repositories as a host's answers last told them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::RepoId;

/// Names that are remembered; then all are forgotten, and told again by the next answers.
const MOST: usize = 10_000;

/// The id that the last answer about each name had.
#[derive(Default)]
pub(super) struct ToldKeys(Mutex<HashMap<RepoId, String>>);

impl ToldKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<RepoId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, repo: &RepoId, key: Option<String>) {
        let (Some(key), mut known) = (key, self.lock()) else { return };
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(repo.clone(), key);
    }

    pub(super) fn of(&self, repo: &RepoId) -> Option<String> {
        self.lock().get(repo).cloned()
    }
}
