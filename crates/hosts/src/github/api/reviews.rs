//! Reviews, reduced to the latest verdict of each person.

use super::{answers, repo_path};
use crate::vcs::http::{Http, segment};
use crate::vcs::{HostError, Review, ReviewVerdict};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{CommitSha, Login, PullRequest, RepoId};

/// Reviews on one page.
const PER_PAGE: u32 = 100;
/// Most pages of reviews. A pull request with more is refused: a part of its reviews is no basis for a decision.
const MAX_PAGES: u32 = 30;
/// Most commits of a pull request that the host lists. A list of this length may be incomplete.
const MOST_COMMITS: usize = 250;
/// Most approvals that are dismissed, with one request each.
const MOST_DISMISSALS: usize = 100;
/// Most concurrent requests for permissions.
const MAX_CONCURRENT: usize = 4;

/// Returns all reviews of the pull request, oldest first.
async fn all(http: &Http, pull: &PullRequest) -> Result<Vec<Value>, HostError> {
    let path = format!("{}/pulls/{}", repo_path(&pull.id.repo)?, pull.id.number);
    let all = http.pages(&format!("{path}/reviews"), PER_PAGE, MAX_PAGES, Some).await?;
    if !all.iter().all(|review| answers::leads_to(&review["pull_request_url"], &path)) {
        return Err(HostError::Moved {
            what: format!("GET {path}/reviews"),
            to: "which its reviews are of".to_owned(),
        });
    }
    Ok(all)
}

/// Dismisses every approval, also one that is not the latest verdict of its person: the host may count it.
pub(super) async fn dismiss_approvals(http: &Http, pull: &PullRequest, because: &str) -> Result<(), HostError> {
    let all = all(http, pull).await?;
    let approvals: Vec<u64> =
        all.iter().filter(|review| review["state"] == "APPROVED").filter_map(|review| review["id"].as_u64()).collect();
    let path = format!("{}/pulls/{}/reviews", repo_path(&pull.id.repo)?, pull.id.number);
    if approvals.len() > MOST_DISMISSALS {
        let message = format!("it has {} approvals, and no more than {MOST_DISMISSALS} are dismissed", approvals.len());
        return Err(HostError::Rejected { what: format!("PUT {path}"), status: 422, message });
    }
    for id in approvals {
        let body = json!({ "message": because, "event": "DISMISS" });
        http.send(Method::PUT, &format!("{path}/{id}/dismissals"), Some(body)).await?;
    }
    Ok(())
}

/// Returns the latest verdict of each person. A comment does not change it, and a dismissal removes it.
pub(super) async fn latest(http: &Http, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let repo = repo_path(&pull.id.repo)?;
    let all = all(http, pull).await?;
    futures::stream::iter(verdicts(&all))
        .map(|mut review| {
            let repo = &repo;
            async move {
                review.can_write = can_write(http, repo, review.user.as_str()).await?;
                Ok(review)
            }
        })
        .buffered(MAX_CONCURRENT)
        .try_collect()
        .await
}

/// Latest verdicts, in the order in which people first gave one.
fn verdicts(reviews: &[Value]) -> Vec<Review> {
    let mut latest: Vec<(Login, Option<Review>)> = Vec::new();
    for review in reviews {
        let Some(user) = review["user"]["login"].as_str().map(Login::new) else { continue };
        let verdict = match review["state"].as_str() {
            Some("APPROVED") => Some(ReviewVerdict::Approved),
            Some("CHANGES_REQUESTED") => Some(ReviewVerdict::ChangesRequested),
            Some("DISMISSED") => None,
            _ => continue,
        };
        let commit = review["commit_id"].as_str().and_then(|id| CommitSha::parse(id).ok());
        let at = review["submitted_at"].as_str().and_then(|at| at.parse().ok());
        let entry = verdict.map(|verdict| Review { user: user.clone(), can_write: false, verdict, commit, at });
        match latest.iter_mut().find(|(name, _)| name.is(&user)) {
            Some((_, slot)) => *slot = entry,
            None => latest.push((user, entry)),
        }
    }
    latest.into_iter().filter_map(|(_, review)| review).collect()
}

/// Returns the authors and committers of the commits. An unknown login stands for a commit without an author or committer with an account,
/// and for commits beyond the host's list. Commits made on the site have the site as their committer, which is left out.
pub(super) async fn contributors(http: &Http, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
    const SITE: &str = "web-flow";
    let path = format!("{}/pulls/{}/commits", repo_path(&pull.id.repo)?, pull.id.number);
    let mut all: Vec<Login> = Vec::new();
    let commits = http.pages(&path, PER_PAGE, MAX_PAGES, Some).await?;
    if commits.len() >= MOST_COMMITS {
        all.push(Login::unknown());
    }
    for commit in commits {
        let people = ["author", "committer"].map(|who| commit[who]["login"].as_str().filter(|login| *login != SITE));
        let mut logins: Vec<Login> = people.into_iter().flatten().map(Login::new).collect();
        if logins.is_empty() {
            logins.push(Login::unknown());
        }
        for login in logins {
            if !all.contains(&login) {
                all.push(login);
            }
        }
    }
    Ok(all)
}

async fn can_write(http: &Http, repo: &str, login: &str) -> Result<bool, HostError> {
    Ok(matches!(permission(http, repo, login).await?.as_deref(), Some("admin" | "maintain" | "write")))
}

/// Permission of a person in a repository, in the host's word; absent if the host knows none.
async fn permission(http: &Http, repo: &str, login: &str) -> Result<Option<String>, HostError> {
    match http.get(&format!("{repo}/collaborators/{}/permission", segment(login))).await {
        Ok(answer) => Ok(answer.body["permission"].as_str().map(str::to_owned)),
        Err(HostError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if a text can be a login: dots alone would change the path.
fn is_login(login: &str) -> bool {
    !login.chars().all(|c| c == '.')
}

/// Returns true if a person may write to a repository.
pub(super) async fn is_writer(http: &Http, repo: &RepoId, login: &str) -> Result<bool, HostError> {
    Ok(is_login(login) && can_write(http, &repo_path(repo)?, login).await?)
}

/// Returns true if a person administers a repository.
pub(super) async fn is_admin(http: &Http, repo: &RepoId, login: &str) -> Result<bool, HostError> {
    if !is_login(login) {
        return Ok(false);
    }
    Ok(permission(http, &repo_path(repo)?, login).await?.as_deref() == Some("admin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_verdict_of_each_person_counts() {
        let review = |user: &str, state: &str, commit: &str| json!({"user": {"login": user}, "state": state, "commit_id": commit.repeat(40)});
        let all = [
            review("ann", "CHANGES_REQUESTED", "1"),
            review("bob", "APPROVED", "1"),
            review("Ann", "APPROVED", "2"),
            review("bob", "COMMENTED", "2"),
            review("cid", "APPROVED", "1"),
            review("cid", "DISMISSED", "1"),
            json!({"user": null, "state": "APPROVED"}),
            json!("odd"),
        ];
        let got: Vec<_> = verdicts(&all).into_iter().map(|r| (r.user, r.verdict, r.commit)).collect();
        assert_eq!(
            got,
            [
                ("Ann".into(), ReviewVerdict::Approved, Some("2".repeat(40).into())),
                ("bob".into(), ReviewVerdict::Approved, Some("1".repeat(40).into()))
            ]
        );
    }
}
