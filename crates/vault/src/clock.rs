//! Time for the lease: monotonic, running through suspend, and replaceable by a simulation.

use async_trait::async_trait;
use std::time::Duration;

/// A monotonic clock of this machine alone; never compared with another machine's.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Time since some moment in the past; does not stand still while the machine sleeps.
    fn now(&self) -> Duration;
    /// The time of day, for people; nothing is decided by it.
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
    /// Waits.
    async fn sleep(&self, time: Duration);
}

/// The machine's time since its start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

#[async_trait]
impl Clock for Boottime {
    fn now(&self) -> Duration {
        crate::machine::since_boot()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
