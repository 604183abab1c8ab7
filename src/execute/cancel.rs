//! Cancellation of a command, with its reason.

use super::prepare::Stop;
use crate::domain::{CommitSha, Login};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Requests a command to stop, with a reason.
#[derive(Clone, Default)]
pub(crate) struct Cancel {
    /// Token that jobs wait for.
    pub token: CancellationToken,
    reason: Arc<OnceLock<CancelReason>>,
    /// Token for jobs that go on without this server, which stops.
    pub(crate) leave: CancellationToken,
    /// True if the pull request may have changed since the command began.
    changed: Arc<AtomicBool>,
    answered: Arc<AtomicBool>,
}

/// Reason for which a command was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// Somebody used `cancel`.
    Person(Login),
    /// The pull request has a newer head.
    Push {
        /// The newer head.
        head: CommitSha,
        /// True if a plan of it is queued.
        is_planned: bool,
    },
    /// The pull request was closed.
    Closed,
    /// The server is stopping.
    Shutdown,
}

impl Cancel {
    /// Stops the command; the first reason counts.
    pub(crate) fn cancel(&self, why: CancelReason) {
        let _ = self.reason.set(why);
        self.token.cancel();
    }

    /// Leaves the command's jobs on executors to the next server, with the projects that have not begun there. Stops nothing.
    pub(crate) fn leave(&self) {
        self.leave.cancel();
    }

    /// Returns true if jobs on executors are left to the next server.
    pub(super) fn is_leaving(&self) -> bool {
        self.leave.is_cancelled() || self.reason() == Some(&CancelReason::Shutdown)
    }

    /// Notes that the pull request may have changed: projects that have not begun yet check it again. Stops nothing.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Returns true if a change was noted since the last call.
    pub(crate) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Notes that the command's answer is recorded: only hooks and the removal of its trees are left.
    pub(super) fn note_answered(&self) {
        self.answered.store(true, Ordering::SeqCst);
    }

    /// Returns true if its answer is recorded.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Refuses what has not begun yet, if the command was stopped.
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.token.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    /// Returns the reason of the stop; `None` if it was not stopped.
    pub(crate) fn reason(&self) -> Option<&CancelReason> {
        self.reason.get()
    }

    pub(super) fn by(&self) -> String {
        match self.reason() {
            Some(CancelReason::Person(user)) => user.to_string(),
            Some(CancelReason::Push { head, .. }) => format!("a push of {}", head.short()),
            Some(CancelReason::Closed) => "the closing of the pull request".into(),
            Some(CancelReason::Shutdown) | None => "the server's shutdown".into(),
        }
    }
}
