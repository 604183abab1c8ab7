//! macOS. Each function states what macOS lacks; docs/security.md has the same for operators.

use super::refilled;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use secrecy::SecretString;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A credential helper for git that answers `get` from the pipe on descriptor 3, any number of times.
pub(crate) const CREDENTIAL_HELPER: &str = refilled::CREDENTIAL_HELPER;

/// One file may have a name in many spellings: disks of macOS ignore case by default.
pub(crate) const IGNORES_CASE: bool = true;

/// [`CREDENTIAL_HELPER`] for the lines that begin with this number and a space.
pub(crate) fn numbered_credential_helper(number: usize) -> String {
    refilled::numbered_credential_helper(number)
}

/// Makes a pipe that repeats this secret, for [`CREDENTIAL_HELPER`]: macOS has no anonymous files in memory, and opening `/dev/fd/3` again
/// continues where the last reader ended. A child that is forked before the pipe's close-on-exec flag is set inherits it.
pub(crate) fn secret_file(secret: &SecretString) -> io::Result<OwnedFd> {
    Ok(refilled::pipe(secret)?.0)
}

/// macOS has no sealed files in memory.
pub(crate) fn sealed_file(_bytes: &[u8]) -> io::Result<Option<OwnedFd>> {
    Ok(None)
}

/// Identity of this machine: its name. A lock does not outlive a restart, so the holder of a free lock has ended.
pub(crate) fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Unknown on macOS; disks in memory are rare.
pub fn is_in_memory(_dir: &Path) -> bool {
    false
}

/// Disables core files. Other processes of the user can still read the environment.
pub(crate) fn close_to_others() -> io::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?)
}

/// Unknown on macOS. The server handles SIGINT, which resets it for its children.
pub(crate) fn ignores(_signal: Signal) -> bool {
    false
}

/// Returns a handle for [`change_owner`] of the current file or directory of this name, valid even if the name is reused. `None` if there
/// is none, and for links and sockets: they cannot be opened, and the owner of the directory can replace them.
pub(crate) fn entry_to_give(dir: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::OPNOTSUPP) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Opens the entry of this name in a directory; `None` if it does not exist or cannot be read. No link is followed, and opening never
/// blocks.
pub(crate) fn open_beneath(dir: &OwnedFd, name: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW_ANY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::OPNOTSUPP) => Ok(None),
        file => Ok(Some(file?.into())),
    }
}

/// Changes the owner of the handle's entry.
pub(crate) fn change_owner(file: &OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    Ok(fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Converts permission bits.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_bits_truncate(u16::try_from(bits & 0o7777).unwrap_or_default())
}
