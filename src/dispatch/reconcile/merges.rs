//! New attempts at merges that the host has refused.

use super::{HostOrStateError, Round, tolerate};
use crate::dispatch::merge_again::{self, MergeCause};
use crate::domain::PullId;

impl Round<'_> {
    /// Tries merges again that the host has refused and would accept now: not every host sends a delivery when that changes.
    pub(super) async fn merges(&self, pulls: &[PullId]) -> Result<(), HostOrStateError> {
        let pulls = pulls.to_vec();
        let refused = self.inner.ctx.store.read(move |view| {
            let mut refused = Vec::new();
            for pull in pulls {
                if merge_again::refused_merge(view, &pull, MergeCause::Round)?.is_some() {
                    refused.push(pull);
                }
            }
            Ok(refused)
        });
        for pull in refused.await? {
            if !self.may_ask() || self.inner.actors.draining() {
                return Ok(());
            }
            tolerate(&pull, merge_again::try_again(self.inner, &pull, MergeCause::Round).await)?;
        }
        Ok(())
    }
}
