//! The free space of a disk and the size of a folder.

pub use crate::platform::is_in_memory;

use super::folder::Folder;
use super::tree::blocking;
use anyhow::Context;
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// Unit of a file's blocks in stat(2), in bytes.
const BLOCK: u64 = 512;
/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes free for this process.
    pub free: u64,
    /// Total bytes.
    pub total: u64,
}

impl Space {
    /// Returns the space of the file system of `dir`.
    pub fn of(dir: &Path) -> std::io::Result<Space> {
        let stat = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }
}

/// Returns the size of a folder on disk, in bytes. Unreadable files and files that disappear count as 0; links are not followed.
pub async fn taken_by(dir: PathBuf) -> anyhow::Result<u64> {
    blocking(move || Ok(walk(&dir, &mut |_| {}))).await.context("measuring a folder")
}

/// Like [`taken_by`], called off the async threads. `seen` is called with each file.
pub(super) fn walk(dir: &Path, seen: &mut dyn FnMut(&Path)) -> u64 {
    let mut bytes: u64 = 0;
    let Ok(folder) = Folder::open(dir) else { return 0 };
    // Unreadable files count as 0.
    let _ = folder.walk(&mut |entry| {
        if let Ok(Some(stat)) = entry.stat() {
            bytes = bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK));
            if entry.kind != FileType::Directory {
                seen(&dir.join(entry.path));
            }
        }
        Ok(true)
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_folder_takes_what_its_files_take_and_links_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let empty = taken_by(dir.path().to_owned()).await.unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/large"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("a/link")).unwrap();
        let full = taken_by(dir.path().to_owned()).await.unwrap();
        assert!((1 << 20..1 << 21).contains(&(full - empty)), "{empty} {full}");
        assert_eq!(taken_by(dir.path().join("absent")).await.unwrap(), 0);
    }

    #[test]
    fn a_file_system_has_no_more_room_than_it_is_large() {
        let space = Space::of(Path::new("/")).unwrap();
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        assert!(Space::of(Path::new("/no/such/folder")).is_err());
    }
}
