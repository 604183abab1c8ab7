//! Event → who may do what: allowlist, trigger, one queue and one actor per pull request, cancel, close, drain.

use crate::domain::Event;
use crate::domain::state::ProjectLock;
use crate::webhook::Verified;

/// What the rest of the server asks of dispatch.
#[derive(Clone)]
pub struct Handle {}

/// Answer to a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Text for whoever looks at the delivery on the host.
    pub text: String,
}

/// How deleting a lock by hand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discard {
    /// It is gone, its plan too.
    Deleted(ProjectLock),
    /// There is no such lock.
    Absent,
    /// An apply of this project runs; its job.
    Applying {
        /// Id of the job.
        job: String,
    },
}

impl Handle {
    /// Takes a verified event: acknowledges at once what causes no work, records what does, and only then answers.
    pub async fn accept(&self, _event: Verified<Event>) -> Answer {
        todo!()
    }

    /// Deletes a project lock and its plan on behalf of a person on the web page, and tells the pull request.
    pub async fn discard_lock(&self, _key: &str, _who: &str) -> anyhow::Result<Discard> {
        todo!()
    }

    /// How many commands run or wait.
    pub fn in_progress(&self) -> usize {
        todo!()
    }

    /// Whether a shutdown has begun.
    pub fn draining(&self) -> bool {
        todo!()
    }
}
