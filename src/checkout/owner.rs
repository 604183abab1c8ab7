//! Gives a tree to the user that steps run as, without ever following a link that a step left in it.

use crate::process::RunAs;
use anyhow::Context;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, open, openat, statat};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Deepest directory that is entered; descriptors are open on the way down.
const DEEPEST: usize = 200;

/// Makes `owner` the owner of everything below `root`, and of `root`.
pub(super) fn give(root: &Path, owner: RunAs) -> anyhow::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = open(root, flags, Mode::empty())?;
    descend(&top, owner, 0).with_context(|| format!("cannot give {} to user {}", root.display(), owner.uid))?;
    chownat(&top, c"", Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)), AtFlags::EMPTY_PATH)?;
    Ok(())
}

fn descend(dir: &OwnedFd, owner: RunAs, depth: usize) -> anyhow::Result<()> {
    anyhow::ensure!(depth < DEEPEST, "directories are nested more than {DEEPEST} deep");
    let names: Vec<CString> =
        Dir::read_from(dir)?.map(|entry| entry.map(|e| e.file_name().to_owned())).collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| !matches!(name.as_bytes(), b"." | b"..")) {
        let Ok(stat) = statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            descend(&openat(dir, name.as_c_str(), flags, Mode::empty())?, owner, depth + 1)?;
        }
        if (stat.st_uid, stat.st_gid) != (owner.uid, owner.gid) {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            chownat(dir, name.as_c_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}
