//! The door: a delivery's headers and bytes become a [`Verified`] event, or a [`Rejection`]. Only this module makes `Verified`.

pub mod github;

/// Proof that the signature of what is inside was checked.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    inner: T,
    identity: String,
    host_id: String,
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
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The host's own id of the delivery, for logs only.
    pub fn host_id(&self) -> &str {
        &self.host_id
    }
}

/// Secrets that deliveries are signed with.
#[derive(Clone, Default)]
pub struct Secrets {
    /// GitHub's; absent: unsigned deliveries are taken (the operator said so by a flag).
    pub github: Option<secrecy::SecretString>,
    /// Host name for repository ids of deliveries from GitHub.
    pub github_hostname: String,
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

/// Verifies and decodes a delivery. Pure.
pub fn receive(
    _headers: &http::HeaderMap,
    _body: &[u8],
    _secrets: &Secrets,
) -> Result<Verified<crate::domain::Event>, Rejection> {
    todo!()
}
