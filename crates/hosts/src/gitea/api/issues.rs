//! Issues. Pull requests are issues with a key `pull_request` that is not null. One issue is answered with 404 if it was deleted, or if
//! issues are disabled: both count as absent, as long as the repository can be read.

use super::Gitea;
use super::answers;
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, HostIssue, IssueEdit, NewIssue};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{Login, RepoId};

/// Most pages of open issues of our account in one repository. More than that are an error.
const PAGES: u32 = 40;
/// Most pages of labels of one repository.
const LABEL_PAGES: u32 = 20;
/// Color of labels that the server makes.
const LABEL_COLOR: &str = "#ededed";

pub(super) async fn own(host: &Gitea, repo: &RepoId) -> Result<Vec<HostIssue>, HostError> {
    let own = host.own_login().await?;
    let of = |repo: &RepoId| {
        let path = host.address.repo_path(repo)?;
        Ok::<_, HostError>(format!("{path}/issues?state=open&type=issues&created_by={}", segment(own.as_str())))
    };
    let rows = match host.rows(&of(repo)?, PAGES).await {
        // New issues follow the repository as well.
        Err(HostError::Moved { .. }) => host.rows(&of(&host.served_name(repo).await?)?, PAGES).await?,
        rows => rows?,
    };
    Ok(rows.iter().filter_map(|row| read(own, row)).filter(|issue| issue.is_ours).collect())
}

pub(super) async fn get(host: &Gitea, repo: &RepoId, number: u64) -> Result<Option<HostIssue>, HostError> {
    let own = host.own_login().await?;
    Ok(about(host, Method::GET, repo, number, None).await?.and_then(|issue| read(own, &issue)))
}

pub(super) async fn create(host: &Gitea, repo: &RepoId, issue: &NewIssue) -> Result<HostIssue, HostError> {
    let own = host.own_login().await?;
    let labels = labels(host, repo, &issue.labels).await?;
    let body = json!({ "title": issue.title, "body": issue.body, "labels": labels });
    let answer = host.say(Method::POST, repo, "/issues", Some(body)).await?;
    read(own, &answer.body).ok_or_else(|| odd("POST /issues", "an issue without number"))
}

pub(super) async fn edit(host: &Gitea, repo: &RepoId, number: u64, edit: &IssueEdit) -> Result<bool, HostError> {
    let body = match edit {
        IssueEdit::Text(text) => json!({ "body": text }),
        IssueEdit::Close => json!({ "state": "closed" }),
    };
    Ok(about(host, Method::PATCH, repo, number, Some(body)).await?.is_some())
}

/// Returns the numbers of labels by their names; the host takes no names. Missing ones are made, unless our account may not: then the issue
/// goes without.
async fn labels(host: &Gitea, repo: &RepoId, names: &[String]) -> Result<Vec<u64>, HostError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let of = |repo: &RepoId| Ok::<_, HostError>(format!("{}/labels", host.address.repo_path(repo)?));
    let known = match host.rows(&of(repo)?, LABEL_PAGES).await {
        Err(HostError::Moved { .. }) => host.rows(&of(&host.served_name(repo).await?)?, LABEL_PAGES).await?,
        rows => rows?,
    };
    let mut ids = Vec::new();
    for name in names {
        if let Some(label) = known.iter().find(|label| label["name"] == name.as_str()) {
            ids.extend(label["id"].as_u64());
            continue;
        }
        let body = json!({ "name": name, "color": LABEL_COLOR });
        match host.say(Method::POST, repo, "/labels", Some(body)).await {
            Ok(made) => ids.extend(made.body["id"].as_u64()),
            Err(HostError::Denied { what, message }) => {
                tracing::warn!(%repo, "{what}: {message}; an issue has no label `{name}`")
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ids)
}

/// Sends a request about one issue; absent if the issue is.
async fn about(
    host: &Gitea,
    method: Method,
    repo: &RepoId,
    number: u64,
    body: Option<Value>,
) -> Result<Option<Value>, HostError> {
    match host.say(method, repo, &format!("/issues/{number}"), body).await {
        Ok(answer) => Ok(Some(answer.body)),
        // `say` has followed the repository, so the issue is gone if the repository is there under a name that is served.
        Err(HostError::NotFound { .. } | HostError::Moved { .. }) => host.served_name(repo).await.map(|_| None),
        Err(error) => Err(error),
    }
}

fn read(own: &Login, issue: &Value) -> Option<HostIssue> {
    let url = issue["html_url"].as_str().filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    Some(HostIssue {
        number: issue["number"].as_u64()?,
        url: url.unwrap_or_default().to_owned(),
        open: issue["state"] == "open",
        is_ours: issue["pull_request"].is_null() && answers::login(&issue["user"]).is(own),
        body: issue["body"].as_str().unwrap_or_default().to_owned(),
    })
}
