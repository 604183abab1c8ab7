//! A walk over everything below a directory that follows no link.

use super::{FOLDER, Folder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Deepest directory that a walk enters; this many directories are open at the same time.
const DEEPEST: usize = 200;

/// An entry of a walk.
pub struct FolderEntry<'a> {
    folder: &'a OwnedFd,
    /// Path, relative to the start of the walk.
    pub path: &'a Path,
    /// Name.
    pub name: &'a OsStr,
    /// Kind of the entry, a link as itself.
    pub kind: FileType,
}

impl FolderEntry<'_> {
    /// Returns the metadata of the entry; `None` if it no longer exists.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        super::present(statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))
    }

    /// Removes it, unless it is a directory; it may be absent.
    pub fn remove_file(&self) -> io::Result<()> {
        super::present(unlinkat(self.folder, self.name, AtFlags::empty()).map_err(io::Error::from)).map(drop)
    }

    /// Sets the time of its last change to now.
    pub fn touch(&self) -> io::Result<()> {
        use rustix::fs::{Timespec, Timestamps, UTIME_NOW, utimensat};
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let touched = utimensat(self.folder, self.name, &times, AtFlags::SYMLINK_NOFOLLOW);
        super::present(touched.map_err(io::Error::from)).map(drop)
    }
}

impl Folder {
    /// Calls `visit` for everything below, in no order, a directory before its contents. `visit` returns true to enter a directory. Entries
    /// that disappear or are exchanged are skipped. Returns true if the walk was complete: it skips unreadable directories and more than
    /// 200 levels.
    pub fn walk(&self, visit: &mut dyn FnMut(&FolderEntry<'_>) -> io::Result<bool>) -> io::Result<bool> {
        descend(&self.fd, &mut PathBuf::new(), 0, visit)
    }
}

fn descend(
    folder: &OwnedFd,
    path: &mut PathBuf,
    depth: usize,
    visit: &mut dyn FnMut(&FolderEntry<'_>) -> io::Result<bool>,
) -> io::Result<bool> {
    let (mut enter, mut everywhere) = (Vec::new(), true);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let Some(kind) = kind(folder, name, entry.file_type())? else { continue };
        path.push(name);
        let wanted = visit(&FolderEntry { folder, path, name, kind });
        path.pop();
        if wanted? && kind == FileType::Directory {
            if depth < DEEPEST {
                enter.push(name.to_owned());
            } else {
                everywhere = false;
            }
        }
    }
    for name in enter {
        let below = match rustix::fs::openat(folder, &name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(Errno::ACCESS) => {
                everywhere = false;
                continue;
            }
            other => other?,
        };
        path.push(&name);
        let done = descend(&below, path, depth + 1, visit);
        path.pop();
        everywhere &= done?;
    }
    Ok(everywhere)
}

/// Returns the kind of an entry, also on file systems that do not list it; `None` if the entry no longer exists.
pub(super) fn kind(folder: &OwnedFd, name: &OsStr, listed: FileType) -> io::Result<Option<FileType>> {
    if listed != FileType::Unknown {
        return Ok(Some(listed));
    }
    let stat = super::present(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))?;
    Ok(stat.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}
