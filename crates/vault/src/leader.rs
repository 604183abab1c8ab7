//! Writing state: seal, commits one at a time, bases, deletion of what is old, renewal and release.

mod base;
mod restore;
#[cfg(test)]
mod tests;

use super::calls::{self, Calls, Pauses};
use super::chain::Chain;
use super::inbox::{self, Mail, MailKind};
use super::lease::Held;
use super::pack::build::{self, Draft, Packed};
use super::pack::{Header, Kind};
use super::protocol::{Next, Protocol, Proven, Try};
use super::{Changes, Image, Position, Vault, VaultError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

pub(super) use restore::lead;

/// Positions that are remembered, so that a base can be written for one of them.
const POSITIONS: usize = 1 << 16;
/// Once deposed, the answer to a commit that is on its way is waited for this long.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// The one server that may write; cheap to clone. Every call ends with [`VaultError::Deposed`] once it is not the one any more.
#[derive(Clone)]
pub struct Leader<P: Protocol = Proven> {
    shared: Arc<Shared<P>>,
}

struct Shared<P: Protocol> {
    vault: Vault,
    held: Held<P>,
    /// Held while an object is created: one at a time. The counter of objects.
    writing: tokio::sync::Mutex<u64>,
    known: Mutex<Known>,
    deposed: watch::Sender<Option<String>>,
    /// Objects of others, and what cannot be read, that the log has named.
    told: tokio::sync::Mutex<inbox::Told>,
}

/// What is known of the journal.
struct Known {
    /// The last positions whose create was answered, in order and without gap, each with the bytes of the journal up to it.
    positions: VecDeque<(Position, u64)>,
    /// The newest base that this leader wrote, read back and verified.
    verified: Option<u64>,
    /// Number of the newest base, its size, and the bytes of the journal up to it.
    base: (u64, u64, u64),
    figures: Figures,
    /// When the commit that is being written was begun, on our clock.
    begun: Option<Duration>,
}

/// Figures for metrics and `/status`.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Commits of this leader.
    pub commits: u64,
    /// Bytes of them.
    pub commit_bytes: u64,
    /// Bases of this leader.
    pub bases: u64,
    /// Bytes of them.
    pub base_bytes: u64,
    /// How long the last commit took, from its first try to its answer.
    pub last_commit: Duration,
    /// How long the commit that is being written has taken so far.
    pub ongoing: Option<Duration>,
    /// Journal objects after the newest base.
    pub tail_objects: u64,
    /// Bytes of them.
    pub tail_bytes: u64,
    /// Since the last successful renewal was sent.
    pub lease_age: Duration,
}

impl<P: Protocol> Leader<P> {
    /// Creates the next journal object and returns when it is there; one at a time. Retries with the same bytes as long as the
    /// lease can be held, then gives up as deposed (the object may be there or not; a restore will tell).
    pub async fn commit(&self, changes: Changes) -> Result<Position, VaultError> {
        let mut counter = self.shared.writing.lock().await;
        self.shared.check()?;
        let started = self.shared.vault.clock.now();
        let position = self.position();
        let Changes { schema, rows, blobs } = changes;
        *counter += 1;
        let header = header(&self.shared.vault, Kind::Commit, position, self.epoch(), *counter, schema);
        let packed = build::build(Draft { header, rows, database: None, blobs }).await?;
        // A caller that goes away leaves a write whose outcome nobody will know: a restore must tell.
        let abandoned = Abandoned(Some(&self.shared));
        self.shared.known().begun = Some(started);
        let created = self.shared.create(position.seq + 1, packed).await;
        abandoned.disarm();
        self.shared.known().begun = None;
        let packed = self.shared.deposing(created)?;
        let position = Position { seq: position.seq + 1, hash: packed.hash };
        let took = self.shared.vault.clock.now().saturating_sub(started);
        self.shared.known().committed(position, packed.size, took);
        Ok(position)
    }

    /// Where the journal ends.
    pub fn position(&self) -> Position {
        self.shared.known().last().0
    }

    /// Our epoch.
    pub fn epoch(&self) -> u64 {
        self.shared.held.epoch()
    }

    /// Right before an effect outside the bucket: looks at the deadline; past it, renews first (DESIGN §3 "Outbox").
    pub async fn may_act(&self) -> Result<(), VaultError> {
        self.shared.check()?;
        while self.shared.held.is_past() {
            self.shared.renew().await?;
            if self.shared.held.holds() {
                break;
            }
        }
        self.shared.check()
    }

    /// Renews the lease: every [`super::lease::Timing::renew`], by a task that does nothing else, so that nothing delays it.
    /// An error but [`VaultError::Deposed`] leaves it to the next renewal.
    pub async fn renew(&self) -> Result<(), VaultError> {
        self.shared.check()?;
        self.shared.renew().await
    }

    /// Looks into the inbox: as often as the lease is renewed, by another task, as a long inbox takes long. Without an answer it
    /// gives no mail and says so in the log; the next look asks again. Of hand-over requests it gives those that are to be followed.
    pub async fn look(&self) -> Result<Vec<Mail>, VaultError> {
        self.shared.check()?;
        match self.mail().await {
            Err(error @ VaultError::Bucket(super::bucket::BucketError::Unavailable { .. })) => {
                tracing::warn!(%error, "cannot look into the inbox; trying again");
                Ok(Vec::new())
            }
            result => result,
        }
    }

    async fn mail(&self) -> Result<Vec<Mail>, VaultError> {
        let vault = &self.shared.vault;
        let mut told = self.shared.told.lock().await;
        let listed = inbox::list(vault, &mut told).await?;
        let (requests, mut mail): (Vec<Mail>, Vec<Mail>) =
            listed.into_iter().partition(|one| one.kind == MailKind::HandOver);
        mail.extend(inbox::followed(vault, self.epoch(), requests, &mut told).await);
        Ok(mail)
    }

    /// Whether a base should be written now.
    pub fn base_due(&self) -> bool {
        let retention = &self.shared.vault.retention;
        let known = self.shared.known();
        let (objects, bytes) = known.tail();
        retention.is_base_due(objects, bytes, known.base.1)
    }

    /// Writes a base, reads it back and verifies it. False when one of that position is there already.
    pub async fn write_base(&self, image: Image) -> Result<bool, VaultError> {
        self.shared.check()?;
        base::write(&self.shared, image).await
    }

    /// Deletes what neither the last states nor the last day need; how many objects went. Seals stay for ever.
    pub async fn collect(&self) -> Result<u64, VaultError> {
        self.shared.check()?;
        base::collect(&self.shared).await
    }

    /// Gives the lease up, so that the next one need not wait. No call may follow.
    pub async fn release(&self) -> Result<(), VaultError> {
        // After the commit in flight, whose outcome is to be known.
        let _writing = self.shared.writing.lock().await;
        let released = self.shared.held.release().await;
        self.shared.depose("the lease was released");
        released
    }

    /// Ends this leader from within: its own server found that it cannot go on. The lease is left to run out.
    pub fn stand_down(&self, reason: &str) {
        self.shared.depose(reason);
    }

    /// Leaves the end of a job in the inbox; also when deposed, as whoever leads then has to know.
    pub async fn leave_end(&self, end: &super::inbox::End) -> Result<(), VaultError> {
        inbox::store_end(&self.shared.vault, end).await
    }

    /// Resolves once this leader is deposed, with the reason.
    pub async fn deposed(&self) -> String {
        self.shared.until_deposed().await
    }

    /// For metrics.
    pub fn figures(&self) -> Figures {
        let known = self.shared.known();
        let (tail_objects, tail_bytes) = known.tail();
        let ongoing = known.begun.map(|begun| self.shared.vault.clock.now().saturating_sub(begun));
        Figures { tail_objects, tail_bytes, ongoing, lease_age: self.shared.held.age(), ..known.figures.clone() }
    }
}

/// Deposes when it is dropped: what was being created may be there or not.
struct Abandoned<'a, P: Protocol>(Option<&'a Shared<P>>);

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

impl<P: Protocol> Shared<P> {
    fn new(vault: Vault, held: Held<P>, counter: u64, known: Known) -> Shared<P> {
        Shared {
            vault,
            held,
            writing: tokio::sync::Mutex::new(counter),
            known: Mutex::new(known),
            deposed: watch::Sender::new(None),
            told: tokio::sync::Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> Calls {
        self.vault.calls()
    }

    fn protocol(&self) -> &P {
        self.held.protocol()
    }

    /// Names in the log, once, what lies among our objects and is not ours.
    async fn name_others(&self, names: &[String]) {
        let mut told = self.told.lock().await;
        let place = self.vault.bucket.location();
        for name in names {
            if told.first(name) {
                tracing::warn!("{place}/{name} is nothing that Tidelock wrote: it is left alone");
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
            // Not reached: the sender lives as long as we do.
            Err(_) => std::future::pending().await,
        }
    }

    /// Passes a result on; one that says deposed holds for all calls from now on.
    fn deposing<T>(&self, result: Result<T, VaultError>) -> Result<T, VaultError> {
        if let Err(VaultError::Deposed(reason)) = &result {
            self.depose(reason);
        }
        result
    }

    async fn renew(&self) -> Result<(), VaultError> {
        self.deposing(self.held.renew().await)
    }

    /// Creates the next journal object, with the same bytes until the outcome is known or the lease is lost. Gives what is
    /// there.
    async fn create(&self, seq: u64, packed: Packed) -> Result<Packed, VaultError> {
        let calls = self.calls();
        let mut pauses = Pauses::new();
        let mut now = Try { seq, packed };
        let mut in_doubt = false;
        loop {
            let name = calls::journal(now.seq);
            // A large object may be on its way for long; whoever is deposed does not wait for that.
            let given_up = async {
                let why = self.until_deposed().await;
                self.vault.clock.sleep(LAST_ANSWER).await;
                why
            };
            let attempt = tokio::select! {
                biased;
                attempt = calls.attempt(self.protocol(), &name, &now.packed, in_doubt) => attempt?,
                why = given_up => return Err(VaultError::Deposed(why)),
            };
            now = match self.protocol().after(attempt, now) {
                Next::Done(packed) => return Ok(packed),
                Next::Deposed(whose) => return Err(VaultError::Deposed(whose)),
                Next::Again(next, why) => {
                    tracing::warn!(name, why, "the outcome of a commit is unknown; trying again");
                    next
                }
            };
            // From here on, only the object itself or a restore can tell whether it is stored.
            in_doubt = true;
            pauses.wait(&*self.vault.clock).await;
            self.check()?;
            if self.held.is_past()
                && let Err(error) = self.held.renew().await
            {
                return Err(match error {
                    error @ VaultError::Deposed(_) => error,
                    error => VaultError::Deposed(format!("nobody knows whether {name} is there: {error}")),
                });
            }
        }
    }
}

impl Known {
    /// What is known after a restore; nothing of `chain`'s base was read back by us yet.
    fn restored(chain: &Chain, seal: Position, seal_size: u64) -> Known {
        Known {
            positions: VecDeque::from([(seal, chain.journal_bytes() + seal_size)]),
            verified: None,
            base: (chain.base, chain.base_bytes(), 0),
            figures: Figures::default(),
            begun: None,
        }
    }

    fn last(&self) -> (Position, u64) {
        self.positions.back().copied().unwrap_or_default()
    }

    /// Journal objects after the newest base, and their bytes.
    fn tail(&self) -> (u64, u64) {
        let (last, bytes) = self.last();
        let (base, _, before) = self.base;
        (last.seq.saturating_sub(base), bytes.saturating_sub(before))
    }

    /// The journal's bytes up to a position of ours.
    fn bytes_at(&self, position: &Position) -> Option<u64> {
        let (first, _) = self.positions.front()?;
        let place = usize::try_from(position.seq.checked_sub(first.seq)?).ok()?;
        self.positions.get(place).filter(|(known, _)| known == position).map(|(_, bytes)| *bytes)
    }

    fn committed(&mut self, position: Position, size: u64, took: Duration) {
        let (_, bytes) = self.last();
        if self.positions.len() == POSITIONS {
            self.positions.pop_front();
        }
        self.positions.push_back((position, bytes + size));
        self.figures.commits += 1;
        self.figures.commit_bytes += size;
        self.figures.last_commit = took;
    }

    /// A base was written and verified.
    fn based(&mut self, seq: u64, size: u64, before: u64) {
        self.verified = self.verified.max(Some(seq));
        self.base = self.base.max((seq, size, before));
        self.figures.bases += 1;
        self.figures.base_bytes += size;
    }
}

/// A header without contents: the object after `after`, or the base of it.
fn header(vault: &Vault, kind: Kind, after: Position, epoch: u64, counter: u64, schema: u32) -> Header {
    Header {
        kind,
        seq: if kind == Kind::Base { after.seq } else { after.seq + 1 },
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
