//! Ids of repositories in the last answers of a host.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::RepoId;

/// Most names that are remembered. At this number all are removed, and later answers fill them in again.
const MOST: usize = 10_000;

/// Id of each name, from the last answer about it.
#[derive(Default)]
pub(crate) struct ToldKeys(Mutex<HashMap<RepoId, String>>);

impl ToldKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<RepoId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, repo: &RepoId, key: Option<String>) {
        let (Some(key), mut known) = (key, self.lock()) else { return };
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(repo.clone(), key);
    }

    /// Returns the names that answers were about, in no order.
    pub(crate) fn names(&self) -> Vec<RepoId> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn get(&self, repo: &RepoId) -> Option<String> {
        self.lock().get(repo).cloned()
    }
}
