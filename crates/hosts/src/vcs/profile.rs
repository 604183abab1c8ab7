//! Limits and features of a host.

use tidelock_core::domain::{CommitAddress, OwnersLanguage};

/// Properties of a host that wording, the outbox and pages depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name of the host in requests of Atlantis' API.
    pub api_type: &'static str,
    /// Longest comment, in characters as the host counts them.
    pub comment_limit: usize,
    /// True if parts of comments can be folded (`<details>`).
    pub folds: bool,
    /// True if Markdown hides HTML comments and renders tags. Otherwise people see both as text.
    pub html_comments: bool,
    /// Mark before the number of a pull request: `#` for `#7`, `!` for `!7`.
    pub pull_mark: char,
    /// True if a comment changes the version of its pull request. Otherwise reconciliation requests comments in every round.
    pub versions_cover_comments: bool,
    /// True if comments can get reactions.
    pub reactions: bool,
    /// True if statuses belong to commits, so that pull requests with the same head share them. Otherwise each pull request has its own.
    pub statuses_of_commits: bool,
    /// True if statuses are posted as checks, which show details: text, remarks at lines of code, and buttons.
    pub status_details: bool,
    /// True if the server can keep issues there. A repository may still have them disabled.
    pub issues: bool,
    /// True if deliveries of a pull request include its labels.
    pub deliveries_tell_labels: bool,
    /// True if the host alone decides what its deliveries say. Otherwise whoever configures a webhook chooses their text, and a comment is
    /// read from the host before it is obeyed.
    pub deliveries_prove_comments: bool,
    /// Paths of a repository's `CODEOWNERS`; the first existing file counts.
    pub owner_files: &'static [&'static str],
    /// Language of that file.
    pub owner_language: OwnersLanguage,
    /// Names of the ways to merge that the host has, as `repos.yaml` writes them. A repository may allow fewer.
    pub merge_methods: Vec<&'static str>,
    /// Address of the pages of commits; absent if there are none.
    pub commit_address: Option<CommitAddress>,
}

impl Profile {
    /// Returns a pull request's number as the host writes it, such as `#7`.
    pub fn pull_name(&self, number: u64) -> String {
        format!("{}{number}", self.pull_mark)
    }
}
