//! Votes as reviews. A vote names no commit: it counts for the head at the time of the vote, which the host's own threads record. A policy
//! may reset votes on a push; then none are left to read.

use super::statuses::{Iteration, iterations};
use super::{AzureDevOps, VERSION, list, pull_path, shapes, threads};
use crate::vcs::{HostError, Review, ReviewVerdict};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{CommitSha, PullRequest};

/// Approved, and approved with suggestions.
const APPROVING: [i64; 2] = [10, 5];
/// Waiting for the author, and rejected.
const REJECTING: [i64; 2] = [-5, -10];

/// Returns the vote of each person. The vote of a group is that of a member, who is listed too.
pub(super) async fn latest(host: &AzureDevOps, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
    let body = host.pull(&pull.id).await?;
    let voters: Vec<&Value> = body["reviewers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|voter| voter["isContainer"] != true && verdict(&voter["vote"]).is_some())
        .collect();
    if voters.is_empty() {
        return Ok(Vec::new());
    }
    let (threads, _) = threads::all(host, &pull.id).await?;
    let pushes = iterations(host, &pull.id).await?;
    Ok(voters.into_iter().filter_map(|voter| review(voter, &threads, &pushes)).collect())
}

/// Resets the votes that approve, in one request:
/// learn.microsoft.com/rest/api/azure/devops/git/pull-request-reviewers/update-pull-request-reviewers.
/// The vote of a group follows those of its members.
pub(super) async fn reset_approvals(host: &AzureDevOps, pull: &PullRequest) -> Result<(), HostError> {
    let body = host.pull(&pull.id).await?;
    let voters = body["reviewers"].as_array().into_iter().flatten();
    let approving =
        voters.filter(|voter| voter["isContainer"] != true && verdict(&voter["vote"]) == Some(ReviewVerdict::Approved));
    let reset: Vec<Value> = approving.map(|voter| json!({ "id": voter["id"], "vote": 0 })).collect();
    if reset.is_empty() {
        return Ok(());
    }
    let path = format!("{}/reviewers?{VERSION}", pull_path(&pull.id)?);
    host.http.send(Method::PATCH, &path, Some(Value::Array(reset))).await.map(drop)
}

fn verdict(vote: &Value) -> Option<ReviewVerdict> {
    let vote = vote.as_i64()?;
    match () {
        () if APPROVING.contains(&vote) => Some(ReviewVerdict::Approved),
        () if REJECTING.contains(&vote) => Some(ReviewVerdict::ChangesRequested),
        () => None,
    }
}

fn review(voter: &Value, threads: &Value, pushes: &[Iteration]) -> Option<Review> {
    let cast = list(threads)
        .filter(|thread| is_vote_of(voter, thread))
        .filter_map(|t| shapes::moment(&t["publishedDate"]))
        .max();
    Some(Review {
        user: shapes::login(voter),
        // People who may contribute to pull requests, by default also readers:
        // learn.microsoft.com/azure/devops/organizations/security/default-git-permissions. The host's API evaluates permissions of the
        // caller only (security/permissions/has-permissions-batch).
        can_write: true,
        verdict: verdict(&voter["vote"])?,
        commit: commit_at(cast, pushes),
        at: cast,
    })
}

/// Returns true if a thread records the present vote of this person. Everybody who may comment can create a thread with such properties and
/// the type `system`, but its author is always the sender. The host records a vote in the voter's name.
fn is_vote_of(voter: &Value, thread: &Value) -> bool {
    let property = |name: &str| thread["properties"][name]["$value"].as_str().unwrap_or_default().to_owned();
    let by = property("CodeReviewVotedByIdentity");
    property("CodeReviewThreadType") == "VoteUpdate"
        && property("CodeReviewVoteResult").parse().ok() == voter["vote"].as_i64()
        && voter["id"].is_string()
        && thread["comments"][0]["commentType"] == "system"
        && thread["comments"][0]["author"]["id"] == voter["id"]
        && thread["identities"][by.as_str()]["id"] == voter["id"]
}

/// Returns the head at this moment: the latest push before it. If the moment is unknown, it is the first push, the earliest possible.
fn commit_at(moment: Option<Timestamp>, pushes: &[Iteration]) -> Option<CommitSha> {
    let before = |push: &&Iteration| push.created.zip(moment).is_some_and(|(pushed, cast)| pushed <= cast);
    let found = pushes.iter().rfind(before).or(pushes.first());
    found.map(|push| push.commit.clone())
}
