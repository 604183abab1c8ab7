//! Landlock (landlock(7)): a thread gives up access to files, for itself and for every process that it starts.

use super::Reach;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set};
use std::io;
use std::path::{Path, PathBuf};

/// The rights that are taken away, as far as the kernel knows them.
const KNOWN: ABI = ABI::V9;
/// Oldest usable version (Linux 5.19). Before it, no file could be renamed from one directory to another.
const LEAST: u8 = 2;

/// Capabilities that would let root bypass Landlock: memory of other processes, devices, file handles, the kernel.
const DROPPED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_MODULE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RAWIO);

/// Returns the version of Landlock's interface that confines threads on this machine.
///
/// # Errors
///
/// The reason that nothing can be confined.
pub(crate) fn landlock_version() -> Result<u8, String> {
    let tried = std::thread::spawn(|| restrict([])).join().map_err(|_| "it could not be tried".to_owned())?;
    let status = tried.map_err(|error| format!("the kernel refuses it: {error}"))?;
    match status.landlock {
        LandlockStatus::NotEnabled => Err("the kernel has Landlock, and it is not enabled at boot".into()),
        LandlockStatus::NotImplemented => Err("the kernel has no Landlock".into()),
        LandlockStatus::Available { effective_abi, .. } => match effective_abi as u8 {
            version if version < LEAST => {
                Err("the kernel's Landlock is too old; Linux 5.19 is the first that will do".into())
            }
            version => Ok(version),
        },
    }
}

/// Confines this thread, and every process that it starts, permanently. They can reach only files below these paths, send signals only to
/// each other, and gain no privileges by executing a program. The paths must not be links; missing paths are left out.
pub(crate) fn confine_thread<'a>(reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>) -> io::Result<()> {
    match restrict(reaches).map_err(io::Error::other)?.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(io::Error::other("the kernel enforces nothing of Landlock")),
    }
}

fn restrict<'a>(
    reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>,
) -> Result<RestrictionStatus, RestrictError> {
    drop_capabilities()?;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))?;
    let mut ruleset = ruleset.create()?;
    for (path, reach) in reaches {
        let Some(file) = open(path)? else { continue };
        ruleset = ruleset.add_rule(PathBeneath::new(file, rights(*reach)))?;
    }
    Ok(ruleset.restrict_self()?)
}

/// Removes [`DROPPED`] from the bounding set, so that programs that root executes have none of them. Other users get none by executing a
/// program.
fn drop_capabilities() -> io::Result<()> {
    if geteuid().is_root() {
        for capability in DROPPED.iter() {
            if capability_is_in_bounding_set(capability)? {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum RestrictError {
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    #[error(transparent)]
    Path(#[from] io::Error),
}

fn rights(reach: Reach) -> BitFlags<AccessFs> {
    match reach {
        // A socket's server applies its own rules; connecting to a socket changes no file.
        Reach::Read => AccessFs::from_read(KNOWN) | AccessFs::ResolveUnix,
        Reach::Write => AccessFs::from_all(KNOWN),
    }
}

/// `None` if the path does not exist or cannot be reached without the confinement either.
fn open(path: &Path) -> io::Result<Option<std::os::fd::OwnedFd>> {
    match openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(None),
        file => Ok(Some(file?)),
    }
}
