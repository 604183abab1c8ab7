//! Lists of open merge requests and of projects, and the comparison of a commit with a branch.

use super::{Gitlab, answers};
use crate::gitlab::times;
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, OpenPull, RepoAccess};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use tidelock_core::domain::{CommitSha, PullId, PullVersion, RepoId};

/// Rows on one page: the host's maximum (docs.gitlab.com/api/rest, "Pagination").
const PER_PAGE: u32 = 100;
/// Most pages of open merge requests of one project.
const PULL_PAGES: u32 = 100;
/// Most pages of projects.
const PROJECT_PAGES: u32 = 100;

/// Returns all open merge requests. A comment changes the time of its merge request at most once a minute, so the version is the later of
/// that time and of the last comment.
pub(super) async fn open_pulls(host: &Gitlab, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
    let project = host.address.project_path(repo)?;
    // In the order of their creation none changes its place while pages are read.
    let path = format!("{project}/merge_requests?state=opened&scope=all&order_by=created_at&sort=asc");
    let rows = host.http.pages(&path, PER_PAGE, PULL_PAGES, Some).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let commented = last_comments(host, &project).await?;
    let mut open = Vec::new();
    for row in rows {
        let number = row["iid"].as_u64().ok_or_else(|| odd(&path, "no iid"))?;
        let id = PullId { repo: repo.clone(), number };
        answers::is_asked_for(&id, &path, &row)?;
        host.told.record(repo, answers::key(&row));
        let created = answers::moment(&row["created_at"]).ok_or_else(|| odd(&path, "no created_at"))?;
        let updated = answers::moment(&row["updated_at"]).ok_or_else(|| odd(&path, "no updated_at"))?;
        let changed = commented.get(&number).map_or(updated, |commented| updated.max(*commented));
        let version = PullVersion::new(times::version(&changed.to_string()).unwrap_or_default());
        match answers::pull_request(&host.address, &id, &row) {
            Ok(pull) => open.push(OpenPull { created, version, pull }),
            // For example, it was opened a moment ago and has no commits yet. It must not hide the others.
            Err(wrong) => tracing::warn!(pull = %id, "an open merge request is passed over: {wrong}"),
        }
    }
    Ok(open)
}

/// Returns the times of the last comments, by the numbers of their merge requests, among the latest comments in a project
/// (docs.gitlab.com/api/events).
async fn last_comments(host: &Gitlab, project: &str) -> Result<HashMap<u64, Timestamp>, HostError> {
    let path = format!("{project}/events?action=commented&per_page={PER_PAGE}");
    let body = match host.http.get(&path).await {
        // Our token may not read them.
        Err(HostError::NotFound { .. } | HostError::Denied { .. }) => return Ok(HashMap::new()),
        answered => answered?.body,
    };
    let Value::Array(rows) = &body else { return Err(odd(&path, "not a list")) };
    let mut last = HashMap::new();
    for row in rows.iter().filter(|row| row["note"]["noteable_type"] == "MergeRequest") {
        if let (Some(number), Some(at)) = (row["note"]["noteable_iid"].as_u64(), answers::moment(&row["created_at"])) {
            let known = last.entry(number).or_insert(at);
            *known = at.max(*known);
        }
    }
    Ok(last)
}

/// Returns the projects that our account may write to as a member, in the order of their ids. Only pages by address reach the end of a long
/// list (docs.gitlab.com/api/rest, "Keyset-based pagination").
pub(super) async fn repositories(host: &Gitlab) -> Result<Vec<RepoAccess>, HostError> {
    let order = "pagination=keyset&order_by=id&sort=asc";
    let path = format!("/projects?membership=true&min_access_level=30&{order}&per_page={PER_PAGE}");
    let read = |row: Value| {
        Some(RepoAccess {
            repo: host.address.repository(row["path_with_namespace"].as_str()?)?,
            of_organization: row["namespace"]["kind"] == "group",
            archived: row["archived"] == true,
            can_write: true,
        })
    };
    host.http.linked_pages(&path, PROJECT_PAGES, read).await
}

/// Returns true if a commit is its own merge base with a branch (docs.gitlab.com/api/repositories, "Merge base").
pub(super) async fn is_on_branch(
    host: &Gitlab,
    repo: &RepoId,
    commit: &CommitSha,
    branch: &str,
) -> Result<bool, HostError> {
    let project = host.address.project_path(repo)?;
    let refs = [commit.as_str(), &format!("refs/heads/{branch}")].map(|name| format!("refs%5B%5D={}", segment(name)));
    match host.http.get(&format!("{project}/repository/merge_base?{}", refs.join("&"))).await {
        Ok(answer) => Ok(answers::sha(&answer.body["id"]).as_ref() == Some(commit)),
        // 400: one of them does not exist; 404: they have nothing in common.
        Err(HostError::NotFound { .. } | HostError::Rejected { status: 400, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
