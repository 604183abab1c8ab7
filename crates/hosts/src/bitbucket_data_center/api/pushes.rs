//! People who pushed to the branch of a pull request: by its activities, and by the ref changes of the repository, which only its
//! administrators may read. Commits carry e-mail addresses, which anybody can claim: they add people, and prove nothing.

use super::{BitbucketDataCenter, answers};
use crate::vcs::HostError;
use crate::vcs::http::{StartRows, segment};
use serde_json::Value;
use tidelock_core::domain::{Login, PullRequest, RepoId};

/// Rows on one page.
const PER_PAGE: u32 = 100;
/// Most pages of activities of one pull request.
const ACTIVITY_PAGES: u32 = 100;
/// Most pages of ref changes of one branch.
const CHANGE_PAGES: u32 = 20;
/// Most pages of commits of one pull request.
const COMMIT_PAGES: u32 = 60;
/// Commit of a branch that does not exist.
const NONE: &str = "0000000000000000000000000000000000000000";

/// Returns the login that pushed the head; unknown if the host does not tell it.
pub(super) async fn pusher(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Login, HostError> {
    let head = pull.head.commit.as_str();
    let pushes = activities(host, pull).await?;
    if let Some(push) = pushes.iter().find(|row| row["fromHash"] == head) {
        return Ok(answers::login(&push["user"]));
    }
    let changes = changes(host, pull).await?.unwrap_or_default();
    let found = changes.iter().find(|row| row["refChange"]["toHash"] == head);
    Ok(found.map_or_else(Login::unknown, |row| answers::login(&row["user"])))
}

/// Returns everybody who has pushed to the branch since its beginning, and authors and committers with an account. An unknown login stands for
/// pushes that the host does not tell, and for commits beyond those that are read.
pub(super) async fn contributors(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
    let told = activities(host, pull).await?;
    let mut all: Vec<Login> = told.iter().map(|row| answers::login(&row["user"])).collect();
    let changes = changes(host, pull).await?.unwrap_or_default();
    all.extend(changes.iter().map(|row| answers::login(&row["user"])));
    let path = format!("{}/commits", host.pull_path(&pull.id)?);
    let commits = host.http.start_pages_until(&path, PER_PAGE, COMMIT_PAGES, |_| false).await?;
    let people = commits.rows.iter().flat_map(|commit| [&commit["author"], &commit["committer"]]);
    all.extend(people.filter_map(account));
    if !leads_to_head(&changes, pull.head.commit.as_str()) || !commits.is_whole {
        all.push(Login::unknown());
    }
    let mut once: Vec<Login> = Vec::new();
    for login in all {
        if !once.contains(&login) {
            once.push(login);
        }
    }
    Ok(once)
}

/// Returns true if changes of a branch, the newest first, lead from its beginning to this head without a gap.
fn leads_to_head(changes: &[Value], head: &str) -> bool {
    let mut at = head;
    for change in changes.iter().map(|row| &row["refChange"]).filter(|change| change["toHash"].is_string()) {
        if change["toHash"] != at {
            continue;
        }
        match change["fromHash"].as_str() {
            _ if change["type"] == "ADD" => return true,
            Some(NONE) => return true,
            Some(before) => at = before,
            None => return false,
        }
    }
    false
}

/// Returns the login of an author or committer whose address is that of an account; without one there is no slug, and the name is any text
/// (github.com/drone/go-scm, `commit.json`).
fn account(person: &Value) -> Option<Login> {
    let is_account = person["slug"].is_string() && person["id"].is_u64();
    Some(answers::login(person)).filter(|login| is_account && !login.is_unknown())
}

/// Returns the pushes of the pull request's time, the newest first. One to the base branch is such an activity as well, and keeps the head.
async fn activities(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Vec<Value>, HostError> {
    let path = format!("{}/activities", host.pull_path(&pull.id)?);
    let StartRows { rows, .. } = host.http.start_pages(&path, PER_PAGE, ACTIVITY_PAGES).await?;
    let is_push = |row: &Value| row["action"] == "RESCOPED" && row["fromHash"] != row["previousFromHash"];
    Ok(rows.into_iter().filter(is_push).collect())
}

/// Returns the changes of the branch, the newest first (`GET .../ref-change-activities`); absent if our token may not read them, and for
/// versions that do not have them.
async fn changes(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Option<Vec<Value>>, HostError> {
    let (owner, name) = (pull.head.repo_owner.clone(), pull.head.repo_name.clone());
    if owner.is_empty() {
        return Ok(None);
    }
    let source = RepoId { host: pull.id.repo.host.clone(), owner, name };
    let branch = format!("{}{}", answers::HEADS, pull.head.branch);
    let path = format!("{}/ref-change-activities?ref={}", host.address.repo_path(&source)?, segment(&branch));
    match host.http.start_pages(&path, PER_PAGE, CHANGE_PAGES).await {
        Ok(found) => {
            let is_of_branch = |row: &Value| row["refChange"]["refId"] == branch.as_str();
            Ok(Some(found.rows.into_iter().filter(is_of_branch).collect()))
        }
        // The list is longer than what is read, for one.
        Err(HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Rejected { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
