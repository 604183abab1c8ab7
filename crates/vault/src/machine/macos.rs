//! Kernel calls on macOS.

use std::path::Path;
use std::time::Duration;

/// Returns the time since the machine started, including time asleep: `CLOCK_MONOTONIC` of macOS counts it (clock_gettime(3)).
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns this machine's name as its identity. A restart needs no other identity: no lock outlives it, so all earlier locks are free.
pub(crate) fn identity() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns `None`: unknown on macOS.
pub(crate) fn short_lived(_dir: &Path) -> Option<&'static str> {
    None
}
