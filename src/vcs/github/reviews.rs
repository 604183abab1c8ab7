//! Reviews boiled down to the latest verdict of each person.

use super::{answers, repo_path};
use crate::domain::{CommitSha, Login, PullRequest, RepoId};
use crate::vcs::http::{Http, segment};
use crate::vcs::{HostError, Review, ReviewVerdict};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

/// Reviews asked for at once.
const PER_PAGE: u32 = 100;
/// Most pages of reviews; a pull request with more is refused rather than judged by a part of them.
const MAX_PAGES: u32 = 30;
/// Questions about permissions under way at once.
const AT_ONCE: usize = 4;

/// The latest verdict of each person; a comment alone changes none, a dismissal takes it back.
pub(super) async fn latest(http: &Http, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let repo = repo_path(&pull.id.repo)?;
    let path = format!("{repo}/pulls/{}", pull.id.number);
    let all = http.pages(&format!("{path}/reviews"), PER_PAGE, MAX_PAGES, Some).await?;
    if !all.iter().all(|review| answers::leads_to(&review["pull_request_url"], &path)) {
        return Err(HostError::Moved {
            what: format!("GET {path}/reviews"),
            to: "which its reviews are of".to_owned(),
        });
    }
    futures::stream::iter(verdicts(&all))
        .map(|mut review| {
            let repo = &repo;
            async move {
                review.can_write = can_write(http, repo, &review.user).await?;
                Ok(review)
            }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// In the order in which people first gave a verdict.
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
        let entry = verdict.map(|verdict| Review { user: user.clone(), can_write: false, verdict, commit });
        match latest.iter_mut().find(|(name, _)| name.is(&user)) {
            Some((_, slot)) => *slot = entry,
            None => latest.push((user, entry)),
        }
    }
    latest.into_iter().filter_map(|(_, review)| review).collect()
}

async fn can_write(http: &Http, repo: &str, user: &Login) -> Result<bool, HostError> {
    match http.get(&format!("{repo}/collaborators/{}/permission", segment(user.as_str()))).await {
        Ok(answer) => Ok(matches!(answer.body["permission"].as_str(), Some("admin" | "maintain" | "write"))),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether somebody is an active member of a team of an organization, or of a team below it. A token without `read:org` is told 404.
pub(super) async fn is_team_member(http: &Http, repo: &RepoId, team: &str, login: &str) -> Result<bool, HostError> {
    let (owner, slug) = team.split_once('/').unwrap_or((&repo.owner, team));
    if [owner, slug, login].iter().any(|name| name.chars().all(|c| c == '.')) {
        return Ok(false);
    }
    let path = format!("/orgs/{}/teams/{}/memberships/{}", segment(owner), segment(slug), segment(login));
    match http.get(&path).await {
        Ok(answer) => Ok(answer.body["state"] == "active"),
        Err(HostError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
