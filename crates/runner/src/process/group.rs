//! The process group of a child. A signal to the group reaches every process that the child starts and that stays in it.

use super::{Confinement, orphans};
use rustix::process::{Pid, Signal};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// The nice value of [`super::Invocation::low_priority`] (setpriority(2)). A disk's scheduler derives its own priority from it.
const LOWEST_PRIORITY: i32 = 19;

/// Attempts to start a program file that is still open for writing, and the pause between them.
const BUSY_TRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Restores SIGINT for children. A server that a script started in the background ignores SIGINT, and its children inherit that: they could
/// not be interrupted. A handled signal is reset for them.
pub(super) fn let_children_be_interrupted() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if crate::platform::ignores(Signal::INT) {
            // The handler stays for the lifetime of the process.
            drop(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()));
        }
    });
}

/// Starts a command. A program file that was just written stays busy until every child that was forked meanwhile has called `exec`.
pub(super) async fn spawn(mut command: Command, confinement: Option<&Arc<Confinement>>) -> io::Result<(Child, Group)> {
    let mut tries = 0;
    loop {
        let spawned = match confinement {
            None => spawn_once(&mut command),
            Some(confinement) => {
                let (confinement, runtime) = (Arc::clone(confinement), Handle::current());
                let spawning = move || (spawn_confined(&mut command, &confinement, &runtime), command);
                let (spawned, back) = tokio::task::spawn_blocking(spawning).await?;
                command = back;
                spawned
            }
        };
        match spawned {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                tries += 1;
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Starts a child from a thread of its own, which is confined first: the child inherits the confinement, and nothing else may use the
/// thread.
fn spawn_confined(command: &mut Command, confinement: &Confinement, runtime: &Handle) -> io::Result<(Child, Group)> {
    std::thread::scope(|threads| {
        let spawning = threads.spawn(|| {
            confinement.of_thread()?;
            let _runtime = runtime.enter();
            spawn_once(command)
        });
        spawning.join().unwrap_or_else(|_| Err(io::Error::other("the thread that was to start it panicked")))
    })
}

fn spawn_once(command: &mut Command) -> io::Result<(Child, Group)> {
    let _starting = orphans::starting();
    let child = command.spawn()?;
    let group = Group::new(child.id());
    Ok((child, group))
}

/// The child's process group, which is killed when dropped.
pub(super) struct Group {
    id: Option<Pid>,
    /// The child, until it has been waited for.
    child: Option<Pid>,
}

impl Group {
    fn new(id: Option<u32>) -> Group {
        let id = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        id.into_iter().for_each(orphans::started);
        Group { id, child: id }
    }

    /// Records that the child was waited for. Its ID may now belong to another process; the group's ID is not reused before the group is
    /// empty.
    pub(super) fn was_waited_for(&mut self) {
        self.child.take().into_iter().for_each(orphans::ended);
    }

    pub(super) fn yield_to_others(&self) {
        if let Some(pid) = self.id {
            // If it fails, the process only takes more than its share; it may also have ended.
            let _ = rustix::process::setpriority_pgrp(Some(pid), LOWEST_PRIORITY);
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.id {
            // The only errors are a missing process and a process of another user; nothing can be done in either case.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    pub(super) fn end(&mut self) {
        self.signal(Signal::KILL);
        self.id = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
        self.was_waited_for();
    }
}
