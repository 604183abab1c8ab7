//! Issues of GitHub's (docs.github.com/rest/issues/issues). The list of issues has pull requests too, each with a key `pull_request`.
//!
//! A new issue is refused with 410 if issues are disabled. One issue is answered with 301 if it was transferred, with 404 or 410 if it was
//! deleted, and with 410 while issues are disabled: all of these count as absent, as long as the repository can be read.

use super::{Github, repo_path};
use crate::vcs::http::{odd, segment};
use crate::vcs::{Host as _, HostError, HostIssue, IssueEdit, NewIssue};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{Login, RepoId};

/// Issues on one page; few, because each may be long.
const PER_PAGE: u32 = 50;
/// Most pages of open issues of our account in one repository. More than that are an error.
const PAGES: u32 = 40;

pub(super) async fn own(github: &Github, repo: &RepoId) -> Result<Vec<HostIssue>, HostError> {
    let own = github.bot_login();
    let of = |repo: &RepoId| {
        Ok::<_, HostError>(format!("{}/issues?state=open&creator={}", repo_path(repo)?, segment(own.as_str())))
    };
    let keep = |row: Value| read(github, &row).filter(|issue| issue.is_ours);
    match github.http.pages(&of(repo)?, PER_PAGE, PAGES, keep).await {
        // New issues follow the repository as well.
        Err(HostError::Moved { .. }) => {
            github.http.pages(&of(&github.served_name(repo).await?)?, PER_PAGE, PAGES, keep).await
        }
        found => found,
    }
}

pub(super) async fn get(github: &Github, repo: &RepoId, number: u64) -> Result<Option<HostIssue>, HostError> {
    Ok(about(github, Method::GET, repo, number, None).await?.and_then(|issue| read(github, &issue)))
}

pub(super) async fn create(github: &Github, repo: &RepoId, issue: &NewIssue) -> Result<HostIssue, HostError> {
    let mut body = json!({ "title": issue.title, "body": issue.body });
    if !issue.labels.is_empty() {
        body["labels"] = json!(issue.labels);
    }
    let answer = github.say(Method::POST, repo, "/issues", Some(body)).await?;
    read(github, &answer.body).ok_or_else(|| odd("POST /issues", "an issue without number"))
}

pub(super) async fn edit(github: &Github, repo: &RepoId, number: u64, edit: &IssueEdit) -> Result<bool, HostError> {
    let body = match edit {
        IssueEdit::Text(text) => json!({ "body": text }),
        IssueEdit::Close => json!({ "state": "closed", "state_reason": "completed" }),
    };
    Ok(about(github, Method::PATCH, repo, number, Some(body)).await?.is_some())
}

/// Sends a request about one issue; `None` if it is absent.
async fn about(
    github: &Github,
    method: Method,
    repo: &RepoId,
    number: u64,
    body: Option<Value>,
) -> Result<Option<Value>, HostError> {
    match github.say(method, repo, &format!("/issues/{number}"), body).await {
        Ok(answer) => Ok(Some(answer.body)),
        // `say` has followed the repository, so the issue is gone if the repository is there under a name that is served.
        Err(HostError::NotFound { .. } | HostError::Moved { .. }) => github.served_name(repo).await.map(|_| None),
        Err(error) => Err(error),
    }
}

fn read(github: &Github, issue: &Value) -> Option<HostIssue> {
    let author = issue["user"]["login"].as_str().map(Login::new);
    let url = issue["html_url"].as_str().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    Some(HostIssue {
        number: issue["number"].as_u64()?,
        url: url.unwrap_or_default().to_owned(),
        open: issue["state"] == "open",
        is_ours: issue.get("pull_request").is_none() && author.is_some_and(|author| author.is(github.bot_login())),
        body: issue["body"].as_str().unwrap_or_default().to_owned(),
    })
}
