//! Deliveries of Bitbucket Data Center: pull requests, comments on them, pushes and reviews. All others are [`Event::Other`], and an
//! authentic delivery is never refused: after some failures the host skips the webhook, for up to ten hours, and loses what it would have
//! delivered (confluence.atlassian.com/bitbucketserver, "Manage webhooks", "Circuit breaker").
//!
//! The event is read from the body, which the signature covers.

mod payload;
#[cfg(test)]
mod tests;

use super::BitbucketDataCenterAddress;
use crate::webhook::{Delivered, Door, Rejection, Signed, comment_identity, header, hmac_sha256, parse, short};
use http::HeaderMap;
use payload::{DataCenterCommentPayload, DataCenterPayload, DataCenterPullPayload, DataCenterPushPayload};
use secrecy::SecretString;
use tidelock_core::domain::{
    CommentEvent, DeliveredPull, DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullState, PullVersion,
    PushEvent, VerdictEvent,
};

/// Prefix of identities.
const KIND: &str = "bitbucketdatacenter";
/// Header with the name of the event.
const EVENT: &str = "x-event-key";
/// Header of Bitbucket Cloud alone, which has the same header with the name of the event.
const OF_CLOUD: &str = "x-hook-uuid";
/// Header with the host's id of a delivery.
const ID: &str = "x-request-id";
/// Header with the signature: `sha256=` and HMAC-SHA256 over the body, in hex
/// (confluence.atlassian.com/bitbucketserver, "Manage webhooks", "Webhook secrets").
const SIGNATURE: &str = "x-hub-signature";
/// Settings with the secret.
const SETTING: &str = "--bitbucket-webhook-secret or --bitbucket-data-center-webhook-secret";
/// Name of the event of the button "Test connection". The host sends it without a signature
/// (runatlantis/atlantis, `server/controllers/events/events_controller.go`).
const PING: &str = "diagnostics:ping";
/// Headers that name the event.
const EVENTS: [&str; 1] = [EVENT];
/// Headers that are needed to read a stored delivery again, besides that with the name of the event.
const STORED: [&str; 1] = [ID];
/// Headers of a delivery without content or proof.
const UNPROVEN: [(&str, &str); 1] = [(EVENT, "repo:refs_changed")];
/// Most branches of one push that are told.
const MAX_BRANCHES: usize = 100;

/// The door for deliveries of Bitbucket Data Center.
#[derive(Clone)]
pub struct BitbucketDataCenterDoor {
    /// Address of the host.
    pub address: BitbucketDataCenterAddress,
    /// Secret that deliveries are signed with; absent: unsigned deliveries are accepted (the operator set a flag).
    pub secret: Option<SecretString>,
    /// Previous secret, which is accepted as well while it is being changed.
    pub previous: Option<SecretString>,
}

impl Door for BitbucketDataCenterDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(EVENT) && !headers.contains_key(OF_CLOUD)
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        !header(headers, SIGNATURE).is_empty()
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection> {
        let Some(secret) = &self.secret else { return Ok(Signed::No) };
        let given = header(headers, SIGNATURE);
        if given.is_empty() && header(headers, EVENT) == PING {
            return Ok(Signed::No);
        }
        let Err(why) = hmac_sha256::verify_named(given, body, secret, SETTING) else { return Ok(Signed::Present) };
        match &self.previous {
            Some(previous) if hmac_sha256::verify_named(given, body, previous, SETTING).is_ok() => Ok(Signed::Previous),
            _ => Err(why),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let host_id = short(header(headers, ID));
        let nothing = |event| Ok(Delivered { event, identity: None, host_id: host_id.clone(), sight: None });
        // Nothing in such a body counts: it may be anybody's.
        if header(headers, EVENT) == PING {
            return nothing(Event::Ping);
        }
        let Ok(any) = serde_json::from_slice::<DataCenterPayload>(body) else {
            return nothing(Event::Other("no JSON of a webhook".to_owned()));
        };
        let unidentified = |event: Event| (event, None);
        let read = match any.event() {
            "pr:opened" | "pr:reopened" => self.pull_request(body, PullAction::Opened),
            "pr:from_ref_updated" | "pr:to_ref_updated" | "pr:modified" => self.pull_request(body, PullAction::Updated),
            "pr:merged" => self.pull_request(body, PullAction::Closed { merged: true }),
            "pr:declined" => self.pull_request(body, PullAction::Closed { merged: false }),
            "pr:deleted" => self.deleted(body),
            "pr:comment:added" => self.comment(body),
            // The documentation calls the third one as the fourth is called in the OpenAPI.
            "pr:reviewer:approved"
            | "pr:reviewer:unapproved"
            | "pr:reviewer:needs_work"
            | "pr:reviewer:changes_requested"
            | "pr:reviewer:updated" => self.verdict(body).map(unidentified),
            "repo:refs_changed" => self.push(&any, body).map(Event::Push).map(unidentified),
            _ => Err("an event that causes nothing".to_owned()),
        };
        let (event, identity) =
            read.unwrap_or_else(|why| unidentified(Event::Other(format!("{}: {why}", short(any.event())))));
        Ok(Delivered { event, identity, host_id, sight: any.sighting(&self.address) })
    }

    fn event_headers(&self) -> &'static [&'static str] {
        &EVENTS
    }

    fn other_headers(&self) -> &'static [&'static str] {
        &STORED
    }

    fn secrets(&self) -> Vec<&SecretString> {
        // Without a present secret nothing is verified, so the previous one proves nothing.
        let previous = self.secret.as_ref().and(self.previous.as_ref());
        self.secret.iter().chain(previous).collect()
    }

    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)] {
        &UNPROVEN
    }
}

impl BitbucketDataCenterDoor {
    /// Reads a change of a pull request; an error says why it has no effect. `named`: what the event's name says.
    fn pull_request(&self, body: &[u8], named: PullAction) -> Result<(Event, Option<DeliveryId>), String> {
        let payload: DataCenterPullPayload = parse(body)?;
        let state = payload.pull()?.state()?;
        let is_closing = matches!(named, PullAction::Closed { .. });
        let action = match state {
            PullState::Open if is_closing => return Err("a pull request that is open".to_owned()),
            PullState::Open => named,
            PullState::Merged { .. } => PullAction::Closed { merged: true },
            PullState::Closed => PullAction::Closed { merged: false },
        };
        let word = payload.pull()?.state_word().to_owned();
        self.changed(payload, action, state, &word)
    }

    /// Reads the end of a pull request that was deleted. Its state is the one before.
    fn deleted(&self, body: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        self.changed(parse(body)?, PullAction::Closed { merged: false }, PullState::Closed, "DELETED")
    }

    fn changed(
        &self,
        payload: DataCenterPullPayload,
        action: PullAction,
        state: PullState,
        word: &str,
    ) -> Result<(Event, Option<DeliveryId>), String> {
        let (id, pull) = (self.pull_id(&payload)?, payload.into_pull()?);
        let version = pull.version().ok_or("no pullRequest.updatedDate")?;
        let part = pull.part(id, state, &self.address);
        let head = part.head.as_ref().map(ToString::to_string).unwrap_or_default();
        let identity = DeliveryId::new(format!("{KIND}:{}:{word}:{head}:{version}", part.id));
        // Whoever administers the repository chooses the secret, so the server asks the host for the rest, and for who pushed.
        let pull = DeliveredPull::Part(part);
        let (sender, version) = (Login::unknown(), PullVersion::new(version));
        Ok((Event::Pull(PullEvent { action, pull, sender, version }), Some(identity)))
    }

    /// Reads a new comment on a pull request; an error says why it has no effect. A comment on a line of a file cannot be told from others
    /// here: the server asks the host for each.
    fn comment(&self, body: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let pull = self.pull_id(&parse(body)?)?;
        let clone_url = self.address.clone_url(&pull.repo).ok_or("a name that no repository can have")?;
        let comment = parse::<DataCenterCommentPayload>(body)?.comment.ok_or("no comment")?;
        if let Some(why) = comment.objection() {
            return Err(why.to_owned());
        }
        let comment_id = comment.id.ok_or("no comment.id")?;
        let author = comment.author();
        if author.is_unknown() {
            return Err("a comment without its author's name".to_owned());
        }
        let identity = comment_identity(KIND, &pull.repo, comment_id);
        let body = comment.text();
        Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
    }

    /// Reads the pull request of a review.
    fn verdict(&self, body: &[u8]) -> Result<Event, String> {
        let PullId { repo, number } = self.pull_id(&parse(body)?)?;
        Ok(Event::Verdict(VerdictEvent { repo, number: Some(number), commit: None }))
    }

    /// Reads the branches of a push.
    fn push(&self, any: &DataCenterPayload, body: &[u8]) -> Result<PushEvent, String> {
        let repo = any.repo(&self.address)?;
        let branches = parse::<DataCenterPushPayload>(body)?.branches(MAX_BRANCHES);
        if branches.is_empty() {
            return Err("no branch, or one that was deleted".to_owned());
        }
        Ok(PushEvent { repo, branches })
    }

    fn pull_id(&self, payload: &DataCenterPullPayload) -> Result<PullId, String> {
        let pull = payload.pull()?;
        let repo = pull.base(&self.address)?;
        Ok(PullId { repo, number: pull.id.filter(|number| *number > 0).ok_or("no pullRequest.id")? })
    }
}
