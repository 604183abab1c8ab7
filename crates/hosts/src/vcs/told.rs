//! Ids of repositories and branches of pull requests in the last answers of a host.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::{PullId, RepoId};

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

/// Most source branches that are remembered. At this number all are removed.
const MOST_BRANCHES: usize = 20_000;

/// Names of source branches of pull requests, from the last answers.
#[derive(Default)]
pub(crate) struct SourceBranches(Mutex<HashMap<PullId, String>>);

impl SourceBranches {
    pub(crate) fn record(&self, pull: &PullId, branch: Option<String>) {
        let Some(branch) = branch else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_BRANCHES {
            known.clear();
        }
        known.insert(pull.clone(), branch);
    }

    pub(crate) fn get(&self, pull: &PullId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(pull).cloned()
    }
}
