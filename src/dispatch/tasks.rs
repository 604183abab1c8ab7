//! Tasks that end together: when this server stops leading, all are stopped, and nothing keeps its state open.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// Tasks of one term as leader.
#[derive(Default)]
pub(super) struct Tasks {
    /// Absent once they were stopped; no task starts any more.
    set: Mutex<Option<JoinSet<()>>>,
    /// Those that end by themselves.
    working: Arc<AtomicUsize>,
}

impl Tasks {
    /// Returns an empty set.
    pub(super) fn new() -> Tasks {
        Tasks { set: Mutex::new(Some(JoinSet::new())), working: Arc::default() }
    }

    /// Starts a task that ends by itself; false if they were stopped.
    pub(super) fn spawn_work(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let counted = WorkCount::new(&self.working);
        self.spawn(async move {
            let _counted = counted;
            task.await;
        })
    }

    /// Returns true if a task runs that ends by itself.
    pub(super) fn work(&self) -> bool {
        self.working.load(Ordering::SeqCst) > 0
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

/// Counts a task until it ends in any way.
struct WorkCount(Arc<AtomicUsize>);

impl WorkCount {
    fn new(count: &Arc<AtomicUsize>) -> WorkCount {
        count.fetch_add(1, Ordering::SeqCst);
        WorkCount(Arc::clone(count))
    }
}

impl Drop for WorkCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
