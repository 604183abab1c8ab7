//! Merges that the host has refused, looked at again.

use super::{HostOrStateError, Round, tolerate};
use crate::dispatch::merge_again::{self, MergeCause};
use crate::domain::PullId;

impl Round<'_> {
    /// Merges that the host has refused and would do now: not every host tells of what lets it.
    pub(super) async fn merges(&self, pulls: &[PullId]) -> Result<(), HostOrStateError> {
        let pulls = pulls.to_vec();
        let refused = self.inner.ctx.store.read(move |view| {
            let mut refused = Vec::new();
            for pull in pulls {
                if merge_again::refused(view, &pull, MergeCause::Round)?.is_some() {
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
