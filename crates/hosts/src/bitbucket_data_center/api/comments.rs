//! Comments of the conversation of a pull request. Tasks are comments of another severity. Each change names the version of the comment
//! that it is made to. Comments cannot be hidden, but their threads be resolved, which folds them since 8.9; Markdown has no HTML.

use super::moved::may_have_moved;
use super::{BitbucketDataCenter, COMMENT_LIMIT, answers};
use crate::vcs::http::{StartRows, odd, segment, too_many};
use crate::vcs::{Comments, HostComment, HostError, ShownComment};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::HashSet;
use tidelock_core::domain::{PullId, RepoId};

/// Activities on one page.
const PER_PAGE: u32 = 100;
/// Most pages of activities of one pull request.
const MAX_PAGES: u32 = 100;
/// Most tries of a change, each with the version that the comment has then.
const TRIES: usize = 3;
/// Most levels of replies that are read.
const MAX_DEPTH: usize = 50;
/// Most comments that are read to find the first one of a thread.
const MAX_PARENTS: usize = 20;

pub(super) async fn create(host: &BitbucketDataCenter, pull: &PullId, body: &str) -> Result<u64, HostError> {
    let path = format!("/pull-requests/{}/comments", pull.number);
    let said = host.say(Method::POST, &pull.repo, &path, Some(json!({ "text": body }))).await;
    let said = said.map_err(|error| of_comment(error, body))?.body;
    host.remember_account(&said["author"]);
    said["id"].as_u64().ok_or_else(|| odd(&path, "a comment without id"))
}

pub(super) async fn list(
    host: &BitbucketDataCenter,
    pull: &PullId,
    since: Option<Timestamp>,
) -> Result<Comments, HostError> {
    host.own_login().await?;
    let StartRows { rows, at, .. } = rows(host, pull, since).await?;
    let is_older = |row: &Value| since.zip(answers::moment(&row["updatedDate"])).is_some_and(|(since, at)| at < since);
    let wanted = rows.iter().filter(|row| is_said(row) && !is_older(row));
    let mut list: Vec<HostComment> = wanted.filter_map(comment).collect();
    list.sort_by_key(|comment| (comment.created, comment.id));
    Ok(Comments { list, now: at })
}

/// Returns all comments: there is no other list than the activities, the newest first, which have replies inside the comment that they
/// answer (`GET .../pull-requests/{pullRequestId}/activities`). If there are too many activities, those since a time are enough.
async fn rows(host: &BitbucketDataCenter, pull: &PullId, since: Option<Timestamp>) -> Result<StartRows, HostError> {
    let StartRows { rows, at, is_whole } = activities(host, pull).await?;
    let last = rows.last().and_then(|row| answers::moment(&row["createdDate"]));
    if !is_whole && since.zip(last).is_none_or(|(since, last)| last >= since) {
        return Err(too_many(&format!("{}/activities", host.pull_path(pull)?), PER_PAGE, MAX_PAGES));
    }
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for mut row in rows {
        if row["action"] != "COMMENTED" {
            continue;
        }
        let anchor = row.get_mut("commentAnchor").map(Value::take).unwrap_or_default();
        let comment = row.get_mut("comment").map(Value::take).unwrap_or_default();
        let mut thread = vec![(comment, anchor, 0)];
        while let Some((mut comment, of_thread, depth)) = thread.pop() {
            let Some(fields) = comment.as_object_mut() else { continue };
            // Replies have the anchor of the comment that they answer.
            let anchor = Some(of_thread).filter(|anchor| !anchor.is_null());
            let anchor = anchor.or_else(|| fields.remove("anchor")).unwrap_or_default();
            fields.insert("anchor".to_owned(), anchor.clone());
            if let Some(Value::Array(replies)) = fields.remove("comments")
                && depth < MAX_DEPTH
            {
                thread.extend(replies.into_iter().map(|reply| (reply, anchor.clone(), depth + 1)));
            }
            // A page may begin with a row of the one before, if somebody writes meanwhile.
            if comment["id"].as_u64().is_some_and(|id| seen.insert(id)) {
                found.push(comment);
            }
        }
    }
    Ok(StartRows { rows: found, at, is_whole })
}

async fn activities(host: &BitbucketDataCenter, pull: &PullId) -> Result<StartRows, HostError> {
    let path = format!("{}/activities", host.pull_path(pull)?);
    match host.http.start_pages_until(&path, PER_PAGE, MAX_PAGES, |_| false).await {
        // Comments are read before one is posted, and posting follows the repository as well.
        Err(error) if may_have_moved(&pull.repo, &error) => {
            let now = host.other_name(&pull.repo).await?.ok_or(error)?;
            let path = format!("{}/activities", host.pull_path(&PullId { repo: now, number: pull.number })?);
            host.http.start_pages_until(&path, PER_PAGE, MAX_PAGES, |_| false).await
        }
        found => found,
    }
}

/// Returns one comment; absent if it is gone, or not for everybody, or if it may be ours. So is one that answers a comment on a file or a
/// line: only the first comment of a thread is sure to name its place.
pub(super) async fn one(host: &BitbucketDataCenter, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
    host.own_login().await?;
    let Some(told) = read(host, pull, id).await?.filter(is_said) else { return Ok(None) };
    let mut parent = told["parent"].clone();
    for _ in 0..MAX_PARENTS {
        if parent.is_null() {
            let found = comment(&told);
            return Ok(found.filter(|found| !host.may_be_ours(&found.body)));
        }
        let Some(id) = parent["id"].as_u64().filter(|_| is_said(&parent)) else { return Ok(None) };
        let Some(mut next) = read(host, pull, id).await?.filter(is_said) else { return Ok(None) };
        parent = next.get_mut("parent").map(Value::take).unwrap_or_default();
    }
    Ok(None)
}

/// Reads a comment; absent if it is gone.
async fn read(host: &BitbucketDataCenter, pull: &PullId, id: u64) -> Result<Option<Value>, HostError> {
    match host.http.get(&format!("{}/comments/{id}", host.pull_path(pull)?)).await {
        Err(HostError::NotFound { .. }) => Ok(None),
        answered => Ok(Some(answered?.body).filter(|told| told["id"] == id)),
    }
}

/// Returns our own comments whose threads are not resolved, in the order in which they were last written.
pub(super) async fn shown(host: &BitbucketDataCenter, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let own = host.own_login().await?.clone();
    let found = rows(host, pull, None).await?.rows;
    let is_shown =
        |row: &&Value| is_said(row) && row["threadResolved"] != true && answers::login(&row["author"]).is(&own);
    let shown = found.iter().filter(is_shown).filter_map(|row| {
        let id = row["id"].as_u64()?;
        let written = answers::moment(&row["updatedDate"])?;
        Some((id, ShownComment { id: id.to_string(), body: text(row).to_owned(), written }))
    });
    Ok(ShownComment::oldest_first(shown.collect()))
}

/// Resolves the threads of comments. Versions before 8.9 ignore it.
pub(super) async fn hide(
    host: &BitbucketDataCenter,
    pull: &PullId,
    comments: &[ShownComment],
) -> Result<(), HostError> {
    for id in comments.iter().filter_map(|comment| comment.id.parse::<u64>().ok()) {
        let resolved = json!({ "threadResolved": true });
        change(host, pull, id, |_| Some((Method::PUT, resolved.clone()))).await?;
    }
    Ok(())
}

/// Replaces the text of a comment. Returns false if it was deleted in the meantime.
pub(super) async fn rewrite(
    host: &BitbucketDataCenter,
    pull: &PullId,
    id: &str,
    body: &str,
) -> Result<bool, HostError> {
    let Ok(id) = id.parse::<u64>() else { return Ok(false) };
    let written = change(host, pull, id, |_| Some((Method::PUT, json!({ "text": body })))).await;
    written.map_err(|error| of_comment(error, body))
}

/// Deletes a comment. One with replies stays (`DELETE .../comments/{commentId}`: 409), and its thread is resolved.
pub(super) async fn delete(host: &BitbucketDataCenter, pull: &PullId, id: u64) -> Result<(), HostError> {
    let how = |told: &Value| match told["comments"].as_array().is_none_or(Vec::is_empty) {
        true => Some((Method::DELETE, Value::Null)),
        false if told["threadResolved"] == true => None,
        false => Some((Method::PUT, json!({ "threadResolved": true }))),
    };
    change(host, pull, id, how).await.map(drop)
}

/// Changes a comment at the version that it has, and once more if somebody else has changed it meanwhile. Returns false if it is gone.
/// `how` may find that there is nothing to do.
async fn change(
    host: &BitbucketDataCenter,
    pull: &PullId,
    id: u64,
    how: impl Fn(&Value) -> Option<(Method, Value)> + Send + Sync,
) -> Result<bool, HostError> {
    let path_in = |repo: &RepoId| {
        Ok::<_, HostError>(format!("{}/pull-requests/{}/comments/{id}", host.address.repo_path(repo)?, pull.number))
    };
    let mut path = path_in(&pull.repo)?;
    let mut refused: Option<(HostError, u64, (Method, Value))> = None;
    for _ in 0..TRIES {
        let told = match host.http.get(&path).await {
            Err(error) if may_have_moved(&pull.repo, &error) => match host.other_name(&pull.repo).await? {
                Some(now) if path != path_in(&now)? => {
                    path = path_in(&now)?;
                    continue;
                }
                _ if error.is_transient() => return Err(error),
                _ => return Ok(false),
            },
            answered => answered?.body,
        };
        let version = told["version"].as_u64().ok_or_else(|| odd(&path, "a comment without version"))?;
        let Some(wanted) = how(&told) else { return Ok(true) };
        // 409 has other causes: an archived repository, or a new reply, after which something else is to be done.
        if let Some((error, ..)) = refused.take_if(|(_, before, tried)| *before == version && *tried == wanted) {
            return Err(error);
        }
        let (method, mut body) = wanted.clone();
        let sent = match body.is_object() {
            true => {
                body["version"] = json!(version);
                host.http.send(method, &path, Some(body)).await
            }
            false => host.http.send(method, &format!("{path}?version={version}"), None).await,
        };
        match sent {
            Ok(_) => return Ok(true),
            Err(HostError::NotFound { .. }) => return Ok(false),
            Err(error @ HostError::Rejected { status: 409, .. }) => {
                refused = Some((error, version, wanted));
            }
            Err(error) => return Err(error),
        }
    }
    let message = "it is changed by others all the time".to_owned();
    Err(refused.map_or(HostError::Unavailable { what: path, message }, |(error, ..)| error))
}

/// Adds a reaction. One to a comment that is gone, or of an emoticon that the host does not know, is left out: the settings choose it for
/// all hosts alike.
pub(super) async fn react(host: &BitbucketDataCenter, pull: &PullId, id: u64, reaction: &str) -> Result<(), HostError> {
    let name = segment(emoticon(reaction));
    let path = format!("/pull-requests/{}/comments/{id}/reactions/{name}", pull.number);
    match host.say_at("/rest/comment-likes/latest", Method::PUT, &pull.repo, &path, None).await {
        Ok(_) => Ok(()),
        Err(error @ (HostError::Rejected { status: 400, .. } | HostError::NotFound { .. })) => {
            tracing::debug!("{error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Shortcut of an emoticon; the names of other hosts are GitHub's.
fn emoticon(reaction: &str) -> &str {
    match reaction {
        "+1" => "thumbsup",
        "-1" => "thumbsdown",
        "hooray" => "tada",
        "laugh" => "smile",
        other => other,
    }
}

/// Converts the error of a posted comment. A text that the host counts as longer than we do is refused with 400.
fn of_comment(error: HostError, body: &str) -> HostError {
    match error {
        HostError::Rejected { what, status: 400, message } if body.len() > COMMENT_LIMIT => {
            HostError::TooLong { what, message }
        }
        error => error.of_comment(),
    }
}

fn text(row: &Value) -> &str {
    row["text"].as_str().unwrap_or_default()
}

/// Returns true if somebody wrote a comment for everybody, in the conversation: not in a review that is not submitted yet, and not on a file
/// or a line of one.
fn is_said(row: &Value) -> bool {
    row["state"] != "PENDING" && row["anchor"].is_null()
}

fn comment(row: &Value) -> Option<HostComment> {
    let created = answers::moment(&row["createdDate"])?;
    // The version counts changes, also of what is not the text.
    let is_changed = row["version"].as_u64() != Some(0) || answers::moment(&row["updatedDate"]) != Some(created);
    Some(HostComment {
        id: row["id"].as_u64()?,
        author: answers::login(&row["author"]),
        created,
        edited: is_changed,
        body: text(row).to_owned(),
    })
}
