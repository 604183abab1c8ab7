//! Deliveries of Gitea and Forgejo: pull requests, comments on them, pushes, reviews and commit statuses. All others are
//! [`Event::Other`], and an authentic delivery is never refused.
//!
//! Addresses in a payload follow the `Host` header of the person's request that caused the delivery (modules/httplib/url.go,
//! `GuessCurrentHostURL`). So none of them is used or compared: each is made of the configured address and the checked names.

mod payload;
mod signature;
#[cfg(test)]
mod tests;

use super::{GiteaAddress, times};
use crate::webhook::{Delivered, Door, Rejection, Signed, comment_identity, header, parse, short};
use http::HeaderMap;
use payload::{AnyPayload, CommentPayload, PullPayload, PushPayload, StatusPayload, login};
use secrecy::SecretString;
use std::borrow::Cow;
use tidelock_core::domain::{
    CommentEvent, CommitSha, DeliveredPull, DeliveryId, Event, Login, PullAction, PullEvent, PullId, PullVersion,
    PushEvent, VerdictEvent,
};

/// Prefix of identities.
const KIND: &str = "gitea";
/// Prefix of the names of all branches.
const HEADS: &str = "refs/heads/";
/// Headers with the name of the event. They are not signed: what an event does is read from the body.
const EVENTS: [&str; 2] = ["x-gitea-event", "x-forgejo-event"];
/// Headers with the host's id of a delivery. A delivery that is sent again from the page of its webhook has another one.
const IDS: [&str; 2] = ["x-gitea-delivery", "x-forgejo-delivery"];
/// Header with the encoding of the body.
const CONTENT_TYPE: &str = "content-type";
/// Headers that are needed to read a stored delivery again, besides those with the name of the event.
const STORED: [&str; 3] = [CONTENT_TYPE, IDS[0], IDS[1]];
/// Headers of a delivery without content or proof.
const UNPROVEN: [(&str, &str); 2] = [(CONTENT_TYPE, "application/json"), (EVENTS[0], "push")];
/// Encoding of a form, whose field `payload` has the JSON.
const FORM: &str = "application/x-www-form-urlencoded";

/// The door for deliveries of Gitea and Forgejo.
#[derive(Clone, Default)]
pub struct GiteaDoor {
    /// Address of the host.
    pub address: GiteaAddress,
    /// Secret that deliveries are signed with; absent: unsigned deliveries are accepted (the operator set a flag).
    pub secret: Option<SecretString>,
    /// Previous secret, which is accepted as well while it is being changed.
    pub previous: Option<SecretString>,
}

impl Door for GiteaDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        EVENTS.iter().any(|name| headers.contains_key(*name))
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        // A webhook without a secret has the header too, without a value.
        !first(headers, &signature::HEADERS).is_empty()
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection> {
        let Some(secret) = &self.secret else { return Ok(Signed::No) };
        let json = json(headers, body);
        let given = first(headers, &signature::HEADERS);
        let Err(why) = signature::verify(given, &json, secret) else { return Ok(Signed::Present) };
        match &self.previous {
            Some(previous) if signature::verify(given, &json, previous).is_ok() => Ok(Signed::Previous),
            _ => Err(why),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let (json, kind) = (json(headers, body), first(headers, &EVENTS));
        let host_id = short(first(headers, &IDS));
        let Ok(any) = serde_json::from_slice::<AnyPayload>(&json) else {
            let event = Event::Other(format!("{}: no JSON of a webhook", short(kind)));
            return Ok(Delivered { event, identity: None, host_id, sight: None });
        };
        let unidentified = |event: Event| (event, None);
        let read = match kind {
            "pull_request" | "pull_request_approved" | "pull_request_rejected" | "pull_request_comment" => {
                self.pull_request(&any, &json)
            }
            "issue_comment" => self.comment(&any, &json),
            "push" => self.push(&any, &json).map(Event::Push).map(unidentified),
            "status" => self.status(&any, &json).map(unidentified),
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

impl GiteaDoor {
    /// Reads an event of a pull request, also a review; an error says why it has no effect.
    fn pull_request(&self, any: &AnyPayload, json: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let PullPayload { action, number, pull_request, changes } = parse(json)?;
        let repo = any.repo(&self.address)?;
        let id = PullId { repo, number: number.filter(|number| *number > 0).ok_or("no number")? };
        let pull = pull_request.ok_or("no pull_request")?;
        let merged = pull.merged == Some(true);
        let name = action.as_deref().unwrap_or_default();
        let (action, told) = match name {
            "opened" => (PullAction::Opened, name),
            "reopened" => (PullAction::Opened, name),
            // One that is opened soon after a push has the push told as well, with the same head: Gitea looks for a branch's pull requests
            // when the push is worked on (services/pull/pull.go, `AddTestPullRequestTask`).
            "synchronized" => (PullAction::Updated, name),
            // Merging and closing have one name. Times have whole seconds, so both may have the same one.
            "closed" if merged => (PullAction::Closed { merged }, "merged"),
            "closed" | "deleted" => (PullAction::Closed { merged }, name),
            // A draft is a pull request whose title begins with one of the prefixes that the instance has configured
            // (models/issues/pull.go, `CutWorkInProgressPrefix`), so only its former state says whether it was one.
            "edited" if changes.is_some_and(|changes| changes.title.is_some()) && pull.is_open_and_ready() => {
                (PullAction::Updated, name)
            }
            "reviewed" => {
                return Ok((
                    Event::Verdict(VerdictEvent { repo: id.repo, number: Some(id.number), commit: None }),
                    None,
                ));
            }
            other => return Err(format!("action {:?}", short(other))),
        };
        let version = pull.updated_at.as_deref().and_then(times::version).ok_or("no pull_request.updated_at")?;
        let of_head = pull.head_commit();
        let of_head = of_head.as_ref().map(CommitSha::as_str).unwrap_or_default();
        let identity = DeliveryId::new(format!("{KIND}:{id}:{told}:{of_head}:{version}"));
        // The webhook's page shows its secret to whoever administers the repository (templates/repo/settings/webhook/settings.tmpl), so
        // the server asks the host for the rest, and for who pushed.
        let pull = DeliveredPull::Part(pull.part(id, action, &self.address));
        let (sender, version) = (Login::unknown(), PullVersion::new(version));
        Ok((Event::Pull(PullEvent { action, pull, sender, version }), Some(identity)))
    }

    /// Reads a new comment on a pull request; an error says why it has no effect.
    fn comment(&self, any: &AnyPayload, json: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let CommentPayload { action, is_pull, issue, comment } = parse(json)?;
        let action = action.unwrap_or_default();
        if action != "created" {
            return Err(format!("action {:?}", short(&action)));
        }
        if is_pull != Some(true) {
            return Err("a comment on an issue".to_owned());
        }
        let repo = any.repo(&self.address)?;
        let clone_url = self.address.clone_url(&repo).ok_or("a name that no repository can have")?;
        let number = issue.and_then(|issue| issue.number).filter(|number| *number > 0).ok_or("no issue.number")?;
        let comment = comment.ok_or("no comment")?;
        let comment_id = comment.id.ok_or("no comment.id")?;
        let author = login(comment.user.as_ref());
        if author.is_unknown() {
            return Err("a comment without its author's name".to_owned());
        }
        let identity = comment_identity(KIND, &repo, comment_id);
        let pull = PullId { repo, number };
        let body = comment.body.unwrap_or_default();
        Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
    }

    /// Reads the branch of a push.
    fn push(&self, any: &AnyPayload, json: &[u8]) -> Result<PushEvent, String> {
        let repo = any.repo(&self.address)?;
        let PushPayload { reference, after } = parse(json)?;
        if after.is_some_and(|after| after.bytes().all(|digit| digit == b'0')) {
            return Err("a branch that was deleted".to_owned());
        }
        let reference = reference.unwrap_or_default();
        let branch = reference.strip_prefix(HEADS).filter(|branch| !branch.is_empty()).ok_or("no branch")?;
        Ok(PushEvent { repo, branches: vec![branch.to_owned()] })
    }

    /// Reads the commit of a status.
    fn status(&self, any: &AnyPayload, json: &[u8]) -> Result<Event, String> {
        let repo = any.repo(&self.address)?;
        let sha = parse::<StatusPayload>(json)?.sha.unwrap_or_default();
        let commit = CommitSha::parse(&sha).map_err(|_| "no commit")?;
        Ok(Event::Verdict(VerdictEvent { repo, number: None, commit: Some(commit) }))
    }
}

/// Returns the first of these headers that has a value; empty if none has.
fn first<'a>(headers: &'a HeaderMap, names: &[&str]) -> &'a str {
    names.iter().map(|name| header(headers, name)).find(|value| !value.is_empty()).unwrap_or_default()
}

/// The JSON of the body, which is what is signed: itself, or the form's field `payload` (services/webhook/deliver.go, `newDefaultRequest`).
fn json<'a>(headers: &HeaderMap, body: &'a [u8]) -> Cow<'a, [u8]> {
    let kind = header(headers, CONTENT_TYPE).split(';').next().unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case(FORM) {
        return Cow::Borrowed(body);
    }
    let field = url::form_urlencoded::parse(body).find(|(name, _)| name == "payload");
    Cow::Owned(field.map(|(_, json)| json.into_owned().into_bytes()).unwrap_or_default())
}
