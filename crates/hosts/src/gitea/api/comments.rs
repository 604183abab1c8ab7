//! Comments of the conversation of a pull request, and reactions to them. The host cannot hide a comment, so an outdated one is folded by
//! editing it.

use super::{Gitea, answers};
use crate::vcs::http::odd;
use crate::vcs::{Comments, HostComment, HostError, ShownComment};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{PullId, RepoId};

/// First line of a folded comment.
const FOLDED: &str = "<details><summary>Outdated: replaced by a newer comment</summary>";
/// Refusal of a reaction that the instance does not offer (models/issues/reaction.go, `ErrForbiddenIssueReaction`).
const NO_SUCH_REACTION: &str = "is not an allowed reaction";

pub(super) async fn create(host: &Gitea, pull: &PullId, body: &str) -> Result<u64, HostError> {
    let path = format!("/issues/{}/comments", pull.number);
    let said = host.say(Method::POST, &pull.repo, &path, Some(json!({ "body": body }))).await;
    let said = found(host, &pull.repo, pull.number, said).await;
    said.map_err(HostError::of_comment)?.body["id"].as_u64().ok_or_else(|| odd(&path, "a comment without id"))
}

pub(super) async fn list(host: &Gitea, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
    let (rows, now) = rows(host, pull, since).await?;
    let mut list: Vec<HostComment> = rows.iter().filter_map(comment).collect();
    list.sort_by_key(|comment| (comment.created, comment.id));
    Ok(Comments { list, now })
}

/// Returns the comments as the host has them, and the time of the answer by its clock. The list has no pages
/// (routers/api/v1/repo/issue_comment.go, `ListIssueComments`).
async fn rows(host: &Gitea, pull: &PullId, since: Option<Timestamp>) -> Result<(Vec<Value>, Timestamp), HostError> {
    match rows_of(host, &pull.repo, pull.number, since).await {
        // Comments are read before one is posted, and posting follows the repository as well.
        Err(HostError::Moved { .. }) => rows_of(host, &host.served_name(&pull.repo).await?, pull.number, since).await,
        found => found,
    }
}

async fn rows_of(
    host: &Gitea,
    repo: &RepoId,
    number: u64,
    since: Option<Timestamp>,
) -> Result<(Vec<Value>, Timestamp), HostError> {
    let mut path = format!("{}/issues/{number}/comments", host.address.repo_path(repo)?);
    if let Some(since) = since {
        path += &format!("?since={}", since.strftime("%Y-%m-%dT%H:%M:%SZ"));
    }
    let answer = found(host, repo, number, host.http.get(&path).await).await?;
    let Value::Array(rows) = answer.body else { return Err(odd(&path, "not a list")) };
    if !rows.iter().all(|row| is_of(row, repo, number)) {
        return Err(HostError::Moved { what: format!("GET {path}"), to: "which its comments are of".to_owned() });
    }
    Ok((rows, answer.at.unwrap_or_else(Timestamp::now)))
}

/// Returns one comment; absent if it is gone, or of another pull request.
pub(super) async fn one(host: &Gitea, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
    let path = format!("{}/issues/comments/{id}", host.address.repo_path(&pull.repo)?);
    match host.http.get(&path).await {
        // Without a body for what is no comment of the conversation.
        Ok(answer) => {
            let told = &answer.body;
            let is_it = told["id"] == id && is_of(told, &pull.repo, pull.number);
            Ok(is_it.then(|| comment(told)).flatten())
        }
        Err(HostError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns our own comments that are not folded, in the order in which they were last written.
pub(super) async fn shown(host: &Gitea, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let own = host.own_login().await?;
    let (rows, _) = rows(host, pull, None).await?;
    let shown = rows
        .iter()
        .filter(|row| answers::login(&row["user"]).is(own))
        .filter_map(|row| {
            let (id, body) = (row["id"].as_u64()?, row["body"].as_str()?);
            let written = answers::moment(&row["updated_at"])?;
            let shown = ShownComment { id: id.to_string(), body: body.to_owned(), written };
            (!body.starts_with(FOLDED)).then_some((id, shown))
        })
        .collect();
    Ok(ShownComment::oldest_first(shown))
}

/// Folds comments, with one request each.
pub(super) async fn hide(host: &Gitea, pull: &PullId, comments: &[ShownComment]) -> Result<(), HostError> {
    for comment in comments {
        rewrite(host, pull, &comment.id, &folded(&comment.body)).await?;
    }
    Ok(())
}

/// Replaces the text of a comment. Returns false if it was deleted in the meantime.
pub(super) async fn rewrite(host: &Gitea, pull: &PullId, id: &str, body: &str) -> Result<bool, HostError> {
    let Ok(id) = id.parse::<u64>() else { return Ok(false) };
    let path = format!("/issues/comments/{id}");
    match host.say(Method::PATCH, &pull.repo, &path, Some(json!({ "body": body }))).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.of_comment()),
    }
}

pub(super) async fn delete(host: &Gitea, pull: &PullId, id: u64) -> Result<(), HostError> {
    match host.say(Method::DELETE, &pull.repo, &format!("/issues/comments/{id}"), None).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds a reaction. One that the instance does not offer (`[ui] REACTIONS`) is left out, and so is that to a deleted comment.
pub(super) async fn react(host: &Gitea, pull: &PullId, id: u64, reaction: &str) -> Result<(), HostError> {
    let path = format!("/issues/comments/{id}/reactions");
    match host.say(Method::POST, &pull.repo, &path, Some(json!({ "content": reaction }))).await {
        Err(HostError::Denied { what, message }) if message.contains(NO_SUCH_REACTION) => {
            tracing::debug!("{what}: {message}");
            Ok(())
        }
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns an answer about the comments of a pull request. Without that pull request the host answers 500 (issue_comment.go,
/// `GetIssueByIndex`), which would be repeated in vain.
async fn found<T>(host: &Gitea, repo: &RepoId, number: u64, answered: Result<T, HostError>) -> Result<T, HostError> {
    let error = match answered {
        Err(error @ HostError::Unavailable { .. }) => error,
        answered => return answered,
    };
    match host.http.get(&format!("{}/pulls/{number}", host.address.repo_path(repo)?)).await {
        Err(missing @ HostError::NotFound { .. }) => Err(missing),
        Ok(_) | Err(_) => Err(error),
    }
}

/// Returns true if a comment is one of this pull request, by the end of the address of its page.
fn is_of(comment: &Value, repo: &RepoId, number: u64) -> bool {
    let page = comment["pull_request_url"].as_str().unwrap_or_default().to_ascii_lowercase();
    page.ends_with(&format!("/{}/pulls/{number}", repo.full_name()).to_ascii_lowercase())
}

fn comment(comment: &Value) -> Option<HostComment> {
    Some(HostComment {
        id: comment["id"].as_u64()?,
        author: answers::login(&comment["user"]),
        created: answers::moment(&comment["created_at"])?,
        edited: !comment["updated_at"].is_string() || comment["updated_at"] != comment["created_at"],
        body: comment["body"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Returns a folded text. Its last line, the marker, stays the last one.
fn folded(body: &str) -> String {
    let (text, marker) = match body.trim_end().rsplit_once('\n') {
        Some((text, last)) if last.starts_with("<!--") => (text, last),
        _ => (body, ""),
    };
    format!("{FOLDED}\n\n{}\n\n</details>\n\n{marker}", text.trim_end())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_folded_comment_keeps_its_marker_as_the_last_line() {
        let marker = r#"<!-- tidelock:{"v":1} -->"#;
        let text = folded(&format!("Ran Plan\n```diff\n+ a\n```\n\n{marker}"));
        assert!(text.starts_with(FOLDED) && text.ends_with(&format!("\n```\n\n</details>\n\n{marker}")), "{text}");
        assert_eq!(folded("by hand"), format!("{FOLDED}\n\nby hand\n\n</details>\n\n"));
    }
}
