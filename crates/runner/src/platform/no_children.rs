//! macOS hands orphans to launchd: a process that leaves its group cannot be found again.

use rustix::process::Pid;
use std::collections::HashSet;
use std::io;
use std::time::Duration;

pub(crate) fn adopt_orphans() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn children() -> io::Result<HashSet<Pid>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn adopted() -> io::Result<HashSet<Pid>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn children_of(_: Pid) -> io::Result<HashSet<Pid>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn variable_of(_: Pid, _: &str) -> Option<String> {
    None
}

pub(crate) fn await_end(_: Pid, _: Duration) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
