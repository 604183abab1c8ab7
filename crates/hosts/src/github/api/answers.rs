//! GitHub's JSON → our data.

use super::moved;
use crate::vcs::HostError;
use crate::vcs::http::odd;
use serde::Deserialize;
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState};

#[derive(Deserialize)]
struct ApiPull {
    title: String,
    html_url: String,
    state: String,
    /// Present in the answer about one pull request; lists have `merged_at` alone.
    #[serde(default)]
    merged: bool,
    merged_at: Option<String>,
    /// Commit of the merge; while the pull request is open, of a trial merge.
    merge_commit_sha: Option<String>,
    #[serde(default)]
    draft: bool,
    user: Option<ApiUser>,
    head: Branch,
    base: Branch,
    #[serde(default)]
    labels: Vec<ApiLabel>,
}

#[derive(Deserialize)]
struct ApiUser {
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
    owner: ApiUser,
    clone_url: String,
    size: Option<u64>,
}

#[derive(Deserialize)]
struct ApiLabel {
    name: String,
}

/// Fails if this is not the requested pull request, but one of another repository or number.
pub(super) fn is_asked_for(id: &PullId, body: &Value) -> Result<(), HostError> {
    let what = format!("pull request {id}");
    moved::is_asked_for(&id.repo, &what, &body["base"]["repo"])?;
    if body["number"] == id.number { Ok(()) } else { Err(odd(&what, "another number")) }
}

/// Id of a repository. It stays the same if the repository is renamed or transferred.
pub(super) fn key(repo: &Value) -> Option<String> {
    Some(repo["id"].as_u64()?.to_string())
}

/// Reads a pull request, and fails if it is not the requested one.
pub(super) fn pull_request(id: &PullId, body: &Value) -> Result<PullRequest, HostError> {
    is_asked_for(id, body)?;
    let what = format!("pull request {id}");
    let pull = ApiPull::deserialize(body).map_err(|error| odd(&what, &error.to_string()))?;
    let base_repo = pull.base.repo.ok_or_else(|| odd(&what, "no base repository"))?;
    if let Err(wrong) = id.repo.check_clone_url(&base_repo.clone_url) {
        let message = format!("the address that git is to fetch from {wrong}");
        return Err(HostError::Rejected { what, status: 200, message });
    }
    let sha = |text: &str| CommitSha::parse(text).map_err(|error| odd(&what, &error.to_string()));
    let (head_commit, base_commit) = (sha(&pull.head.sha)?, sha(&pull.base.sha)?);
    let (repo_owner, repo_name) = pull.head.repo.map(|repo| (repo.owner.login, repo.name)).unwrap_or_default();
    Ok(PullRequest {
        id: id.clone(),
        fork: !id.repo.is_named(&repo_owner, &repo_name),
        title: pull.title,
        url: pull.html_url,
        author: pull.user.map_or_else(Login::unknown, |user| Login::new(user.login)),
        head: Head { branch: pull.head.name, commit: head_commit, repo_owner, repo_name, clone_url: None },
        base: Base { branch: pull.base.name, commit: base_commit },
        draft: pull.draft,
        state: match (pull.state.as_str(), pull.merged, pull.merged_at) {
            ("open", ..) => PullState::Open,
            (_, true, _) | (_, _, Some(_)) => {
                PullState::Merged { commit: pull.merge_commit_sha.and_then(|sha| CommitSha::parse(&sha).ok()) }
            }
            _ => PullState::Closed,
        },
        labels: pull.labels.into_iter().map(|label| label.name).collect(),
        repo_size_kib: base_repo.size,
        clone_url: base_repo.clone_url,
    })
}

/// Returns true if an address in an answer leads to this path of the API, or if there is no address.
pub(super) fn leads_to(address: &Value, path: &str) -> bool {
    address.as_str().is_none_or(|address| address.to_ascii_lowercase().ends_with(&path.to_ascii_lowercase()))
}
