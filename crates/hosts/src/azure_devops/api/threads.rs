//! Comments and their threads. Each of our comments begins a thread, without a status: an active thread blocks a merge if the branch's
//! policy requires all comments to be resolved.

use super::{AzureDevOps, VERSION, list, pull_path, shapes};
use crate::vcs::http::{odd, segment};
use crate::vcs::{Comments, HostComment, HostError, ShownComment};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullId;

/// Statuses of threads that the host's pages show folded.
const CLOSED: [&str; 4] = ["closed", "fixed", "wontFix", "byDesign"];

pub(super) async fn create(host: &AzureDevOps, pull: &PullId, body: &str) -> Result<u64, HostError> {
    let path = format!("{}/threads?{VERSION}", pull_path(pull)?);
    let comment = json!({ "parentCommentId": 0, "content": body, "commentType": "text" });
    let answer = host.http.send(Method::POST, &path, Some(json!({ "comments": [comment] }))).await?.body;
    let thread = answer["id"].as_u64();
    let number = answer["comments"][0]["id"].as_u64().unwrap_or(1);
    thread.and_then(|thread| shapes::comment_id(thread, number)).ok_or_else(|| odd(&path, "a thread without id"))
}

/// Returns all threads of a pull request: the API does not page them.
pub(super) async fn all(host: &AzureDevOps, pull: &PullId) -> Result<(Value, Timestamp), HostError> {
    let path = format!("{}/threads?{VERSION}", pull_path(pull)?);
    let answer = host.http.get(&path).await?;
    if !answer.body["value"].is_array() {
        return Err(odd(&path, "not a list"));
    }
    Ok((answer.body, answer.at.unwrap_or_else(Timestamp::now)))
}

pub(super) async fn comments(
    host: &AzureDevOps,
    pull: &PullId,
    since: Option<Timestamp>,
) -> Result<Comments, HostError> {
    let account = host.account(super::organization_of(&pull.repo)).await?;
    let (threads, now) = all(host, pull).await?;
    let mut found = Vec::new();
    for thread in list(&threads).filter(|thread| thread["isDeleted"] != true) {
        let said = thread["comments"].as_array().into_iter().flatten();
        for comment in said.filter(|comment| comment["isDeleted"] != true && comment["commentType"] == "text") {
            let id = thread["id"].as_u64().zip(comment["id"].as_u64());
            let id = id.and_then(|(thread, number)| shapes::comment_id(thread, number));
            let (Some(id), Some(created)) = (id, shapes::moment(&comment["publishedDate"])) else { continue };
            if since.is_some_and(|since| written(comment).is_some_and(|written| written < since)) {
                continue;
            }
            found.push(HostComment {
                id,
                author: host.login(&account, &comment["author"]),
                created,
                edited: shapes::is_edited(comment),
                body: comment["content"].as_str().unwrap_or_default().to_owned(),
            });
        }
    }
    found.sort_by_key(|comment| (comment.created, comment.id));
    Ok(Comments { list: found, now })
}

/// Returns the threads that begin with a comment of ours and are not closed, in the order in which these comments were last written. The
/// host's pages show closed ones folded.
pub(super) async fn shown(host: &AzureDevOps, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let account = host.account(super::organization_of(&pull.repo)).await?;
    let (threads, _) = all(host, pull).await?;
    let own = list(&threads).filter(|thread| {
        let first = &thread["comments"][0];
        let is_closed = CLOSED.iter().any(|closed| thread["status"] == *closed);
        thread["isDeleted"] != true
            && !is_closed
            && first["isDeleted"] != true
            && first["commentType"] == "text"
            && host.login(&account, &first["author"]).is(&host.user)
    });
    let found = own
        .filter_map(|thread| {
            let first = &thread["comments"][0];
            let (id, body) = (thread["id"].as_u64()?, first["content"].as_str()?);
            Some((id, ShownComment { id: id.to_string(), body: body.to_owned(), written: written(first)? }))
        })
        .collect();
    Ok(ShownComment::oldest_first(found))
}

/// Returns the time at which the text of a comment was last written.
fn written(comment: &Value) -> Option<Timestamp> {
    let created = shapes::moment(&comment["publishedDate"])?;
    Some(shapes::moment(&comment["lastContentUpdatedDate"]).unwrap_or(created).max(created))
}

/// Closes threads, with one request each.
pub(super) async fn close(host: &AzureDevOps, pull: &PullId, threads: &[ShownComment]) -> Result<(), HostError> {
    for thread in threads {
        let path = format!("{}/threads/{}?{VERSION}", pull_path(pull)?, segment(&thread.id));
        match host.http.send(Method::PATCH, &path, Some(json!({ "status": "closed" }))).await {
            Ok(_) | Err(HostError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Replaces the text of the comment that begins a thread. Returns false if the comment was deleted in the meantime:
/// learn.microsoft.com/rest/api/azure/devops/git/pull-request-thread-comments/update.
pub(super) async fn rewrite(
    host: &AzureDevOps,
    pull: &PullId,
    thread: &ShownComment,
    body: &str,
) -> Result<bool, HostError> {
    let path = format!("{}/threads/{}/comments/1?{VERSION}", pull_path(pull)?, segment(&thread.id));
    match host.http.send(Method::PATCH, &path, Some(json!({ "content": body }))).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) async fn delete(host: &AzureDevOps, pull: &PullId, id: u64) -> Result<(), HostError> {
    let (thread, comment) = shapes::thread_and_comment(id);
    let path = format!("{}/threads/{thread}/comments/{comment}?{VERSION}", pull_path(pull)?);
    match host.http.send(Method::DELETE, &path, None).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
