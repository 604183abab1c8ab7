//! Landlock does not exist on this system.

use super::Reach;
use std::io;
use std::path::PathBuf;

/// Always fails.
pub(crate) fn landlock_version() -> Result<u8, String> {
    Err("only Linux has Landlock".into())
}

/// Always fails.
pub(crate) fn confine_thread<'a>(_reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
