//! The state on disk after its last use, for a process that may go on from it without a restore.

use super::files::pieces::piece_of;
use super::{DATABASE, View};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A database that was closed in order. A restore, or any other write, makes another one of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedState {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The same of the last change of its attributes.
    changed: (i64, i64),
}

impl ClosedState {
    /// Returns the closed database of a data directory, after it has reached the disk. An error if there is none, or if a write-ahead log
    /// belongs to it.
    pub async fn of(data_dir: &Path) -> Result<ClosedState> {
        let dir = data_dir.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            File::open(dir.join(DATABASE))?.sync_all()?;
            ClosedState::read(&dir)
        });
        found.await?.context("the state on disk cannot be used again")
    }

    fn read(data_dir: &Path) -> Result<ClosedState> {
        ensure!(!data_dir.join(format!("{DATABASE}-wal")).try_exists()?, "it has a write-ahead log");
        let meta = data_dir.join(DATABASE).symlink_metadata()?;
        Ok(ClosedState {
            device: meta.dev(),
            inode: meta.ino(),
            length: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Checks that nobody has changed the database. Blocks.
    pub(super) fn check(&self, data_dir: &Path) -> Result<()> {
        ensure!(ClosedState::read(data_dir)? == *self, "the state on disk was changed since it was closed");
        Ok(())
    }
}

impl View<'_> {
    /// Checks that no file that a row names is missing or has become shorter. Blocks.
    pub(super) fn check_kept_files(&self, data_dir: &Path) -> Result<()> {
        for file in self.kept_files("")? {
            let (path, length) = match piece_of(&file.path) {
                Some((log, from)) => (log, from + file.length),
                None => (file.path.as_str(), file.length),
            };
            let is_there =
                data_dir.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file() && meta.len() >= length);
            ensure!(is_there, "{path} is missing in the data directory, or was shortened");
        }
        Ok(())
    }
}
