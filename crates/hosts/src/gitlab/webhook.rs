//! Deliveries of GitLab: merge requests, comments on them and pushes, from webhooks of projects and groups and from system hooks. All
//! others are [`Event::Other`].
//!
//! GitLab disables a webhook after several answers that are no success (docs.gitlab.com/user/project/integrations/webhooks,
//! "Auto-disabled webhooks"), and a custom template may send any body. So an authentic delivery is never refused.

mod payload;
mod signature;
#[cfg(test)]
mod tests;

use super::{GitlabAddress, times};
use crate::webhook::{Delivered, Door, Rejection, Signed, header, parse, short};
use http::HeaderMap;
use jiff::Timestamp;
use payload::{AnyHook, HookUser, MergeRequestChanges, MergeRequestHook, NoteHook, PushHook};
use secrecy::{ExposeSecret, SecretString};
use tidelock_core::domain::{
    CommentEvent, CommitSha, DeliveredPull, DeliveryId, Event, Login, PartialPull, PullAction, PullEvent, PullId,
    PullState, PullVersion, PushEvent, VerdictEvent, is_secret,
};

/// Prefix of identities.
const KIND: &str = "gitlab";
/// Prefix of the names of all branches.
const HEADS: &str = "refs/heads/";
/// Header with the name of the event. The event is read from the body, which a signature covers.
const EVENT: &str = "x-gitlab-event";
/// Header with the secret token itself. It is never stored, logged or repeated.
const TOKEN: &str = "x-gitlab-token";
/// Headers with the host's id of a delivery; the first one exists since GitLab 17.4.
const IDS: [&str; 2] = ["idempotency-key", "x-gitlab-event-uuid"];
/// Prefixes of the title of a draft, in lower case (docs.gitlab.com/user/project/merge_requests/drafts).
const DRAFT_PREFIXES: [&str; 3] = ["draft:", "[draft]", "(draft)"];

/// The door for GitLab's deliveries.
#[derive(Clone, Default)]
pub struct GitlabDoor {
    /// Address of the host.
    pub address: GitlabAddress,
    /// Secret token that deliveries carry. If it and the signing token are absent, deliveries are accepted without proof (the operator set
    /// a flag).
    pub secret: Option<SecretString>,
    /// Previous secret token, which is accepted as well while it is being changed.
    pub previous: Option<SecretString>,
    /// Signing token, `whsec_…`. A delivery with a signature must be signed with it.
    pub signing: Option<SecretString>,
}

impl Door for GitlabDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        self.address.hostname()
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(EVENT)
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        // The secret token is too long to be guessed: settings refuse a shorter one.
        [TOKEN, signature::SIGNATURE].iter().any(|name| headers.contains_key(*name))
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Signed, Rejection> {
        match (&self.signing, &self.secret) {
            (Some(signing), _) if headers.contains_key(signature::SIGNATURE) => {
                signature::verify(headers, body, signing, Timestamp::now()).map(|()| Signed::Present)
            }
            (None, None) => Ok(Signed::No),
            _ => self.verify_token(headers),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let host_id = IDS.iter().map(|name| header(headers, name)).find(|id| !id.is_empty()).unwrap_or_default();
        let host_id = short(host_id);
        let Ok(hook) = serde_json::from_slice::<AnyHook>(body) else {
            let event = Event::Other("no JSON of a webhook, as from a custom template".to_owned());
            return Ok(Delivered { event, identity: None, host_id, sight: None });
        };
        let read = match hook.kind() {
            "merge_request" => self.merge_request(&hook, body),
            "note" => self.note(&hook, body),
            "push" => self.push(&hook, body).map(|push| (Event::Push(push), None)),
            _ => Err("an event that causes nothing".to_owned()),
        };
        let (event, identity) =
            read.unwrap_or_else(|why| (Event::Other(format!("{}: {why}", short(hook.kind()))), None));
        Ok(Delivered { event, identity, host_id, sight: hook.sighting(&self.address) })
    }

    fn event_headers(&self) -> &'static [&'static str] {
        &[EVENT]
    }

    fn other_headers(&self) -> &'static [&'static str] {
        &IDS
    }

    fn secrets(&self) -> Vec<&SecretString> {
        let present = self.present();
        // Without a present secret nothing is verified, so the previous one proves nothing.
        present.into_iter().chain(present.and(self.previous.as_ref())).collect()
    }

    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/json"), (EVENT, "Push Hook")]
    }
}

impl GitlabDoor {
    /// Returns the secret that seals stored deliveries.
    fn present(&self) -> Option<&SecretString> {
        self.secret.as_ref().or(self.signing.as_ref())
    }

    /// Compares the secret token of a delivery.
    fn verify_token(&self, headers: &HeaderMap) -> Result<Signed, Rejection> {
        let given = header(headers, TOKEN);
        let is = |secret: &SecretString| is_secret(secret.expose_secret(), given);
        if self.secret.as_ref().is_some_and(is) {
            Ok(Signed::Present)
        } else if self.previous.as_ref().is_some_and(is) {
            Ok(Signed::Previous)
        } else if given.is_empty() {
            let message = "The delivery has no proof: give the webhook the secret token of --gitlab-webhook-secret, or the \
                           signing token of --gitlab-webhook-signing-token";
            Err(Rejection::new(401, message))
        } else {
            let message = "The secret token is wrong: is the webhook's token that of --gitlab-webhook-secret?";
            Err(Rejection::new(401, message))
        }
    }

    /// Reads the event of a merge request; an error says why it has no effect.
    fn merge_request(&self, hook: &AnyHook, body: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let MergeRequestHook { object_attributes: pull, labels, changes } = parse(body)?;
        let id = hook.pull_id(&self.address, &pull)?;
        let name = pull.action.as_deref().unwrap_or_default();
        let (action, told) = match name {
            "open" => (PullAction::Opened, "open"),
            "reopen" => (PullAction::Opened, "reopen"),
            "close" => (PullAction::Closed { merged: false }, "close"),
            "merge" => (PullAction::Closed { merged: true }, "merge"),
            "update" if pull.oldrev.is_some() => (PullAction::Pushed, "push"),
            "update" if changes.as_ref().is_some_and(MergeRequestChanges::make_ready) => (PullAction::Ready, "ready"),
            "approved" | "unapproved" | "approval" | "unapproval" => return Ok(verdict(id)),
            "update" if pull.system_action.is_some() => return Ok(verdict(id)),
            "update" if changes.is_some_and(|changes| changes.reviewers.is_some()) => return Ok(verdict(id)),
            other => return Err(format!("action {:?}", short(other))),
        };
        let version = pull.updated_at.as_deref().and_then(times::version).ok_or("no object_attributes.updated_at")?;
        let head = pull.head();
        let of_head = head.as_ref().map(CommitSha::as_str).unwrap_or_default();
        let identity = DeliveryId::new(format!("{KIND}:{id}:{told}:{of_head}:{version}"));
        let part = PartialPull {
            state: match (action, pull.state.as_deref()) {
                (PullAction::Closed { merged: true }, _) | (_, Some("merged")) => {
                    let commit = pull.merge_commit_sha.as_deref().and_then(|commit| CommitSha::parse(commit).ok());
                    PullState::Merged { commit }
                }
                (PullAction::Closed { merged: false }, _) | (_, Some("closed")) => PullState::Closed,
                _ => PullState::Open,
            },
            head,
            head_start: None,
            draft: pull.draft.or(pull.work_in_progress),
            fork: pull.source_project_id.zip(pull.target_project_id).map(|(source, target)| source != target),
            labels: labels.map(|labels| labels.into_iter().filter_map(|label| label.title).collect()),
            id,
        };
        // A webhook's custom template could name anybody here. The server asks the host who pushed.
        let sender = Login::unknown();
        let version = PullVersion::new(version);
        Ok((Event::Pull(PullEvent { action, pull: DeliveredPull::Part(part), sender, version }), Some(identity)))
    }

    /// Reads a new comment on a merge request; an error says why it has no effect.
    fn note(&self, hook: &AnyHook, body: &[u8]) -> Result<(Event, Option<DeliveryId>), String> {
        let NoteHook { event_type, user, object_attributes: note, merge_request } = parse(body)?;
        let kind = note.noteable_type.as_deref().unwrap_or_default();
        if kind != "MergeRequest" {
            return Err(format!("a comment on {:?}", short(kind)));
        }
        if note.system == Some(true) {
            return Err("a comment that nobody wrote".to_owned());
        }
        let is_confidential = event_type.as_deref() == Some("confidential_note");
        if is_confidential || note.internal == Some(true) || note.confidential == Some(true) {
            return Err("an internal comment".to_owned());
        }
        let is_new = match note.action.as_deref() {
            Some(action) => action == "create",
            None => note.created_at.is_some() && note.created_at == note.updated_at,
        };
        if !is_new {
            return Err("a comment that was edited".to_owned());
        }
        // The delivery names the account that acted, and the author by id only.
        let author_id = user.as_ref().and_then(|user| user.id).zip(note.author_id);
        let author = HookUser::login(user.as_ref());
        if author.is_unknown() || author_id.is_some_and(|(user, author)| user != author) {
            return Err("a comment without its author's name".to_owned());
        }
        let pull = hook.pull_id(&self.address, merge_request.as_ref().ok_or("no merge_request")?)?;
        let clone_url = self.address.clone_url(&pull.repo).ok_or("a name that no project can have")?;
        let comment_id = note.id.ok_or("no object_attributes.id")?;
        let identity = self.comment_identity(&pull, comment_id);
        let body = note.note.unwrap_or_default();
        Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
    }

    /// Reads the branch of a push.
    fn push(&self, hook: &AnyHook, body: &[u8]) -> Result<PushEvent, String> {
        let repo = hook.repository(&self.address)?;
        let PushHook { reference, after } = parse(body)?;
        if after.is_some_and(|after| after.bytes().all(|digit| digit == b'0')) {
            return Err("a branch that was deleted".to_owned());
        }
        let reference = reference.unwrap_or_default();
        let branch = reference.strip_prefix(HEADS).filter(|branch| !branch.is_empty()).ok_or("no branch")?;
        Ok(PushEvent { repo, branches: vec![branch.to_owned()] })
    }
}

impl MergeRequestChanges {
    /// Returns true if an update made a merge request ready for review.
    fn make_ready(&self) -> bool {
        match (&self.draft, &self.title) {
            (Some(draft), _) => draft.previous == Some(true) && draft.current == Some(false),
            (None, Some(title)) => {
                let is_draft = |title: &Option<String>| title.as_deref().map(is_title_of_draft);
                is_draft(&title.previous) == Some(true) && is_draft(&title.current) == Some(false)
            }
            (None, None) => false,
        }
    }
}

fn is_title_of_draft(title: &str) -> bool {
    let title = title.trim_start().to_ascii_lowercase();
    DRAFT_PREFIXES.iter().any(|prefix| title.starts_with(prefix))
}

/// Returns the event of an approval that was given or taken back.
fn verdict(id: PullId) -> (Event, Option<DeliveryId>) {
    (Event::Verdict(VerdictEvent { repo: id.repo, number: Some(id.number), commit: None }), None)
}
