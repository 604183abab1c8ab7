//! The intake: one [`Door`] for each host. It decides whose delivery a request is, and is the only maker of [`Verified`].

use super::{MAX_BODY, Rejection, Signed, Verified, seal};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tidelock_core::domain::{CommitSha, DeliveryId, Event, PullId, RepoId, Sighting};

/// How the deliveries of one VCS host are told, verified and read. Everything in it is pure.
pub trait Door: Send + Sync {
    /// Kind of host in one lower-case word, such as `github`. Identities in the state begin with it, so it never changes.
    fn kind(&self) -> &'static str;

    /// Host name, as in [`RepoId::host`].
    fn hostname(&self) -> &str;

    /// Whether a request is a delivery of this host, by its headers.
    fn claims(&self, headers: &HeaderMap) -> bool;

    /// Whether a request carries a proof that cannot be found by trying, whatever that proof is worth. A request without one is turned
    /// away unread while its address is throttled.
    fn is_signed(&self, headers: &HeaderMap) -> bool;

    /// Whether a delivery is authentic, and by which secret.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] with status 401 where it is not; such deliveries count against the sender's address.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection>;

    /// What an authentic delivery says.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] where it cannot be decoded.
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection>;

    /// What the delivery of a comment is known by. Ids are unique within a repository; the door of a host where they are not says more.
    fn comment_identity(&self, pull: &PullId, comment_id: u64) -> DeliveryId {
        super::comment_identity(self.kind(), &pull.repo, comment_id)
    }

    /// Lower-case names of the headers that name the event: together with the body they name a stored delivery.
    fn event_headers(&self) -> &'static [&'static str];

    /// Lower-case names of the other headers that `verify` and `read` look at and that may be stored: no password is among them.
    fn other_headers(&self) -> &'static [&'static str];

    /// What deliveries are proven with: the present secret, then the one before it. Empty where they are taken without any proof.
    fn secrets(&self) -> Vec<&SecretString>;

    /// Headers of a delivery that says nothing and proves nothing, with which one can try whether deliveries are verified.
    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)];
}

/// What a delivery says.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// The event.
    pub event: Event,
    /// What the delivery is known by, made of what is authentic; absent: its body alone.
    pub identity: Option<DeliveryId>,
    /// The host's own id of the delivery, for logs only.
    pub host_id: String,
    /// The repository that it comes from, where it tells that by name and id.
    pub sight: Option<Sighting>,
}

/// The doors of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Intake {
    doors: Arc<[Arc<dyn Door>]>,
}

/// Headers by which deliveries of other hosts are recognised, so that the answer can name the host.
const OTHERS: [(&str, &str); 6] = [
    ("x-gitea-event", "Gitea"),
    ("x-github-event", "GitHub"),
    ("x-gitlab-event", "GitLab"),
    ("x-event-key", "Bitbucket"),
    ("request-id", "Azure DevOps"),
    ("x-vss-activityid", "Azure DevOps"),
];

impl Intake {
    /// These doors; the first one that claims a request gets it.
    pub fn new(doors: Vec<Arc<dyn Door>>) -> Intake {
        Intake { doors: doors.into() }
    }

    /// Verifies and decodes a delivery. Pure.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] where no door claims it, or its door turns it away.
    pub fn receive(&self, headers: &HeaderMap, body: &[u8]) -> Result<Verified<Event>, Rejection> {
        if body.len() > MAX_BODY {
            return Err(Rejection::new(413, format!("The body is larger than {MAX_BODY} bytes")));
        }
        let door = self.door(headers)?;
        let signed = door.verify(headers, body)?;
        read(door, headers, body, signed)
    }

    /// What is stored of an authentic delivery besides its body: headers without which it could not be read again, and the seal where
    /// it was proven with a secret, by the id of that secret. Lower-case names, in order.
    pub fn stored_headers(&self, headers: &HeaderMap, body: &[u8], key: Option<&str>) -> Vec<(String, String)> {
        let Ok(door) = self.door(headers) else { return Vec::new() };
        let names = door.event_headers().iter().chain(door.other_headers());
        let mut kept: Vec<(String, String)> = names
            .filter_map(|name| Some(((*name).to_owned(), headers.get(*name)?.to_str().ok()?.to_owned())))
            .collect();
        let secret = door.secrets().into_iter().find(|secret| key == Some(seal::key_id(secret).as_str()));
        if let Some(seal) = secret.and_then(|secret| seal::seal(secret, &kept, body)) {
            kept.push((seal::HEADER.to_owned(), seal));
        }
        kept
    }

    /// Decodes a delivery that was stored. It is sealed with a secret that this server knows; or it is verified as if it came now, as
    /// earlier versions stored deliveries without a seal.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] where neither is so, or where it cannot be decoded.
    pub fn open(&self, stored: &[(String, String)], body: &[u8]) -> Result<Verified<Event>, Rejection> {
        let parse = |(name, value): &(String, String)| {
            Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?))
        };
        let headers: HeaderMap = stored.iter().filter_map(parse).collect();
        let door = self.door(&headers)?;
        let seal = stored.iter().find(|(name, _)| name == seal::HEADER).map(|(_, seal)| seal.as_str());
        let by = |seal| door.secrets().iter().position(|secret| seal::is_sealed(secret, stored, body, seal));
        let signed = match seal.and_then(by) {
            Some(0) => Signed::Present,
            Some(_) => Signed::Previous,
            None => door.verify(&headers, body)?,
        };
        read(door, &headers, body, signed)
    }

    /// Ids of all secrets that this server knows.
    pub fn key_ids(&self) -> Vec<String> {
        self.doors.iter().flat_map(|door| door.secrets()).map(seal::key_id).collect()
    }

    /// The door that claims a request.
    fn door(&self, headers: &HeaderMap) -> Result<&dyn Door, Rejection> {
        if let Some(door) = self.doors.iter().find(|door| door.claims(headers)) {
            return Ok(&**door);
        }
        match OTHERS.iter().find(|(name, _)| headers.contains_key(*name)) {
            Some((_, host)) => Err(Rejection::new(400, format!("{host} is not configured here"))),
            None => Err(Rejection::new(400, "This is no webhook delivery: the host's event header is missing")),
        }
    }

    /// Whether a request carries a proof that cannot be found by trying, whatever that proof is worth.
    pub fn is_signed(&self, headers: &HeaderMap) -> bool {
        self.door(headers).is_ok_and(|door| door.is_signed(headers))
    }

    /// Whether a header, in lower case, says which event of which host a delivery is.
    pub fn names_event(&self, header: &str) -> bool {
        self.doors.iter().any(|door| door.event_headers().contains(&header))
    }

    /// What the delivery of a comment is known by; absent where the host of the repository has no door.
    pub fn comment_identity(&self, pull: &PullId, comment_id: u64) -> Option<DeliveryId> {
        Some(self.of(&pull.repo)?.comment_identity(pull, comment_id))
    }

    /// What the identity of the delivery about the merge queue's entry of this commit begins with; absent as above.
    pub fn entry_identities(&self, repo: &RepoId, commit: &CommitSha) -> Option<String> {
        Some(super::merge_queue::entry_identities(self.of(repo)?.kind(), repo, commit))
    }

    /// Whether nobody vouches for the deliveries about a repository.
    pub fn takes_unsigned(&self, repo: &RepoId) -> bool {
        self.of(repo).is_none_or(|door| door.secrets().is_empty())
    }

    fn of(&self, repo: &RepoId) -> Option<&dyn Door> {
        let found = self.doors.iter().find(|door| door.hostname().eq_ignore_ascii_case(&repo.host));
        found.map(|door| &**door)
    }
}

/// What an authentic delivery says, with its proof.
fn read(door: &dyn Door, headers: &HeaderMap, body: &[u8], signed: Signed) -> Result<Verified<Event>, Rejection> {
    let Delivered { event, identity, host_id, sight } = door.read(headers, body)?;
    let of_body = || DeliveryId::new(format!("{}:{}", door.kind(), hex::encode(Sha256::digest(body))));
    let identity = identity.unwrap_or_else(of_body);
    let secrets = door.secrets();
    let key = match signed {
        Signed::No => None,
        Signed::Present => secrets.first(),
        Signed::Previous => secrets.get(1),
    };
    Ok(Verified { inner: event, identity, host_id, sight, key: key.map(|secret| seal::key_id(secret)) })
}
