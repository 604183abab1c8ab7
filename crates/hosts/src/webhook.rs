//! The door: a delivery's headers and bytes become a [`Verified`] event, or a [`Rejection`]. Only this module makes `Verified`.

pub mod azure_devops;
pub mod github;
mod intake;
mod merge_queue;
mod seal;
mod signature;

pub use intake::{Delivered, Door, Intake};
pub use merge_queue::EntryBelow;

use tidelock_core::domain::{DeliveryId, RepoId, Sighting};

/// Proof that the signature of what is inside was checked.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    inner: T,
    identity: DeliveryId,
    host_id: String,
    sight: Option<Sighting>,
    key: Option<String>,
}

/// Which secret a delivery was proven with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    /// None: deliveries are not signed here.
    No,
    /// The present one.
    Present,
    /// The one before it.
    Previous,
}

impl<T> Verified<T> {
    /// What was verified.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// What was verified.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// What the delivery is known by: made of what is signed.
    pub fn identity(&self) -> &DeliveryId {
        &self.identity
    }

    /// Id of the secret that it was proven with; absent where deliveries are not signed.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The repository that it comes from, where that is told by name and id and somebody vouches for it.
    pub fn sight(&self) -> Option<&Sighting> {
        self.sight.as_ref().filter(|_| self.key.is_some())
    }

    /// The host's own id of the delivery, for logs only.
    pub fn host_id(&self) -> &str {
        &self.host_id
    }
}

/// Why a delivery was turned away; the text is for whoever looks at it on the host, and says nothing secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status.
    pub status: u16,
    /// What is wrong.
    pub message: String,
}

/// Largest body of a delivery, in bytes: GitHub's own cap is 25 MB.
pub const MAX_BODY: usize = 25 * 1024 * 1024;

impl Rejection {
    /// A rejection with this HTTP status.
    pub fn new(status: u16, message: impl Into<String>) -> Rejection {
        Rejection { status, message: message.into() }
    }
}

/// What the delivery of a comment is known by, on a host of this kind.
pub fn comment_identity(kind: &str, repo: &RepoId, comment_id: u64) -> DeliveryId {
    DeliveryId::new(format!("{kind}:{repo}:comment:{comment_id}"))
}

/// A header's text; empty when it is absent or not ASCII.
fn header<'a>(headers: &'a http::HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Longest name from outside that is repeated, in characters.
const MAX_NAME: usize = 64;

/// A name from outside, for logs and identities.
fn short(name: &str) -> String {
    name.chars().take(MAX_NAME).map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}
