//! Comments of ours that are there more than once: all but one are deleted, by the server that leads.

use crate::domain::PullId;
use crate::store::Store;
use crate::vcs::{Host, HostError};

/// Why something was not done on a host.
#[derive(Debug)]
pub enum HostOrStateError {
    /// The host refused, or did not answer.
    Host(HostError),
    /// The state, or the right to act.
    State(anyhow::Error),
}

impl From<HostError> for HostOrStateError {
    fn from(error: HostError) -> HostOrStateError {
        HostOrStateError::Host(error)
    }
}

impl From<anyhow::Error> for HostOrStateError {
    fn from(error: anyhow::Error) -> HostOrStateError {
        HostOrStateError::State(error)
    }
}

/// Deletes these comments, which say what another one says. Right before each, the store is asked whether this server may still act.
pub async fn delete(store: &Store, host: &dyn Host, pull: &PullId, comments: &[u64]) -> Result<(), HostOrStateError> {
    for comment in comments {
        store.may_act().await?;
        tracing::warn!(%pull, comment, "a comment was there twice; the later one goes");
        host.delete_comment(pull, *comment).await?;
    }
    Ok(())
}
