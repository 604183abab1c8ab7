//! Linux.

use rustix::fs::{
    AtFlags, Gid, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags, Uid, chownat, fcntl_add_seals, memfd_create,
    openat, openat2, statfs,
};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior};
use secrecy::{ExposeSecret, SecretString};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A credential helper for git that answers `get` from the file on descriptor 3, any number of times.
pub(crate) const CREDENTIAL_HELPER: &str = r#"!f() { test "$1" = get && cat /proc/self/fd/3; }; f"#;

/// True if one file may have a name in several spellings.
pub(crate) const IGNORES_CASE: bool = false;

/// [`CREDENTIAL_HELPER`] for the lines that begin with this number and a space.
pub(crate) fn numbered_credential_helper(number: usize) -> String {
    format!(r#"!f() {{ test "$1" = get && sed -n 's/^{number} //p' /proc/self/fd/3; }}; f"#)
}

/// File system type `TMPFS_MAGIC` of statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// Makes an anonymous file in memory with this secret, for [`CREDENTIAL_HELPER`]. It is close-on-exec, so that no other child inherits it.
pub(crate) fn secret_file(secret: &SecretString) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"tidelock", MemfdFlags::CLOEXEC)?);
    file.write_all(secret.expose_secret().as_bytes())?;
    Ok(file.into())
}

/// Makes an anonymous file in memory with these bytes, which no process can change, however it opens the file. It is close-on-exec. `None`
/// where the kernel, or its sandbox, does not support such files.
pub(crate) fn sealed_file(bytes: &[u8]) -> io::Result<Option<OwnedFd>> {
    let made = memfd_create(c"tidelock", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = match made {
        Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => return Ok(None),
        made => File::from(made?),
    };
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(Some(file.into()))
}

/// Identity of this machine since its start. Locks of another machine, or in another sandbox, may not be visible here. Empty if unknown.
pub(crate) fn this_machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Returns true if files below `dir` use memory instead of disk.
pub fn is_in_memory(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| u64::try_from(found.f_type) == Ok(TMPFS))
}

/// Makes this process unreadable for others of its user (`/proc/<pid>/environ`, `mem`, ptrace), and disables core files.
pub(crate) fn close_to_others() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Returns true if this process was started with the signal ignored, which its children inherit.
pub(crate) fn ignores(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & (1 << (signal.as_raw() - 1)) != 0
}

/// Returns a handle for [`change_owner`] of the current entry of this name, valid even if the name is reused. A link is opened as itself.
/// `None` if there is no such entry.
pub(crate) fn entry_to_give(dir: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Opens the entry of this name in a directory; `None` if it does not exist or cannot be read. Links are followed only within the
/// directory, and opening never blocks.
pub(crate) fn open_beneath(dir: &OwnedFd, name: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(dir, name, flags, Mode::empty(), within) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::XDEV | Errno::NXIO) => Ok(None),
        file => Ok(Some(file?.into())),
    }
}

/// Changes the owner of the handle's entry.
pub(crate) fn change_owner(file: &OwnedFd, uid: u32, gid: u32) -> io::Result<()> {
    Ok(chownat(file, c"", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?)
}

/// Converts permission bits.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}
