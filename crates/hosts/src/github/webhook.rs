//! Deliveries of GitHub.com and Enterprise: `pull_request`, `issue_comment`, `merge_group`, `push`, `ping`, and reviews and checks of a
//! commit. All others are [`Event::Other`].

mod checks;
mod merge_group;
mod payload;
mod signature;
#[cfg(test)]
mod tests;

use crate::webhook::{Delivered, Door, Rejection, Signed, comment_identity, header, short};
pub use checks::KnownChecks;
use payload::{Payload, Pull, Side, commit, login, or_empty, owner_and_name, present, text};
use secrecy::SecretString;
use std::borrow::Cow;
use tidelock_core::domain::{
    Base, CommentEvent, CommitSha, DeliveryId, Event, Head, PullAction, PullEvent, PullId, PullRequest, PullState,
    PullVersion, PushEvent, VerdictEvent,
};

/// Prefix of identities.
const KIND: &str = "github";

/// Prefix of the names of all branches.
const HEADS: &str = "refs/heads/";

/// Header with the name of the event.
const EVENT: &str = "x-github-event";
/// Headers of Gitea and Forgejo, which send GitHub's headers as well.
const NOT_OURS: [&str; 2] = ["x-gitea-event", "x-forgejo-event"];
/// Headers of which a signed delivery has at least one.
const SIGNATURES: [&str; 2] = ["x-hub-signature-256", "x-hub-signature"];

/// The door for GitHub's deliveries.
#[derive(Clone, Default)]
pub struct GithubDoor {
    /// Host name for repository ids.
    pub hostname: String,
    /// Secret that deliveries are signed with; absent: unsigned deliveries are accepted (the operator set a flag).
    pub secret: Option<SecretString>,
    /// Previous secret, while the host or the inbox may still have deliveries that are signed with it.
    pub previous: Option<SecretString>,
    /// Check runs whose buttons are commands.
    pub checks: KnownChecks,
}

impl Door for GithubDoor {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn hostname(&self) -> &str {
        &self.hostname
    }

    fn claims(&self, headers: &http::HeaderMap) -> bool {
        headers.contains_key(EVENT) && !NOT_OURS.iter().any(|name| headers.contains_key(*name))
    }

    fn is_signed(&self, headers: &http::HeaderMap) -> bool {
        SIGNATURES.iter().any(|name| headers.contains_key(*name))
    }

    fn verify(&self, headers: &http::HeaderMap, body: &[u8]) -> Result<Signed, Rejection> {
        encoding(headers)?;
        let Some(secret) = &self.secret else { return Ok(Signed::No) };
        let Err(why) = signature::verify_hub(headers, body, secret) else { return Ok(Signed::Present) };
        match &self.previous {
            Some(previous) if signature::verify_hub(headers, body, previous).is_ok() => Ok(Signed::Previous),
            _ => Err(why),
        }
    }

    fn read(&self, headers: &http::HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let (encoding, host) = (encoding(headers)?, self.hostname.as_str());
        let (event, identity) = match header(headers, EVENT) {
            "ping" => (Event::Ping, None),
            "pull_request" => pull_request(&json(body, encoding)?, host)?,
            "issue_comment" => issue_comment(&json(body, encoding)?, host)?,
            "merge_group" => merge_group::read(&json(body, encoding)?, host)?,
            "push" => (push(&json(body, encoding)?, host), None),
            name @ ("check_run" | "check_suite") => {
                (checks::receive(name, &json(body, encoding)?, host, self.checks)?, None)
            }
            name @ ("pull_request_review" | "status") => (verdict(name, &json(body, encoding)?, host), None),
            other => (Event::Other(short(other)), None),
        };
        let sight = match header(headers, EVENT) {
            "ping" => None,
            _ => json(body, encoding).ok().and_then(|json| payload::sighting(&json, host)),
        };
        Ok(Delivered { event, identity, host_id: short(header(headers, "x-github-delivery")), sight })
    }

    fn event_headers(&self) -> &'static [&'static str] {
        &[EVENT]
    }

    fn other_headers(&self) -> &'static [&'static str] {
        &["content-type", "x-github-delivery", "x-hub-signature", "x-hub-signature-256"]
    }

    fn secrets(&self) -> Vec<&SecretString> {
        // Without a present secret nothing is verified, so the previous one proves nothing.
        let previous = self.secret.as_ref().and(self.previous.as_ref());
        self.secret.iter().chain(previous).collect()
    }

    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("content-type", "application/json"), (EVENT, "ping"), ("x-github-delivery", "0")]
    }
}

/// Encoding of a delivery's body.
#[derive(Clone, Copy)]
enum BodyEncoding {
    Json,
    Form,
}

/// Reads the encoding of the body from the headers.
fn encoding(headers: &http::HeaderMap) -> Result<BodyEncoding, Rejection> {
    match header(headers, "content-type").split(';').next().unwrap_or_default().trim() {
        kind if kind.eq_ignore_ascii_case("application/json") => Ok(BodyEncoding::Json),
        kind if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") => Ok(BodyEncoding::Form),
        _ => Err(Rejection::new(415, "Send application/json or application/x-www-form-urlencoded")),
    }
}

/// The JSON of the body: itself, or its form field `payload`.
fn json(body: &[u8], encoding: BodyEncoding) -> Result<Cow<'_, [u8]>, Rejection> {
    match encoding {
        BodyEncoding::Json => Ok(Cow::Borrowed(body)),
        BodyEncoding::Form => {
            let field = url::form_urlencoded::parse(body).find(|(name, _)| name == "payload");
            let (_, value) = field.ok_or_else(|| Rejection::new(400, "The form has no payload"))?;
            Ok(Cow::Owned(value.into_owned().into_bytes()))
        }
    }
}

fn pull_request(json: &[u8], host: &str) -> Result<(Event, Option<DeliveryId>), Rejection> {
    let payload = Payload::parse(json)?;
    let name = text(&payload.action, "action")?;
    let action = match name {
        "opened" => PullAction::Opened,
        "synchronize" => PullAction::Pushed,
        "ready_for_review" => PullAction::Ready,
        "closed" => PullAction::Closed { merged: payload.pull_request.as_ref().and_then(|p| p.merged) == Some(true) },
        other => return Ok((Event::Other(format!("pull_request {}", short(other))), None)),
    };
    let pull = present(&payload.pull_request, "pull_request")?;
    let (repo, clone_url) = payload.repository(host)?;
    let id = PullId { repo, number: *present(&payload.number, "number")? };
    let updated_at = text(&pull.updated_at, "pull_request.updated_at")?;
    let head = head(present(&pull.head, "pull_request.head")?)?;
    // Times have whole seconds: a closing, a reopening and a merge may have the same one.
    let told = if action == (PullAction::Closed { merged: true }) { "merged" } else { name };
    let identity = DeliveryId::new(format!("{KIND}:{id}:{told}:{}:{updated_at}", head.commit));
    let labels = pull.labels.iter().flatten().map(|label| or_empty(&label.name)).collect();
    let pull = PullRequest {
        title: or_empty(&pull.title),
        url: text(&pull.html_url, "pull_request.html_url")?.to_owned(),
        author: login(&pull.user, "pull_request.user.login")?,
        base: base(present(&pull.base, "pull_request.base")?)?,
        draft: pull.draft.unwrap_or_default(),
        state: match text(&pull.state, "pull_request.state")? {
            "open" => PullState::Open,
            _ if pull.merged == Some(true) => PullState::Merged { commit: merge_commit(pull) },
            _ => PullState::Closed,
        },
        fork: !id.repo.is_named(&head.repo_owner, &head.repo_name),
        head,
        labels,
        repo_size_kib: payload.repository.as_ref().and_then(|repository| repository.size),
        clone_url,
        id,
    };
    let sender = login(&payload.sender, "sender.login")?;
    Ok((
        Event::Pull(PullEvent { action, pull: pull.into(), sender, version: PullVersion::new(updated_at) }),
        Some(identity),
    ))
}

/// Commit of the merge on the base branch, if the payload has it. A closing is valid without it.
fn merge_commit(pull: &Pull<'_>) -> Option<CommitSha> {
    commit(&pull.merge_commit_sha, "pull_request.merge_commit_sha").ok()
}

fn head(head: &Side<'_>) -> Result<Head, Rejection> {
    let repo = head.repo.as_ref();
    let repo = repo.map(|repo| owner_and_name(&repo.full_name, "pull_request.head.repo.full_name")).transpose()?;
    let (repo_owner, repo_name) = repo.unwrap_or_default();
    Ok(Head {
        branch: text(&head.branch, "pull_request.head.ref")?.to_owned(),
        commit: commit(&head.sha, "pull_request.head.sha")?,
        repo_owner,
        repo_name,
        clone_url: None,
    })
}

fn base(base: &Side<'_>) -> Result<Base, Rejection> {
    Ok(Base {
        branch: text(&base.branch, "pull_request.base.ref")?.to_owned(),
        commit: commit(&base.sha, "pull_request.base.sha")?,
    })
}

/// Reads the branch of a push. A push that cannot be read is not refused, as it is only a hint.
fn push(json: &[u8], host: &str) -> Event {
    let read = || {
        let payload = Payload::parse(json).ok()?;
        let (repo, _) = payload.repository(host).ok()?;
        let branch = text(&payload.reference, "ref").ok()?.strip_prefix(HEADS)?.to_owned();
        Some(PushEvent { repo, branches: vec![branch] })
    };
    read().map_or_else(|| Event::Other("push".to_owned()), Event::Push)
}

/// Reads a review or a status. One that cannot be read is not refused, as it is only a hint.
fn verdict(name: &str, json: &[u8], host: &str) -> Event {
    Payload::parse(json).map_or_else(|_| Event::Other(name.to_owned()), |payload| verdict_of(name, &payload, host))
}

/// Returns the verdict that a payload tells: that of a review, a status, or the end of checks.
fn verdict_of(name: &str, payload: &Payload<'_>, host: &str) -> Event {
    let read = || {
        let (repo, _) = payload.repository(host).ok()?;
        let number = payload.pull_request.as_ref().and_then(|pull| pull.number);
        let suite = payload.check_suite.as_ref().map(|suite| &suite.head_sha);
        let commit = commit(suite.unwrap_or(&payload.sha), "sha").ok();
        (number.is_some() || commit.is_some()).then_some(VerdictEvent { repo, number, commit })
    };
    read().map_or_else(|| Event::Other(name.to_owned()), Event::Verdict)
}

fn issue_comment(json: &[u8], host: &str) -> Result<(Event, Option<DeliveryId>), Rejection> {
    let payload = Payload::parse(json)?;
    let action = text(&payload.action, "action")?;
    if action != "created" {
        return Ok((Event::Other(format!("issue_comment {}", short(action))), None));
    }
    let issue = present(&payload.issue, "issue")?;
    if issue.pull_request.is_none() {
        return Ok((Event::Other("issue_comment on an issue".to_owned()), None));
    }
    let (repo, clone_url) = payload.repository(host)?;
    let pull = PullId { repo, number: *present(&issue.number, "issue.number")? };
    let comment = present(&payload.comment, "comment")?;
    let comment_id = *present(&comment.id, "comment.id")?;
    let identity = comment_identity(KIND, &pull.repo, comment_id);
    let author = login(&comment.user, "comment.user.login")?;
    let body = or_empty(&comment.body);
    Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
}
