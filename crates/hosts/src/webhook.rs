//! Webhook deliveries: headers and bytes become a [`Verified`] event, or a [`Rejection`]. Only this module creates `Verified`.

pub(crate) mod hmac_sha256;
mod intake;
pub(crate) mod merge_queue;
mod seal;

pub use intake::{Delivered, Door, Intake};
pub use merge_queue::EntryBelow;

use serde::Deserialize;
use tidelock_core::domain::{DeliveryId, RepoId, Sighting};

/// Proof that the signature of the value inside was checked.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    inner: T,
    identity: DeliveryId,
    host_id: String,
    sight: Option<Sighting>,
    key: Option<String>,
}

/// The secret that a delivery was proven with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    /// None: deliveries are not signed here.
    No,
    /// The present secret.
    Present,
    /// The previous secret.
    Previous,
}

impl<T> Verified<T> {
    /// Returns the verified value.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Returns a reference to the verified value.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Identity of the delivery, made of its signed parts.
    pub fn identity(&self) -> &DeliveryId {
        &self.identity
    }

    /// Id of the secret that proved the delivery; absent if deliveries are not signed.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Repository of the delivery; absent if its name or id is missing, or if no secret proved the delivery.
    pub fn sight(&self) -> Option<&Sighting> {
        self.sight.as_ref().filter(|_| self.key.is_some())
    }

    /// The host's own id of the delivery, for logs only.
    pub fn host_id(&self) -> &str {
        &self.host_id
    }
}

/// Refusal of a delivery. Its text is for people who look at the delivery on the host, and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status.
    pub status: u16,
    /// Reason of the refusal.
    pub message: String,
}

/// Largest body of a delivery, in bytes. GitHub's own limit is 25 MB.
pub const MAX_BODY: usize = 25 * 1024 * 1024;

impl Rejection {
    /// Creates a rejection with this HTTP status.
    pub fn new(status: u16, message: impl Into<String>) -> Rejection {
        Rejection { status, message: message.into() }
    }
}

/// Identity of the delivery of a comment, on a host of this kind.
pub fn comment_identity(kind: &str, repo: &RepoId, comment_id: u64) -> DeliveryId {
    DeliveryId::new(format!("{kind}:{repo}:comment:{comment_id}"))
}

/// Text of a header; empty if it is absent or not ASCII.
pub(crate) fn header<'a>(headers: &'a http::HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Longest message of the JSON parser that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// Decodes a payload; an error has line and column.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| error.to_string().chars().take(MAX_MESSAGE).collect())
}

/// Longest name from outside that is quoted, in characters.
const MAX_NAME: usize = 64;

/// Shortens a name from outside for logs and identities, and replaces odd characters.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(MAX_NAME).map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}
