//! The durable state of a service that runs as one process at a time, in one object-storage bucket.
//!
//! A *lease* names the process that should write. The *journal* makes that safe: a commit creates the next numbered object with the
//! precondition that it does not exist, so only one process can write each of them. A *base* is the whole state after a commit; a
//! restore reads one base and the journal after it. The *inbox* holds objects that other processes leave for the leader. The content
//! of a commit is opaque to this crate. `docs/vault.md` of the repository explains the protocol, each rule with its reason.
//!
//! Order of the calls: [`Vault::acquire`] → [`Vault::lead`] → [`leader::Leader::commit`] as often as needed, with
//! [`renew`](leader::Leader::renew) and [`list_inbox`](leader::Leader::list_inbox) every few seconds,
//! [`write_base`](leader::Leader::write_base) and [`collect`](leader::Leader::collect) now and then →
//! [`release`](leader::Leader::release). [`Vault::read`] reads any kept state without the lease.
//!
//! Objects in the bucket: `lock/leader.json`, `journal/<seq>`, `base/<seq>`, `inbox/delivery/<hash>`, `inbox/handover/<nonce>`,
//! `inbox/end/<job>`, and those of [`jobs`] below `jobs/<executor>/<key>/`. `seq` has 16 digits, zero-padded.
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
//! let lease = first.acquire().await?;
//! let (leader, _) = first.lead(lease).await?.ok_or("another process leads")?;
//! leader.commit(Changes { schema: 1, rows: "invoice 17 is paid".into(), blobs: Vec::new() }).await?;
//! // Gone without a release, as after `kill -9`.
//! drop((leader, first));
//!
//! let second = process(dir.path(), "second")?;
//! let lease = second.acquire().await?;
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
pub mod jobs;
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
use leader::{LastTerm, Leader};
use lease::{Identity, Lease, Timing};
use protocol::Proven;
use std::path::PathBuf;
use std::sync::Arc;
use wording::Wording;

/// Format of every object that this version writes. It reads this format and the one before.
pub const FORMAT: u32 = 1;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        use sha2::Digest;
        Hash(sha2::Sha256::digest(bytes).into())
    }

    /// Parses 64 hexadecimal digits.
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
    /// Hash of the object's header, which holds the hashes of all contents behind it.
    pub hash: Hash,
}

/// Content of a kept file. An object has each content once.
#[derive(Debug, Clone)]
pub struct Blob {
    /// SHA-256 of the content.
    pub hash: Hash,
    /// Bytes of the content.
    pub length: u64,
    /// Source of the content.
    pub source: Source,
}

/// Source of the bytes of a new object.
#[derive(Debug, Clone)]
pub enum Source {
    /// Bytes in memory.
    Bytes(bytes::Bytes),
    /// A file that no longer changes. It is read, and its hash checked, when the object is packed.
    File(PathBuf),
}

/// Content of one commit.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Format of the state that `rows` needs. The caller increases it; a chain returns the highest of its objects.
    pub schema: u32,
    /// Changed rows, in the caller's encoding.
    pub rows: bytes::Bytes,
    /// New contents of kept files.
    pub blobs: Vec<Blob>,
}

/// The whole state at one position, for a base.
#[derive(Debug, Clone)]
pub struct Image {
    /// Position of the state. It is the seal of this leader or a commit of it.
    pub position: Position,
    /// Format of the state, as in [`Changes`].
    pub schema: u32,
    /// File with the state in the caller's encoding, for the vault alone.
    pub database: PathBuf,
    /// All contents of kept files at that position.
    pub blobs: Vec<Blob>,
}

/// Rules for the time of a base and for the states that stay restorable.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Number of journal objects after which a base is due if they are empty.
    pub base_after_objects: u64,
    /// Bytes of journal after which a base is due, apart from the number of objects. The shares of both limits are added. Both limits grow
    /// with the size of the last base, see [`Retention::is_base_due`].
    pub base_after_bytes: u64,
    /// Number of last states (journal objects) that stay restorable.
    pub keep_states: u64,
    /// Age up to which states stay restorable too, by the times of the bucket.
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
    /// Size of the journal after a base, in sizes of the base, from which the next base is due. A restore reads both.
    const TIMES: f64 = 2.0;

    /// Returns true if a base should be written. `objects` and `bytes` are those of the journal after the last base, which has `base`
    /// bytes.
    pub fn is_base_due(&self, objects: u64, bytes: u64, base: u64) -> bool {
        let share = |count: u64, limit: u64| count as f64 / limit.max(1) as f64;
        let reached = share(objects, self.base_after_objects) + share(bytes, self.base_after_bytes);
        reached >= (Self::TIMES * share(base, self.base_after_bytes)).max(1.0)
    }
}

/// Failure of a call of the vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Another server leads or may lead, so this one must have no further effect. The text has the reason.
    #[error("deposed: {0}")]
    Deposed(String),
    /// The state in the bucket cannot be used. The text names the object and the remedy. A server stops.
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
    /// Identity of this process, for other processes. [`Vault::present_identity`] has its present fingerprint.
    pub identity: Identity,
    /// Fingerprint that replaces that of `identity`.
    pub fingerprint: lease::PresentFingerprint,
    /// Times of the lease.
    pub timing: Timing,
    /// Rules for bases and for the deletion of old objects.
    pub retention: Retention,
    /// Key that signs this process's hand-over requests and verifies those of others.
    pub handover: inbox::HandOverKey,
    /// Names of settings in messages.
    pub wording: Wording,
}

impl Vault {
    /// Returns access for reading, without a server. Set `identity` to lead, too.
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
            fingerprint: lease::PresentFingerprint::default(),
            timing: Timing::default(),
            retention: Retention::default(),
            handover: inbox::HandOverKey::derive(""),
            wording: Wording::default(),
        }
    }

    /// Returns the identity of this process with its present fingerprint.
    pub fn present_identity(&self) -> Identity {
        let fingerprint = self.fingerprint.get().unwrap_or_else(|| self.identity.fingerprint.clone());
        Identity { fingerprint, ..self.identity.clone() }
    }

    /// Waits for the lease and takes it at once if nobody holds it or its holder is known to have ended. Otherwise, takes it once the
    /// same generation was seen for a whole TTL on this clock. Dropping the future does not change the lease.
    pub async fn acquire(&self) -> Result<Lease, VaultError> {
        lease::acquire(self, Proven).await
    }

    /// Does the same, and asks the leader once to hand over. A server that was just deposed does not ask.
    pub async fn acquire_asking(&self) -> Result<Lease, VaultError> {
        lease::acquire_asking(self, Proven).await
    }

    /// Releases a lease that was acquired but not used to lead. Fails if another server holds it by now.
    pub async fn give_up(&self, lease: Lease) -> Result<(), VaultError> {
        lease::Held::new(self, &lease).release().await
    }

    /// Reads the newest state, creates the seal, and checks that nothing changed meanwhile. `None` if the lease was lost. The
    /// [`Chain`] returns the contents, which no other server deletes while this one leads.
    pub async fn lead(&self, lease: Lease) -> Result<Option<(Leader, Chain)>, VaultError> {
        let led = leader::lead(self, lease, Proven, None).await?;
        Ok(led.and_then(|(leader, chain)| Some((leader, chain?))))
    }

    /// Does the same after a term of this process ([`leader::Leader::release`]). If no other server has led since, nothing is read but the
    /// last object of the journal, and there is no [`Chain`]: the state is the one at the end of that term.
    pub async fn lead_after(
        &self,
        lease: Lease,
        last: Option<&LastTerm>,
    ) -> Result<Option<(Leader, Option<Chain>)>, VaultError> {
        leader::lead(self, lease, Proven, last).await
    }

    /// Reads a kept state without the lease: the newest, or the one after journal object `at`.
    pub async fn read(&self, at: Option<u64>) -> Result<Chain, VaultError> {
        chain::read(&self.calls(), &Proven, at).await
    }

    fn calls(&self) -> calls::Calls {
        calls::Calls { bucket: self.bucket.clone(), clock: self.clock.clone() }
    }
}
