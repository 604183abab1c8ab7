//! Facts about a packed tree that its files do not tell.

use crate::checkout::own_git::Missing;
use serde::{Deserialize, Serialize};
use tidelock_core::domain::CommitSha;

/// The last entry of an archive, in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TreeFacts {
    /// The commit that is checked out.
    pub(super) commit: CommitSha,
    /// Refs of the host's branches.
    pub(super) refs: Vec<PackedRef>,
    /// Commits whose parents are not in the archive.
    pub(super) shallow: Vec<CommitSha>,
    /// Address of the repository, unless it is a path of the machine.
    pub(super) url: Option<String>,
    /// Way in which git takes missing objects.
    pub(super) missing: Missing,
    /// Patterns of a sparse tree.
    pub(super) patterns: Option<String>,
    /// Pointers of Git LFS, as the server's git directory records them.
    pub(super) pointers: Option<String>,
    /// Directories with files that are not as git wrote them; absent if unknown.
    pub(super) touched: Option<Vec<String>>,
}

/// A ref of a tree's `.git`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PackedRef {
    /// Name below `refs/remotes/`.
    pub(super) name: String,
    pub(super) commit: CommitSha,
}
