//! Commit statuses. Each one that is set is a new row; the latest of a context counts (models/git/commit_status.go,
//! `GetLatestCommitStatus`).

use super::pages::page_of;
use super::{Gitea, answers};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, own_status};
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, PullId, RepoId};

/// Longest description of a status, in characters. The host keeps longer ones, and its pages show them in one line.
const DESCRIPTION_LIMIT: usize = 255;
/// Most pages of the latest statuses of one commit.
const MAX_PAGES: u32 = 20;

/// Sets a status. One of a commit that the host does not know is answered with 500 (services/repository/commitstatus/commitstatus.go).
pub(super) async fn set(
    host: &Gitea,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let path = format!("/statuses/{}", segment(commit.as_str()));
    match host.say(Method::POST, &pull.repo, &path, Some(own_status::body(status, DESCRIPTION_LIMIT))).await {
        Err(HostError::Unavailable { what, .. }) if !is_known(host, &pull.repo, commit).await => {
            Err(HostError::UnknownCommit { what, message: format!("the host does not know commit {commit}") })
        }
        answered => answered.map(drop),
    }
}

/// Returns false if the host says that it does not have a commit.
async fn is_known(host: &Gitea, repo: &RepoId, commit: &CommitSha) -> bool {
    let Ok(repo) = host.address.repo_path(repo) else { return true };
    let path = format!("{repo}/git/commits/{}?stat=false&verification=false&files=false", segment(commit.as_str()));
    !matches!(host.http.get(&path).await, Err(HostError::NotFound { .. }))
}

/// Returns the latest status of each of our contexts, as far as one page reports them.
pub(super) async fn own(host: &Gitea, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
    let own = host.own_login().await?;
    let rows = page(host, &pull.repo, commit, 1).await?;
    Ok(rows.iter().filter(|row| answers::login(&row["creator"]).is(own)).map(status).collect())
}

/// Returns the latest status of each context of a commit. It goes on to an empty page: versions count the rows of this list differently, and
/// one that is missed could be a failure.
pub(super) async fn latest(host: &Gitea, repo: &RepoId, commit: &CommitSha) -> Result<Vec<Value>, HostError> {
    let mut all = Vec::new();
    for number in 1..=MAX_PAGES {
        let rows = page(host, repo, commit, number).await?;
        if rows.is_empty() {
            return Ok(all);
        }
        all.extend(rows);
    }
    let message = format!("more than {MAX_PAGES} pages of statuses");
    Err(HostError::Rejected { what: format!("statuses of {commit}"), status: 200, message })
}

async fn page(host: &Gitea, repo: &RepoId, commit: &CommitSha, number: u32) -> Result<Vec<Value>, HostError> {
    let path = format!("{}/commits/{}/status", host.address.repo_path(repo)?, segment(commit.as_str()));
    let mut body = host.http.get(&page_of(&path, number)).await?.body;
    match body["statuses"].take() {
        // Forgejo then names no repository either.
        Value::Null => Ok(Vec::new()),
        Value::Array(rows) => {
            answers::is_repository(repo, &format!("GET {path}"), &body["repository"])?;
            Ok(rows)
        }
        _ => Err(odd(&path, "statuses are not a list")),
    }
}

fn status(row: &Value) -> CommitStatus {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let state = match row["status"].as_str() {
        Some("pending") => StatusState::Pending,
        Some("success") => StatusState::Success,
        _ => StatusState::Failure,
    };
    CommitStatus::told(text("context"), state, text("description"), text("target_url"))
}
