//! A walk over all that is below a directory, without a link on the way.

use super::{FOLDER, Folder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Deepest directory that a walk enters; as many are open on the way down.
const DEEPEST: usize = 200;

/// Something that a walk came to.
pub struct FolderEntry<'a> {
    folder: &'a OwnedFd,
    /// Its path, relative to where the walk began.
    pub path: &'a Path,
    /// Its name.
    pub name: &'a OsStr,
    /// What it is, a link as itself.
    pub kind: FileType,
}

impl FolderEntry<'_> {
    /// What the file system says of it; absent when it is gone by now.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        super::present(statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))
    }

    /// Removes it, unless it is a directory; absent is fine.
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
    /// Shows `visit` everything below, in no order, a directory before what is in it; `visit` says whether to enter a directory.
    /// What goes or is swapped meanwhile is passed over. Says whether it went everywhere: not where it may not, and not deeper than
    /// 200 directories.
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

/// What an entry is, for file systems that do not say it in the listing; absent when it is gone.
pub(super) fn kind(folder: &OwnedFd, name: &OsStr, listed: FileType) -> io::Result<Option<FileType>> {
    if listed != FileType::Unknown {
        return Ok(Some(listed));
    }
    let stat = super::present(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from))?;
    Ok(stat.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}
