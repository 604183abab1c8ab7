//! How a command is asked to stop, and why.

use crate::domain::{CommitSha, Login};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Asks a command to stop, and says why.
#[derive(Clone, Default)]
pub(crate) struct Cancel {
    /// What jobs wait for.
    pub token: CancellationToken,
    reason: Arc<OnceLock<CancelReason>>,
    /// The pull request may be another one than when the command began.
    changed: Arc<AtomicBool>,
    answered: Arc<AtomicBool>,
}

/// Why a command was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// Somebody said `cancel`.
    Person(Login),
    /// The pull request has a newer head.
    Push {
        /// The newer head.
        head: CommitSha,
        /// Whether a plan of it is queued.
        is_planned: bool,
    },
    /// The pull request was closed.
    Closed,
    /// The server is stopping.
    Shutdown,
}

impl Cancel {
    /// Stops it; the first reason counts.
    pub(crate) fn cancel(&self, why: CancelReason) {
        let _ = self.reason.set(why);
        self.token.cancel();
    }

    /// Says that something happened to the pull request: what has not begun yet looks at it again. Nothing is stopped.
    pub(crate) fn note_change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Whether something happened to it since this was asked last.
    pub(crate) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Says that the command's answer is recorded: what still runs of it are hooks, and the removal of its trees.
    pub(super) fn note_answered(&self) {
        self.answered.store(true, Ordering::SeqCst);
    }

    /// Whether its answer is recorded.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Why it was stopped, if it was.
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
