//! Time for the lease: monotonic, running through suspend, and replaceable by a simulation.

use async_trait::async_trait;
use std::time::Duration;

/// A monotonic clock of this machine alone; never compared with another machine's.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Time since some moment in the past. It also runs while the machine is suspended.
    fn now(&self) -> Duration;
    /// The time of day, for people. Nothing depends on it.
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
    /// Waits for this long.
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
