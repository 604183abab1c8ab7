//! Comments of the conversation of a pull request. The host can neither hide nor fold one, and its Markdown has no HTML.

use super::{BitbucketCloud, answers};
use crate::bitbucket_cloud::times;
use crate::vcs::http::{NO_REASON, ValueRows, odd};
use crate::vcs::{Comments, HostComment, HostError, ShownComment};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{PullId, RepoId};

/// Comments on one page: fifty of the greatest length, each as typed and as HTML, fit into one answer.
const PER_PAGE: u32 = 50;
/// Most pages of comments of one pull request.
const MAX_PAGES: u32 = 100;

pub(super) async fn create(host: &BitbucketCloud, pull: &PullId, body: &str) -> Result<u64, HostError> {
    let path = format!("/pullrequests/{}/comments", pull.number);
    let said = host.say(Method::POST, &pull.repo, &path, Some(content(body))).await;
    let said = said.map_err(of_comment)?.body;
    host.remember_account(&said["user"]);
    said["id"].as_u64().ok_or_else(|| odd(&path, "a comment without id"))
}

pub(super) async fn list(
    host: &BitbucketCloud,
    pull: &PullId,
    since: Option<Timestamp>,
) -> Result<Comments, HostError> {
    host.own_login().await?;
    let ValueRows { rows, at } = rows(host, pull, since).await?;
    let mut list: Vec<HostComment> = rows.iter().filter(|row| is_said(row)).filter_map(comment).collect();
    list.sort_by_key(|comment| (comment.created, comment.id));
    Ok(Comments { list, now: at })
}

/// Returns the comments as the host has them. With `since` only those that were written or changed at or after it.
async fn rows(host: &BitbucketCloud, pull: &PullId, since: Option<Timestamp>) -> Result<ValueRows, HostError> {
    let mut found = match rows_of(host, &pull.repo, pull.number, since).await {
        // Comments are read before one is posted, and posting follows the repository as well.
        Err(HostError::Moved { .. }) => rows_of(host, &host.served_name(&pull.repo).await?, pull.number, since).await?,
        Err(error @ HostError::NotFound { .. }) => match host.other_name(&pull.repo).await? {
            Some(now) => rows_of(host, &now, pull.number, since).await?,
            None => return Err(error),
        },
        found => found?,
    };
    let is_older = |row: &Value| since.zip(answers::moment(&row["updated_on"])).is_some_and(|(since, at)| at < since);
    found.rows.retain(|row| !is_older(row));
    Ok(found)
}

async fn rows_of(
    host: &BitbucketCloud,
    repo: &RepoId,
    number: u64,
    since: Option<Timestamp>,
) -> Result<ValueRows, HostError> {
    let base = format!("{}/pullrequests/{number}/comments", host.address.repo_path(repo)?);
    let mut path = format!("{base}?sort=created_on&pagelen={PER_PAGE}");
    if let Some(since) = since {
        path += &format!("&q=updated_on%3E%3D{}", since.strftime("%Y-%m-%dT%H%%3A%M%%3A%SZ"));
    }
    let found = host.http.value_pages(&path, MAX_PAGES).await?;
    match found.rows.iter().all(|row| is_of(row, number)) {
        true => Ok(found),
        false => Err(odd(&base, "comments of another pull request")),
    }
}

/// Returns one comment; absent if it is gone, of another pull request or not for everybody, or if it may be ours.
pub(super) async fn one(host: &BitbucketCloud, pull: &PullId, id: u64) -> Result<Option<HostComment>, HostError> {
    host.own_login().await?;
    let path = format!("{}/comments/{id}", host.pull_path(pull)?);
    let told = match host.http.get(&path).await {
        Err(HostError::NotFound { .. }) => return Ok(None),
        answered => answered?.body,
    };
    let is_it = told["id"] == id && is_of(&told, pull.number) && is_said(&told);
    let found = is_it.then(|| comment(&told)).flatten();
    Ok(found.filter(|found| !host.may_be_ours(&found.body)))
}

/// Returns our own comments, in the order in which they were last written.
pub(super) async fn shown(host: &BitbucketCloud, pull: &PullId) -> Result<Vec<ShownComment>, HostError> {
    let own = host.own_login().await?.clone();
    let found = rows(host, pull, None).await?.rows;
    let shown = found
        .iter()
        .filter(|row| is_said(row) && answers::login(&row["user"]).is(&own))
        .filter_map(|row| {
            let (id, body) = (row["id"].as_u64()?, text(row));
            let written = answers::moment(&row["updated_on"])?;
            let shown = ShownComment { id: id.to_string(), body: body.to_owned(), written };
            Some((id, shown))
        })
        .collect();
    Ok(ShownComment::oldest_first(shown))
}

/// Replaces the text of a comment. Returns false if it was deleted in the meantime.
pub(super) async fn rewrite(host: &BitbucketCloud, pull: &PullId, id: &str, body: &str) -> Result<bool, HostError> {
    let Ok(id) = id.parse::<u64>() else { return Ok(false) };
    let path = format!("/pullrequests/{}/comments/{id}", pull.number);
    match host.say(Method::PUT, &pull.repo, &path, Some(content(body))).await {
        Ok(_) => Ok(true),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(of_comment(error)),
    }
}

pub(super) async fn delete(host: &BitbucketCloud, pull: &PullId, id: u64) -> Result<(), HostError> {
    let path = format!("/pullrequests/{}/comments/{id}", pull.number);
    match host.say(Method::DELETE, &pull.repo, &path, None).await {
        Ok(_) | Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Converts the error of a posted comment. A text that is too long is refused without a reason: the body of the answer is a heading in HTML
/// (runatlantis/atlantis#1251).
fn of_comment(error: HostError) -> HostError {
    match error {
        HostError::Rejected { what, status: 400, message } if message == NO_REASON => {
            HostError::TooLong { what, message: "the host gives no reason; the comment may be too long".to_owned() }
        }
        error => error.of_comment(),
    }
}

fn content(body: &str) -> Value {
    json!({ "content": { "raw": body } })
}

fn text(row: &Value) -> &str {
    row["content"]["raw"].as_str().unwrap_or_default()
}

/// Returns true if a comment is one of this pull request, or does not tell of which it is.
fn is_of(row: &Value, number: u64) -> bool {
    let told = &row["pullrequest"]["id"];
    told.is_null() || *told == number
}

/// Returns true if somebody wrote a comment for everybody, in the conversation: not deleted, not in a review that is not submitted yet, and
/// not on a line of a file.
fn is_said(row: &Value) -> bool {
    row["deleted"] != true && row["pending"] != true && row["inline"].is_null()
}

fn comment(row: &Value) -> Option<HostComment> {
    let created = answers::moment(&row["created_on"])?;
    Some(HostComment {
        id: row["id"].as_u64()?,
        author: answers::login(&row["user"]),
        created,
        edited: times::is_edited(Some(created), answers::moment(&row["updated_on"])),
        body: text(row).to_owned(),
    })
}
