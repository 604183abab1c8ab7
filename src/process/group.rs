//! The process group of a child: what is done to it is done to all that it starts.

use rustix::process::{Pid, Signal};

/// The nice value of [`super::Invocation::low_priority`] (setpriority(2)); a disk's scheduler takes its own from it.
const LOWEST_PRIORITY: i32 = 19;

/// The child's process group, killed when dropped: no process of a job outlives it.
pub(super) struct Group(Option<Pid>);

impl Group {
    pub(super) fn new(id: Option<u32>) -> Group {
        Group(id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    pub(super) fn yield_to_others(&self) {
        if let Some(pid) = self.0 {
            // Without it the process only takes more than it should; it may also have ended.
            let _ = rustix::process::setpriority_pgrp(Some(pid), LOWEST_PRIORITY);
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // The only errors are a missing process and one of another user; there is nothing to do in either case.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    pub(super) fn end(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}
