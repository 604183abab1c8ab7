//! macOS. What it has nothing for is said at each function, and for operators in docs/security.md.

use super::refilled;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use secrecy::SecretString;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A credential helper of git that answers `get`, as often as it is asked, from the pipe on descriptor 3.
pub(crate) const CREDENTIAL_HELPER: &str = refilled::CREDENTIAL_HELPER;

/// A pipe that never runs out of this secret, for [`CREDENTIAL_HELPER`]: there are no anonymous files in memory, and opening `/dev/fd/3`
/// again goes on where the last reader ended. A child that is forked between the making of the pipe and its close-on-exec flag has it too.
pub(crate) fn secret_file(secret: &SecretString) -> io::Result<OwnedFd> {
    Ok(refilled::pipe(secret)?.0)
}

/// This machine, by its name: a lock does not outlive a restart, so whose lock is free is gone.
pub(crate) fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Not known here; disks in memory are rare.
pub(crate) fn is_in_memory(_dir: &Path) -> bool {
    false
}

/// Keeps this process from leaving a core file. Others of its user can still see its environment.
pub(crate) fn close_to_others() -> io::Result<()> {
    let maximum = getrlimit(Resource::Core).maximum;
    Ok(setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?)
}

/// Not known here. The server handles SIGINT, which resets it for its children.
pub(crate) fn ignores(_signal: Signal) -> bool {
    false
}

/// A handle for [`change_owner`] of the file or directory that has this name now, whatever gets the name later. Absent when nothing
/// has, and for a link or a socket: neither can be opened, and whoever owns the directory can replace both.
pub(crate) fn entry_to_give(dir: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP | Errno::OPNOTSUPP) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Gives what a handle stands for to this user and group.
pub(crate) fn change_owner(file: &OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    Ok(fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Permission bits.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_bits_truncate(u16::try_from(bits & 0o7777).unwrap_or_default())
}
