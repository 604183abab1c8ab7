//! The children of this process, as listed by Linux's `/proc` (proc(5)).

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

/// Most bytes of an environment that are read. The kernel's own limit for arguments and environment is 6 MiB.
const MAX_ENVIRONMENT: u64 = 8 << 20;

/// Makes this process the new parent of each descendant whose own parent has ended.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Returns this process's children, including those that have ended and are not waited for yet.
pub(crate) fn children() -> io::Result<HashSet<Pid>> {
    children_of(getpid())
}

/// Returns the children of a process; none if the process has ended.
pub(crate) fn children_of(pid: Pid) -> io::Result<HashSet<Pid>> {
    // A child that ends while the list is read may hide another one, so two readings have to agree.
    let mut before = None;
    loop {
        let now = read_children(pid)?;
        if before.as_ref() == Some(&now) {
            return Ok(now);
        }
        before = Some(now);
    }
}

fn read_children(parent: Pid) -> io::Result<HashSet<Pid>> {
    let mut found = HashSet::new();
    let threads = match std::fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        threads => threads?,
    };
    for thread in threads {
        match std::fs::read_to_string(thread?.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(parse_pid)),
            // The thread has ended; another thread has its children.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

fn is_gone(error: &io::Error) -> bool {
    let gone = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(gone)
}

/// Returns a variable of the environment that a process was started with. `None` if there is no such variable, and if it cannot be read:
/// the process has ended, or does not let others read it.
pub(crate) fn variable_of(pid: Pid, name: &str) -> Option<String> {
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_ENVIRONMENT).read_to_end(&mut bytes).ok()?;
    let mut entries = bytes.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Waits until a child has ended or the time is over. Nobody else may wait for the child.
pub(crate) fn await_end(child: Pid, limit: Duration) -> io::Result<()> {
    let handle = pidfd_open(child, PidfdFlags::empty())?;
    let limit = limit.try_into().map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
