//! Removes a directory with its contents, at any depth, even while processes add files.

use super::FOLDER;
use rustix::fs::{AtFlags, Dir, Mode, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;

/// Most directories that are open at the same time. Deeper ones are moved up first.
const DEEPEST: usize = 64;
/// Attempts for a directory to which running processes add files.
const ROUNDS: usize = 100_000;

/// Removes an entry of a directory; it may be absent. A link itself is removed, not its target.
pub(super) fn at(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if unlinked(parent, name)? {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let top = match openat(parent, name, FOLDER, Mode::empty()) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok(()),
            // It was exchanged for a link.
            Err(Errno::NOTDIR | Errno::LOOP) => return unlinked(parent, name).map(drop),
            Err(error) => return Err(error.into()),
        };
        empty(&top, &top, 0)?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOTDIR) => return unlinked(parent, name).map(drop),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("files are added to a directory as fast as they are removed from it"))
}

/// Removes an entry that is not a directory; returns true if it no longer exists.
fn unlinked<N: rustix::path::Arg + Copy>(parent: &OwnedFd, name: N) -> io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Linux reports the former for a directory, POSIX the latter.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes the contents of a directory down to [`DEEPEST`]. Deeper directories are moved to `top`.
fn empty(top: &OwnedFd, folder: &OwnedFd, depth: usize) -> io::Result<()> {
    for name in names(folder)? {
        let name = name.as_c_str();
        let gone = match unlinked(folder, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // A step removed the write permission. The directory is the server's, or the server runs as root.
                fchmod(folder, Mode::RWXU)?;
                unlinked(folder, name)?
            }
            other => other?,
        };
        if gone {
            continue;
        }
        if depth >= DEEPEST {
            move_up(folder, name, top)?;
            continue;
        }
        match openat(folder, name, FOLDER, Mode::empty()) {
            Ok(below) => empty(top, &below, depth + 1)?,
            // Gone or exchanged; the next attempt removes the entry that is there then.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(error) => return Err(error.into()),
        }
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn move_up(folder: &OwnedFd, name: &CStr, top: &OwnedFd) -> io::Result<()> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    match renameat(folder, name, top, hex::encode(random)) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}
