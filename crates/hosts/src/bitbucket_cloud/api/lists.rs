//! Lists of open pull requests and of repositories, and the comparison of a commit with a branch.

use super::BitbucketCloud;
use super::answers::{self, PullCommits};
use crate::bitbucket_cloud::BitbucketCloudCredentials;
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, OpenPull, RepoAccess};
use serde_json::Value;
use std::collections::HashMap;
use tidelock_core::domain::{CommitSha, PullId, PullVersion, RepoId};

/// Most pages of open pull requests of one repository.
const PULL_PAGES: u32 = 100;
/// Most pages of workspaces.
const WORKSPACE_PAGES: u32 = 10;
/// Most pages of repositories of one workspace.
const REPO_PAGES: u32 = 100;
/// Number of unknown heads from which on the tips of branches are requested first, a hundred at once.
const MANY_HEADS: usize = 3;
/// Errors in a row after which a list is given up.
const MAX_ERRORS: usize = 2;

/// Tips of branches of one repository, by name.
type Tips = HashMap<String, CommitSha>;

/// Returns all open pull requests, fifty on a page, which is the most (support.atlassian.com/bitbucket-cloud, "Pagination"). In the order
/// of their creation none changes its place while pages are read.
pub(super) async fn open_pulls(host: &BitbucketCloud, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
    let path = format!("{}/pullrequests", host.address.repo_path(repo)?);
    let listed = format!("{path}?state=OPEN&sort=created_on&pagelen=50");
    let rows = host.http.value_pages(&listed, PULL_PAGES).await?.rows;
    let tips = tips(host, repo, &rows).await?;
    let mut open: Vec<OpenPull> = Vec::new();
    let mut errors = 0;
    for row in rows {
        let number = row["id"].as_u64().ok_or_else(|| odd(&path, "no id"))?;
        let id = PullId { repo: repo.clone(), number };
        host.check_pull(&id, &path, &row)?;
        let created = answers::moment(&row["created_on"]).ok_or_else(|| odd(&path, "no created_on"))?;
        let version = answers::version(&row).ok_or_else(|| odd(&path, "no updated_on"))?;
        let head = match listed_head(host, &id, &row, &tips).await {
            Ok(head) => head,
            Err(error) if errors + 1 >= MAX_ERRORS || matches!(error, HostError::RateLimited { .. }) => {
                return Err(error);
            }
            // For example, it was pushed again meanwhile. It must not hide the others.
            Err(error) => {
                tracing::warn!(pull = %id, "an open pull request is passed over: {error}");
                errors += 1;
                continue;
            }
        };
        errors = 0;
        // A list does not ask for the commits of base branches: the head stands for one, so that nothing is known to lie between them.
        let commits = PullCommits { base: head.clone(), head, merge: None };
        match answers::pull_request(&host.address, &id, &row, commits) {
            Ok(pull) => open.push(OpenPull { created, version: PullVersion::new(version), pull }),
            Err(wrong) => tracing::warn!(pull = %id, "an open pull request is passed over: {wrong}"),
        }
    }
    Ok(open)
}

/// Returns the head of a listed pull request, from an earlier answer if there is one for its version. One that the host does not find, as
/// of a fork that is gone, is open all the same: its last head stands for it.
async fn listed_head(host: &BitbucketCloud, id: &PullId, row: &Value, tips: &Tips) -> Result<CommitSha, HostError> {
    let version = answers::version(row).unwrap_or_default();
    if let Some(known) = host.heads.get(id, &version) {
        return known.map_or_else(|| host.heads.last(id), Ok);
    }
    let is_own = answers::source(&host.address, row).as_ref() == Some(&id.repo);
    let tip = answers::branch(&row["source"]).filter(|_| is_own).and_then(|branch| tips.get(&branch));
    let start = answers::start(&row["source"]["commit"]);
    let found = match tip.filter(|tip| start.is_some_and(|start| tip.as_str().starts_with(start))) {
        Some(tip) => Some(tip.clone()),
        None => match host.head_commit(id, row).await {
            Err(HostError::UnknownCommit { what, message }) => {
                tracing::warn!(pull = %id, "{what}: {message}");
                None
            }
            found => Some(found?),
        },
    };
    host.heads.record(id, Some(version), found.clone());
    found.map_or_else(|| host.heads.last(id), Ok)
}

/// Returns the tips of the branches that changed last, if many heads are unknown: one request stands for many.
async fn tips(host: &BitbucketCloud, repo: &RepoId, rows: &[Value]) -> Result<Tips, HostError> {
    let is_unknown = |row: &&Value| {
        let id = PullId { repo: repo.clone(), number: row["id"].as_u64().unwrap_or_default() };
        let is_own = answers::source(&host.address, row).as_ref() == Some(repo);
        is_own && answers::version(row).is_none_or(|version| host.heads.get(&id, &version).is_none())
    };
    if rows.iter().filter(is_unknown).count() < MANY_HEADS {
        return Ok(Tips::new());
    }
    let path = format!("{}/refs/branches?sort=-target.date&pagelen=100", host.address.repo_path(repo)?);
    let branches = match host.http.get(&path).await {
        Err(error @ HostError::RateLimited { .. }) => return Err(error),
        // Each head is asked for then.
        Err(error) => {
            tracing::debug!(%repo, "branches cannot be listed: {error}");
            return Ok(Tips::new());
        }
        Ok(answer) => answer.body,
    };
    let read = |tip: &Value| Some((tip["name"].as_str()?.to_owned(), answers::sha(&tip["target"]["hash"])?));
    Ok(branches["values"].as_array().into_iter().flatten().filter_map(read).collect())
}

/// Returns the repositories that our account was given access to, by workspace; none for an access token, which has no such list. There is
/// no list of all workspaces since CHANGE-2770 of the host (developer.atlassian.com/cloud/bitbucket/changelog).
pub(super) async fn repositories(host: &BitbucketCloud) -> Result<Vec<RepoAccess>, HostError> {
    if host.credentials == BitbucketCloudCredentials::AccessToken {
        return Ok(Vec::new());
    }
    let workspaces = host.http.value_pages("/user/workspaces?pagelen=100", WORKSPACE_PAGES).await?.rows;
    let mut found = Vec::new();
    for slug in workspaces.iter().filter_map(|row| row["workspace"]["slug"].as_str()) {
        let path = format!("/user/workspaces/{}/permissions/repositories?pagelen=100", segment(slug));
        let rows = match host.http.value_pages(&path, REPO_PAGES).await {
            // For example, the workspace admits known addresses only. It must not hide the others.
            Err(error @ (HostError::Denied { .. } | HostError::NotFound { .. })) => {
                tracing::warn!("the repositories of a workspace cannot be listed: {error}");
                continue;
            }
            found => found?.rows,
        };
        found.extend(rows.iter().filter_map(|row| access(host, row)));
    }
    Ok(found)
}

fn access(host: &BitbucketCloud, row: &Value) -> Option<RepoAccess> {
    let repo = host.address.repository(row["repository"]["full_name"].as_str()?)?;
    let can_write = matches!(row["permission"].as_str(), Some("write" | "admin"));
    // The owner is always a workspace, which may have webhooks.
    Some(RepoAccess { repo, of_organization: true, archived: false, can_write })
}

/// Returns true if no commit is reachable from this one that is not reachable from the branch.
pub(super) async fn is_on_branch(
    host: &BitbucketCloud,
    repo: &RepoId,
    commit: &CommitSha,
    branch: &str,
) -> Result<bool, HostError> {
    let base = host.address.repo_path(repo)?;
    let Some(tip) = host.branch_tip(repo, branch).await? else { return Ok(false) };
    if tip == *commit {
        return Ok(true);
    }
    let path = format!("{base}/commits/{}?exclude={}&pagelen=1", segment(commit.as_str()), segment(tip.as_str()));
    match host.http.get(&path).await {
        Ok(answer) => {
            let values = answer.body["values"].as_array().ok_or_else(|| odd(&path, "no list of values"))?;
            Ok(values.is_empty())
        }
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
