//! The durable state of a service that runs as one process at a time, in one object-storage bucket.
//!
//! A *lease* says which process should write. The *journal* makes that safe: a commit is the creation of the next numbered object, with
//! the precondition that it does not exist, so only one process can write each of them. A *base* is the whole state after a commit; a
//! restore reads one base and the journal after it. The *inbox* takes what processes that do not lead leave for the one that does.
//! The crate does not know what a commit says. `docs/vault.md` of the repository explains the protocol, each rule with its reason.
//!
//! The calls, in their order: [`Vault::acquire`] → [`Vault::lead`] → [`leader::Leader::commit`] as often as needed, with
//! [`renew`](leader::Leader::renew) and [`look`](leader::Leader::look) every few seconds,
//! [`write_base`](leader::Leader::write_base) and [`collect`](leader::Leader::collect) now and then →
//! [`release`](leader::Leader::release). [`Vault::read`] reads any kept state without the lease.
//!
//! Objects in the bucket: `lock/leader.json`, `journal/<seq>`, `base/<seq>`, `inbox/delivery/<hash>`, `inbox/handover/<nonce>`,
//! `inbox/end/<job>`. `seq` has 16 digits, zero-padded.
//!
//! ```
//! use std::sync::Arc;
//! use tidelock_vault::{Changes, Vault, directory::Directory, lease::Identity};
//!
//! /// A process that leads on the bucket; `nonce` names it and no other.
//! fn process(dir: &std::path::Path, nonce: &str) -> Result<Vault, Box<dyn std::error::Error>> {
//!     let identity = Identity {
//!         nonce: nonce.into(),
//!         url: String::new(),
//!         machine: "here".into(),
//!         version: "1".into(),
//!         fingerprint: "the same settings".into(),
//!         force: false,
//!     };
//!     Ok(Vault { identity, ..Vault::reader(Arc::new(Directory::open(dir)?)) })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let first = process(dir.path(), "first")?;
//! let lease = first.acquire(false).await?;
//! let (leader, _) = first.lead(lease).await?.ok_or("another process leads")?;
//! leader.commit(Changes { schema: 1, rows: "invoice 17 is paid".into(), blobs: Vec::new() }).await?;
//! // Gone without a release, as after `kill -9`.
//! drop((leader, first));
//!
//! let second = process(dir.path(), "second")?;
//! let lease = second.acquire(false).await?;
//! let (leader, chain) = second.lead(lease).await?.ok_or("another process leads")?;
//! let commits = chain.rows().await?;
//! assert_eq!(commits[0].rows, "invoice 17 is paid");
//! leader.release().await?;
//! # Ok(())
//! # }
//! ```

pub mod bucket;
mod calls;
pub mod chain;
pub mod clock;
pub mod directory;
#[cfg(test)]
mod fuzz_tests;
pub mod gcs;
pub mod inbox;
pub mod inventory;
pub mod leader;
pub mod lease;
mod machine;
pub mod memory;
mod pack;
mod protocol;
#[cfg(test)]
mod simulation;
pub mod wording;

use bucket::{Bucket, BucketError};
use chain::Chain;
use clock::Clock;
use leader::Leader;
use lease::{Identity, Lease, Timing};
use protocol::Proven;
use std::path::PathBuf;
use std::sync::Arc;
use wording::Wording;

/// Format of every object that this version writes; it reads this one and the one before.
pub const FORMAT: u32 = 1;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Digest of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        use sha2::Digest;
        Hash(sha2::Sha256::digest(bytes).into())
    }

    /// From 64 hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Hash> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(hex, &mut bytes).ok()?;
        Some(Hash(bytes))
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Hash::parse(&text).ok_or_else(|| serde::de::Error::custom("not a SHA-256 digest in hexadecimal"))
    }
}

/// A position in the journal: the state right after object `seq`. The default, 0 with a hash of zeros, is before the first object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Number of the journal object.
    pub seq: u64,
    /// Hash of the object's header, which holds the hashes of everything behind it.
    pub hash: Hash,
}

/// The content of a kept file. An object carries each content once.
#[derive(Debug, Clone)]
pub struct Blob {
    /// SHA-256 of the content.
    pub hash: Hash,
    /// Bytes of the content.
    pub length: u64,
    /// Where the content is read from.
    pub source: Source,
}

/// Where bytes are read from when an object is written.
#[derive(Debug, Clone)]
pub enum Source {
    /// Memory.
    Bytes(bytes::Bytes),
    /// A file that no longer changes. It is read, and its hash checked, when the object is made.
    File(PathBuf),
}

/// What one commit carries.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Format of the state that `rows` needs. The caller counts it up; a chain gives the highest of its objects.
    pub schema: u32,
    /// What changed, in the caller's encoding.
    pub rows: bytes::Bytes,
    /// New contents of kept files.
    pub blobs: Vec<Blob>,
}

/// The whole state at one position, for a base.
#[derive(Debug, Clone)]
pub struct Image {
    /// The position whose state this is. A commit of this leader made it.
    pub position: Position,
    /// Format of the state, as in [`Changes`].
    pub schema: u32,
    /// A file with the state in the caller's encoding. Nobody else uses it.
    pub database: PathBuf,
    /// All contents of kept files at that position.
    pub blobs: Vec<Blob>,
}

/// When bases are written, and which states stay restorable.
#[derive(Debug, Clone)]
pub struct Retention {
    /// A base is due after this many journal objects, if they were empty.
    pub base_after_objects: u64,
    /// A base is due after this many bytes of journal, if they were in one object. The two shares are added. Both limits grow with
    /// the size of the last base, see [`Retention::is_base_due`].
    pub base_after_bytes: u64,
    /// This many of the last states (journal objects) stay restorable.
    pub keep_states: u64,
    /// States younger than this stay restorable too, by the times that the bucket gives.
    pub keep: std::time::Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            base_after_objects: 256,
            base_after_bytes: 1 << 20,
            keep_states: 100,
            keep: std::time::Duration::from_secs(24 * 3600),
        }
    }
}

impl Retention {
    /// The journal after a base may grow to this many times the size of the base. A restore reads both.
    const TIMES: f64 = 2.0;

    /// Whether a base should be written: `objects` and `bytes` are those of the journal after the last one, which has `base` bytes.
    pub fn is_base_due(&self, objects: u64, bytes: u64, base: u64) -> bool {
        let share = |count: u64, limit: u64| count as f64 / limit.max(1) as f64;
        let reached = share(objects, self.base_after_objects) + share(bytes, self.base_after_bytes);
        reached >= (Self::TIMES * share(base, self.base_after_bytes)).max(1.0)
    }
}

/// Why a call of the vault failed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Another server leads or may lead: nothing that this one does has an effect from now on. The text says why.
    #[error("deposed: {0}")]
    Deposed(String),
    /// The state in the bucket cannot be used. The text names the object and what to do. A server stops.
    #[error("{0}")]
    Damaged(String),
    /// The bucket refused a call or did not answer it.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// A local file could not be read or written.
    #[error("{0}")]
    Local(String),
}

/// One process's access to the bucket. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    /// The bucket.
    pub bucket: Arc<dyn Bucket>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// This process, as others see it.
    pub identity: Identity,
    /// Times of the lease.
    pub timing: Timing,
    /// When bases are written and old objects are deleted.
    pub retention: Retention,
    /// Signs this process's hand-over requests and checks those of others.
    pub handover: inbox::HandOverKey,
    /// How messages name settings.
    pub wording: Wording,
}

impl Vault {
    /// Access for reading, without a server. Set `identity` to lead, too.
    pub fn reader(bucket: Arc<dyn Bucket>) -> Vault {
        let identity = Identity {
            nonce: String::new(),
            url: String::new(),
            machine: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            fingerprint: String::new(),
            force: false,
        };
        Vault {
            bucket,
            clock: Arc::new(clock::Boottime),
            identity,
            timing: Timing::default(),
            retention: Retention::default(),
            handover: inbox::HandOverKey::derive(""),
            wording: Wording::default(),
        }
    }

    /// Waits for the lease and takes it: at once when nobody holds it or its holder is known to be gone, otherwise when the same
    /// generation was seen for a whole TTL on this clock. Dropping the future does not change the lease. With `ask`, the leader is
    /// asked once to hand over; a server that was just deposed does not ask.
    pub async fn acquire(&self, ask: bool) -> Result<Lease, VaultError> {
        lease::acquire(self, Proven, ask).await
    }

    /// Gives up a lease that was acquired but not used to lead. An error when another server holds it by now.
    pub async fn give_up(&self, lease: Lease) -> Result<(), VaultError> {
        lease::Held::new(self, &lease).release().await
    }

    /// Reads the newest state, creates the seal, and checks that nothing changed meanwhile. `None` when the lease was lost. The
    /// [`Chain`] gives the contents; nobody else deletes them while this server leads.
    pub async fn lead(&self, lease: Lease) -> Result<Option<(Leader, Chain)>, VaultError> {
        leader::lead(self, lease, Proven).await
    }

    /// Reads a kept state without the lease: the newest, or the one after `at`.
    pub async fn read(&self, at: Option<u64>) -> Result<Chain, VaultError> {
        chain::read(&self.calls(), &Proven, at).await
    }

    fn calls(&self) -> calls::Calls {
        calls::Calls { bucket: self.bucket.clone(), clock: self.clock.clone() }
    }
}
