//! Approvals and requested changes. An approval names no commit: it counts for the head at its time. A project may remove approvals on
//! every push ("Remove all approvals when commits are added to the source branch"); then none of an earlier head is left.

use super::pushes::{MergeRequestVersion, versions};
use super::{Gitlab, answers, people};
use crate::vcs::http::odd;
use crate::vcs::{HostError, Review, ReviewVerdict};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::{CommitSha, PullId, PullRequest};

/// Most people whose reviews are read. A merge request with more is refused: a part of its reviews is no basis for a decision.
const MOST_REVIEWS: usize = 300;
/// Most concurrent requests for access levels.
const MAX_CONCURRENT: usize = 4;
/// Reviewers on one page: the host's maximum.
const PER_PAGE: u32 = 100;
/// Most pages of reviewers of one merge request.
const MAX_PAGES: u32 = 10;

/// Returns the latest verdict of each person. The project's rules are another question ([`missing`]): many projects have none.
pub(super) async fn latest(host: &Gitlab, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let mut verdicts = demands(host, &pull.id).await?;
    let approvals = approvals(host, &pull.id).await?;
    let pushes = if approvals.is_empty() { Vec::new() } else { versions(host, &pull.id).await? };
    for (id, mut review) in approvals {
        if !verdicts.iter().any(|(known, _)| *known == id) {
            review.commit = commit_at(review.at, &pushes);
            verdicts.push((id, review));
        }
    }
    if verdicts.len() > MOST_REVIEWS {
        let message = format!("it has more than {MOST_REVIEWS} reviews");
        return Err(HostError::Rejected { what: format!("reviews of {}", pull.id), status: 200, message });
    }
    let project = host.address.project_path(&pull.id.repo)?;
    futures::stream::iter(verdicts)
        .map(|(id, mut review)| {
            let project = &project;
            async move {
                review.can_write = people::access_level_of(host, project, id).await? >= people::DEVELOPER;
                Ok(review)
            }
        })
        .buffered(MAX_CONCURRENT)
        .try_collect()
        .await
}

/// Returns the approvals that the project's rules still require; absent if there are none, as without a license.
pub(super) async fn missing(host: &Gitlab, pull: &PullRequest) -> Result<Option<String>, HostError> {
    let path = format!("{}/approvals", host.pull_path(&pull.id)?);
    let left = host.http.get(&path).await?.body["approvals_left"].as_u64().unwrap_or_default();
    let approvals = if left == 1 { "approval" } else { "approvals" };
    Ok((left > 0).then(|| format!("GitLab requires {left} more {approvals}")))
}

/// Removes all approvals (docs.gitlab.com/api/merge_request_approvals, "Reset approvals of a merge request").
pub(super) async fn reset_approvals(host: &Gitlab, pull: &PullRequest) -> Result<(), HostError> {
    if approvals(host, &pull.id).await?.is_empty() {
        return Ok(());
    }
    let path = format!("{}/reset_approvals", host.pull_path(&pull.id)?);
    match host.change(Method::PUT, &path, None).await {
        Err(HostError::Denied { what, message }) => {
            let message = format!(
                "{message}: only the bot user of a project or group access token may reset approvals, so `--gitlab-token` has to be such a token"
            );
            return Err(HostError::Denied { what, message });
        }
        answered => answered?,
    };
    if approvals(host, &pull.id).await?.is_empty() {
        return Ok(());
    }
    let message = "an approval is left, or was given meanwhile".to_owned();
    Err(HostError::Rejected { what: format!("PUT {path}"), status: 200, message })
}

/// Returns the approvals, each with the id of its person and without a commit.
async fn approvals(host: &Gitlab, pull: &PullId) -> Result<Vec<(u64, Review)>, HostError> {
    let path = format!("{}/approvals", host.pull_path(pull)?);
    let body = host.http.get(&path).await?.body;
    let rows = body["approved_by"].as_array().ok_or_else(|| odd(&path, "no approved_by"))?;
    let read = |row: &Value| review(&row["user"], ReviewVerdict::Approved, answers::moment(&row["approved_at"]));
    Ok(rows.iter().filter_map(read).collect())
}

/// Returns the reviewers who requested changes, each with the id of the person (docs.gitlab.com/api/merge_requests, "Get single merge
/// request reviewers").
async fn demands(host: &Gitlab, pull: &PullId) -> Result<Vec<(u64, Review)>, HostError> {
    let path = format!("{}/reviewers", host.pull_path(pull)?);
    let demand = |row: Value| {
        let is_demand = row["state"] == "requested_changes";
        is_demand.then(|| review(&row["user"], ReviewVerdict::ChangesRequested, None)).flatten()
    };
    host.http.pages(&path, PER_PAGE, MAX_PAGES, demand).await
}

fn review(user: &Value, verdict: ReviewVerdict, at: Option<Timestamp>) -> Option<(u64, Review)> {
    let review = Review { user: answers::login(user), can_write: false, verdict, commit: None, at };
    Some((user["id"].as_u64()?, review)).filter(|(_, review)| !review.user.is_unknown())
}

/// Returns the head at this moment: that of the latest push before it. It is unknown if the moment is, as on versions before 18.4, unless
/// there was one push only.
fn commit_at(moment: Option<Timestamp>, pushes: &[MergeRequestVersion]) -> Option<CommitSha> {
    let before = |push: &&MergeRequestVersion| push.created.zip(moment).is_some_and(|(pushed, at)| pushed <= at);
    let only = || pushes.first().filter(|_| pushes.len() == 1);
    pushes.iter().rfind(before).or_else(only).map(|push| push.commit.clone())
}
