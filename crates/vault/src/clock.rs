//! Clock of the lease: monotonic, running through suspend, and replaceable by a simulation.

use async_trait::async_trait;
use std::time::Duration;

/// A monotonic clock of this machine, whose values are never compared with those of another machine.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since a fixed moment in the past. It also runs while the machine is suspended.
    fn now(&self) -> Duration;
    /// Returns the time of day, for display only.
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
