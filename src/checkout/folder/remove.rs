//! Removes a directory with all that is in it, however deep it is, and whatever is put into it meanwhile.

use super::FOLDER;
use rustix::fs::{AtFlags, Dir, Mode, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;

/// Directories on the way down that are open at the same time. What is deeper is moved up first.
const DEEPEST: usize = 64;
/// Looks at a directory to which processes that still run add files.
const ROUNDS: usize = 100_000;

/// Removes what a directory has under this name; absent is fine. A link goes itself.
pub(super) fn at(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if unlinked(parent, name)? {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let top = match openat(parent, name, FOLDER, Mode::empty()) {
            Ok(top) => top,
            Err(Errno::NOENT) => return Ok(()),
            // Swapped for a link meanwhile.
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

/// Removes a name that is no directory; whether it is gone.
fn unlinked<N: rustix::path::Arg + Copy>(parent: &OwnedFd, name: N) -> io::Result<bool> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Linux says the former of a directory, POSIX the latter.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes what is in a directory, as far as it stays as it is, down to [`DEEPEST`]; what is deeper is in `top` afterwards.
fn empty(top: &OwnedFd, folder: &OwnedFd, depth: usize) -> io::Result<()> {
    for name in names(folder)? {
        let name = name.as_c_str();
        let gone = match unlinked(folder, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // A step took away the right to write; the directory is ours, or we are root.
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
            // Gone or swapped; the next look removes what is there then.
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
