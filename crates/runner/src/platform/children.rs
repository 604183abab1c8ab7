//! The children of this process, as listed by Linux's `/proc` (proc(5)).

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
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

/// Returns the children of this process's main thread: all orphans that it has adopted, and what it or a thread that has ended has started.
/// The kernel gives orphans to the first thread that is not exiting (`find_new_reaper` in kernel/exit.c of Linux), and the main thread
/// lives as long as the process. This costs less than [`children`], which reads a list for each thread.
pub(crate) fn adopted() -> io::Result<HashSet<Pid>> {
    let pid = getpid();
    agreed(|| children_of_thread(&tasks_of(pid)?, &pid.to_string()))
}

/// Returns the children of a process; none if the process has ended, also while it is asked for them.
pub(crate) fn children_of(pid: Pid) -> io::Result<HashSet<Pid>> {
    match agreed(|| children_of_threads(pid)) {
        Err(error) if is_gone(&error) => Ok(HashSet::new()),
        children => children,
    }
}

/// Reads a list until two readings agree: a child that ends while the list is read may hide another one.
fn agreed(read: impl Fn() -> io::Result<HashSet<Pid>>) -> io::Result<HashSet<Pid>> {
    let mut before = read()?;
    loop {
        let now = read()?;
        if before == now {
            return Ok(now);
        }
        before = now;
    }
}

fn tasks_of(pid: Pid) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, format!("/proc/{pid}/task"), flags, Mode::empty())?)
}

fn children_of_threads(parent: Pid) -> io::Result<HashSet<Pid>> {
    let tasks = tasks_of(parent)?;
    let mut found = HashSet::new();
    for entry in Dir::read_from(&tasks)? {
        let entry = entry?;
        if let Ok(thread) = entry.file_name().to_str()
            && !matches!(thread, "." | "..")
        {
            match children_of_thread(&tasks, thread) {
                // The thread has ended; another thread has its children.
                Err(error) if is_gone(&error) => {}
                children => found.extend(children?),
            }
        }
    }
    Ok(found)
}

fn children_of_thread(tasks: &OwnedFd, thread: &str) -> io::Result<HashSet<Pid>> {
    let file = openat(tasks, format!("{thread}/children"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut file, mut text, mut chunk) = (File::from(file), Vec::new(), [0; 4096]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => text.extend_from_slice(&chunk[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&text).split_ascii_whitespace().filter_map(parse_pid).collect())
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

/// Waits until a child has ended or the time is over. One that was waited for elsewhere has ended.
pub(crate) fn await_end(child: Pid, limit: Duration) -> io::Result<()> {
    let handle = match pidfd_open(child, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        handle => handle?,
    };
    let limit = limit.try_into().map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
