//! Tasks that end together: when this server stops leading, nothing of it goes on, and nothing keeps its state open.

use std::sync::{Mutex, PoisonError};
use tokio::task::JoinSet;

/// Tasks of one time in the lead.
#[derive(Default)]
pub(super) struct Tasks {
    /// Absent once they were stopped: nothing begins any more.
    set: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// None yet.
    pub(super) fn new() -> Tasks {
        Tasks { set: Mutex::new(Some(JoinSet::new())) }
    }

    /// Starts a task; false when they were stopped.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = set.as_mut() else { return false };
        // Ended ones are let go of, so that the set does not grow.
        while set.try_join_next().is_some() {}
        set.spawn(task);
        true
    }

    /// Ends all that still run, wherever they are, and waits for that. A child process of theirs is killed.
    pub(super) async fn stop(&self) {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut set) = set {
            set.shutdown().await;
        }
    }
}
