//! Our comments that people see, in the order in which they were written.

use jiff::Timestamp;

/// A comment of ours that is not hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownComment {
    /// Id by which the host hides and rewrites it.
    pub id: String,
    /// Whole text.
    pub body: String,
    /// Time of the last writing, by the host's clock. GitHub and Gitea report whole seconds.
    pub written: Timestamp,
}

impl ShownComment {
    /// Sorts comments by the time of their last writing, and those of one time by their places, which follow their creation.
    pub(crate) fn oldest_first(mut found: Vec<(u64, Self)>) -> Vec<Self> {
        found.sort_by_key(|(place, comment)| (comment.written, *place));
        found.into_iter().map(|(_, comment)| comment).collect()
    }
}
