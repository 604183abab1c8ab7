//! Time of the last successful look on each host.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Hosts that are polled, with the time of the last look that succeeded.
#[derive(Default)]
pub(in crate::dispatch) struct LastLooks(Mutex<BTreeMap<String, Instant>>);

impl LastLooks {
    /// Notes the beginning of polling on a host, or a look there that succeeded.
    pub(super) fn note(&self, host: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(host.to_owned(), Instant::now());
    }

    /// Returns the time since then, for each host.
    pub(in crate::dispatch) fn ages(&self) -> Vec<(String, Duration)> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.iter().map(|(host, at)| (host.clone(), at.elapsed())).collect()
    }
}
