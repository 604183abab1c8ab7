//! Limits of concurrent requests of the outbox: on one host, and about one of its repositories.

use super::{OutboxInner, lock};
use crate::domain::RepoId;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent effects of all pull requests of one host, ...
pub(super) const MAX_CONCURRENT: usize = 24;
/// ... and of one repository, so that its hanging requests do not block others.
pub(super) const OF_ONE_REPO: usize = 8;

impl OutboxInner {
    /// Acquires the slots for one request about a repository; `None` if the outbox is closed.
    pub(super) async fn slot(&self, repo: &RepoId) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let of_host = {
            let mut all = lock(&self.host_slots);
            Arc::clone(
                all.entry(repo.host.to_ascii_lowercase()).or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT))),
            )
        };
        let of_repo = {
            let mut all = lock(&self.repo_slots);
            all.retain(|_, slots| Arc::strong_count(slots) > 1);
            Arc::clone(all.entry(repo.clone()).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE_REPO))))
        };
        Some((of_repo.acquire_owned().await.ok()?, of_host.acquire_owned().await.ok()?))
    }
}
