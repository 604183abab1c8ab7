//! Build statuses of commits. One is known by its key; setting the key again replaces it (`POST .../commits/{commitId}/builds`).

use super::moved::may_have_moved;
use super::{BitbucketDataCenter, answers};
use crate::vcs::http::segment;
use crate::vcs::{HostError, own_status};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, PullId};

/// Longest key, name and description, in characters (`GET /rest/build-status/latest/commits/{commitId}`, "Associates a build status").
const TEXT_LIMIT: usize = 255;
/// Longest address, in characters.
const URL_LIMIT: usize = 450;
/// Digits of the hash that ends a cut key.
const KEY_DIGITS: usize = 12;
/// Statuses on one page: the list has the hundred latest ones of a commit.
const PER_PAGE: u32 = 100;
/// Most pages of statuses of one commit.
const MAX_PAGES: u32 = 3;

/// Sets a status. The name of the source branch ties it to the pull request, as required builds demand; a fork's branch is in another
/// repository.
pub(super) async fn set(
    host: &BitbucketDataCenter,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let state = match status.state {
        StatusState::Pending => "INPROGRESS",
        StatusState::Success => "SUCCESSFUL",
        StatusState::Failure => "FAILED",
    };
    let cut = |text: &str| text.chars().take(TEXT_LIMIT).collect::<String>();
    let url = Some(&status.url).filter(|url| !url.is_empty() && url.chars().count() <= URL_LIMIT);
    let mut body = json!({
        "key": key(&status.context),
        "name": cut(&status.context),
        "state": state,
        "description": cut(&status.description),
        "url": url.unwrap_or(&host.server_url),
    });
    if let Some(branch) = source_branch(host, pull).await? {
        body["ref"] = json!(format!("{}{branch}", answers::HEADS));
    }
    let path = format!("/commits/{}/builds", segment(commit.as_str()));
    match host.say(Method::POST, &pull.repo, &path, Some(body)).await {
        // 404 is about the repository.
        Err(HostError::Rejected { what, status: 400, message }) if message.to_ascii_lowercase().contains("commit") => {
            Err(HostError::UnknownCommit { what, message })
        }
        answered => answered.map(drop),
    }
}

/// Returns the name of the source branch, from an earlier answer if there is one; absent for a fork's, and for a branch without a pull
/// request.
async fn source_branch(host: &BitbucketDataCenter, pull: &PullId) -> Result<Option<String>, HostError> {
    if pull.is_branch() {
        return Ok(None);
    }
    let known = match host.branches.get(pull) {
        Some(known) => known,
        None => match host.pull(pull).await {
            Ok(_) => host.branches.get(pull).unwrap_or_default(),
            // The post follows the repository.
            Err(error) if may_have_moved(&pull.repo, &error) => {
                let repo = host.other_name(&pull.repo).await?.ok_or(error)?;
                let now = PullId { repo, number: pull.number };
                host.pull(&now).await?;
                host.branches.get(&now).unwrap_or_default()
            }
            Err(error) => return Err(error),
        },
    };
    // An empty name stands for a fork's.
    Ok(Some(known).filter(|name| !name.is_empty()))
}

/// Returns the latest status of each of our contexts, as far as one page reports them. The host does not say who has set one: ours are
/// those whose names and keys begin as ours do.
pub(super) async fn own(host: &BitbucketDataCenter, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
    Ok(all(host, commit).await?.iter().filter(|row| is_ours(row, &host.status_name)).map(status).collect())
}

/// Returns the statuses of a commit, the newest first. There is no other list of them, and it has no repository.
pub(super) async fn all(host: &BitbucketDataCenter, commit: &CommitSha) -> Result<Vec<Value>, HostError> {
    let path = format!("/rest/build-status/latest/commits/{}?orderBy=NEWEST", segment(commit.as_str()));
    Ok(host.http.start_pages(&path, PER_PAGE, MAX_PAGES).await?.rows)
}

/// Returns one status with all its fields; absent if there is none of this key.
pub(super) async fn one(
    host: &BitbucketDataCenter,
    pull: &PullId,
    commit: &CommitSha,
    key: &str,
) -> Result<Option<Value>, HostError> {
    let repo = host.address.repo_path(&pull.repo)?;
    let path = format!("{repo}/commits/{}/builds?key={}", segment(commit.as_str()), segment(key));
    match host.http.get(&path).await {
        Ok(answer) => Ok(Some(answer.body).filter(Value::is_object)),
        Err(HostError::NotFound { .. } | HostError::Rejected { status: 400, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn status(row: &Value) -> CommitStatus {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let state = match row["state"].as_str() {
        Some("INPROGRESS") => StatusState::Pending,
        Some("SUCCESSFUL") => StatusState::Success,
        _ => StatusState::Failure,
    };
    CommitStatus::told(text("name"), state, text("description"), text("url"))
}

/// Returns the key of a context.
pub(super) fn key(context: &str) -> String {
    own_status::cut(context, TEXT_LIMIT, KEY_DIGITS)
}

/// Returns true if a status is one of ours, whose names begin with `first`.
pub(super) fn is_ours(row: &Value, first: &str) -> bool {
    let name = row["name"].as_str().unwrap_or_default();
    own_status::is_ours(name, first) && (row["key"] == key(name).as_str() || name.chars().count() >= TEXT_LIMIT)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn our_own_statuses_are_told_by_name_and_key() {
        let row = |name: &str| json!({"name": name, "key": key(name)});
        assert!(is_ours(&row("atlantis/apply"), "atlantis") && is_ours(&row("prod/eu/plan: a"), "prod/eu"));
        assert!(!is_ours(&row("atlantis-2/apply"), "atlantis") && !is_ours(&row("build"), "atlantis"));
        assert!(!is_ours(&json!({"name": "atlantis/apply", "key": "BUILD-1"}), "atlantis"));
    }
}
