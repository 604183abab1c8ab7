//! Versions of files, by which a change is noticed without reading them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Version of a file: device, inode, length, and the times of its last change.
pub(super) type FileStamp = (u64, u64, u64, [i64; 4]);

/// Returns the version of a file, through links; absent if its metadata cannot be read.
pub(super) fn file_stamp(path: &Path) -> Option<FileStamp> {
    let of = std::fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.len(), [of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()]))
}
