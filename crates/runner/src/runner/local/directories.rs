//! Locks for work that must not happen at the same time on one disk.

use super::environment::{self, Environment};
use crate::checkout::disk::DiskTree;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidelock_core::domain::Distribution;
use tidelock_core::inputs::providers::init_may_install;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks for jobs in one directory, and for writers of the plugin cache (Terraform's cache is not safe under parallel `init`).
#[derive(Default)]
pub struct DirectoryLocks {
    held: Mutex<HashMap<PathBuf, Arc<AsyncMutex<()>>>>,
    plugin_cache: Arc<AsyncMutex<()>>,
}

impl DirectoryLocks {
    /// Waits until this directory is free.
    pub async fn lock(&self, path: &Path) -> OwnedMutexGuard<()> {
        let lock = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(held.entry(path.to_owned()).or_default())
        };
        lock.lock_owned().await
    }

    /// Waits until all of these are free. Every caller waits for several in the same order.
    pub async fn lock_all(&self, mut paths: Vec<PathBuf>) -> Vec<OwnedMutexGuard<()>> {
        paths.sort();
        paths.dedup();
        let mut guards = Vec::with_capacity(paths.len());
        for path in paths {
            guards.push(self.lock(&path).await);
        }
        guards
    }

    /// Waits for the plugin cache, if `init` in this directory may write to it.
    pub(super) async fn plugin_cache(
        &self,
        root: &Path,
        dir: &str,
        env: &Environment,
        which: Distribution,
    ) -> Option<OwnedMutexGuard<()>> {
        let cache = PathBuf::from(environment::get(env, "TF_PLUGIN_CACHE_DIR")?);
        let (root, dir) = (root.to_owned(), dir.to_owned());
        let fills = tokio::task::spawn_blocking(move || init_may_install(&DiskTree { root }, &dir, &cache, which));
        if !fills.await.unwrap_or(true) {
            return None;
        }
        self.whole_plugin_cache(env).await
    }

    /// Waits for the plugin cache, if there is one.
    pub(super) async fn whole_plugin_cache(&self, env: &Environment) -> Option<OwnedMutexGuard<()>> {
        environment::get(env, "TF_PLUGIN_CACHE_DIR")?;
        Some(Arc::clone(&self.plugin_cache).lock_owned().await)
    }
}
