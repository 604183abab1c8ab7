//! Lists of GitHub's: comments, open pull requests, statuses of a commit.

use super::{Github, answers, repo_path};
use crate::vcs::http::segment;
use crate::vcs::{Comments, Host as _, HostComment, HostError, OpenPull, own_status};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, Login, PullId, PullVersion, RepoId};

/// Longest description of a commit status, in characters.
const DESCRIPTION_LIMIT: usize = 140;
/// Start of the refusal of a status whose commit is unknown. For some seconds after a push to a fork, GitHub refuses the pushed commit so.
const UNKNOWN_COMMIT: &str = "No commit found for SHA";
/// Comments on one page; few, because each may be long.
const COMMENTS_PER_PAGE: u32 = 50;
/// Most pages of comments of one pull request.
const COMMENT_PAGES: u32 = 100;
/// Rows on one page of other lists: GitHub's maximum.
const PER_PAGE: u32 = 100;
/// Most pages of open pull requests of one repository.
const PULL_PAGES: u32 = 100;

pub(super) async fn comments(github: &Github, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
    match comments_of(github, &pull.repo, pull.number, since).await {
        // Comments are read before one is posted, and posting follows the repository as well.
        Err(HostError::Moved { .. }) => {
            comments_of(github, &github.served_name(&pull.repo).await?, pull.number, since).await
        }
        found => found,
    }
}

async fn comments_of(
    github: &Github,
    repo: &RepoId,
    number: u64,
    since: Option<Timestamp>,
) -> Result<Comments, HostError> {
    let issue = format!("{}/issues/{number}", repo_path(repo)?);
    let mut path = format!("{issue}/comments");
    if let Some(since) = since {
        path += &format!("?since={}", since.strftime("%Y-%m-%dT%H:%M:%SZ"));
    }
    let read = |row: Value| answers::leads_to(&row["issue_url"], &issue).then(|| comment(row));
    let (found, now) = github.http.pages_at(&path, COMMENTS_PER_PAGE, COMMENT_PAGES, |row| Some(read(row))).await?;
    if found.iter().any(Option::is_none) {
        return Err(HostError::Moved { what: format!("GET {path}"), to: "which its comments are of".to_owned() });
    }
    let mut list: Vec<HostComment> = found.into_iter().flatten().flatten().collect();
    list.sort_by_key(|comment| comment.id);
    Ok(Comments { list, now })
}

/// Returns true if GitHub's comparison finds the branch at the commit or ahead of it.
pub(super) async fn is_on_branch(
    github: &Github,
    repo: &RepoId,
    commit: &CommitSha,
    branch: &str,
) -> Result<bool, HostError> {
    let path = format!("{}/compare/{}...{}?per_page=1", repo_path(repo)?, segment(commit.as_str()), segment(branch));
    match github.http.get(&path).await {
        Ok(answer) => Ok(matches!(answer.body["status"].as_str(), Some("ahead" | "identical"))),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn comment(comment: Value) -> Option<HostComment> {
    let is_as_written = comment["updated_at"].is_string() && comment["updated_at"] == comment["created_at"];
    Some(HostComment {
        edited: !is_as_written,
        id: comment["id"].as_u64()?,
        author: comment["user"]["login"].as_str().map_or_else(Login::unknown, Login::new),
        created: comment["created_at"].as_str()?.parse().ok()?,
        body: comment["body"].as_str().unwrap_or_default().to_owned(),
    })
}

pub(super) async fn open_pulls(github: &Github, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
    let path = format!("{}/pulls?state=open", repo_path(repo)?);
    let read = |body: Value| {
        let id = PullId { repo: repo.clone(), number: body["number"].as_u64()? };
        let created = body["created_at"].as_str()?.parse().ok()?;
        let version = PullVersion::new(body["updated_at"].as_str()?);
        Some(answers::pull_request(&id, &body).map(|pull| {
            github.told.record(repo, answers::key(&body["base"]["repo"]));
            OpenPull { pull, created, version }
        }))
    };
    github.pulls.pages(&github.http, &path, PER_PAGE, PULL_PAGES, read).await
}

/// Sets a commit status.
pub(super) async fn set_status(
    github: &Github,
    repo: &RepoId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let path = format!("/statuses/{}", segment(commit.as_str()));
    let body = own_status::body(status, DESCRIPTION_LIMIT);
    github.say(Method::POST, repo, &path, Some(body)).await.map(drop).map_err(of_commit)
}

/// Converts the error of a post to a commit. A commit that GitHub does not know has an error of its own.
pub(super) fn of_commit(error: HostError) -> HostError {
    match error {
        HostError::Rejected { what, status: 422, message } if message.starts_with(UNKNOWN_COMMIT) => {
            HostError::UnknownCommit { what, message }
        }
        error => error,
    }
}

pub(super) async fn own_statuses(
    github: &Github,
    repo: &RepoId,
    commit: &CommitSha,
) -> Result<Vec<CommitStatus>, HostError> {
    let path = format!("{}/commits/{}/statuses?per_page={PER_PAGE}", repo_path(repo)?, segment(commit.as_str()));
    let read = |row: Value| {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let state = match row["state"].as_str() {
            Some("pending") => StatusState::Pending,
            Some("success") => StatusState::Success,
            _ => StatusState::Failure,
        };
        let status = CommitStatus::told(text("context"), state, text("description"), text("target_url"));
        let creator = row["creator"]["login"].as_str().map_or_else(Login::unknown, Login::new);
        Some(Ok((status, creator.is(github.bot_login()))))
    };
    let (rows, _) = github.statuses.page(&github.http, &path, read).await?;
    let mut latest: Vec<(CommitStatus, bool)> = Vec::new();
    for (status, own) in rows {
        // Newest first.
        if !latest.iter().any(|(known, _)| known.context == status.context) {
            latest.push((status, own));
        }
    }
    Ok(latest.into_iter().filter(|(_, own)| *own).map(|(status, _)| status).collect())
}
