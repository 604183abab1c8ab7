//! Automatic applies whose review or status was never delivered, or that became due by the end of a freeze.

use super::{HostOrStateError, Round, tolerate};
use crate::dispatch::auto_applies;
use crate::domain::PullId;
use crate::execute::auto_apply;

impl Round<'_> {
    /// Looks for automatic applies that are due on these pull requests.
    pub(super) async fn auto_applies(&self, pulls: &[PullId]) -> Result<(), HostOrStateError> {
        let pulls = pulls.to_vec();
        let awaited = self.inner.ctx.store.read(move |view| {
            let mut awaited = Vec::new();
            for pull in pulls {
                let Some(known) = view.pull(&pull)? else { continue };
                if !auto_apply::awaited(view, &pull, &known.head.commit)?.is_empty() {
                    awaited.push(pull);
                }
            }
            Ok(awaited)
        });
        for pull in awaited.await? {
            if !self.may_ask() || self.inner.actors.draining() {
                return Ok(());
            }
            tolerate(&pull, auto_applies::in_round(self.inner, &pull).await)?;
        }
        Ok(())
    }
}
