//! A frozen repository: nobody applies anything there until somebody lifts it.

use super::{PullId, RepoId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The stop on all applies of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The repository.
    pub repo: RepoId,
    /// Who said so.
    pub user: String,
    /// Why, as the person said; untrusted.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
    /// Where it was said; absent when on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullId>,
}

impl Freeze {
    /// Who, since when and why, for people.
    pub fn words(&self) -> String {
        let since = self.since.strftime("%Y-%m-%d %H:%M UTC");
        let why = if self.why.is_empty() { String::new() } else { format!(" ({})", self.why) };
        format!("{} froze {} at {since}{why}", self.user, self.repo.full_name())
    }
}
