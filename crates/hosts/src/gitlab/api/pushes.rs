//! Pushes to merge requests: their versions, one for each push, and the events that say who pushed. Commits carry e-mail addresses only,
//! which anybody can claim.

use super::{Gitlab, answers};
use crate::vcs::HostError;
use crate::vcs::http::{odd, page_of};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashSet;
use tidelock_core::domain::{CommitSha, Login, PullId, PullRequest, RepoId};

/// Rows on one page: the host's maximum.
const PER_PAGE: u32 = 100;
/// Most pages of versions and of commits of one merge request.
const MAX_PAGES: u32 = 30;
/// Most pages of push events that are searched, newest first.
const EVENT_PAGES: u32 = 5;

/// State of a merge request after one push (docs.gitlab.com/api/merge_requests, "Get merge request diff versions").
pub(super) struct MergeRequestVersion {
    pub(super) commit: CommitSha,
    pub(super) created: Option<Timestamp>,
}

/// One push to a branch.
struct Push {
    author: Login,
    branch: String,
    commit: CommitSha,
}

/// Returns the versions of a merge request, oldest first.
pub(super) async fn versions(host: &Gitlab, pull: &PullId) -> Result<Vec<MergeRequestVersion>, HostError> {
    let path = format!("{}/versions", host.pull_path(pull)?);
    let read = |row: Value| {
        let version = MergeRequestVersion {
            commit: answers::sha(&row["head_commit_sha"])?,
            created: answers::moment(&row["created_at"]),
        };
        Some((row["id"].as_u64()?, version))
    };
    let mut all = host.http.pages(&path, PER_PAGE, MAX_PAGES, read).await?;
    all.sort_by_key(|(id, _)| *id);
    Ok(all.into_iter().map(|(_, version)| version).collect())
}

/// Returns the login that pushed the head; unknown if no event says so.
pub(super) async fn pusher(host: &Gitlab, pull: &PullRequest) -> Result<Login, HostError> {
    let Some(source) = source_of(pull) else { return Ok(Login::unknown()) };
    for page in 1..=EVENT_PAGES {
        let (pushes, has_next) = pushes(host, &source, page).await?;
        let of_head = |push: &Push| push.commit == pull.head.commit && push.branch == pull.head.branch;
        if let Some(push) = pushes.into_iter().find(of_head) {
            return Ok(push.author);
        }
        if !has_next {
            break;
        }
    }
    Ok(Login::unknown())
}

/// Returns everybody who pushed a commit of the merge request to its branch. An unknown login stands for a head that no event tells of,
/// and for pushes beyond those that are searched.
pub(super) async fn contributors(host: &Gitlab, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
    let heads: HashSet<CommitSha> = versions(host, &pull.id).await?.into_iter().map(|version| version.commit).collect();
    let path = format!("{}/commits", host.pull_path(&pull.id)?);
    let commits = host.http.pages(&path, PER_PAGE, MAX_PAGES, |row| answers::sha(&row["id"])).await?;
    let own: HashSet<CommitSha> = commits.into_iter().chain(heads.iter().cloned()).collect();
    let mut missing = heads;
    missing.insert(pull.head.commit.clone());
    let (mut all, mut is_cut): (Vec<Login>, bool) = (Vec::new(), false);
    if let Some(source) = source_of(pull) {
        for page in 1..=EVENT_PAGES {
            let (pushes, has_next) = pushes(host, &source, page).await?;
            is_cut = has_next;
            for push in pushes.into_iter().filter(|push| push.branch == pull.head.branch && own.contains(&push.commit))
            {
                if !push.author.is_unknown() {
                    missing.remove(&push.commit);
                }
                if !all.contains(&push.author) {
                    all.push(push.author);
                }
            }
            if !has_next {
                break;
            }
        }
    }
    // Among the pushes that are not searched may be one of a commit that had no merge request yet.
    if (is_cut || !missing.is_empty()) && !all.contains(&Login::unknown()) {
        all.push(Login::unknown());
    }
    Ok(all)
}

/// Returns the project that has the source branch; absent if it is hidden or deleted.
fn source_of(pull: &PullRequest) -> Option<RepoId> {
    let (owner, name) = (pull.head.repo_owner.clone(), pull.head.repo_name.clone());
    (!owner.is_empty()).then(|| RepoId { host: pull.id.repo.host.clone(), owner, name })
}

/// Returns one page of the pushes to a project, newest first, and true if there is another page (docs.gitlab.com/api/events).
async fn pushes(host: &Gitlab, repo: &RepoId, page: u32) -> Result<(Vec<Push>, bool), HostError> {
    let path = format!("{}/events?action=pushed", host.address.project_path(repo)?);
    let answer = match host.http.get(&page_of(&path, PER_PAGE, page)).await {
        // Our token may not read a fork.
        Err(HostError::NotFound { .. } | HostError::Denied { .. }) => return Ok((Vec::new(), false)),
        answered => answered?,
    };
    let Value::Array(rows) = &answer.body else { return Err(odd(&path, "not a list")) };
    let read = |row: &Value| {
        let push = &row["push_data"];
        let commit = answers::sha(&push["commit_to"]).filter(|_| push["ref_type"] == "branch")?;
        let author = row["author_username"].as_str().map_or_else(|| answers::login(&row["author"]), Login::new);
        Some(Push { author, branch: push["ref"].as_str()?.to_owned(), commit })
    };
    Ok((rows.iter().filter_map(read).collect(), answer.next.is_some()))
}
