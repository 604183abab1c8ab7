//! What an engine can do for a job. An engine knows nothing of results: only the objects of the job say how it ended.

use crate::vault::jobs::JobPrefix;
use async_trait::async_trait;

/// A job as an engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineState {
    /// The engine knows nothing of the job, or cannot be asked: its signs of life count.
    Unknown,
    /// It runs, or will.
    Alive,
    /// It does not run any more, for the reason in the text.
    Ended(String),
}

/// Reason for which a job could not be started; for people.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotStarted {
    /// The engine did not answer, or is full: the start is repeated.
    #[error("{0}")]
    NotNow(String),
    /// It cannot succeed.
    #[error("{0}")]
    Never(String),
}

/// Starts `tidelock run-job` somewhere.
#[async_trait]
pub(crate) trait Engine: Send + Sync {
    /// Starts a job. A start may be repeated: the claim decides which attempt runs.
    async fn start(&self, prefix: &JobPrefix) -> Result<(), NotStarted>;

    /// Returns the present state of a job.
    async fn look(&self, prefix: &JobPrefix) -> EngineState;

    /// Ends a job that does not end by itself.
    async fn end(&self, prefix: &JobPrefix);

    /// Returns true if jobs go on when the server ends.
    fn outlives_server(&self) -> bool {
        true
    }

    /// Removes what the engine keeps about a job that has ended.
    async fn clean(&self, prefix: &JobPrefix);
}
