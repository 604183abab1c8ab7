//! Whether the outbox has something to do.

use super::{Outbox, PATIENCE, lock};
use std::time::Duration;
use tokio::time::Instant;

impl Outbox {
    /// Returns the time at which the next effect is to be tried; absent if there is none.
    pub fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        lock(&self.shared.lanes).values().map(|working| working.until.unwrap_or(now)).min()
    }

    /// Waits at most this long until no effect is due soon; returns true if that was reached.
    pub async fn wait_until_idle(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.idle()).await.is_ok()
    }

    pub(super) async fn idle(&self) {
        loop {
            let mut ended = std::pin::pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            let later = Instant::now() + PATIENCE;
            if lock(&self.shared.lanes).values().all(|working| working.until.is_some_and(|until| until > later)) {
                return;
            }
            ended.await;
        }
    }
}
