//! Writing state: seal, commits one at a time, bases, deletion of what is old, renewal and release.

use super::chain::Chain;
use super::inbox::Mail;
use super::lease::Lease;
use super::{Changes, Image, Position, Vault, VaultError};
use std::sync::Arc;
use std::time::Duration;

/// The one server that may write; cheap to clone. Every call ends with [`VaultError::Deposed`] once it is not the one any more.
#[derive(Clone)]
pub struct Leader {
    _shared: Arc<()>,
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
    /// How long the last commit took, from its first try to its answer.
    pub last_commit: Duration,
    /// Journal objects after the newest base.
    pub tail_objects: u64,
    /// Bytes of them.
    pub tail_bytes: u64,
    /// Since the last successful renewal was sent.
    pub lease_age: Duration,
}

impl Leader {
    /// Creates the next journal object and returns when it is there; one at a time. Retries with the same bytes as long as the
    /// lease can be held, then gives up as deposed (the object may be there or not; a restore will tell).
    pub async fn commit(&self, _changes: Changes) -> Result<Position, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Where the journal ends.
    pub fn position(&self) -> Position {
        Position::default()
    }

    /// Our epoch.
    pub fn epoch(&self) -> u64 {
        0
    }

    /// Right before an effect outside the bucket: looks at the deadline; past it, renews first (DESIGN §3 "Outbox").
    pub async fn may_act(&self) -> Result<(), VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Renews the lease and lists the inbox: every [`super::lease::Timing::renew`].
    pub async fn tick(&self) -> Result<Vec<Mail>, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Whether a base should be written now.
    pub fn base_due(&self) -> bool {
        false
    }

    /// Writes a base, reads it back and verifies it. False when one of that position is there already.
    pub async fn write_base(&self, _image: Image) -> Result<bool, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Deletes what neither the last states nor the last day need; how many objects went. Seals stay for ever.
    pub async fn collect(&self) -> Result<u64, VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Gives the lease up, so that the next one need not wait. No call may follow.
    pub async fn release(&self) -> Result<(), VaultError> {
        Err(VaultError::Local("not built yet".into()))
    }

    /// Resolves once this leader is deposed, with the reason.
    pub async fn deposed(&self) -> String {
        std::future::pending().await
    }

    /// For metrics.
    pub fn figures(&self) -> Figures {
        Figures::default()
    }
}

pub(super) async fn lead(_vault: &Vault, _lease: Lease) -> Result<Option<(Leader, Chain)>, VaultError> {
    Err(VaultError::Local("not built yet".into()))
}
