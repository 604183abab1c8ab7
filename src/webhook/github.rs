//! GitHub's deliveries, cloud and Enterprise: `pull_request`, `issue_comment`, `merge_group` and `ping`; all else is [`Event::Other`].

mod merge_group;
mod payload;
#[cfg(test)]
mod tests;

use super::{Rejection, Secrets, Signed, Verified, header, signature};
use crate::domain::{Base, CommentEvent, Event, Head, PullAction, PullEvent, PullId, PullRequest, RepoId};
use payload::{Payload, Side, commit, login, or_empty, owner_and_name, present, text};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

pub use merge_group::{EntryBelow, entry_identities};

/// Longest name from outside that is repeated, in characters.
const MAX_NAME: usize = 64;

/// Verifies and decodes one delivery of the event that its header names.
pub(super) fn receive(
    event: &str,
    headers: &http::HeaderMap,
    body: &[u8],
    secrets: &Secrets,
) -> Result<Verified<Event>, Rejection> {
    let is_form = match header(headers, "content-type").split(';').next().unwrap_or_default().trim() {
        kind if kind.eq_ignore_ascii_case("application/json") => false,
        kind if kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") => true,
        _ => return Err(Rejection::new(415, "Send application/json or application/x-www-form-urlencoded")),
    };
    let (signature, signed) = verify(headers, body, secrets)?;
    let (inner, identity) = match event {
        "ping" => (Event::Ping, None),
        "pull_request" => pull_request(&json(body, is_form)?, &secrets.github_hostname)?,
        "issue_comment" => issue_comment(&json(body, is_form)?, &secrets.github_hostname)?,
        "merge_group" => merge_group::read(&json(body, is_form)?, &secrets.github_hostname)?,
        other => (Event::Other(short(other)), None),
    };
    let identity = identity.unwrap_or_else(|| {
        let digest = signature.unwrap_or_else(|| hex::encode(Sha256::digest(body)));
        format!("github:{digest}")
    });
    Ok(Verified { inner, identity, host_id: short(header(headers, "x-github-delivery")), signed })
}

/// The signature, by the present or the previous secret; absent where deliveries are not signed.
fn verify(headers: &http::HeaderMap, body: &[u8], secrets: &Secrets) -> Result<(Option<String>, Signed), Rejection> {
    let Some(secret) = &secrets.github else { return Ok((None, Signed::No)) };
    let why = match signature::verify_hub(headers, body, secret) {
        Ok(signature) => return Ok((Some(signature), Signed::Present)),
        Err(why) => why,
    };
    let previous = secrets.github_previous.as_ref();
    let signature = previous.and_then(|previous| signature::verify_hub(headers, body, previous).ok());
    signature.map(|signature| (Some(signature), Signed::Previous)).ok_or(why)
}

/// The JSON of the body: itself, or its form field `payload`.
fn json(body: &[u8], is_form: bool) -> Result<Cow<'_, [u8]>, Rejection> {
    if !is_form {
        return Ok(Cow::Borrowed(body));
    }
    let field = url::form_urlencoded::parse(body).find(|(name, _)| name == "payload");
    field
        .map(|(_, value)| Cow::Owned(value.into_owned().into_bytes()))
        .ok_or_else(|| Rejection::new(400, "The form has no payload"))
}

fn pull_request(json: &[u8], host: &str) -> Result<(Event, Option<String>), Rejection> {
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
    let updated_at = text(&pull.updated_at, "pull_request.updated_at")?.to_owned();
    let head = head(present(&pull.head, "pull_request.head")?)?;
    let identity = format!("github:{id}:{name}:{}:{updated_at}", head.commit);
    let labels = pull.labels.iter().flatten().map(|label| or_empty(&label.name)).collect();
    let pull = PullRequest {
        title: or_empty(&pull.title),
        url: text(&pull.html_url, "pull_request.html_url")?.to_owned(),
        author: login(&pull.user, "pull_request.user.login")?,
        head,
        base: base(present(&pull.base, "pull_request.base")?)?,
        draft: pull.draft.unwrap_or_default(),
        open: text(&pull.state, "pull_request.state")? == "open",
        labels,
        repo_size_kib: payload.repository.as_ref().and_then(|repository| repository.size),
        clone_url,
        id,
    };
    let sender = login(&payload.sender, "sender.login")?;
    Ok((Event::Pull(PullEvent { action, pull, sender, updated_at }), Some(identity)))
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
    })
}

fn base(base: &Side<'_>) -> Result<Base, Rejection> {
    Ok(Base {
        branch: text(&base.branch, "pull_request.base.ref")?.to_owned(),
        commit: commit(&base.sha, "pull_request.base.sha")?,
    })
}

fn issue_comment(json: &[u8], host: &str) -> Result<(Event, Option<String>), Rejection> {
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
    let identity = comment_identity(&pull.repo, comment_id);
    let author = login(&comment.user, "comment.user.login")?;
    let body = or_empty(&comment.body);
    Ok((Event::Comment(CommentEvent { pull, clone_url, comment_id, author, body }), Some(identity)))
}

/// What the delivery of a comment is known by.
pub fn comment_identity(repo: &RepoId, comment_id: u64) -> String {
    format!("github:{repo}:comment:{comment_id}")
}

/// A name from outside, for logs.
fn short(name: &str) -> String {
    name.chars().take(MAX_NAME).map(|char| if char.is_ascii_graphic() { char } else { '?' }).collect()
}
