//! Lists of open pull requests and of repositories, and the comparison of a commit with a branch.

use super::{Gitea, answers};
use crate::gitea::times;
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, OpenPull, RepoAccess};
use serde_json::Value;
use tidelock_core::domain::{CommitSha, PullId, PullVersion, RepoId};

/// Most pages of open pull requests of one repository.
const PULL_PAGES: u32 = 100;
/// Most pages of repositories, and of organizations.
const REPO_PAGES: u32 = 200;

/// Returns all open pull requests. In the order of their creation none changes its place while pages are read.
pub(super) async fn open_pulls(host: &Gitea, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
    let path = format!("{}/pulls?state=open&sort=oldest", host.address.repo_path(repo)?);
    let mut open: Vec<OpenPull> = Vec::new();
    for row in host.rows(&path, PULL_PAGES).await? {
        let number = row["number"].as_u64().ok_or_else(|| odd(&path, "no number"))?;
        let id = PullId { repo: repo.clone(), number };
        answers::is_asked_for(&id, &path, &row)?;
        host.told.record(repo, answers::key(&row["base"]["repo"]));
        let created = answers::moment(&row["created_at"]).ok_or_else(|| odd(&path, "no created_at"))?;
        let version = row["updated_at"].as_str().and_then(times::version).ok_or_else(|| odd(&path, "no updated_at"))?;
        match answers::pull_request(&host.address, &id, &row) {
            Ok(pull) => open.push(OpenPull { created, version: PullVersion::new(version), pull }),
            // For example, its head cannot be read. It must not hide the others.
            Err(wrong) => tracing::warn!(pull = %id, "an open pull request is passed over: {wrong}"),
        }
    }
    Ok(open)
}

/// Returns the repositories of our account, those that it collaborates in, and those of its organizations.
pub(super) async fn repositories(host: &Gitea) -> Result<Vec<RepoAccess>, HostError> {
    let rows = host.rows("/user/repos", REPO_PAGES).await?;
    let organizations = organizations(host).await?;
    let read = |row: &Value| {
        let repo = host.address.repository(row["full_name"].as_str()?)?;
        Some(RepoAccess {
            of_organization: organizations.iter().any(|name| name.eq_ignore_ascii_case(&repo.owner)),
            archived: row["archived"] == true,
            can_write: row["permissions"]["push"] == true,
            repo,
        })
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// Returns the names of the organizations that our account is a member of; none without the scope `read:organization`.
async fn organizations(host: &Gitea) -> Result<Vec<String>, HostError> {
    let rows = match host.rows("/user/orgs", REPO_PAGES).await {
        Err(HostError::Denied { .. }) => return Ok(Vec::new()),
        rows => rows?,
    };
    Ok(rows.iter().filter_map(|row| row["username"].as_str().map(str::to_owned)).collect())
}

/// Returns true if no commit is reachable from this one that is not reachable from the branch.
pub(super) async fn is_on_branch(
    host: &Gitea,
    repo: &RepoId,
    commit: &CommitSha,
    branch: &str,
) -> Result<bool, HostError> {
    let told = match host.branch(repo, branch).await {
        Err(HostError::NotFound { .. }) => return Ok(false),
        answered => answered?,
    };
    let tip = answers::sha(&told["commit"]["id"]).ok_or_else(|| odd(branch, "a branch without a commit"))?;
    if tip == *commit {
        return Ok(true);
    }
    let path = format!(
        "{}/commits?sha={}&not={}&limit=1&stat=false&verification=false&files=false",
        host.address.repo_path(repo)?,
        segment(commit.as_str()),
        segment(tip.as_str())
    );
    match host.http.get(&path).await {
        Ok(answer) => answer.body.as_array().map(Vec::is_empty).ok_or_else(|| odd(&path, "not a list")),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
