//! Changes the owner of a tree to the user that steps run as, without following links that a step left in it.

use crate::platform::{change_owner, entry_to_give, mode};
use crate::process::RunAs;
use anyhow::Context;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, open, openat, statat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Deepest directory that is entered; this many descriptors are open.
const DEEPEST: usize = 200;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes `owner` the owner of `root` and everything below. A file with several hard links is skipped: a step may have linked another file
/// of the server's.
pub fn change_owner_of_tree(root: &Path, owner: RunAs) -> anyhow::Result<()> {
    let top = open(root, FOLDER, Mode::empty())?;
    descend(&top, owner, 0).with_context(|| format!("cannot give {} to user {}", root.display(), owner.uid))?;
    change_owner(&top, owner.uid, owner.gid)?;
    Ok(())
}

/// Like [`change_owner_of_tree`], for a tree that other users cannot enter. The server can, by its group.
pub(super) fn change_owner_of_lone_tree(root: &Path, owner: RunAs) -> anyhow::Result<()> {
    let top = open(root, FOLDER, Mode::empty())?;
    // Closed first, because the tree may still be the server's own.
    fchmod(&top, mode(0o750))?;
    descend(&top, owner, 0).with_context(|| format!("cannot give {} to user {}", root.display(), owner.uid))?;
    change_owner(&top, owner.uid, rustix::process::getegid().as_raw())?;
    Ok(())
}

fn descend(dir: &OwnedFd, owner: RunAs, depth: usize) -> anyhow::Result<()> {
    let names: Vec<CString> =
        Dir::read_from(dir)?.map(|entry| entry.map(|e| e.file_name().to_owned())).collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| !matches!(name.as_bytes(), b"." | b"..")) {
        let Ok(stat) = statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_theirs = (stat.st_uid, stat.st_gid) == (owner.uid, owner.gid);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth >= DEEPEST {
                // Deeper directories were made by a step, so it owns them already.
                anyhow::ensure!(is_theirs, "directories are nested more than {DEEPEST} deep");
                continue;
            }
            match openat(dir, name.as_c_str(), FOLDER, Mode::empty()) {
                Ok(below) => descend(&below, owner, depth + 1)?,
                // Missing or exchanged meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error.into()),
            }
        }
        if !is_theirs {
            give_one(dir, name, owner)?;
        }
    }
    Ok(())
}

/// Changes exactly the entry that was examined, even if its name is reused.
fn give_one(dir: &OwnedFd, name: &CString, owner: RunAs) -> anyhow::Result<()> {
    let Some(file) = entry_to_give(dir, name)? else { return Ok(()) };
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory || stat.st_nlink == 1 {
        change_owner(&file, owner.uid, owner.gid)?;
    }
    Ok(())
}
