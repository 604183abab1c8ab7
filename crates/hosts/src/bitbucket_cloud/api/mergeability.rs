//! Mergeability. The host has no word for it: conflicts are told by the difference to the base branch, and what the branch demands by its
//! restrictions. Only the merge itself tells all.

use super::commits::head_start;
use super::{BitbucketCloud, restrictions};
use crate::vcs::http::odd;
use crate::vcs::{HostError, Mergeability};
use serde_json::Value;
use tidelock_core::domain::PullRequest;

/// Most pages of changed files, of 500 each.
const FILE_PAGES: u32 = 20;

pub(super) async fn mergeability(host: &BitbucketCloud, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let told = host.recent_pull(&pull.id).await?;
    let obstacles = obstacles(host, pull, &told).await?;
    Ok(match obstacles.is_empty() {
        true => Mergeability { mergeable: true, detail: "Bitbucket Cloud would merge it".to_owned() },
        false => Mergeability { mergeable: false, detail: obstacles.join("; ") },
    })
}

/// Returns the obstacles to a merge besides our own statuses, for people; empty if none is known.
pub(super) async fn obstacles(
    host: &BitbucketCloud,
    pull: &PullRequest,
    told: &Value,
) -> Result<Vec<String>, HostError> {
    if let Some(obstacle) = obstacle(pull, told)? {
        return Ok(vec![obstacle.to_owned()]);
    }
    let mut found = Vec::new();
    if has_conflicts(host, pull).await? {
        found.push(format!("it has conflicts with `{}`", pull.base.branch));
    }
    found.extend(restrictions::obstacles(host, pull, told).await?);
    Ok(found)
}

/// Returns the obstacle that the pull request itself tells.
pub(super) fn obstacle(pull: &PullRequest, told: &Value) -> Result<Option<&'static str>, HostError> {
    Ok(match told["state"].as_str() {
        Some("OPEN") if !pull.head.commit.as_str().starts_with(head_start(&pull.id, told)?) => {
            Some("its head has moved on")
        }
        Some("OPEN") if told["draft"] == true => Some("it is a draft"),
        Some("OPEN") => None,
        _ => Some("the pull request is closed"),
    })
}

/// Returns true if files conflict. The host redirects to the comparison of both commits
/// (`GET /repositories/{workspace}/{repo_slug}/pullrequests/{pull_request_id}/diffstat`).
async fn has_conflicts(host: &BitbucketCloud, pull: &PullRequest) -> Result<bool, HostError> {
    let path = format!("{}/diffstat", host.pull_path(&pull.id)?);
    let found = match host.http.value_pages(&path, FILE_PAGES).await {
        Err(HostError::Moved { to, .. }) => {
            let compared = host.http.path_below(&to).filter(|path| is_comparison(path));
            let compared = compared.ok_or_else(|| odd(&path, "its comparison is at another address"))?;
            host.http.value_pages(compared, FILE_PAGES).await?
        }
        found => found?,
    };
    Ok(found.rows.iter().any(|row| is_conflict(row["status"].as_str().unwrap_or_default())))
}

/// Returns true if a path of the API is a comparison of commits.
fn is_comparison(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    path.starts_with("/repositories/") && path.contains("/diffstat/")
}

/// Returns true if a file conflicts. Besides `added`, `modified`, `removed` and `renamed` the host has words for conflicts that are not
/// documented, such as `merge conflict` and `local deleted` (runatlantis/atlantis, `server/events/vcs/bitbucketcloud/client.go`).
fn is_conflict(status: &str) -> bool {
    status.contains("conflict") || status.ends_with(" deleted")
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn conflicts_are_told_from_changes() {
        for status in ["added", "modified", "removed", "renamed", ""] {
            assert!(!is_conflict(status), "{status}");
        }
        for status in ["merge conflict", "local deleted", "remote deleted", "rename conflict", "subrepo conflict"] {
            assert!(is_conflict(status), "{status}");
        }
        assert!(is_comparison("/repositories/a/b/diffstat/a/b:1..2?from_pullrequest_id=7&topic=true"));
        assert!(!is_comparison("/repositories/a/b/src?x=/diffstat/") && !is_comparison("/user/diffstat/x"));
    }
}
