//! Freeze of a repository: all applies are refused there until a person lifts it.

use super::{PullId, RepoId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The stop on all applies of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The repository.
    pub repo: RepoId,
    /// The person who froze it.
    pub user: String,
    /// The person's reason, untrusted.
    pub why: String,
    /// Start time.
    pub since: Timestamp,
    /// The pull request on which the command was given; absent if it was given on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullId>,
}

impl Freeze {
    /// Describes the freeze for people: who, since when and why.
    pub fn describe(&self) -> String {
        let since = self.since.strftime("%Y-%m-%d %H:%M UTC");
        let why = if self.why.is_empty() { String::new() } else { format!(" ({})", self.why) };
        format!("{} froze {} at {since}{why}", self.user, self.repo.full_name())
    }
}
