//! Identities of deliveries about a merge queue's entries. They say what an entry is built on, so the entries below one are found among
//! the identities of earlier deliveries.

use tidelock_core::domain::{CommitSha, DeliveryId, RepoId};

/// What the identity of the delivery about the entry of this commit begins with.
pub(super) fn entry_identities(kind: &str, repo: &RepoId, commit: &CommitSha) -> String {
    format!("{kind}:{repo}:merge_group:{commit}:")
}

/// An entry of a queue, as the identity of its delivery tells it.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryBelow {
    /// The pull request that it adds.
    pub number: u64,
    /// What it is built on.
    pub base: CommitSha,
}

impl EntryBelow {
    /// From an identity that begins with [`super::Intake::entry_identities`].
    pub fn of(identity: &DeliveryId) -> Option<EntryBelow> {
        let (rest, base) = identity.as_str().rsplit_once(':')?;
        let (_, number) = rest.rsplit_once(':')?;
        Some(EntryBelow { number: number.parse().ok()?, base: CommitSha::parse(base).ok()? })
    }
}
