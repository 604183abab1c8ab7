//! The door: a delivery's headers and bytes become a [`Verified`] event, or a [`Rejection`]. Only this module makes `Verified`.

pub mod github;
mod signature;

/// Proof that the signature of what is inside was checked.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    inner: T,
    identity: String,
    host_id: String,
    signed: Signed,
}

/// Which secret a delivery is signed with.
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
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Which secret it is signed with.
    pub fn signed(&self) -> Signed {
        self.signed
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
    /// The one before, while hosts, or the inbox, may still have deliveries that are signed with it.
    pub github_previous: Option<secrecy::SecretString>,
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

impl Rejection {
    fn new(status: u16, message: impl Into<String>) -> Rejection {
        Rejection { status, message: message.into() }
    }
}

/// Headers by which hosts are told apart, in this order: Gitea sends GitHub's as well.
const HOSTS: [(&str, &str); 6] = [
    ("x-gitea-event", "Gitea"),
    ("x-github-event", "GitHub"),
    ("x-gitlab-event", "GitLab"),
    ("x-event-key", "Bitbucket"),
    ("request-id", "Azure DevOps"),
    ("x-vss-activityid", "Azure DevOps"),
];

/// Verifies and decodes a delivery. Pure.
pub fn receive(
    headers: &http::HeaderMap,
    body: &[u8],
    secrets: &Secrets,
) -> Result<Verified<crate::domain::Event>, Rejection> {
    if body.len() > MAX_BODY {
        return Err(Rejection::new(413, format!("The body is larger than {MAX_BODY} bytes")));
    }
    match HOSTS.iter().find(|(name, _)| headers.contains_key(*name)) {
        Some((name, "GitHub")) => github::receive(header(headers, name), headers, body, secrets),
        Some((_, host)) => Err(Rejection::new(400, format!("{host} is not configured here"))),
        None => Err(Rejection::new(400, "This is no webhook delivery: the host's event header is missing")),
    }
}

/// Headers that verification and decoding look at, beside those that tell hosts apart.
const LOOKED_AT: [&str; 4] = ["content-type", "x-github-delivery", "x-hub-signature", "x-hub-signature-256"];

/// Headers of which a genuine delivery has at least one.
const SIGNATURES: [&str; 2] = ["x-hub-signature-256", "x-hub-signature"];

/// Whether a delivery claims to be signed, whatever its signature is worth.
pub fn is_signed(headers: &http::HeaderMap) -> bool {
    SIGNATURES.iter().any(|name| headers.contains_key(*name))
}

/// Whether a header, in lower case, says which event of which host a delivery is.
pub fn names_event(header: &str) -> bool {
    HOSTS.iter().any(|(name, _)| *name == header)
}

/// Of a delivery's headers those without which it could not be verified again; lower-case names, text only, in order.
pub fn headers_to_keep(headers: &http::HeaderMap) -> Vec<(String, String)> {
    let kept = HOSTS.iter().map(|(name, _)| *name).chain(LOOKED_AT);
    let present = kept.filter_map(|name| Some((name.to_owned(), headers.get(name)?.to_str().ok()?.to_owned())));
    present.collect()
}

/// Headers that were kept, for [`receive`]; what cannot be a header is left out.
pub fn kept_headers(kept: &[(String, String)]) -> http::HeaderMap {
    let parse = |(name, value): &(String, String)| {
        Some((name.parse::<http::HeaderName>().ok()?, http::HeaderValue::from_str(value).ok()?))
    };
    kept.iter().filter_map(parse).collect()
}

/// A header's text; empty when it is absent or not ASCII.
fn header<'a>(headers: &'a http::HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
