//! The outbox: does recorded effects on the host, in order per pull request, at least once, and at rest exactly once.

use crate::domain::PullId;
use crate::store::Store;
use crate::vcs::Host;
use std::sync::Arc;
use std::time::Duration;

/// Handle to the workers; cheap to clone.
#[derive(Clone)]
pub struct Outbox {}

impl Outbox {
    /// Starts with what an earlier process left: those comments are looked for by their marker before they are posted.
    pub async fn start(_store: Store, _hosts: Vec<Arc<dyn Host>>) -> anyhow::Result<Outbox> {
        todo!()
    }

    /// Effects of this pull request were committed: do them.
    pub fn wake(&self, _pull: &PullId) {
        todo!()
    }

    /// Waits until nothing is left to do, at most this long; whether that was reached.
    pub async fn drain(&self, _limit: Duration) -> bool {
        todo!()
    }
}
