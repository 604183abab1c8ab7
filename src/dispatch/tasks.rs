//! Tasks that end together: when this server stops leading, all are stopped, and nothing keeps its state open.

use std::sync::{Mutex, PoisonError};
use tokio::task::JoinSet;

/// Tasks of one term as leader.
#[derive(Default)]
pub(super) struct Tasks {
    /// Absent once they were stopped; no task starts any more.
    set: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// Returns an empty set.
    pub(super) fn new() -> Tasks {
        Tasks { set: Mutex::new(Some(JoinSet::new())) }
    }

    /// Starts a task; false if they were stopped.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = set.as_mut() else { return false };
        // Removes ended ones, so that the set does not grow.
        while set.try_join_next().is_some() {}
        set.spawn(task);
        true
    }

    /// Aborts all tasks that still run, at any point, and waits for their end. Their child processes are killed.
    pub(super) async fn stop(&self) {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut set) = set {
            set.shutdown().await;
        }
    }
}
