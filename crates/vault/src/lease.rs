//! The lease, `lock/leader.json`: it is taken, renewed and released here. It decides who should write; the journal decides who can.

mod acquire;
mod held;
#[cfg(test)]
mod tests;

use super::bucket::{Body, BucketError, Generation, Object, Written};
use super::pack::Invalid;
use super::wording::Wording;
use super::{FORMAT, Hash, Vault, VaultError, calls};
pub(super) use acquire::{acquire, acquire_asking};
pub(super) use held::Held;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Name of the lease object.
pub const NAME: &str = "lock/leader.json";

/// Description of a server, for other servers and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// 128 random bits of this process, hex.
    pub nonce: String,
    /// Address for people.
    pub url: String,
    /// Machine and process, for people.
    pub machine: String,
    /// Version of the program.
    pub version: String,
    /// Digest of the settings that must not change by accident. A server with another digest does not lead after this one unless forced.
    pub fingerprint: String,
    /// True if it may lead although the fingerprint differs.
    pub force: bool,
}

/// Times of the lease.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Time without a change after which a waiting server takes the lease.
    pub ttl: Duration,
    /// Time between two renewals.
    pub renew: Duration,
    /// Time between two reads of the lease by a waiting server.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { ttl: Duration::from_secs(20), renew: Duration::from_secs(6), poll: Duration::from_secs(1) }
    }
}

/// The lease object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Format of the object, [`super::FORMAT`] at its creation.
    pub format: u32,
    /// Number of the holder's term; grows with each holder.
    pub epoch: u64,
    /// Holder; absent while the lease is free.
    pub holder: Option<Identity>,
    /// Fingerprint of the last holder, kept after a release.
    pub fingerprint: String,
}

/// A lease that this process holds.
#[derive(Debug, Clone)]
pub struct Lease {
    /// Epoch of this holder.
    pub epoch: u64,
    /// Generation of the object as this holder last wrote it.
    pub generation: Generation,
    /// Time on this clock after which another server may hold the lease. It counts from the sending of the last successful renewal.
    pub deadline: Duration,
}

impl Lease {
    /// Returns a lease whose last successful write was sent at `sent`.
    fn new(epoch: u64, generation: Generation, sent: Duration, timing: &Timing) -> Lease {
        Lease { epoch, generation, deadline: sent + held_for(timing) }
    }
}

/// Returns the time for which a holder relies on a successful write: four fifths of the TTL for which waiting servers wait.
pub(super) fn held_for(timing: &Timing) -> Duration {
    timing.ttl * 4 / 5
}

/// Cloud Storage accepts one write a second to one object.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);

/// Largest epoch of a lease.
const MAX_EPOCH: u64 = u64::MAX / 2;

/// Returns the least time between two writes of the lease.
fn between_writes(timing: &Timing) -> Duration {
    BETWEEN_WRITES.min(timing.renew)
}

/// Returns a fingerprint of settings, in parts, so that a message can name the part that differs.
pub fn fingerprint(settings: &[&str]) -> String {
    let part = |text: &&str| hex::encode(&Hash::of(text.as_bytes()).0[..8]);
    settings.iter().map(part).collect::<Vec<_>>().join("-")
}

/// Number of fingerprints that a process remembers, besides that of its start.
const MAX_FINGERPRINTS: usize = 16;

/// Fingerprints of settings that have changed since the start of the process, the present one last. Clones share them. The next renewal of
/// the lease writes the present one.
#[derive(Debug, Clone, Default)]
pub struct PresentFingerprint(Arc<RwLock<Vec<String>>>);

impl PresentFingerprint {
    /// Replaces the fingerprint.
    pub fn set(&self, fingerprint: String) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|had| *had != fingerprint);
        all.push(fingerprint);
        let forgotten = all.len().saturating_sub(MAX_FINGERPRINTS);
        all.drain(..forgotten);
    }

    /// Returns the fingerprint; absent if it is still that of the start.
    pub(super) fn get(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).last().cloned()
    }

    /// Returns true if this process has or had the fingerprint since its start.
    fn had(&self, fingerprint: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|had| had == fingerprint)
    }
}

/// Difference between the settings of a server and those of the last holder of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Names of the differing settings in [`super::wording::Wording::fingerprint`], joined.
    pub what: String,
    /// The last holder, for people.
    pub whose: String,
}

/// Compares the settings with those of the last holder. Absent if this process has or had the same, if nobody led yet, or if it is forced to
/// lead. Settings that it had count, because they change while servers run: the last holder may have ended before it wrote the new ones.
pub fn difference(vault: &Vault, record: &Record) -> Option<Difference> {
    let identity = vault.present_identity();
    // An empty fingerprint: the state was imported, and no server with settings has led yet.
    let had = record.fingerprint == vault.identity.fingerprint || vault.fingerprint.had(&record.fingerprint);
    if record.fingerprint.is_empty() || had || identity.force {
        return None;
    }
    let what = vault.wording.differing(&record.fingerprint, &identity.fingerprint);
    let holder = record.holder.as_ref();
    let whose = holder.map_or("the last leader".into(), |holder| format!("{} ({})", holder.machine, holder.url));
    Some(Difference { what, whose })
}

/// Returns the reason why a server with this difference does not lead, and the remedy.
pub(super) fn refusal(vault: &Vault, difference: &Difference) -> String {
    let Difference { what, whose } = difference;
    let Wording { force, bucket, .. } = vault.wording;
    format!(
        "its settings differ from those of {whose} in {what}. If this is the right bucket and the settings are meant to change, \
         {force}, all else as it is; otherwise correct {bucket} or the settings"
    )
}

/// Returns the reason if settings prevent this server from leading after the last holder; absent otherwise. In a directory of one
/// machine they do so only while the other server lives.
pub fn held_back(vault: &Vault, record: &Record) -> Option<String> {
    let free = record.holder.is_none() && vault.bucket.knows_who_lives();
    let difference = difference(vault, record).filter(|_| !free)?;
    let mut why = refusal(vault, &difference);
    if vault.bucket.knows_who_lives() {
        why.push_str(". When that server has ended, this one leads with its own settings");
    }
    Some(why)
}

/// The lease as it was read, with its generation; 0 if there is no lease.
struct ObservedLease {
    generation: Generation,
    record: Option<Record>,
}

fn parse(vault: &Vault, bytes: &[u8]) -> Result<Record, VaultError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let (place, setting) = (format!("{}/{NAME}", vault.bucket.location()), vault.wording.bucket);
    let foreign = |error: serde_json::Error| {
        VaultError::Damaged(format!(
            "{place} is not a lease of Tidelock ({error}). Nothing was changed. Give Tidelock a prefix of the bucket for \
             itself ({setting}), or bring that object back from a copy of the bucket"
        ))
    };
    let Format { format } = serde_json::from_slice(bytes).map_err(foreign)?;
    if format > FORMAT {
        return Err(VaultError::Damaged(calls::describe(vault.bucket.location(), NAME, &Invalid::Newer(format))));
    }
    let record: Record = serde_json::from_slice(bytes).map_err(foreign)?;
    // An epoch grows by one with each holder: Tidelock did not write one near the end of the range.
    if record.epoch > MAX_EPOCH {
        return Err(foreign(serde::de::Error::custom("its epoch is too large")));
    }
    Ok(record)
}

fn seen(vault: &Vault, object: Option<Object>) -> Result<ObservedLease, VaultError> {
    match object {
        None => Ok(ObservedLease { generation: 0, record: None }),
        Some(object) => Ok(ObservedLease { generation: object.generation, record: Some(parse(vault, &object.bytes)?) }),
    }
}

/// Reads the lease once.
async fn once(vault: &Vault) -> Result<ObservedLease, VaultError> {
    seen(vault, vault.bucket.get(NAME).await?)
}

/// Reads the lease, with retries.
async fn patiently(vault: &Vault) -> Result<ObservedLease, VaultError> {
    seen(vault, vault.calls().get(NAME).await?)
}

/// Reads the present lease, for `/status` and for standbys; absent before the first leader.
pub async fn read(vault: &Vault) -> Result<Option<Record>, VaultError> {
    Ok(patiently(vault).await?.record)
}

/// Reads the present lease with its generation, which each renewal changes. An error before the first leader.
pub async fn observe(vault: &Vault) -> Result<(Generation, Record), VaultError> {
    let ObservedLease { generation, record } = once(vault).await?;
    Ok((generation, record.ok_or_else(|| VaultError::Local("there is no lease yet".into()))?))
}

/// Reads the lease, and returns it if it names this process as its holder, even if this process does not know of it.
pub async fn ours(vault: &Vault) -> Result<Option<Lease>, VaultError> {
    let ObservedLease { generation, record } = once(vault).await?;
    let ours = |record: &Record| record.holder.as_ref().is_some_and(|holder| holder.nonce == vault.identity.nonce);
    let lease = |record: Record| Lease { epoch: record.epoch, generation, deadline: vault.clock.now() };
    Ok(record.filter(ours).map(lease))
}

pub(super) async fn write(vault: &Vault, expected: Generation, record: &Record) -> Result<Written, VaultError> {
    let json =
        serde_json::to_vec(record).map_err(|error| VaultError::Local(format!("cannot write a lease: {error}")))?;
    Ok(vault.bucket.put(NAME, expected, Body::Bytes(json.into()), "lease").await?)
}

/// Returns the lease of this process.
fn record(vault: &Vault, epoch: u64) -> Record {
    let holder = vault.present_identity();
    Record { format: FORMAT, epoch, fingerprint: holder.fingerprint.clone(), holder: Some(holder) }
}

/// Returns the lease that this process leaves without a holder.
pub(super) fn released(vault: &Vault, epoch: u64) -> Record {
    Record { holder: None, ..record(vault, epoch) }
}

fn is_of_bucket(error: &VaultError) -> bool {
    matches!(error, VaultError::Bucket(_))
}

fn is_unavailable(error: &VaultError) -> bool {
    matches!(error, VaultError::Bucket(BucketError::Unavailable { .. }))
}
