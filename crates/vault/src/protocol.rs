//! All decisions on which the safety of the journal, of the lease and of jobs depends. The server uses them as written here ([`Proven`]).
//! The simulation replaces one at a time by a wrong one, to show that its judge detects it.

use super::bucket::{BucketError, Generation, Written};
use super::calls::{self, Attempt, Calls};
use super::jobs::{self, Claimant, Created, JobObjects, JobResult};
use super::leader::LastTerm;
use super::lease::{self, Held, Record};
use super::pack::build::Packed;
use super::pack::{ObjectHead, ObjectKind};
use super::{Position, Vault, VaultError, chain};
use bytes::Bytes;
use std::future::Future;
use std::time::Duration;

/// The protocol without changes, as the simulation checks it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proven;

impl Protocol for Proven {}

/// Meaning of the answer to the creation of an object.
pub enum Answered {
    /// The object is stored.
    Stored,
    /// The outcome is unknown until the object of this name is compared.
    Compare,
    /// There was no answer.
    Unknown(String),
}

/// Doubt about an object that a try creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// No earlier try can have stored it.
    None,
    /// An earlier try had no answer and may have stored it, so that only the object itself can show it.
    EarlierTry,
}

/// Way in which a new leader got the state that it seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealAfter {
    /// It read the state.
    Restore,
    /// It has the state since its last term.
    LastTerm,
}

/// One try to commit.
pub struct CommitTry {
    /// Number of the journal object.
    pub(crate) seq: u64,
    /// Its bytes.
    pub(crate) packed: Packed,
}

/// Next step after a try to commit.
pub enum AfterTry {
    /// The object is stored.
    Done(Packed),
    /// Another server's object has the name, as the text says: this leader is deposed.
    Deposed(String),
    /// The outcome is unknown, for the reason in the text: this try is next.
    Again(CommitTry, String),
}

/// Decisions of the protocol. Only the provided methods are right.
pub trait Protocol: Clone + Send + Sync + 'static {
    /// Interprets the answer to the creation of an object.
    ///
    /// A failed precondition may be due to our own write whose answer was lost. Any other refusal is about this try alone, and leaves the
    /// outcome of an earlier try without an answer unknown.
    fn answered(&self, answer: Result<Written, BucketError>, doubt: Doubt) -> Result<Answered, BucketError> {
        match answer {
            Ok(Written::Stored(_)) => Ok(Answered::Stored),
            Ok(Written::Refused) => Ok(Answered::Compare),
            Err(error @ BucketError::Unavailable { .. }) => Ok(Answered::Unknown(error.to_string())),
            Err(_) if doubt == Doubt::EarlierTry => Ok(Answered::Compare),
            Err(error) => Err(error),
        }
    }

    /// Returns true if an object of this head and size is the packed one: the hash of the head covers all contents.
    fn is_same(&self, head: &ObjectHead, size: u64, packed: &Packed) -> bool {
        size == packed.size && head.hash == packed.hash
    }

    /// Decides the next step after a try to commit. While its outcome is unknown, the same bytes are tried under the same number.
    fn after(&self, attempt: Attempt, tried: CommitTry) -> AfterTry {
        match attempt {
            Attempt::Ours => AfterTry::Done(tried.packed),
            Attempt::Theirs(whose) => AfterTry::Deposed(whose),
            Attempt::Unknown(why) => AfterTry::Again(tried, why),
        }
    }

    /// Returns the bytes of the journal up to a position if a base may be written for it; absent otherwise. They are known only for
    /// positions whose creation was answered to this leader.
    fn base_allowed(&self, journal_bytes: Option<u64>) -> Option<u64> {
        journal_bytes
    }

    /// Returns true if an old journal object with this label may be deleted. Seals are never deleted: a writer that was paused for any
    /// time must collide with the seal of its successor.
    fn is_deletable(&self, label: &str) -> bool {
        label == ObjectKind::Commit.label()
    }

    /// Returns true if a newer base explains that an object was missing during a read. `before` and `now` are the numbers of the newest
    /// base before the read and after it.
    fn is_explained(&self, before: u64, now: u64) -> bool {
        now != before
    }

    /// Returns true if the base that was read is still the newest one, before the seal. If not, the number after the last commit that was
    /// read may lie below a newer base.
    fn is_newest(&self, vault: &Vault, base: u64) -> impl Future<Output = Result<bool, VaultError>> + Send {
        async move { Ok(chain::newest_base(&vault.calls()).await? == base) }
    }

    /// Returns true if the state at the end of this process's last term may be the newest one: its lease was the one before this, and bases
    /// and journal end as they did. It saves a restore; the seal decides.
    fn is_unchanged(
        &self,
        vault: &Vault,
        epoch: u64,
        last: &LastTerm,
    ) -> impl Future<Output = Result<bool, VaultError>> + Send {
        async move {
            Ok(epoch == last.epoch + 1
                && self.is_newest(vault, last.base.0).await?
                && chain::ends_with(&vault.calls(), last.position).await?)
        }
    }

    /// Creates the seal under this name, so that no later write of an older leader to that name is stored.
    fn seal(
        &self,
        calls: &Calls,
        name: &str,
        seal: &Packed,
        _after: SealAfter,
    ) -> impl Future<Output = Result<Attempt, BucketError>> + Send {
        calls.create(self, name, seal)
    }

    /// Returns the position that a new leader continues from, given the restored one and that of its seal.
    fn goes_on_from(&self, _restored: Position, sealed: Position) -> Position {
        sealed
    }

    /// Returns true if, after the seal, the lease is still ours, `base` still the newest base, and no journal object above the seal's
    /// number. Of two servers that start at once, one may have sealed a number below a newer base.
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

    /// Interprets the answer to the creation of an object of the inbox. Without an answer it is not known to be stored, and its content
    /// must not be acknowledged.
    fn inbox_answered(&self, answer: Result<Written, BucketError>) -> Result<Written, BucketError> {
        answer
    }

    /// Returns true if a base at `base` replaces the journal object `seq`, so that the latter may be deleted.
    fn is_replaced(&self, seq: u64, base: u64) -> bool {
        seq <= base
    }

    /// Returns true if a waiting server may take a lease that it has seen unchanged for this long.
    fn is_expired(&self, unchanged: Duration, ttl: Duration) -> bool {
        unchanged >= ttl
    }

    /// Returns true if the lease still names this process as its holder, in the epoch in which it was taken.
    fn is_own(&self, lease: &Record, nonce: &str, epoch: u64) -> bool {
        lease.holder.as_ref().is_some_and(|holder| holder.nonce == nonce) && lease.epoch == epoch
    }

    /// Returns the moment from which a renewed lease counts: no other server can have seen the renewal before it.
    fn counts_from(&self, sent: Duration, _answered: Duration) -> Duration {
        sent
    }

    /// Releases the lease by writing it without a holder. It is never deleted, so that its epoch only grows.
    fn give_up(
        &self,
        vault: &Vault,
        expected: Generation,
        epoch: u64,
    ) -> impl Future<Output = Result<Written, VaultError>> + Send {
        async move { lease::write(vault, expected, &lease::released(vault, epoch)).await }
    }

    /// Creates an object of a job. The first one under a name counts, so that of all attempts and leaders one has the claim, and one the
    /// result. None is ever overwritten.
    fn create_job_object(
        &self,
        calls: &Calls,
        name: &str,
        bytes: Bytes,
        label: &str,
    ) -> impl Future<Output = Result<Created<Bytes>, BucketError>> + Send {
        jobs::create_first(self, calls, name, bytes, label)
    }

    /// Withdraws a job by the claim. Only that stops an attempt that the engine starts later, or has started.
    fn withdraw_job(
        &self,
        job: &JobObjects<Self>,
        leader: &str,
    ) -> impl Future<Output = Result<Created<Claimant>, VaultError>> + Send {
        async move { job.put_claim(&Claimant::Withdrawn(leader.to_owned())).await }
    }

    /// Gives a job up by its result. Only that makes an attempt that still ends store a late end.
    fn give_up_job(
        &self,
        job: &JobObjects<Self>,
        end: &JobResult,
    ) -> impl Future<Output = Result<Created<JobResult>, VaultError>> + Send {
        job.put_given_up(end)
    }

    /// Returns true if an object of a job stays when the others are deleted. An attempt may be paused for any time, and must collide with
    /// the claim before it runs, and with the result of a leader that gave it up when it ends.
    fn outlives_job(&self, object: &str, label: &str) -> bool {
        object == jobs::CLAIM || object == jobs::LATE || (object == jobs::RESULT && label != jobs::RESULT)
    }
}
