//! Removes pipes and devices in places where git expects its own files: it would open them and block.

use super::artifacts::OtherProjects;
use super::folder::{Folder, FolderEntry};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::io;
use std::path::Component;

/// Files that git reads in every directory.
const READ: [&str; 3] = [".gitattributes", ".gitignore", ".gitmodules"];

/// Returns true if git would block on an entry: it is not a regular file where git reads one, also in a nested repository.
pub(super) fn for_it(entry: &FolderEntry<'_>) -> bool {
    let waits = !matches!(entry.kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
    let in_repository = || entry.path.components().any(|part| part == Component::Normal(OsStr::new(".git")));
    waits && (READ.iter().any(|name| entry.name == *name) || in_repository())
}

/// Removes all such entries from a tree, except in directories of `others`.
pub(super) fn remove(top: &Folder, others: &OtherProjects) -> io::Result<()> {
    top.walk(&mut |entry| {
        if for_it(entry) {
            entry.remove_file()?;
        }
        Ok(entry.path.to_str().is_none_or(|path| path != ".git" && !others.has(path)))
    })?;
    Ok(())
}
