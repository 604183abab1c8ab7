//! The leader: commits one at a time, bases, deletion of old objects, renewal and release of the lease.

mod base;
mod restore;
#[cfg(test)]
mod tests;

use super::calls::{self, Calls, Pauses};
use super::chain::Chain;
use super::inbox::{self, InboxEntry, InboxEntryKind};
use super::lease::Held;
use super::pack::build::{self, Draft, Packed};
use super::pack::{Header, ObjectKind};
use super::protocol::{AfterTry, CommitTry, Doubt, Protocol, Proven};
use super::{Changes, Image, Position, Vault, VaultError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

pub(super) use restore::lead;

/// Number of remembered positions. A base can be written for each of them.
const POSITIONS: usize = 1 << 16;
/// Time for which a deposed leader waits for the answer to a commit that it has sent.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// The leader: the only process that may write. Cheap to clone. Once it is deposed, every call fails with [`VaultError::Deposed`].
#[derive(Clone)]
pub struct Leader<P: Protocol = Proven> {
    shared: Arc<Leadership<P>>,
}

struct Leadership<P: Protocol> {
    vault: Vault,
    held: Held<P>,
    /// Number of objects so far. Locked while a commit is created, so that there is one at a time.
    writing: tokio::sync::Mutex<u64>,
    known: Mutex<Known>,
    deposed: watch::Sender<Option<String>>,
    /// Names of foreign and unusable objects that the log has named.
    told: tokio::sync::Mutex<inbox::LoggedNames>,
}

/// Knowledge of this leader about the journal and the bases.
struct Known {
    /// The last positions whose creation was answered, without a gap. Each has the bytes of the journal up to it.
    positions: VecDeque<(Position, u64)>,
    /// The newest base that this leader wrote, read back and verified.
    verified: Option<u64>,
    /// Number of the newest base, its size, and the bytes of the journal up to it.
    base: (u64, u64, u64),
    /// Highest format of the state among the objects of its chain.
    schema: u32,
    figures: Figures,
    /// Start of the present commit, on this clock.
    begun: Option<Duration>,
}

/// End of a term that was released with all its commits known. [`super::Vault::lead_after`] goes on from it if no other server has led
/// since.
#[derive(Debug, Clone)]
pub struct LastTerm {
    pub(super) epoch: u64,
    pub(super) position: Position,
    journal_bytes: u64,
    verified: Option<u64>,
    /// Like [`Known::base`].
    pub(super) base: (u64, u64, u64),
    schema: u32,
}

/// Figures for metrics and `/status`.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Commits of this leader.
    pub commits: u64,
    /// Bytes of the commits.
    pub commit_bytes: u64,
    /// Bases of this leader.
    pub bases: u64,
    /// Bytes of them.
    pub base_bytes: u64,
    /// Duration of the last commit, from its first try to its answer.
    pub last_commit: Duration,
    /// Duration of the present commit so far.
    pub ongoing: Option<Duration>,
    /// Journal objects after the newest base.
    pub tail_objects: u64,
    /// Bytes of them.
    pub tail_bytes: u64,
    /// Time since the last successful renewal was sent.
    pub lease_age: Duration,
}

impl<P: Protocol> Leader<P> {
    /// Creates the next journal object and returns once it is stored. Commits are created one at a time. A commit without an answer is
    /// retried with the same bytes as long as the lease can be held. Then the leader is deposed, and only a restore shows whether the
    /// object is stored.
    pub async fn commit(&self, changes: Changes) -> Result<Position, VaultError> {
        let mut counter = self.shared.writing.lock().await;
        self.shared.check()?;
        let started = self.shared.vault.clock.now();
        let position = self.position();
        let Changes { schema, rows, blobs } = changes;
        *counter += 1;
        let header = header(&self.shared.vault, ObjectKind::Commit, position, self.epoch(), *counter, schema);
        let packed = build::build(Draft { header, rows, database: None, blobs }).await?;
        // If the caller drops this future, the outcome of the write stays unknown until a restore.
        let abandoned = Abandoned(Some(&self.shared));
        self.shared.lock_known().begun = Some(started);
        let created = self.shared.create(position.seq + 1, packed).await;
        abandoned.disarm();
        self.shared.lock_known().begun = None;
        let packed = self.shared.deposing(created)?;
        let position = Position { seq: position.seq + 1, hash: packed.hash };
        let took = self.shared.vault.clock.now().saturating_sub(started);
        self.shared.lock_known().committed(position, packed.size, schema, took);
        Ok(position)
    }

    /// Returns the position of the last commit, or of the seal.
    pub fn position(&self) -> Position {
        self.shared.lock_known().last().0
    }

    /// Returns the epoch of this leader.
    pub fn epoch(&self) -> u64 {
        self.shared.held.epoch()
    }

    /// Checks that this server still leads, and renews the lease if its deadline has passed. To be called right before each effect
    /// outside the bucket.
    pub async fn may_act(&self) -> Result<(), VaultError> {
        self.shared.check()?;
        while self.shared.held.is_past() {
            self.shared.renew().await?;
        }
        self.shared.check()
    }

    /// Renews the lease. To be called every [`super::lease::Timing::renew`] from a task of its own, so that nothing delays it. After an
    /// error other than [`VaultError::Deposed`], the next renewal tries again.
    pub async fn renew(&self) -> Result<(), VaultError> {
        self.shared.check()?;
        self.shared.renew().await
    }

    /// Lists the inbox, with only the valid hand-over requests. To be called as often as the lease is renewed, from another task, because
    /// a long inbox takes time. If the bucket does not answer, logs that and returns an empty list.
    pub async fn list_inbox(&self) -> Result<Vec<InboxEntry>, VaultError> {
        self.shared.check()?;
        match self.inbox().await {
            Err(error @ VaultError::Bucket(super::bucket::BucketError::Unavailable { .. })) => {
                tracing::warn!(%error, "cannot look into the inbox; trying again");
                Ok(Vec::new())
            }
            result => result,
        }
    }

    async fn inbox(&self) -> Result<Vec<InboxEntry>, VaultError> {
        let vault = &self.shared.vault;
        let mut told = self.shared.told.lock().await;
        let listed = inbox::list(vault, &mut told).await?;
        let (requests, mut entries): (Vec<InboxEntry>, Vec<InboxEntry>) =
            listed.into_iter().partition(|one| one.kind == InboxEntryKind::HandOver);
        entries.extend(inbox::followed(vault, self.epoch(), requests, &mut told).await);
        Ok(entries)
    }

    /// Returns true if a base should be written now.
    pub fn base_due(&self) -> bool {
        let retention = &self.shared.vault.retention;
        let known = self.shared.lock_known();
        let (objects, bytes) = known.tail();
        retention.is_base_due(objects, bytes, known.base.1)
    }

    /// Writes a base, reads it back and verifies it. Returns false if there is one of that position or a later one already.
    pub async fn write_base(&self, image: Image) -> Result<bool, VaultError> {
        self.shared.check()?;
        base::write(&self.shared, image).await
    }

    /// Deletes the objects that no state within [`super::Retention`] needs. Returns their number. Seals are never deleted.
    pub async fn collect(&self) -> Result<u64, VaultError> {
        self.shared.check()?;
        base::collect(&self.shared).await
    }

    /// Releases the lease, so that the next leader does not have to wait. No other call may follow. Returns what this process needs to go
    /// on from here; nothing if this leader was deposed already, as the outcome of its last commit may be unknown then.
    pub async fn release(&self) -> Result<Option<LastTerm>, VaultError> {
        // The outcome of the present commit has to be known first.
        let _writing = self.shared.writing.lock().await;
        let last = self.shared.check().is_ok().then(|| self.shared.lock_known().last_term(self.epoch()));
        let released = self.shared.held.release().await;
        self.shared.depose("the lease was released");
        released.map(|()| last)
    }

    /// Deposes this leader for a reason of its own server. The lease is not released; it expires.
    pub fn stand_down(&self, reason: &str) {
        self.shared.depose(reason);
    }

    /// Stores the outcome of a job in the inbox, for the next leader. Works on a deposed leader, too.
    pub async fn leave_late_outcome(&self, end: &super::inbox::LateOutcome) -> Result<(), VaultError> {
        inbox::store_late_outcome(&self.shared.vault, end).await
    }

    /// Resolves once this leader is deposed, with the reason.
    pub async fn deposed(&self) -> String {
        self.shared.until_deposed().await
    }

    /// Returns the figures for metrics.
    pub fn figures(&self) -> Figures {
        let known = self.shared.lock_known();
        let (tail_objects, tail_bytes) = known.tail();
        let ongoing = known.begun.map(|begun| self.shared.vault.clock.now().saturating_sub(begun));
        Figures { tail_objects, tail_bytes, ongoing, lease_age: self.shared.held.age(), ..known.figures.clone() }
    }
}

/// Deposes the leader when it is dropped, because the outcome of the present commit stays unknown.
struct Abandoned<'a, P: Protocol>(Option<&'a Leadership<P>>);

impl<P: Protocol> Abandoned<'_, P> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<P: Protocol> Drop for Abandoned<'_, P> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.depose("a commit was abandoned before its outcome was known");
        }
    }
}

impl<P: Protocol> Leadership<P> {
    fn new(vault: Vault, held: Held<P>, counter: u64, known: Known) -> Leadership<P> {
        Leadership {
            vault,
            held,
            writing: tokio::sync::Mutex::new(counter),
            known: Mutex::new(known),
            deposed: watch::Sender::new(None),
            told: tokio::sync::Mutex::default(),
        }
    }

    fn lock_known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> Calls {
        self.vault.calls()
    }

    fn protocol(&self) -> &P {
        self.held.protocol()
    }

    /// Logs the names of foreign objects, each once.
    async fn name_others(&self, names: &[String]) {
        let mut told = self.told.lock().await;
        let place = self.vault.bucket.location();
        for name in names {
            if told.first(name) {
                tracing::warn!("{place}/{name} was not written by Tidelock and is ignored");
            }
        }
    }

    fn check(&self) -> Result<(), VaultError> {
        match &*self.deposed.borrow() {
            Some(reason) => Err(VaultError::Deposed(reason.clone())),
            None => Ok(()),
        }
    }

    fn depose(&self, reason: &str) {
        self.deposed.send_if_modified(|deposed| {
            let first = deposed.is_none();
            deposed.get_or_insert_with(|| reason.to_owned());
            first
        });
    }

    async fn until_deposed(&self) -> String {
        let mut deposed = self.deposed.subscribe();
        let reason = deposed.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default());
        match reason {
            Ok(reason) => reason,
            // Not reached: the sender lives as long as `self`.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns the result. If it is [`VaultError::Deposed`], deposes this leader, so that all later calls fail.
    fn deposing<T>(&self, result: Result<T, VaultError>) -> Result<T, VaultError> {
        if let Err(VaultError::Deposed(reason)) = &result {
            self.depose(reason);
        }
        result
    }

    async fn renew(&self) -> Result<(), VaultError> {
        self.deposing(self.held.renew().await)
    }

    /// Creates a journal object. Tries until the outcome is known or the lease is lost. Returns the stored object.
    async fn create(&self, seq: u64, packed: Packed) -> Result<Packed, VaultError> {
        let calls = self.calls();
        let mut pauses = Pauses::new();
        let mut now = CommitTry { seq, packed };
        let mut doubt = Doubt::None;
        loop {
            let name = calls::journal(now.seq);
            // A large object may take long; a deposed leader does not wait for it.
            let given_up = async {
                let why = self.until_deposed().await;
                self.vault.clock.sleep(LAST_ANSWER).await;
                why
            };
            let attempt = tokio::select! {
                biased;
                attempt = calls.attempt(self.protocol(), &name, &now.packed, doubt) => attempt?,
                why = given_up => return Err(VaultError::Deposed(why)),
            };
            now = match self.protocol().after(attempt, now) {
                AfterTry::Done(packed) => return Ok(packed),
                AfterTry::Deposed(whose) => return Err(VaultError::Deposed(whose)),
                AfterTry::Again(next, why) => {
                    tracing::warn!(name, why, "the outcome of a commit is unknown; trying again");
                    next
                }
            };
            // From here on, only the object itself or a restore shows whether it is stored.
            doubt = Doubt::EarlierTry;
            pauses.wait(&*self.vault.clock).await;
            self.check()?;
            if self.held.is_past()
                && let Err(error) = self.held.renew().await
            {
                return Err(match error {
                    error @ VaultError::Deposed(_) => error,
                    error => VaultError::Deposed(format!("it is unknown whether {name} was stored: {error}")),
                });
            }
        }
    }
}

impl Known {
    /// Initial state after a restore. This leader has not read the chain's base back.
    fn restored(chain: &Chain, seal: Position, seal_size: u64) -> Known {
        Known {
            positions: VecDeque::from([(seal, chain.journal_bytes() + seal_size)]),
            verified: None,
            base: (chain.base, chain.base_bytes(), 0),
            schema: chain.schema,
            figures: Figures::default(),
            begun: None,
        }
    }

    /// Initial state of a term that goes on from the last one of this process.
    fn continued(last: &LastTerm, seal: Position, seal_size: u64) -> Known {
        let LastTerm { journal_bytes, verified, base, schema, .. } = *last;
        let positions = VecDeque::from([(seal, journal_bytes + seal_size)]);
        Known { positions, verified, base, schema, figures: Figures::default(), begun: None }
    }

    fn last_term(&self, epoch: u64) -> LastTerm {
        let (position, journal_bytes) = self.last();
        LastTerm { epoch, position, journal_bytes, verified: self.verified, base: self.base, schema: self.schema }
    }

    fn last(&self) -> (Position, u64) {
        self.positions.back().copied().unwrap_or_default()
    }

    /// Returns the number of journal objects after the newest base, and their bytes.
    fn tail(&self) -> (u64, u64) {
        let (last, bytes) = self.last();
        let (base, _, before) = self.base;
        (last.seq.saturating_sub(base), bytes.saturating_sub(before))
    }

    /// Returns the bytes of the journal up to a position of this leader; absent for any other position.
    fn bytes_at(&self, position: &Position) -> Option<u64> {
        let (first, _) = self.positions.front()?;
        let place = usize::try_from(position.seq.checked_sub(first.seq)?).ok()?;
        self.positions.get(place).filter(|(known, _)| known == position).map(|(_, bytes)| *bytes)
    }

    fn committed(&mut self, position: Position, size: u64, schema: u32, took: Duration) {
        let (_, bytes) = self.last();
        if self.positions.len() == POSITIONS {
            self.positions.pop_front();
        }
        self.positions.push_back((position, bytes + size));
        self.schema = self.schema.max(schema);
        self.figures.commits += 1;
        self.figures.commit_bytes += size;
        self.figures.last_commit = took;
    }

    /// Records a base that was written and verified.
    fn based(&mut self, seq: u64, size: u64, schema: u32, before: u64) {
        self.schema = self.schema.max(schema);
        self.verified = self.verified.max(Some(seq));
        self.base = self.base.max((seq, size, before));
        self.figures.bases += 1;
        self.figures.base_bytes += size;
    }
}

/// Returns a header without contents, for the journal object after `after` or for the base at it.
fn header(vault: &Vault, kind: ObjectKind, after: Position, epoch: u64, counter: u64, schema: u32) -> Header {
    Header {
        kind,
        seq: if kind == ObjectKind::Base { after.seq } else { after.seq + 1 },
        epoch,
        writer: vault.identity.nonce.clone(),
        counter,
        previous: after.hash,
        schema,
        created: vault.clock.wall(),
        version: vault.identity.version.clone(),
        rows: None,
        database: None,
        blobs: Vec::new(),
    }
}
