//! Mergeability, merging, the merge queue, and deletion of the source branch.

use super::{Github, bypass, graphql, moved, repo_path};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, Mergeability, Merging};
use backon::BackoffBuilder as _;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{CommitSha, PullRequest};

/// Most requests while GitHub still computes whether a pull request can be merged.
const POLLS: usize = 5;
/// Ways to merge, best first, with the repository's key that allows each.
pub(super) const METHODS: [(&str, &str); 3] =
    [("merge", "allow_merge_commit"), ("rebase", "allow_rebase_merge"), ("squash", "allow_squash_merge")];

/// Adds a pull request to the end of its base branch's queue (docs.github.com/graphql, `enqueuePullRequest`).
const ENQUEUE: &str = "mutation($pull: ID!, $head: GitObjectID) { \
    enqueuePullRequest(input: {pullRequestId: $pull, expectedHeadOid: $head}) { clientMutationId } }";

pub(super) async fn mergeability(github: &Github, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let now = settled(github, pull).await?;
    let judged = judged(&now);
    let Some(bypassed) = github.bypassed.as_ref().filter(|_| is_blocked(&now)) else { return Ok(judged) };
    let obstacles = bypass::obstacles(github, pull, bypassed).await?;
    Ok(match obstacles.is_empty() {
        true => Mergeability {
            mergeable: true,
            detail: "GitHub would merge it but for statuses that do not count".to_owned(),
        },
        false => {
            Mergeability { mergeable: false, detail: format!("blocked by branch protection: {}", obstacles.join("; ")) }
        }
    })
}

/// Returns true if branch protection is the only obstacle.
fn is_blocked(pull: &Value) -> bool {
    pull["state"] == "open"
        && pull["draft"] != true
        && pull["mergeable"] == true
        && pull["mergeable_state"] == "blocked"
}

/// Returns the pull request once GitHub has computed its mergeability, or as it is after some polls.
async fn settled(github: &Github, pull: &PullRequest) -> Result<Value, HostError> {
    let mut body = github.pull(&pull.id).await?;
    for wait in github.http.waits(POLLS).build() {
        let known = body["mergeable"].is_boolean() && body["mergeable_state"] != "unknown";
        if known || body["state"] != "open" {
            break;
        }
        tokio::time::sleep(wait).await;
        body = github.pull(&pull.id).await?;
    }
    Ok(body)
}

fn judged(pull: &Value) -> Mergeability {
    let branch = pull["base"]["ref"].as_str().unwrap_or("the base branch");
    let (mergeable, detail) = match pull["mergeable_state"].as_str() {
        _ if pull["state"] != "open" => (false, "the pull request is closed".to_owned()),
        Some("draft") => (false, "it is a draft".to_owned()),
        _ if pull["draft"] == true => (false, "it is a draft".to_owned()),
        Some("clean" | "unstable" | "has_hooks") => (true, "GitHub would merge it".to_owned()),
        Some("blocked") => (false, "blocked by branch protection: reviews or required checks are missing".to_owned()),
        Some("dirty") => (false, format!("it has conflicts with `{branch}`")),
        Some("behind") => (false, format!("it is behind `{branch}`, which has to be merged into it first")),
        Some("unknown") | None => (false, "GitHub has not found out yet; try again in a minute".to_owned()),
        Some(other) => (false, format!("GitHub says `{other}`")),
    };
    Mergeability { mergeable, detail }
}

/// Merges a pull request if its head is the known one, or enqueues it if its base branch has a merge queue.
pub(super) async fn merge(github: &Github, pull: &PullRequest, method: Option<&str>) -> Result<Merging, HostError> {
    let repo_path = repo_path(&pull.id.repo)?;
    let repo = github.http.get(&repo_path).await?.body;
    moved::is_asked_for(&pull.id.repo, &format!("GET {repo_path}"), &repo)?;
    let path = format!("{repo_path}/pulls/{}/merge", pull.id.number);
    let what = format!("PUT {path}");
    let method = chosen(&repo, method).map_err(|message| HostError::Rejected { what, status: 405, message })?;
    // GitHub refuses a merge until it has computed the mergeability.
    let now = settled(github, pull).await?;
    let body = json!({ "merge_method": method, "sha": pull.head.commit });
    match github.http.send(Method::PUT, &path, Some(body)).await {
        Ok(answer) => Ok(Merging::Merged(answer.body["sha"].as_str().and_then(|sha| CommitSha::parse(sha).ok()))),
        Err(HostError::Rejected { message, .. }) if wants_queue(&message) => enqueue(github, pull, &now).await,
        // The base branch got another commit at the same time.
        Err(HostError::Rejected { what, status: 405, message }) if message.contains("Base branch was modified") => {
            Err(HostError::Unavailable { what, message })
        }
        Err(error) => Err(error),
    }
}

/// Returns true for GitHub's message that a branch protection or a ruleset requires the queue: "Changes must be made through the merge
/// queue".
fn wants_queue(message: &str) -> bool {
    message.to_ascii_lowercase().contains("merge queue")
}

async fn enqueue(github: &Github, pull: &PullRequest, now: &Value) -> Result<Merging, HostError> {
    let Some(id) = now["node_id"].as_str() else { return Err(odd("the pull request", "no node_id")) };
    let variables = json!({ "pull": id, "head": pull.head.commit });
    let what = format!("enqueuePullRequest of {}", pull.id);
    match graphql::send(github, &pull.id.repo.owner, &what, ENQUEUE, variables).await {
        Ok(_) => Ok(Merging::Queued),
        // An earlier attempt succeeded, and its answer was lost.
        Err(HostError::Rejected { message, .. }) if message.to_ascii_lowercase().contains("already") => {
            Ok(Merging::Queued)
        }
        Err(error) => Err(error),
    }
}

/// Deletes the source branch if it is still at the merged head and is not the default branch.
pub(super) async fn delete_source_branch(github: &Github, pull: &PullRequest) -> Result<(), HostError> {
    let repo_path = repo_path(&pull.id.repo)?;
    let repo = github.http.get(&repo_path).await?.body;
    moved::is_asked_for(&pull.id.repo, &format!("GET {repo_path}"), &repo)?;
    let branch = &pull.head.branch;
    if pull.fork || *branch == pull.base.branch || repo["default_branch"].as_str().is_none_or(|name| name == branch) {
        return Ok(());
    }
    let name: Vec<String> = branch.split('/').map(segment).collect();
    let name = name.join("/");
    match github.http.get(&format!("{repo_path}/git/ref/heads/{name}")).await {
        Ok(answer) if answer.body["object"]["sha"] == pull.head.commit.as_str() => {}
        // Already deleted, by the repository's own setting, or pushed to in the meantime.
        Ok(_) | Err(HostError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    }
    match github.http.send(Method::DELETE, &format!("{repo_path}/git/refs/heads/{name}"), None).await {
        Ok(_) | Err(HostError::NotFound { .. } | HostError::Rejected { status: 422, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the requested method, which the repository must allow, or without a request the first allowed one. A method without a setting in
/// GitHub's answer is allowed.
fn chosen<'a>(repo: &Value, asked: Option<&'a str>) -> Result<&'a str, String> {
    let allowed: Vec<_> = METHODS.into_iter().filter(|(_, key)| repo[key] != false).map(|(name, _)| name).collect();
    match asked.filter(|name| !name.is_empty()) {
        None => allowed.first().copied().ok_or_else(|| "the repository allows no way to merge".to_owned()),
        Some(name) if allowed.contains(&name) => Ok(name),
        Some(name) => Err(format!("merge method `{name}` is not allowed here; allowed: {}", allowed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_states_are_judged_and_worded() {
        for (state, mergeable, words) in [
            ("clean", true, "would merge"),
            ("unstable", true, "would merge"),
            ("has_hooks", true, "would merge"),
            ("blocked", false, "branch protection"),
            ("dirty", false, "conflicts with `main`"),
            ("behind", false, "behind `main`"),
            ("draft", false, "draft"),
            ("unknown", false, "not found out"),
            ("brand_new", false, "`brand_new`"),
        ] {
            let got = judged(&json!({"state": "open", "mergeable_state": state, "base": {"ref": "main"}}));
            assert!(got.mergeable == mergeable && got.detail.contains(words), "{state}: {got:?}");
        }
        assert!(!judged(&json!({"state": "closed", "mergeable_state": "clean"})).mergeable);
        assert!(!judged(&json!("odd")).mergeable);
    }

    #[test]
    fn the_repository_decides_how_to_merge() {
        let no_merge = json!({"allow_merge_commit": false, "allow_rebase_merge": true, "allow_squash_merge": false});
        assert_eq!(chosen(&json!({}), None), Ok("merge"));
        assert_eq!(chosen(&no_merge, None), Ok("rebase"));
        assert_eq!(chosen(&json!({}), Some("squash")), Ok("squash"));
        assert!(chosen(&no_merge, Some("squash")).unwrap_err().contains("allowed: rebase"));
        assert!(chosen(&no_merge, Some("octopus")).is_err());
    }
}
