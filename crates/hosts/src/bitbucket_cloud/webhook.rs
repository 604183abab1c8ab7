//! Deliveries of Bitbucket Cloud: pull requests, comments on them, pushes, approvals and build statuses. All others are [`Event::Other`],
//! and an authentic delivery is never refused.
//!
//! Only the body is signed, and the name of the event is in a header. So a body decides which events it can be: a pull request is closed if
//! its own state says so, and a comment or an approval is never anything else. Identities contain no name of an event.

mod payload;
#[cfg(test)]
mod tests;

use super::BitbucketCloudAddress;
use crate::webhook::{Delivered, Door, Rejection, Signed, comment_identity, header, hmac_sha256, parse, short};
use http::HeaderMap;
use payload::{CloudCommentPayload, CloudPayload, CloudPullPayload, CloudPushPayload, CloudStatusPayload};
use secrecy::SecretString;
use tidelock_core::domain::{
    CommentEvent, CommitSha, DeliveredPull, DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullState,
    PullVersion, PushEvent, VerdictEvent,
};

/// Prefix of identities.
const KIND: &str = "bitbucketcloud";
/// Header with the name of the event.
const EVENT: &str = "x-event-key";
/// Header with the id of the webhook. Bitbucket Data Center does not send it.
const HOOK: &str = "x-hook-uuid";
/// Header with the host's id of a delivery.
const ID: &str = "x-request-uuid";
/// Header with the signature: `sha256=` and HMAC-SHA256 over the body, in hex
/// (support.atlassian.com/bitbucket-cloud/docs/manage-webhooks, "Secure webhooks").
const SIGNATURE: &str = "x-hub-signature";
/// Setting with the secret.
const SETTING: &str = "--bitbucket-webhook-secret";
/// Headers that name the event.
const EVENTS: [&str; 1] = [EVENT];
/// Headers that are needed to read a stored delivery again, besides that with the name of the event.
const STORED: [&str; 2] = [HOOK, ID];
/// Headers of a delivery without content or proof.
const UNPROVEN: [(&str, &str); 2] = [(EVENT, "repo:push"), (HOOK, "{00000000-0000-0000-0000-000000000000}")];
/// Most branches of one push that are told; the host lists five (support.atlassian.com/bitbucket-cloud/docs/event-payloads, "Push").
const MAX_BRANCHES: usize = 100;

/// The door for deliveries of Bitbucket Cloud.
#[derive(Clone, Default)]
pub struct BitbucketCloudDoor {
    /// Address of the host.
    pub address: BitbucketCloudAddress,
    /// Secret that deliveries are signed with; absent: unsigned deliveries are accepted (the operator set a flag).
    pub secret: Option<SecretString>,
    /// Previous secret, which is accepted as well while it is being changed.
    pub previous: Option<SecretString>,
}

impl Door for BitbucketCloudDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(EVENT) && headers.contains_key(HOOK)
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        !header(headers, SIGNATURE).is_empty()
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection> {
        let Some(secret) = &self.secret else { return Ok(Signed::No) };
        let given = header(headers, SIGNATURE);
        let Err(why) = hmac_sha256::verify_named(given, body, secret, SETTING) else { return Ok(Signed::Present) };
        match &self.previous {
            Some(previous) if hmac_sha256::verify_named(given, body, previous, SETTING).is_ok() => Ok(Signed::Previous),
            _ => Err(why),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let (kind, host_id) = (header(headers, EVENT), short(header(headers, ID)));
        let Ok(any) = serde_json::from_slice::<CloudPayload>(body) else {
            let event = Event::Other(format!("{}: no JSON of a webhook", short(kind)));
            return Ok(Delivered { event, identity: None, host_id, sight: None });
        };
        let unidentified = |event: Event| (event, None);
        let read = match kind {
            "pullrequest:created" => self.pull_request(&any, body, PullAction::Opened),
            "pullrequest:updated" | "pullrequest:push" => self.pull_request(&any, body, PullAction::Updated),
            "pullrequest:fulfilled" => self.pull_request(&any, body, PullAction::Closed { merged: true }),
            "pullrequest:rejected" => self.pull_request(&any, body, PullAction::Closed { merged: false }),
            "pullrequest:comment_created" => self.comment(&any, body),
            "pullrequest:approved"
            | "pullrequest:unapproved"
            | "pullrequest:changes_request_created"
            | "pullrequest:changes_request_removed" => self.verdict(&any, body).map(unidentified),
            "repo:push" => self.push(&any, body).map(Event::Push).map(unidentified),
            "repo:commit_status_created" | "repo:commit_status_updated" => self.status(&any, body).map(unidentified),
            _ => Err("an event that causes nothing".to_owned()),
        };
        let (event, identity) =
            read.unwrap_or_else(|why| unidentified(Event::Other(format!("{}: {why}", short(kind)))));
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

impl BitbucketCloudDoor {
    /// Reads a change of a pull request; an error says why it has no effect. `named`: what the event's name says.
    fn pull_request(
        &self,
        any: &CloudPayload,
        body: &[u8],
        named: PullAction,
    ) -> Result<(Event, Option<DeliveryId>), String> {
        let payload: CloudPullPayload = parse(body)?;
        if payload.is_of_another_kind() {
            return Err("the text of another event".to_owned());
        }
        let (id, pull) = (self.pull_id(any, &payload)?, payload.pullrequest.ok_or("no pullrequest")?);
        let state = pull.state()?;
        let is_closing = matches!(named, PullAction::Closed { .. });
        let action = match state {
            PullState::Open if is_closing => return Err("a pull request that is open".to_owned()),
            PullState::Open => named,
            PullState::Merged { .. } => PullAction::Closed { merged: true },
            PullState::Closed => PullAction::Closed { merged: false },
        };
        let version = pull.version().ok_or("no pullrequest.updated_on")?;
        let identity = format!("{KIND}:{id}:{}:{}:{version}", pull.state_word(), pull.head_start().unwrap_or_default());
        // Whoever administers the repository knows the secret, so the server asks the host for the rest, and for who pushed.
        let pull = DeliveredPull::Part(pull.part(id, state, &self.address));
        let (sender, version) = (Login::unknown(), PullVersion::new(version));
        Ok((Event::Pull(PullEvent { action, pull, sender, version }), Some(DeliveryId::new(identity))))
    }

    /// Reads a new comment of the conversation of a pull request; an error says why it has no effect.
    fn comment(&self, any: &CloudPayload, body: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let payload: CloudCommentPayload = parse(body)?;
        let pull = self.pull_id(any, &parse::<CloudPullPayload>(body)?)?;
        let clone_url = self.address.clone_url(&pull.repo).ok_or("a name that no repository can have")?;
        let comment = payload.comment.ok_or("no comment")?;
        if let Some(why) = comment.objection() {
            return Err(why.to_owned());
        }
        let comment_id = comment.id.ok_or("no comment.id")?;
        let author = comment.author(payload.actor.as_ref());
        if author.is_unknown() {
            return Err("a comment without its author's id".to_owned());
        }
        let identity = comment_identity(KIND, &pull.repo, comment_id);
        let body = comment.text();
        Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
    }

    /// Reads the pull request of an approval or of requested changes.
    fn verdict(&self, any: &CloudPayload, body: &[u8]) -> Result<Event, String> {
        let PullId { repo, number } = self.pull_id(any, &parse(body)?)?;
        Ok(Event::Verdict(VerdictEvent { repo, number: Some(number), commit: None }))
    }

    /// Reads the branches of a push.
    fn push(&self, any: &CloudPayload, body: &[u8]) -> Result<PushEvent, String> {
        let repo = any.repo(&self.address)?;
        let branches = parse::<CloudPushPayload>(body)?.branches(MAX_BRANCHES);
        if branches.is_empty() {
            return Err("no branch, or one that was deleted".to_owned());
        }
        Ok(PushEvent { repo, branches })
    }

    /// Reads the commit of a build status.
    fn status(&self, any: &CloudPayload, body: &[u8]) -> Result<Event, String> {
        let repo = any.repo(&self.address)?;
        let commit: CommitSha = parse::<CloudStatusPayload>(body)?.commit().ok_or("no commit")?;
        Ok(Event::Verdict(VerdictEvent { repo, number: None, commit: Some(commit) }))
    }

    fn pull_id(&self, any: &CloudPayload, payload: &CloudPullPayload) -> Result<PullId, String> {
        let repo = any.repo(&self.address)?;
        let number = payload.pullrequest.as_ref().ok_or("no pullrequest")?.id;
        Ok(PullId { repo, number: number.filter(|number| *number > 0).ok_or("no pullrequest.id")? })
    }
}
