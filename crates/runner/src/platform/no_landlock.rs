//! Landlock does not exist on this system.

use super::Reach;
pub(crate) use NoRules as Rules;
pub(crate) use NoTarget as RuleTarget;
use std::io;
use std::path::{Path, PathBuf};

/// Always fails.
pub(crate) fn landlock_version() -> Result<u8, String> {
    Err("only Linux has Landlock".into())
}

/// Has no value.
pub(crate) enum NoTarget {}

impl NoTarget {
    /// Returns `None`.
    pub(crate) fn open(_path: &Path) -> Option<NoTarget> {
        None
    }

    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        match *self {}
    }
}

/// Has no value.
#[derive(Debug)]
pub(crate) enum NoRules {}

impl NoRules {
    /// Always fails.
    pub(crate) fn new<'a>(
        _reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>,
        _targets: &[(NoTarget, Reach)],
    ) -> io::Result<NoRules> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn confine_thread(&self) -> io::Result<()> {
        match *self {}
    }
}
