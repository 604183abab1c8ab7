//! Landlock (landlock(7)): a thread gives up access to files, for itself and for every process that it starts.

use super::Reach;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set};
use std::io;
use std::os::fd::OwnedFd;
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
    let trying = || Rules::new([], &[])?.restrict_thread();
    let tried = std::thread::spawn(trying).join().map_err(|_| "it could not be tried".to_owned())?;
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

/// A file or directory to which a rule can apply.
pub(crate) struct RuleTarget(OwnedFd);

impl RuleTarget {
    /// Returns the file at a path, whose links are followed. `None` if it cannot be opened: without a rule it is out of reach.
    pub(crate) fn open(path: &Path) -> Option<RuleTarget> {
        open(path, OFlags::empty()).ok().flatten().map(RuleTarget)
    }

    /// Returns its device and inode. While a rule applies to the file, no other file has the same: the rule keeps the inode, even if the
    /// file is removed (`get_inode_object` in security/landlock/fs.c of Linux).
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }
}

/// Rules that can confine any number of threads.
#[derive(Debug)]
pub(crate) struct Rules(RulesetCreated);

impl Rules {
    /// Returns rules that give access to these files, and to everything below them. Paths must not be links; missing ones are left out.
    pub(crate) fn new<'a>(
        reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>,
        targets: &[(RuleTarget, Reach)],
    ) -> io::Result<Rules> {
        let mut rules = Rules::none().map_err(io::Error::other)?;
        for (path, reach) in reaches {
            if let Some(file) = open(path, OFlags::NOFOLLOW)? {
                rules = rules.with(&file, *reach)?;
            }
        }
        targets.iter().try_fold(rules, |rules, (target, reach)| rules.with(&target.0, *reach))
    }

    fn with(self, file: &OwnedFd, reach: Reach) -> io::Result<Rules> {
        self.0.add_rule(PathBeneath::new(file, rights(reach))).map(Rules).map_err(io::Error::other)
    }

    /// Returns rules that give access to nothing.
    fn none() -> Result<Rules, RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset.handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))?;
        ruleset.create().map(Rules)
    }

    /// Confines this thread, and every process that it starts, permanently. They can reach only files to which a rule gives access, send
    /// signals only to each other, and gain no privileges by executing a program.
    pub(crate) fn confine_thread(&self) -> io::Result<()> {
        match self.restrict_thread()?.ruleset {
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
            RulesetStatus::NotEnforced => Err(io::Error::other("the kernel enforces nothing of Landlock")),
        }
    }

    fn restrict_thread(&self) -> io::Result<RestrictionStatus> {
        drop_capabilities()?;
        self.0.try_clone()?.restrict_self().map_err(io::Error::other)
    }
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

fn rights(reach: Reach) -> BitFlags<AccessFs> {
    match reach {
        // A socket's server applies its own rules; connecting to a socket changes no file.
        Reach::Read => AccessFs::from_read(KNOWN) | AccessFs::ResolveUnix,
        Reach::Write => AccessFs::from_all(KNOWN),
    }
}

/// `None` if the path does not exist or cannot be reached without the confinement either.
fn open(path: &Path, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(None),
        file => Ok(Some(file?)),
    }
}
