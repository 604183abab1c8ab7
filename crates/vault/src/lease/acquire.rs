//! Waits for the lease and takes it.

use super::{
    Lease, ObservedLease, Record, between_writes, difference, is_of_bucket, is_unavailable, once, record, refusal,
    write,
};
use crate::bucket::{Generation, Written};
use crate::protocol::Protocol;
use crate::{Vault, VaultError, inbox};
use std::time::Duration;

/// State of a waiting server between two reads of the lease.
struct Waiter<'a, P: Protocol> {
    vault: &'a Vault,
    protocol: P,
    /// Generation that was read last, and the time since which it has not changed.
    unchanged: Option<(Generation, Duration)>,
    /// Epoch that was tried, and the time at which the first try with an unknown outcome was sent.
    tried: Option<(u64, Duration)>,
    /// True while the hand-over still has to be requested.
    ask: bool,
    /// Refusal that was logged last.
    said: Option<String>,
}

/// Waits for the lease and takes it ([`Vault::acquire`]).
pub(crate) async fn acquire<P: Protocol>(vault: &Vault, protocol: P) -> Result<Lease, VaultError> {
    Waiter::new(vault, protocol).wait().await
}

/// Does the same, and asks the leader to hand over ([`Vault::acquire_asking`]).
pub(crate) async fn acquire_asking<P: Protocol>(vault: &Vault, protocol: P) -> Result<Lease, VaultError> {
    Waiter { ask: true, ..Waiter::new(vault, protocol) }.wait().await
}

impl<'a, P: Protocol> Waiter<'a, P> {
    fn new(vault: &'a Vault, protocol: P) -> Waiter<'a, P> {
        Waiter { vault, protocol, unchanged: None, tried: None, ask: false, said: None }
    }

    async fn wait(&mut self) -> Result<Lease, VaultError> {
        let Waiter { vault, .. } = *self;
        // Before the lease is taken, so that no other server takes this process for ended while it holds the lease.
        vault.bucket.announce(&vault.identity.nonce)?;
        loop {
            match once(vault).await {
                Ok(seen) => {
                    if let Some(lease) = self.try_acquire(seen).await? {
                        return Ok(lease);
                    }
                }
                Err(error) if is_unavailable(&error) => tracing::warn!(%error, "cannot read the lease"),
                Err(error) => return Err(error),
            }
            let pause = match self.tried {
                Some(_) => between_writes(&vault.timing).min(vault.timing.poll),
                None => vault.timing.poll,
            };
            vault.clock.sleep(pause).await;
        }
    }

    async fn try_acquire(&mut self, seen: ObservedLease) -> Result<Option<Lease>, VaultError> {
        let Waiter { vault, .. } = *self;
        let now = vault.clock.now();
        if self.unchanged.is_none_or(|(generation, _)| generation != seen.generation) {
            self.unchanged = Some((seen.generation, now));
        }
        let Some(held) = &seen.record else { return self.write(&seen, 0).await };
        if let Some(lease) = self.taken(held, seen.generation, now) {
            return Ok(Some(lease));
        }
        if self.tried.is_some_and(|(epoch, _)| held.epoch >= epoch) {
            self.tried = None; // another server was faster; writes that are still on their way name an old generation
        }
        if let Some(difference) = difference(vault, held) {
            if !self.left_behind(held, now).await? {
                let why = refusal(vault, &difference);
                if self.said.as_ref() != Some(&why) {
                    tracing::warn!("this server does not lead: {why}");
                    self.said = Some(why);
                }
                return Ok(None);
            }
            tracing::warn!(
                "the settings differ from those of {} in {}; no server lives on this directory, so this one leads with the new ones",
                difference.whose,
                difference.what
            );
        }
        if self.free(held, now).await? {
            return self.write(&seen, held.epoch).await;
        }
        self.request(held).await;
        Ok(None)
    }

    /// Returns true if the bucket is a directory of this machine and the lease is free ([`Waiter::free`]).
    async fn left_behind(&self, held: &Record, now: Duration) -> Result<bool, VaultError> {
        Ok(self.vault.bucket.knows_who_lives() && self.free(held, now).await?)
    }

    /// Returns the lease if an earlier try without an answer took it.
    fn taken(&self, held: &Record, generation: Generation, now: Duration) -> Option<Lease> {
        let (epoch, sent) = self.tried?;
        let ours = held.epoch == epoch && held.holder.as_ref()?.nonce == self.vault.identity.nonce;
        let lease = Lease::new(epoch, generation, sent, &self.vault.timing);
        (ours && now < lease.deadline).then_some(lease)
    }

    /// Returns true if the lease may be taken: nobody holds it, its holder is known to have ended, or it has not changed for a whole TTL.
    /// An earlier lease of this process is free, too.
    async fn free(&self, held: &Record, now: Duration) -> Result<bool, VaultError> {
        let Some(holder) = &held.holder else { return Ok(true) };
        if holder.nonce == self.vault.identity.nonce {
            return Ok(true);
        }
        let ttl = self.vault.timing.ttl;
        if self.unchanged.is_some_and(|(_, since)| self.protocol.is_expired(now.saturating_sub(since), ttl)) {
            return Ok(true);
        }
        match self.vault.bucket.is_gone(&holder.nonce).await.map_err(VaultError::from) {
            Err(error) if is_unavailable(&error) => Ok(false),
            gone => gone,
        }
    }

    async fn write(&mut self, seen: &ObservedLease, epoch: u64) -> Result<Option<Lease>, VaultError> {
        let vault = self.vault;
        let epoch = epoch + 1;
        let sent = vault.clock.now();
        let before = self.tried.filter(|(tried, _)| *tried == epoch);
        let (tried, first) = (before.is_some(), before.map_or(sent, |(_, first)| first));
        match write(vault, seen.generation, &record(vault, epoch)).await {
            Ok(Written::Stored(generation)) => return Ok(Some(Lease::new(epoch, generation, sent, &vault.timing))),
            Ok(Written::Refused) => {}
            // After a try without an answer, a refusal leaves the outcome of that try unknown.
            Err(error) if is_unavailable(&error) || (tried && is_of_bucket(&error)) => {
                tracing::warn!(%error, "cannot tell whether the lease was taken");
            }
            Err(error) => return Err(error),
        }
        // A refusal may be the result of our own write: the next look compares.
        self.tried = Some((epoch, first));
        Ok(None)
    }

    /// Requests a hand-over, once.
    async fn request(&mut self, held: &Record) {
        if !self.ask {
            return;
        }
        match inbox::request_handover(self.vault, held.epoch).await {
            Ok(()) => self.ask = false,
            Err(error) => tracing::warn!(%error, "cannot ask the leader to hand over; trying again"),
        }
    }
}
