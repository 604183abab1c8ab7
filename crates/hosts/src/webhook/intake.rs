//! The intake: one [`Door`] for each host. It selects the door of a request, and alone creates [`Verified`].

use super::{MAX_BODY, Rejection, Signed, Verified, seal};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tidelock_core::domain::{CommitSha, DeliveryId, Event, PullId, RepoId, Sighting};

/// Recognizes, verifies and reads the deliveries of one VCS host. All of it is pure, but a proof with a time is compared with the clock.
pub trait Door: Send + Sync {
    /// Kind of host in one lower-case word, such as `github`. Identities in the state begin with it, so it never changes.
    fn kind(&self) -> &'static str;

    /// Host name, as in [`RepoId::host`].
    fn hostname(&self) -> &str;

    /// Returns true if a request is a delivery of this host, by its headers.
    fn claims(&self, headers: &HeaderMap) -> bool;

    /// Returns true if a request carries a proof that cannot be guessed, valid or not. A request without one is refused unread while its
    /// address is throttled.
    fn is_signed(&self, headers: &HeaderMap) -> bool;

    /// Verifies a delivery and reports which secret proves it.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] with status 401 if it is not authentic; such deliveries count against the sender's address.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection>;

    /// Reads an authentic delivery.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if it cannot be decoded.
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection>;

    /// Returns the identity of the delivery of a comment. By default, ids of comments are unique within a repository; other doors add to
    /// it.
    fn comment_identity(&self, pull: &PullId, comment_id: u64) -> DeliveryId {
        super::comment_identity(self.kind(), &pull.repo, comment_id)
    }

    /// Lower-case names of the headers that name the event. Together with the body they identify a stored delivery.
    fn event_headers(&self) -> &'static [&'static str];

    /// Lower-case names of the other headers that `verify` and `read` use and that may be stored. None of them has a password.
    fn other_headers(&self) -> &'static [&'static str];

    /// Secrets that prove deliveries: the present one, then the previous one. Empty if deliveries are accepted without proof.
    fn secrets(&self) -> Vec<&SecretString>;

    /// Headers of a delivery without content or proof, to test whether deliveries are verified.
    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)];
}

/// Content of a delivery.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// The event.
    pub event: Event,
    /// Identity of the delivery, made of its authentic parts; absent: the digest of its body.
    pub identity: Option<DeliveryId>,
    /// The host's own id of the delivery, for logs only.
    pub host_id: String,
    /// Repository of the delivery, if it has a name and an id.
    pub sight: Option<Sighting>,
}

/// The doors of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Intake {
    doors: Arc<[Arc<dyn Door>]>,
}

/// Headers that identify deliveries of other hosts, so that the answer can name the host.
const OTHERS: [(&str, &str); 8] = [
    ("x-forgejo-event", "Forgejo"),
    ("x-gitea-event", "Gitea"),
    ("x-github-event", "GitHub"),
    ("x-gitlab-event", "GitLab"),
    ("x-hook-uuid", "Bitbucket Cloud"),
    ("x-event-key", "Bitbucket Data Center"),
    ("request-id", "Azure DevOps"),
    ("x-vss-activityid", "Azure DevOps"),
];

impl Intake {
    /// Takes the doors; the first one that claims a request gets it.
    pub fn new(doors: Vec<Arc<dyn Door>>) -> Intake {
        Intake { doors: doors.into() }
    }

    /// Verifies and decodes a delivery. Pure.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if no door claims it, or if its door rejects it.
    pub fn receive(&self, headers: &HeaderMap, body: &[u8]) -> Result<Verified<Event>, Rejection> {
        if body.len() > MAX_BODY {
            return Err(Rejection::new(413, format!("The body is larger than {MAX_BODY} bytes")));
        }
        let door = self.door(headers)?;
        let signed = door.verify(headers, body)?;
        read(door, headers, body, signed)
    }

    /// Returns the headers that are stored with an authentic delivery: those that are needed to read it again, and the seal if a secret
    /// with the id `key` proved it. Names are in lower case and in order.
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

    /// Decodes a stored delivery. It must be sealed with a secret of this server, or be verified like a new one: earlier versions stored
    /// deliveries without a seal.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if neither applies, or if it cannot be decoded.
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

    /// Ids of all secrets of this server.
    pub fn key_ids(&self) -> Vec<String> {
        self.doors.iter().flat_map(|door| door.secrets()).map(seal::key_id).collect()
    }

    /// Returns the door that claims a request.
    fn door(&self, headers: &HeaderMap) -> Result<&dyn Door, Rejection> {
        if let Some(door) = self.doors.iter().find(|door| door.claims(headers)) {
            return Ok(&**door);
        }
        match OTHERS.iter().find(|(name, _)| headers.contains_key(*name)) {
            Some((_, host)) => Err(Rejection::new(400, format!("{host} is not configured here"))),
            None => Err(Rejection::new(400, "This is no webhook delivery: the host's event header is missing")),
        }
    }

    /// Returns true if a request carries a proof that cannot be guessed, valid or not.
    pub fn is_signed(&self, headers: &HeaderMap) -> bool {
        self.door(headers).is_ok_and(|door| door.is_signed(headers))
    }

    /// Returns true if a header, in lower case, names the event of a delivery.
    pub fn names_event(&self, header: &str) -> bool {
        self.doors.iter().any(|door| door.event_headers().contains(&header))
    }

    /// Returns the identity of the delivery of a comment; absent if the repository's host has no door.
    pub fn comment_identity(&self, pull: &PullId, comment_id: u64) -> Option<DeliveryId> {
        Some(self.door_for(&pull.repo)?.comment_identity(pull, comment_id))
    }

    /// Returns the prefix of the identities of deliveries about the merge queue's entry of this commit; absent if the repository's host has
    /// no door.
    pub fn entry_identities(&self, repo: &RepoId, commit: &CommitSha) -> Option<String> {
        Some(super::merge_queue::entry_identities(self.door_for(repo)?.kind(), repo, commit))
    }

    /// Returns true if deliveries about a repository are accepted without proof, or if its host has no door.
    pub fn takes_unsigned(&self, repo: &RepoId) -> bool {
        self.door_for(repo).is_none_or(|door| door.secrets().is_empty())
    }

    fn door_for(&self, repo: &RepoId) -> Option<&dyn Door> {
        let found = self.doors.iter().find(|door| door.hostname().eq_ignore_ascii_case(&repo.host));
        found.map(|door| &**door)
    }
}

/// Reads an authentic delivery and attaches its proof.
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
