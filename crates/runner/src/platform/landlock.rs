//! Landlock (landlock(7)): a thread gives up access to files, for itself and for all that it starts.

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
/// Before it (Linux 5.19) no file could be renamed from one directory to another.
const LEAST: u8 = 2;

/// What root could get around Landlock with: memory of other processes, devices, handles of files, the kernel.
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

/// The version of Landlock's interface that confines threads here.
///
/// # Errors
///
/// Why nothing can be confined.
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

/// Confines this thread, and every process that it starts, for ever: they can reach only what is below these paths, which are no links,
/// send signals only to each other, and gain no privileges by executing a program. Paths that are not there are left out.
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

/// What root executes from now on has none of [`DROPPED`]. Other users get none by executing a program.
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
        // A socket answers by its own rules; connecting to one changes no file.
        Reach::Read => AccessFs::from_read(KNOWN) | AccessFs::ResolveUnix,
        Reach::Write => AccessFs::from_all(KNOWN),
    }
}

/// `None` if it is not there, or cannot be reached anyway.
fn open(path: &Path) -> io::Result<Option<std::os::fd::OwnedFd>> {
    match openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(None),
        file => Ok(Some(file?)),
    }
}
