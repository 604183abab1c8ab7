//! Kernel calls on Linux.

use std::path::Path;
use std::time::Duration;

/// `TMPFS_MAGIC` and `OVERLAYFS_SUPER_MAGIC` of statfs(2).
const TMPFS: u64 = 0x0102_1994;
const OVERLAY: u64 = 0x794c_7630;

/// Returns the time since the machine started, including suspended time (`CLOCK_BOOTTIME`, clock_gettime(2)).
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns an identity of this machine since its last start; empty if unknown. File locks of another machine may not be visible here.
pub(crate) fn identity() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Returns the reason why files below `dir` do not outlive the machine or the container. `None` if they do, or if that is unknown.
pub(crate) fn short_lived(dir: &Path) -> Option<&'static str> {
    match u64::try_from(rustix::fs::statfs(dir).ok()?.f_type).ok()? {
        TMPFS => Some("in memory (tmpfs): it is gone after a restart of the machine"),
        OVERLAY => Some(
            "in the container's own layer (overlay): it is gone with the container; mount a volume there, or use gs://",
        ),
        _ => None,
    }
}
