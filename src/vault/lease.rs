//! `lock/leader.json`: who leads (liveness only; the journal is the fence), and how it is taken, renewed and given up.

use super::bucket::Generation;
use super::{Vault, VaultError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of the lease object.
pub const NAME: &str = "lock/leader.json";

/// Who a server is, to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// 128 random bits of this process, hex.
    pub nonce: String,
    /// Where people find it: `--atlantis-url`.
    pub url: String,
    /// Machine and process, for people.
    pub machine: String,
    /// Version of Tidelock.
    pub version: String,
    /// Digest of VCS host, bot account and allowlist: who differs in it never leads after this one without being forced.
    pub fingerprint: String,
    /// `--force-takeover`: lead although the fingerprint differs.
    pub force: bool,
}

/// Times of the lease.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// After so long without a change of the lease a waiter takes it.
    pub ttl: Duration,
    /// Between two renewals.
    pub renew: Duration,
    /// Between two looks of a standby.
    pub poll: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { ttl: Duration::from_secs(20), renew: Duration::from_secs(6), poll: Duration::from_secs(2) }
    }
}

/// The lease object as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Grows with each holder.
    pub epoch: u64,
    /// Present while held.
    pub holder: Option<Identity>,
    /// Fingerprint of the last holder, kept when it is released.
    pub fingerprint: String,
}

/// A lease that we hold.
#[derive(Debug, Clone)]
pub struct Lease {
    /// Ours.
    pub epoch: u64,
    /// Of the object as we last wrote it.
    pub generation: Generation,
    /// On our clock: past it we may have been replaced. Counted from the moment the last successful renewal was sent.
    pub deadline: Duration,
}

pub(super) async fn acquire(_vault: &Vault, _ask: bool) -> Result<Lease, VaultError> {
    Err(VaultError::Local("not built yet".into()))
}

/// The lease as it stands, for `/status` and for standbys; absent before the first leader.
pub async fn look(_vault: &Vault) -> Result<Option<Record>, VaultError> {
    Err(VaultError::Local("not built yet".into()))
}
