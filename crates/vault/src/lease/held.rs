//! The lease while it is held: renewals, one at a time, its deadline, and its release.

use super::{
    Lease, NAME, ObservedLease, between_writes, held_for, is_of_bucket, is_unavailable, once, patiently, record,
    released, write,
};
use crate::bucket::{Generation, Written};
use crate::protocol::{Protocol, Proven};
use crate::{Vault, VaultError};
use std::sync::Mutex;
use std::time::Duration;

/// Tries of one renewal or release.
const TRIES: usize = 3;

/// A lease that this process holds.
pub struct Held<P: Protocol = Proven> {
    vault: Vault,
    protocol: P,
    epoch: u64,
    state: tokio::sync::Mutex<RenewalState>,
    deadline: Mutex<Duration>,
}

struct RenewalState {
    generation: Generation,
    /// Time at which the last write was sent.
    sent: Duration,
    /// Time at which the first write with an unknown outcome was sent. All such writes name `generation`.
    unanswered: Option<Duration>,
}

impl Held {
    pub(crate) fn new(vault: &Vault, lease: &Lease) -> Held {
        Held::under(Proven, vault, lease)
    }
}

impl<P: Protocol> Held<P> {
    pub(crate) fn under(protocol: P, vault: &Vault, lease: &Lease) -> Held<P> {
        let sent = lease.deadline.saturating_sub(held_for(&vault.timing));
        let state = RenewalState { generation: lease.generation, sent, unanswered: None };
        Held {
            vault: vault.clone(),
            protocol,
            epoch: lease.epoch,
            state: tokio::sync::Mutex::new(state),
            deadline: Mutex::new(lease.deadline),
        }
    }

    pub(crate) fn protocol(&self) -> &P {
        &self.protocol
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the time after which another server may hold the lease.
    pub(crate) fn deadline(&self) -> Duration {
        *self.deadline.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set_deadline(&self, deadline: Duration) {
        *self.deadline.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = deadline;
    }

    /// Returns the time since the last successful renewal was sent.
    pub(crate) fn age(&self) -> Duration {
        let sent = self.deadline().saturating_sub(held_for(&self.vault.timing));
        self.vault.clock.now().saturating_sub(sent)
    }

    pub(crate) fn is_past(&self) -> bool {
        self.vault.clock.now() > self.deadline()
    }

    /// Renews the lease. Fails if another server holds it, or if its deadline has passed without an answer in time. A failure before the
    /// deadline is only logged, and the next renewal tries again.
    pub(crate) async fn renew(&self) -> Result<(), VaultError> {
        let clock = &self.vault.clock;
        let least = between_writes(&self.vault.timing);
        let mut state = self.state.lock().await;
        // Another task renewed it just now.
        if clock.now() < state.sent + least && !self.is_past() && state.unanswered.is_none() {
            return Ok(());
        }
        let mut why = String::new();
        for _ in 0..TRIES {
            let next = state.sent + least;
            if clock.now() < next {
                clock.sleep(next.saturating_sub(clock.now())).await;
            }
            match self.once(&mut state).await {
                // The answer may come after the deadline that it gives.
                Ok(true) if !self.is_past() => return Ok(()),
                Ok(true) => why = "its answers come too late".into(),
                Ok(false) => {}
                Err(error @ VaultError::Bucket(_)) => why = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        if self.is_past() {
            return Err(VaultError::Deposed(format!("the lease could not be renewed in time: {why}")));
        }
        tracing::warn!(why, "the lease could not be renewed yet");
        Ok(())
    }

    /// Writes the lease once. Returns true if the write took effect; the new deadline may have passed already.
    async fn once(&self, state: &mut RenewalState) -> Result<bool, VaultError> {
        let Held { vault, epoch, .. } = self;
        let sent = vault.clock.now();
        state.sent = sent;
        // Set before the write is sent: this future may be dropped while it waits.
        let first = *state.unanswered.get_or_insert(sent);
        let written = write(vault, state.generation, &record(vault, *epoch)).await;
        if let Ok(Written::Stored(generation)) = written {
            // Writes that are still on their way name an older generation, so they will be refused.
            (state.generation, state.unanswered) = (generation, None);
            let since = self.protocol.counts_from(sent, vault.clock.now());
            self.set_deadline(since + held_for(&vault.timing));
            return Ok(true);
        }
        let seen = self.own(once(vault).await?)?;
        if seen == state.generation {
            return written.map(|_| false);
        }
        // One of the writes without an answer took effect. The first of them gives the earliest time.
        (state.generation, state.unanswered) = (seen, None);
        self.set_deadline(self.deadline().max(first + held_for(&vault.timing)));
        Ok(true)
    }

    /// Returns the generation of the lease; an error if this process no longer holds it.
    fn own(&self, seen: ObservedLease) -> Result<Generation, VaultError> {
        let record = seen.record;
        let holder = record.as_ref().and_then(|record| record.holder.as_ref());
        let nonce = &self.vault.identity.nonce;
        match (holder, &record) {
            (Some(_), Some(record)) if self.protocol.is_own(record, nonce, self.epoch) => Ok(seen.generation),
            (Some(holder), Some(record)) => Err(VaultError::Deposed(format!(
                "{} ({}) leads since epoch {}, ours was {}",
                holder.machine, holder.url, record.epoch, self.epoch
            ))),
            _ => Err(VaultError::Deposed(format!("{NAME} is not held by us any more"))),
        }
    }

    /// Checks that this process still holds the lease. Does not take the lock, so renewals continue meanwhile.
    pub(crate) async fn confirm(&self) -> Result<(), VaultError> {
        self.own(patiently(&self.vault).await?).map(drop)
    }

    /// Releases the lease. Fails if another server holds it already, or if the outcome is unknown.
    pub(crate) async fn release(&self) -> Result<(), VaultError> {
        let Held { vault, epoch, .. } = self;
        let mut state = self.state.lock().await;
        let (mut last, mut doubt) = (None, false);
        for attempt in 0..TRIES {
            if attempt > 0 {
                vault.clock.sleep(between_writes(&vault.timing)).await;
            }
            match self.protocol.give_up(vault, state.generation, *epoch).await {
                Ok(Written::Stored(_)) => return Ok(()),
                Ok(Written::Refused) => doubt = true,
                // After a try without an answer, a refusal leaves the outcome of that try unknown.
                Err(error) if is_unavailable(&error) || (doubt && is_of_bucket(&error)) => {
                    (doubt, last) = (true, Some(error));
                }
                Err(error) => return Err(error),
            }
            match once(vault).await {
                Ok(seen) if seen.record.as_ref() == Some(&released(vault, *epoch)) => return Ok(()),
                Ok(seen) => state.generation = self.own(seen)?,
                Err(error) if is_of_bucket(&error) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last
            .unwrap_or_else(|| VaultError::Deposed("the lease could not be released: it changed at every try".into())))
    }
}
