//! Whether hosts were compared with the state since this server took the lead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Delay of the first round after taking the lead: deliveries that are on their way come first. The second round sees what was too fresh
/// for the first.
const FIRST: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];

/// Returns the pauses before the rounds of a host. `usual`: before all but the first ones.
pub(super) fn pauses(usual: Duration) -> impl Iterator<Item = Duration> {
    FIRST.into_iter().chain(std::iter::repeat(usual))
}

/// Hosts whose first rounds have not ended yet.
pub(in crate::dispatch) struct FirstRounds(AtomicUsize);

impl FirstRounds {
    /// Begins with the rounds of this many hosts.
    pub(in crate::dispatch) fn of(hosts: usize) -> FirstRounds {
        FirstRounds(AtomicUsize::new(hosts))
    }

    /// Returns true once each host was compared twice since this server took the lead, or could not be.
    pub(in crate::dispatch) fn have_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Notes the end of a round of one host; `round` counts from 0.
    pub(super) fn ended(&self, round: usize) {
        if round + 1 == FIRST.len() {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
