//! Memory use of the container, as the kernel counts it for our control group.
//!
//! Version 2: `memory.max` and `memory.current`; version 1: `memory.limit_in_bytes` and `memory.usage_in_bytes`. Cached files
//! (`inactive_file`, `active_file`) are reclaimed when memory is needed, and do not count; files on a file system in memory do
//! (<https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>).

use std::path::{Path, PathBuf};

/// Limit in bytes from which on a group counts as unlimited. Without a limit, version 1 reports the largest number of pages.
const UNLIMITED: u64 = 1 << 60;

/// A container's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUse {
    pub(super) used: u64,
    pub(super) limit: u64,
}

impl MemoryUse {
    /// Returns the present use; `None` if no limit is set or known.
    pub(super) async fn now() -> Option<MemoryUse> {
        tokio::task::spawn_blocking(|| MemoryUse::read(Path::new("/"))).await.ok()?
    }

    /// Reads the use with `root` in place of `/`.
    fn read(root: &Path) -> Option<MemoryUse> {
        let of_us = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        // A line is `hierarchy:controllers:path` (cgroups(7)); inside a container the path often is that of the host.
        let paths = of_us.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            match controllers {
                "" => Some((root.join("sys/fs/cgroup"), path, &V2)),
                list if list.split(',').any(|name| name == "memory") => {
                    Some((root.join("sys/fs/cgroup/memory"), path, &V1))
                }
                _ => None,
            }
        });
        // The group with the least memory left counts, be it ours or one around it.
        let groups =
            paths.flat_map(|(top, path, files)| around(&top, path).into_iter().map(|group| files.read(&group)));
        groups.flatten().min_by_key(|memory| memory.limit.saturating_sub(memory.used))
    }

    /// Returns true if more than `percent` of it is in use.
    pub(super) fn is_short(self, percent: u64) -> bool {
        u128::from(self.used) * 100 > u128::from(self.limit) * u128::from(percent)
    }
}

/// Returns a group and those around it, up to the top of the hierarchy.
fn around(top: &Path, path: &str) -> Vec<PathBuf> {
    Path::new(path).ancestors().map(|part| top.join(part)).collect()
}

/// Names of a version's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// Keys in `memory.stat`.
    reclaimable: [&'static str; 2],
}

static V2: Files = Files { limit: "memory.max", used: "memory.current", reclaimable: ["inactive_file", "active_file"] };
static V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

impl Files {
    fn read(&self, group: &Path) -> Option<MemoryUse> {
        let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
        // `max` in version 2 is no number.
        let limit = number(self.limit).filter(|limit| *limit < UNLIMITED)?;
        let stat = text("memory.stat").unwrap_or_default();
        let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let reclaimable = self.reclaimable.iter().filter_map(|name| of(name)).sum();
        Some(MemoryUse { used: number(self.used)?.saturating_sub(reclaimable), limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn what_the_kernel_could_take_back_is_not_in_use() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "4000\n"),
            ("sys/fs/cgroup/memory.current", "3500\n"),
            ("sys/fs/cgroup/memory.stat", "anon 100\nfile 2400\nshmem 900\ninactive_file 1100\nactive_file 400\n"),
        ]);
        let memory = MemoryUse::read(root.path()).unwrap();
        assert_eq!(memory, MemoryUse { used: 2000, limit: 4000 });
        assert!(memory.is_short(49) && !memory.is_short(50));
    }

    #[test]
    fn the_tightest_limit_around_us_counts() {
        let root = machine(&[
            ("proc/self/cgroup", "4:memory:/pods/one\n3:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ("sys/fs/cgroup/memory/pods/memory.limit_in_bytes", "900\n"),
            ("sys/fs/cgroup/memory/pods/memory.usage_in_bytes", "850\n"),
            ("sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes", "500\n"),
            ("sys/fs/cgroup/memory/pods/one/memory.usage_in_bytes", "300\n"),
            ("sys/fs/cgroup/memory/pods/one/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n"),
        ]);
        assert_eq!(MemoryUse::read(root.path()), Some(MemoryUse { used: 850, limit: 900 }));
    }

    #[test]
    fn without_a_limit_nothing_is_known() {
        for files in [
            &[][..],
            &[("proc/self/cgroup", "0::/\n")],
            &[
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", "max\n"),
                ("sys/fs/cgroup/memory.current", "1"),
            ],
            &[("proc/self/cgroup", "garbage"), ("sys/fs/cgroup/memory.max", "1")],
        ] {
            assert_eq!(MemoryUse::read(machine(files).path()), None, "{files:?}");
        }
    }

    #[tokio::test]
    async fn the_machine_of_the_test_is_read_without_an_error() {
        if let Some(memory) = MemoryUse::now().await {
            assert!(memory.used > 0 && memory.limit > 0, "{memory:?}");
        }
    }
}
