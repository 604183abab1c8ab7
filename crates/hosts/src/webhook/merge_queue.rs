//! Identities of deliveries about the entries of a merge queue. Each contains the base of its entry, so that the entries below are found
//! among the identities of earlier deliveries.

use tidelock_core::domain::{CommitSha, DeliveryId, RepoId};

/// Prefix of the identity of the delivery about the entry of this commit.
pub(crate) fn entry_identities(kind: &str, repo: &RepoId, commit: &CommitSha) -> String {
    format!("{kind}:{repo}:merge_group:{commit}:")
}

/// An entry of a queue, read from the identity of its delivery.
#[derive(Debug, PartialEq, Eq)]
pub struct EntryBelow {
    /// Pull request that it adds.
    pub number: u64,
    /// Commit that it is built on.
    pub base: CommitSha,
}

impl EntryBelow {
    /// Reads an identity that begins with [`super::Intake::entry_identities`].
    pub fn parse(identity: &DeliveryId) -> Option<EntryBelow> {
        let (rest, base) = identity.as_str().rsplit_once(':')?;
        let (_, number) = rest.rsplit_once(':')?;
        Some(EntryBelow { number: number.parse().ok()?, base: CommitSha::parse(base).ok()? })
    }
}
