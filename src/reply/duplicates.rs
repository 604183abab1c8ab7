//! Deletes duplicates of our own comments; one of each stays. Only the leader does this.

use crate::domain::PullId;
use crate::store::Store;
use crate::vcs::{Host, HostError};

/// Reason for which an operation on a host failed.
#[derive(Debug)]
pub(crate) enum HostOrStateError {
    /// The host refused or did not respond.
    Host(HostError),
    /// The state cannot be read or written, or this server may not act any more.
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

/// Deletes comments that repeat another one. Checks with the store before each deletion that this server may still act.
pub(crate) async fn delete(
    store: &Store,
    host: &dyn Host,
    pull: &PullId,
    comments: &[u64],
) -> Result<(), HostOrStateError> {
    for comment in comments {
        store.may_act().await?;
        tracing::warn!(%pull, comment, "a duplicate comment is deleted; the oldest one stays");
        host.delete_comment(pull, *comment).await?;
    }
    Ok(())
}
