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

/// The machine's `CLOCK_BOOTTIME` (clock_gettime(2)).
#[derive(Debug, Clone, Copy, Default)]
pub struct Boottime;

#[async_trait]
impl Clock for Boottime {
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
