//! Mergeability. The host's own word `mergeable` says only that it has checked for conflicts and found none, and that it is no draft
//! (models/issues/pull.go, `Mergeable`). What the rule of the base branch demands is judged here, as the host does at the merge
//! (services/pull/merge.go, `CheckPullBranchProtections`).

use super::{Gitea, answers, protection};
use crate::vcs::{HostError, Mergeability};
use backon::BackoffBuilder as _;
use serde_json::Value;
use tidelock_core::domain::PullRequest;

/// Most requests while the host may be checking for conflicts: some seconds. It does not tell a check from a conflict.
const POLLS: usize = 6;
/// Most pages of issues that a pull request depends on.
const DEPENDENCY_PAGES: u32 = 10;

pub(super) async fn mergeability(host: &Gitea, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let told = settled(host, pull).await?;
    let obstacles = obstacles(host, pull, &told).await?;
    Ok(match obstacles.is_empty() {
        true => Mergeability { mergeable: true, detail: "Gitea would merge it".to_owned() },
        false => Mergeability { mergeable: false, detail: obstacles.join("; ") },
    })
}

/// Returns the pull request once the host has checked it, or as it is after some polls. A GET begins a check that was put off.
pub(super) async fn settled(host: &Gitea, pull: &PullRequest) -> Result<Value, HostError> {
    let mut told = host.pull(&pull.id).await?;
    for wait in host.http.waits(POLLS).build() {
        if !may_be_unchecked(pull, &told) {
            break;
        }
        tokio::time::sleep(wait).await;
        told = host.pull(&pull.id).await?;
    }
    Ok(told)
}

/// Returns true if a check for conflicts may be what the merge waits for.
pub(super) fn may_be_unchecked(pull: &PullRequest, told: &Value) -> bool {
    let is_known_head = answers::sha(&told["head"]["sha"]).as_ref() == Some(&pull.head.commit);
    told["state"] == "open" && is_known_head && told["draft"] != true && told["mergeable"] != true
}

/// Returns the obstacles to a merge besides our own statuses, for people; empty if it could be merged without them.
pub(super) async fn obstacles(host: &Gitea, pull: &PullRequest, told: &Value) -> Result<Vec<String>, HostError> {
    if let Some(obstacle) = obstacle(pull, told) {
        return Ok(vec![obstacle]);
    }
    let mut found = protection::obstacles(host, pull, told).await?;
    found.extend(dependency(host, pull).await?);
    Ok(found)
}

/// Returns the obstacle that the pull request itself tells.
pub(super) fn obstacle(pull: &PullRequest, told: &Value) -> Option<String> {
    let words = match told["state"].as_str() {
        Some("open") if answers::sha(&told["head"]["sha"]).as_ref() != Some(&pull.head.commit) => {
            "its head has moved on"
        }
        Some("open") if told["draft"] == true => "it is a draft",
        Some("open") if told["mergeable"] != true => {
            return Some(format!(
                "it has conflicts with `{}`, or Gitea has not checked that yet; if it has none, try again in a minute",
                pull.base.branch
            ));
        }
        Some("open") => return None,
        _ => "the pull request is closed",
    };
    Some(words.to_owned())
}

/// Returns the obstacle of an issue that has to be closed first (models/issues/dependency.go, `IssueNoDependenciesLeft`).
async fn dependency(host: &Gitea, pull: &PullRequest) -> Result<Option<String>, HostError> {
    let path = format!("{}/issues/{}/dependencies", host.address.repo_path(&pull.id.repo)?, pull.id.number);
    let rows = match host.rows(&path, DEPENDENCY_PAGES).await {
        // Dependencies are disabled.
        Err(HostError::NotFound { .. }) => return Ok(None),
        rows => rows?,
    };
    let open = rows.iter().find(|row| row["state"] == "open");
    Ok(open.map(|row| format!("it depends on #{}, which is open", row["number"])))
}
