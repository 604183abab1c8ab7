//! Known ways to break the protocol, each with one wrong decision.

use crate::bucket::{Body, BucketError, Generation, Written};
use crate::calls::{Attempt, Calls, journal};
use crate::leader::LastTerm;
use crate::lease::{self, Held, Record};
use crate::pack::build::{Packed, with_next_counter};
use crate::pack::{ObjectHead, decode_head};
use crate::protocol::{AfterTry, Answered, CommitTry, Doubt, Protocol, Proven, SealAfter};
use crate::{Position, Vault, VaultError, chain};
use std::time::Duration;

/// One broken variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Old seals are deleted, too.
    SealsCollected,
    /// A new leader leads as soon as its seal is stored.
    NoLookAfterSeal,
    /// Bases are not listed again between reading the journal and the seal.
    NoLookBeforeSeal,
    /// Like [`Mutation::NoLookBeforeSeal`], and after the seal only a base at or above it counts.
    LooksOnlyAboveSeal,
    /// A new leader does not seal.
    NoSeal,
    /// A leader goes on from its last term whatever happened since. The seal alone stops it, so this breaks nothing.
    LastTermUnchecked,
    /// Like [`Mutation::LastTermUnchecked`], and any seal counts as its own.
    LastTermTrusted,
    /// 412 counts as success.
    RefusedIsSuccess,
    /// A refusal other than 412 counts as not done although an earlier try had no answer.
    RefusalIsUndone,
    /// 412 counts as failure, and the next number is tried.
    NextPlaceTaken,
    /// A retry carries other bytes than the first try.
    RetryRegrouped,
    /// Like [`Mutation::RetryRegrouped`], and after a 412 any object of the same writer counts as stored.
    RetryRegroupedSameWriter,
    /// A commit without an answer counts as stored, and the next one is sent.
    AnswerNotAwaited,
    /// A base may be of a position that no answered commit made.
    BaseUnchecked,
    /// A gap or an object that was deleted during a read stops a restore at once.
    GapStops,
    /// A release deletes the lease.
    LeaseDeleted,
    /// The lease's deadline counts from the answer to a renewal.
    DeadlineFromAnswer,
    /// A lease that was seen unchanged for half a TTL is taken.
    LeaseTakenEarly,
    /// A leader takes any held lease for its own.
    LeaseOfAnyoneIsOwn,
    /// An object of the inbox counts as stored without an answer.
    InboxAnswerNotAwaited,
    /// The first journal object after a base is deleted with those before it.
    DeletesPastBase,
}

use Mutation::{
    AnswerNotAwaited, BaseUnchecked, DeadlineFromAnswer, DeletesPastBase, GapStops, InboxAnswerNotAwaited,
    LastTermTrusted, LastTermUnchecked, LeaseDeleted, LeaseOfAnyoneIsOwn, LeaseTakenEarly, LooksOnlyAboveSeal,
    NextPlaceTaken, NoLookAfterSeal, NoLookBeforeSeal, NoSeal, RefusalIsUndone, RefusedIsSuccess, RetryRegrouped,
    RetryRegroupedSameWriter, SealsCollected,
};

/// The protocol with at most one wrong decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broken(pub(super) Option<Mutation>);

impl Broken {
    fn is(&self, mutation: Mutation) -> bool {
        self.0 == Some(mutation)
    }
}

impl Protocol for Broken {
    fn answered(&self, answer: Result<Written, BucketError>, doubt: Doubt) -> Result<Answered, BucketError> {
        match answer {
            Ok(Written::Refused) if self.is(RefusedIsSuccess) => Ok(Answered::Stored),
            answer if self.is(RefusalIsUndone) => Proven.answered(answer, Doubt::None),
            answer => Proven.answered(answer, doubt),
        }
    }

    fn is_same(&self, head: &ObjectHead, size: u64, packed: &Packed) -> bool {
        Proven.is_same(head, size, packed)
            || (self.is(RetryRegroupedSameWriter) && head.header.writer == writer(packed))
    }

    fn after(&self, attempt: Attempt, CommitTry { seq, packed }: CommitTry) -> AfterTry {
        match (attempt, self.0) {
            (Attempt::Theirs(why), Some(NextPlaceTaken)) => AfterTry::Again(CommitTry { seq: seq + 1, packed }, why),
            (Attempt::Unknown(_), Some(AnswerNotAwaited)) => AfterTry::Done(packed),
            (Attempt::Unknown(why), Some(RetryRegrouped | RetryRegroupedSameWriter)) => {
                AfterTry::Again(CommitTry { seq, packed: with_next_counter(&packed) }, why)
            }
            (attempt, _) => Proven.after(attempt, CommitTry { seq, packed }),
        }
    }

    fn base_allowed(&self, journal_bytes: Option<u64>) -> Option<u64> {
        journal_bytes.or(self.is(BaseUnchecked).then_some(0))
    }

    fn is_deletable(&self, label: &str) -> bool {
        self.is(SealsCollected) || Proven.is_deletable(label)
    }

    fn is_explained(&self, before: u64, now: u64) -> bool {
        !self.is(GapStops) && Proven.is_explained(before, now)
    }

    async fn is_newest(&self, vault: &Vault, base: u64) -> Result<bool, VaultError> {
        match self.0 {
            Some(NoLookBeforeSeal | LooksOnlyAboveSeal) => Ok(true),
            _ => Proven.is_newest(vault, base).await,
        }
    }

    async fn is_unchanged(&self, vault: &Vault, epoch: u64, last: &LastTerm) -> Result<bool, VaultError> {
        if self.is(LastTermTrusted) || self.is(LastTermUnchecked) {
            Ok(true)
        } else {
            Proven.is_unchanged(vault, epoch, last).await
        }
    }

    async fn seal(&self, calls: &Calls, name: &str, seal: &Packed, after: SealAfter) -> Result<Attempt, BucketError> {
        if self.is(NoSeal) {
            return Ok(Attempt::Ours);
        }
        match calls.create(self, name, seal).await? {
            Attempt::Theirs(_) if self.is(LastTermTrusted) && after == SealAfter::LastTerm => Ok(Attempt::Ours),
            attempt => Ok(attempt),
        }
    }

    fn goes_on_from(&self, restored: Position, sealed: Position) -> Position {
        if self.is(NoSeal) { restored } else { Proven.goes_on_from(restored, sealed) }
    }

    async fn is_undisturbed(&self, vault: &Vault, held: &Held<Self>, base: u64, seal: u64) -> Result<bool, VaultError> {
        if matches!(self.0, Some(NoLookAfterSeal | NoSeal)) {
            return Ok(true);
        }
        held.confirm().await?;
        let calls = vault.calls();
        let newest = chain::newest_base(&calls).await?;
        let newer = if self.is(LooksOnlyAboveSeal) { newest >= seal } else { newest != base };
        Ok(!newer && chain::numbered(&calls, "journal/", &journal(seal)).await?.is_empty())
    }

    fn inbox_answered(&self, answer: Result<Written, BucketError>) -> Result<Written, BucketError> {
        match answer {
            Err(BucketError::Unavailable { .. }) if self.is(InboxAnswerNotAwaited) => Ok(Written::Stored(0)),
            answer => Proven.inbox_answered(answer),
        }
    }

    fn is_replaced(&self, seq: u64, base: u64) -> bool {
        Proven.is_replaced(seq, base + u64::from(self.is(DeletesPastBase)))
    }

    fn is_expired(&self, unchanged: Duration, ttl: Duration) -> bool {
        Proven.is_expired(unchanged, if self.is(LeaseTakenEarly) { ttl / 2 } else { ttl })
    }

    fn is_own(&self, lease: &Record, nonce: &str, epoch: u64) -> bool {
        self.is(LeaseOfAnyoneIsOwn) || Proven.is_own(lease, nonce, epoch)
    }

    fn counts_from(&self, sent: Duration, answered: Duration) -> Duration {
        if self.is(DeadlineFromAnswer) { answered } else { Proven.counts_from(sent, answered) }
    }

    async fn give_up(&self, vault: &Vault, expected: Generation, epoch: u64) -> Result<Written, VaultError> {
        match self.0 {
            Some(LeaseDeleted) => Ok(vault.bucket.delete(lease::NAME, expected).await.map(|_| Written::Stored(0))?),
            _ => Proven.give_up(vault, expected, epoch).await,
        }
    }
}

/// Returns the nonce of an object's writer.
fn writer(packed: &Packed) -> String {
    let Body::Bytes(bytes) = &packed.body else { panic!("the simulation's objects are small") };
    decode_head(bytes, packed.size).unwrap().header.writer
}
