//! What an engine can do for a job. An engine knows nothing of results: only the objects of the job say how it ended.

use super::follow::Beginning;
use crate::vault::jobs::JobPrefix;
use async_trait::async_trait;
use std::time::Duration;

/// What an engine gets to know of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineJob<'a> {
    /// Prefix of its objects. It is secret: who reads it can write the job's result.
    pub(crate) prefix: &'a JobPrefix,
    /// Time between SIGINT and SIGKILL for its steps.
    pub(crate) grace: Duration,
    /// Whether an earlier leader may have started it.
    pub(crate) beginning: Beginning,
    /// True if an attempt is known to have claimed it.
    pub(crate) is_claimed: bool,
}

/// A job as an engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineState {
    /// The engine knows nothing of the job, or cannot be asked: its signs of life count.
    Unknown,
    /// It runs, or will.
    Alive,
    /// It does not run yet, for the reason in the text, which may pass.
    Held(String),
    /// It may be dead, for the reason in the text: its signs of life decide.
    Doubtful(String),
    /// None of the attempts that the engine knows runs any more, for the reason in the text.
    Ended(String),
}

/// Reason for which a job could not be started; for people.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotStarted {
    /// The engine did not answer, or is full: the start is repeated.
    #[error("{0}")]
    NotNow(String),
    /// The server lacks a right, or the right is not in force yet: the start is repeated for a short time.
    #[error("{0}")]
    NoRight(String),
    /// It cannot succeed.
    #[error("{0}")]
    Never(String),
}

/// Starts `tidelock run-job` somewhere.
#[async_trait]
pub(crate) trait Engine: Send + Sync {
    /// Starts a job. `number` is the count of starts, from 1; another leader begins at 1 again. The claim decides which attempt runs.
    ///
    /// Returns what people can look for in the engine, such as the name or the address of what was started.
    async fn start(&self, job: EngineJob<'_>, number: u32) -> Result<Option<String>, NotStarted>;

    /// Returns the present state of a job.
    async fn look(&self, job: EngineJob<'_>) -> EngineState;

    /// Ends a job that does not end by itself.
    async fn end(&self, job: EngineJob<'_>);

    /// Looks at the settings of the engine itself, once at the start. Returns warnings for the operator.
    async fn check(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if the engine knows attempts of other leaders, too.
    fn knows_all_attempts(&self) -> bool {
        true
    }

    /// Returns true if jobs go on when the server ends.
    fn outlives_server(&self) -> bool {
        true
    }

    /// Removes what the engine keeps about a job that has ended.
    async fn clean(&self, prefix: &JobPrefix);
}
