//! Lists of open pull requests and of repositories, present names of repositories, and the comparison of a commit with a branch.

use super::moved::may_have_moved;
use super::{API, BitbucketDataCenter, answers};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, OpenPull, RepoAccess};
use serde_json::Value;
use tidelock_core::domain::{CommitSha, PullId, PullVersion, RepoId};

/// Rows on one page. The host cuts longer pages of pull requests to so many (`page.max.pullrequests`).
const PER_PAGE: u32 = 100;
/// Most pages of open pull requests of one repository.
const PULL_PAGES: u32 = 50;
/// Repositories on one page (`page.max.repositories`).
const REPOS_PER_PAGE: u32 = 1000;
/// Most pages of repositories.
const REPO_PAGES: u32 = 20;
/// Most pages of repositories among which a moved one is searched.
const SEARCH_PAGES: u32 = 5;

/// Returns all open pull requests. In the order of their creation none changes its place while pages are read.
pub(super) async fn open_pulls(host: &BitbucketDataCenter, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
    let path = format!("{}/pull-requests", host.address.repo_path(repo)?);
    let rows = host.http.start_pages(&format!("{path}?state=OPEN&order=OLDEST"), PER_PAGE, PULL_PAGES).await?.rows;
    let mut open: Vec<OpenPull> = Vec::new();
    for row in rows {
        let number = row["id"].as_u64().ok_or_else(|| odd(&path, "no id"))?;
        let id = PullId { repo: repo.clone(), number };
        host.check_pull(&id, &path, &row)?;
        let created = answers::moment(&row["createdDate"]).ok_or_else(|| odd(&path, "no createdDate"))?;
        let version = answers::version(&row).ok_or_else(|| odd(&path, "no updatedDate"))?;
        match answers::pull_request(&host.address, &id, &row) {
            Ok(pull) => open.push(OpenPull { created, version: PullVersion::new(version), pull }),
            // It must not hide the others.
            Err(wrong) => tracing::warn!(pull = %id, "an open pull request is passed over: {wrong}"),
        }
    }
    Ok(open)
}

/// Returns all repositories that our token reads. Build statuses need no more (`POST .../commits/{commitId}/builds`).
pub(super) async fn repositories(host: &BitbucketDataCenter) -> Result<Vec<RepoAccess>, HostError> {
    let path = format!("{API}/repos?archived=ALL&permission=REPO_READ");
    let rows = host.http.start_pages(&path, REPOS_PER_PAGE, REPO_PAGES).await?.rows;
    let read = |row: &Value| {
        let repo = answers::named(&host.address, row)?;
        let of_organization = !repo.owner.starts_with('~');
        Some(RepoAccess { repo, of_organization, archived: row["archived"] == true, can_write: true })
    };
    Ok(rows.iter().filter_map(read).collect())
}

impl BitbucketDataCenter {
    /// Returns the present name of the repository with this id; absent if the host does not find it. No request takes an id: it is looked
    /// for under its name, then in its project, and then everywhere, first among those of its name. Fails with a transient error if it was
    /// not found, and not everything was searched.
    pub(super) async fn name_of_key(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        let is_it = |row: &Value| answers::key(row).as_deref() == Some(key);
        let path = self.address.repo_path(near)?;
        let mut unknown: Option<HostError> = None;
        match self.http.get(&path).await {
            Ok(answer) if is_it(&answer.body) => return self.named(&path, &answer.body).map(Some),
            Ok(_) | Err(HostError::Denied { .. }) => {}
            Err(error) if may_have_moved(near, &error) => unknown = Some(error).filter(HostError::is_transient),
            Err(error) => return Err(error),
        }
        let of_project = format!("{API}/projects/{}/repos", segment(&near.owner));
        let all = format!("{API}/repos?archived=ALL");
        for list in [of_project, format!("{all}&name={}", segment(&near.name)), all] {
            let read = match self.http.start_pages_until(&list, REPOS_PER_PAGE, SEARCH_PAGES, is_it).await {
                Err(HostError::Denied { .. }) => continue,
                Err(error) if may_have_moved(near, &error) => {
                    unknown = unknown.or(Some(error).filter(HostError::is_transient));
                    continue;
                }
                found => found?,
            };
            if let Some(found) = read.rows.iter().find(|row| is_it(row)) {
                return self.named(&list, found).map(Some);
            }
            if !read.is_whole && unknown.is_none() {
                let message = format!("it is not among the first {} repositories", read.rows.len());
                unknown = Some(HostError::Unavailable { what: format!("GET {list}"), message });
            }
        }
        unknown.map_or(Ok(None), Err)
    }

    fn named(&self, what: &str, repository: &Value) -> Result<RepoId, HostError> {
        answers::named(&self.address, repository).ok_or_else(|| odd(what, "a name that no repository can have"))
    }
}

/// Returns true if no commit is reachable from this one that is not reachable from the branch.
pub(super) async fn is_on_branch(
    host: &BitbucketDataCenter,
    repo: &RepoId,
    commit: &CommitSha,
    branch: &str,
) -> Result<bool, HostError> {
    let tip = segment(&format!("{}{branch}", answers::HEADS));
    let path = format!("{}/commits?until={}&since={tip}&limit=1", host.address.repo_path(repo)?, commit.as_str());
    match host.http.get(&path).await {
        Ok(answer) => {
            answer.body["values"].as_array().map(Vec::is_empty).ok_or_else(|| odd(&path, "no list of values"))
        }
        // The host does not know the commit, or there is no such branch.
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
