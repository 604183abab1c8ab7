//! The decisions that the safety of the journal and of the lease rests on, in one place. The server takes each of them as it is written
//! here ([`Proven`]). The simulation replaces one at a time by a wrong one, to show that its judge notices.

use super::bucket::{BucketError, Generation, Written};
use super::calls::{self, Attempt, Calls};
use super::lease::{self, Held};
use super::pack::build::Packed;
use super::pack::{ObjectHead, ObjectKind};
use super::{Position, Vault, VaultError, chain};
use std::future::Future;
use std::time::Duration;

/// The protocol as it was checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proven;

impl Protocol for Proven {}

/// What the answer to the creation of an object says.
pub enum Answered {
    /// The object is stored.
    Stored,
    /// Only the object that lies under the name can tell.
    Compare,
    /// There was no answer.
    Unknown(String),
}

/// One try to commit: where, and what.
pub struct CommitTry {
    /// Number of the journal object.
    pub(crate) seq: u64,
    /// Its bytes.
    pub(crate) packed: Packed,
}

/// What follows a try to commit.
pub enum AfterTry {
    /// The object is there.
    Done(Packed),
    /// Somebody else's object is there, described in the text: this leader is deposed.
    Deposed(String),
    /// The outcome is unknown, for the reason in the text: this is tried next.
    Again(CommitTry, String),
}

/// The decisions. Only the provided methods are right.
pub trait Protocol: Clone + Send + Sync + 'static {
    /// What the answer to the creation of an object says. `in_doubt`: an earlier try had no answer.
    ///
    /// A precondition that failed may be one's own success whose answer was lost. Any other refusal is about this try alone, and says
    /// nothing about an earlier one that had no answer.
    fn answered(&self, answer: Result<Written, BucketError>, in_doubt: bool) -> Result<Answered, BucketError> {
        match answer {
            Ok(Written::Stored(_)) => Ok(Answered::Stored),
            Ok(Written::Refused) => Ok(Answered::Compare),
            Err(error @ BucketError::Unavailable { .. }) => Ok(Answered::Unknown(error.to_string())),
            Err(_) if in_doubt => Ok(Answered::Compare),
            Err(error) => Err(error),
        }
    }

    /// Whether an object of this head and size is the one that was packed: the hash of the head covers all that is behind it.
    fn is_same(&self, head: &ObjectHead, size: u64, packed: &Packed) -> bool {
        size == packed.size && head.hash == packed.hash
    }

    /// What follows a try to commit. While its outcome is unknown, the same bytes are tried under the same number.
    fn after(&self, attempt: Attempt, tried: CommitTry) -> AfterTry {
        match attempt {
            Attempt::Ours => AfterTry::Done(tried.packed),
            Attempt::Theirs(whose) => AfterTry::Deposed(whose),
            Attempt::Unknown(why) => AfterTry::Again(tried, why),
        }
    }

    /// Whether a base may be written for a position, given the bytes of the journal up to it. Those are known only for positions whose
    /// creation was answered to this leader.
    fn base_allowed(&self, journal_bytes: Option<u64>) -> Option<u64> {
        journal_bytes
    }

    /// Whether an old journal object with this label may be deleted. Seals stay for ever: a writer that was paused for any time must
    /// collide with the seal of its successor.
    fn is_deletable(&self, label: &str) -> bool {
        label == ObjectKind::Commit.label()
    }

    /// Whether a newer base explains that an object was missing during a read. `before` and `now` are the numbers of the newest base
    /// before the read and after it.
    fn is_explained(&self, before: u64, now: u64) -> bool {
        now != before
    }

    /// Before the seal: whether the base that was read is still the newest one. If not, the number after the last commit that was read
    /// may be one that was left behind.
    fn is_newest(&self, vault: &Vault, base: u64) -> impl Future<Output = Result<bool, VaultError>> + Send {
        async move { Ok(chain::newest_base(&vault.calls()).await? == base) }
    }

    /// Creates the seal under this name, so that nothing that an older writer still sends under that name is stored.
    fn seal(
        &self,
        calls: &Calls,
        name: &str,
        seal: &Packed,
    ) -> impl Future<Output = Result<Attempt, BucketError>> + Send {
        calls.create(self, name, seal)
    }

    /// The position that a new leader goes on from, given the one that it restored and that of its seal.
    fn goes_on_from(&self, _restored: Position, sealed: Position) -> Position {
        sealed
    }

    /// After the seal: whether the lease is still ours, `base` still the newest base, and no journal object above the seal's number.
    /// Of two servers that start at once, one may have sealed a number that was left behind.
    fn is_undisturbed(
        &self,
        vault: &Vault,
        held: &Held<Self>,
        base: u64,
        seal: u64,
    ) -> impl Future<Output = Result<bool, VaultError>> + Send {
        async move {
            held.confirm().await?;
            let calls = vault.calls();
            Ok(chain::newest_base(&calls).await? == base
                && chain::numbered(&calls, "journal/", &calls::journal(seal)).await?.is_empty())
        }
    }

    /// What the answer to the creation of an object of the inbox says. Without an answer it is not known to be stored, and nothing that
    /// it carries may be acknowledged.
    fn inbox_answered(&self, answer: Result<Written, BucketError>) -> Result<Written, BucketError> {
        answer
    }

    /// Whether a base at `base` replaces the journal object `seq`, so that this one may be deleted.
    fn is_replaced(&self, seq: u64, base: u64) -> bool {
        seq <= base
    }

    /// Whether a waiting server may take a lease that it has seen unchanged for this long.
    fn is_expired(&self, unchanged: Duration, ttl: Duration) -> bool {
        unchanged >= ttl
    }

    /// Whether the lease is still ours. `named`: it names this process as its holder, in the epoch in which it took it.
    fn is_own(&self, named: bool) -> bool {
        named
    }

    /// The moment from which a renewed lease counts: the one before which no other server can have seen the renewal.
    fn counts_from(&self, sent: Duration, _answered: Duration) -> Duration {
        sent
    }

    /// Gives the lease up by writing it without a holder. It is never deleted, so that its epoch only grows.
    fn give_up(
        &self,
        vault: &Vault,
        expected: Generation,
        epoch: u64,
    ) -> impl Future<Output = Result<Written, VaultError>> + Send {
        async move { lease::write(vault, expected, &lease::record(vault, epoch, false)).await }
    }
}
