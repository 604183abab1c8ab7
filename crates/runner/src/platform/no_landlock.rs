//! No Landlock.

use super::Reach;
use std::io;
use std::path::PathBuf;

/// There is none.
pub(crate) fn landlock_version() -> Result<u8, String> {
    Err("only Linux has Landlock".into())
}

/// Cannot be done.
pub(crate) fn confine_thread<'a>(_reaches: impl IntoIterator<Item = (&'a PathBuf, &'a Reach)>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
