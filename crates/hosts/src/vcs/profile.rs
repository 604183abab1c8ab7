//! How a host wants to be written to: limits, markup, what it has and has not.

use tidelock_core::domain::CommitAddress;

/// What wording, the outbox and pages have to know about a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name in requests of Atlantis' API.
    pub api_type: &'static str,
    /// Longest comment, in characters as the host counts them.
    pub comment_limit: usize,
    /// Its comments can have parts that are folded (`<details>`).
    pub folds: bool,
    /// What a pull request's number is written with: `#` for `#7`, `!` for `!7`.
    pub pull_mark: char,
    /// The version of a pull request changes when somebody comments on it. Otherwise reconciliation asks for comments in every round.
    pub versions_cover_comments: bool,
    /// Comments can get reactions.
    pub reactions: bool,
    /// Statuses are those of commits: all pull requests with one head have them together. Otherwise each pull request has its own.
    pub statuses_of_commits: bool,
    /// Deliveries of a pull request tell its labels.
    pub deliveries_tell_labels: bool,
    /// Where a repository has its `CODEOWNERS`; the first file that is there counts.
    pub owner_files: &'static [&'static str],
    /// Where people find commits; absent where there is no such page.
    pub commit_address: Option<CommitAddress>,
}

impl Profile {
    /// A pull request's number as the host writes it, such as `#7`.
    pub fn pull_name(&self, number: u64) -> String {
        format!("{}{number}", self.pull_mark)
    }
}
