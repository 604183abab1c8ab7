//! Issues of a repository.

use super::HostError;
use tidelock_core::domain::RepoId;

/// An issue on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIssue {
    /// Its number.
    pub number: u64,
    /// Address of its page; empty if the host reports none.
    pub url: String,
    /// True if it is not closed.
    pub open: bool,
    /// True if it is an issue of the server's own account, and no pull request.
    pub is_ours: bool,
    /// Whole text, untrusted.
    pub body: String,
}

/// An issue to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIssue {
    /// One line.
    pub title: String,
    /// Text, at most [`super::Profile::comment_limit`] characters.
    pub body: String,
    /// Names of its labels.
    pub labels: Vec<String>,
}

/// A change of an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueEdit {
    /// Replaces its text.
    Text(String),
    /// Closes it as completed.
    Close,
}

/// Returns the error of a host on which the server keeps no issues.
pub(super) fn unsupported(repo: &RepoId) -> HostError {
    let message = "the server keeps no issues on this host".to_owned();
    HostError::Rejected { what: format!("issues of {repo}"), status: 501, message }
}
