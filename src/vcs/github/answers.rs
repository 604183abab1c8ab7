//! GitHub's JSON → our data.

use crate::domain::{Base, Head, PullId, PullRequest};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Pull {
    title: String,
    html_url: String,
    state: String,
    #[serde(default)]
    draft: bool,
    user: Option<User>,
    head: Branch,
    base: Branch,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Deserialize)]
struct User {
    login: String,
}

#[derive(Deserialize)]
struct Branch {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo: Option<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    name: String,
    owner: User,
    clone_url: String,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

/// The pull request; an error says what is odd about the answer.
pub(super) fn pull_request(id: &PullId, body: &Value) -> Result<PullRequest, String> {
    let pull = Pull::deserialize(body).map_err(|error| error.to_string())?;
    let base_repo = pull.base.repo.ok_or("no base repository")?;
    let (repo_owner, repo_name) = pull.head.repo.map(|repo| (repo.owner.login, repo.name)).unwrap_or_default();
    Ok(PullRequest {
        id: id.clone(),
        title: pull.title,
        url: pull.html_url,
        author: pull.user.map(|user| user.login).unwrap_or_default(),
        head: Head { branch: pull.head.name, commit: pull.head.sha, repo_owner, repo_name },
        base: Base { branch: pull.base.name, commit: pull.base.sha },
        draft: pull.draft,
        open: pull.state == "open",
        labels: pull.labels.into_iter().map(|label| label.name).collect(),
        repo_size_kib: base_repo.size,
        clone_url: base_repo.clone_url,
    })
}
