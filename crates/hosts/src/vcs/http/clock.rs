//! The host's clock, as its answers tell it, and the number of requests.

use super::Http;
use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct HostClock {
    /// Time of the last answer by the host's clock, and by ours.
    last: Mutex<Option<(Timestamp, Instant)>>,
    sent: AtomicU64,
}

impl HostClock {
    /// Counts a request.
    pub(super) fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the time that an answer told.
    pub(super) fn told(&self, at: Option<Timestamp>) {
        if let Some(at) = at {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, Instant::now()));
        }
    }

    /// Returns the present time by the host's clock; absent before the first answer.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let (at, since) = (*self.last.lock().unwrap_or_else(PoisonError::into_inner))?;
        at.checked_add(SignedDuration::try_from(since.elapsed()).ok()?).ok()
    }

    /// Returns the number of requests so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Http {
    /// Returns the present time by the host's clock; absent before the first answer.
    pub(crate) fn clock(&self) -> Option<Timestamp> {
        self.clock.now()
    }

    /// Returns the number of requests sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.clock.sent()
    }
}
