//! Merges. The host takes no expected head: it is read and compared before, and what was merged is looked at afterwards.

use super::commits::ToldCommit;
use super::mergeability::{obstacle, obstacles};
use super::{BitbucketCloud, answers};
use crate::vcs::http::odd;
use crate::vcs::{HostError, Merging, SourceBranch};
use backon::BackoffBuilder as _;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullRequest;

/// Most requests while the host merges, which may go on after its answer.
const POLLS: usize = 12;
/// Fields of a pull request besides the usual ones (developer.atlassian.com/cloud/bitbucket/rest/intro, "Partial responses").
const FIELDS: &str = "%2Bdestination.branch.merge_strategies,%2Bdestination.branch.default_merge_strategy";
/// Ways to merge that have a name on all hosts, with the host's names. Its own names are accepted as well.
pub(super) const METHODS: [(&str, &str); 5] = [
    ("merge", "merge_commit"),
    ("rebase", "rebase_fast_forward"),
    ("rebase-merge", "rebase_merge"),
    ("squash", "squash"),
    ("fast-forward-only", "fast_forward"),
];

/// Merges a pull request if its head is the known one.
pub(super) async fn merge(
    host: &BitbucketCloud,
    pull: &PullRequest,
    method: Option<&str>,
    source: SourceBranch,
) -> Result<Merging, HostError> {
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let rejected = |message: String| HostError::Rejected { what: format!("POST {path}"), status: 405, message };
    let told = with_strategies(host, pull).await?;
    if told["state"] == "MERGED" {
        return merged(host, pull, &told).await;
    }
    if let Some(obstacle) = obstacle(pull, &told)? {
        return Err(rejected(obstacle.to_owned()));
    }
    if host.head_commit(&pull.id, &told).await? != pull.head.commit {
        return Err(rejected("its head has moved on".to_owned()));
    }
    if told["queued"] == true {
        return Ok(Merging::Queued);
    }
    let strategy = chosen(&told["destination"]["branch"], method).map_err(rejected)?;
    // Without a word about the branch, that of the pull request's creation counts (github.com/khipu/khbb).
    let closes = source == SourceBranch::Delete && !pull.fork;
    let mut body = json!({ "type": "pullrequest_merge_parameters", "close_source_branch": closes });
    if let Some(strategy) = strategy {
        body["merge_strategy"] = json!(strategy);
    }
    match host.http.send(Method::POST, &path, Some(body)).await {
        // With 202 the body is empty, or an empty text in JSON (github.com/khipu/khbb, "Merge, async").
        Ok(answer) if !answer.body.is_object() => follow(host, pull, answer.location.as_deref()).await,
        Ok(answer) => ended(host, pull, &answer.body).await,
        Err(error) => refused(host, pull, not_yet(error)).await,
    }
}

/// Returns the JSON of a pull request with the ways to merge that its base branch allows, which the host tells on request only.
async fn with_strategies(host: &BitbucketCloud, pull: &PullRequest) -> Result<Value, HostError> {
    let path = format!("{}?fields={FIELDS}", host.pull_path(&pull.id)?);
    let body = host.http.get(&path).await?.body;
    host.check_pull(&pull.id, &format!("GET {path}"), &body)?;
    Ok(body)
}

/// Follows a merge that takes longer: the answer names the address of its task, which is one of this pull request.
async fn follow(host: &BitbucketCloud, pull: &PullRequest, location: Option<&str>) -> Result<Merging, HostError> {
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let tasks = format!("{path}/task-status/").to_ascii_lowercase();
    let task = location.and_then(|address| host.http.path_below(address));
    let task = task.filter(|task| task.to_ascii_lowercase().starts_with(&tasks));
    let task = task.ok_or_else(|| odd(&path, "no address of a task of this merge"))?;
    for wait in host.http.waits(POLLS).build() {
        tokio::time::sleep(wait).await;
        match host.http.get(task).await {
            Ok(answer) if answer.body["task_status"] == "SUCCESS" => {
                return ended(host, pull, &answer.body["merge_result"]).await;
            }
            Ok(answer) if answer.body["task_status"] == "PENDING" => {}
            Ok(answer) => {
                // An error may come with 200.
                let message = answer.body["error"]["message"].as_str().unwrap_or("the merge failed");
                let message = answers::quoted(message);
                return Err(HostError::Rejected { what: format!("GET {task}"), status: 405, message });
            }
            Err(error) => return refused(host, pull, not_yet(error)).await,
        }
    }
    Err(HostError::Unavailable { what: format!("merge of {}", pull.id), message: "it has not ended yet".to_owned() })
}

/// Reads the pull request that a merge has left.
async fn ended(host: &BitbucketCloud, pull: &PullRequest, told: &Value) -> Result<Merging, HostError> {
    host.check_pull(&pull.id, &format!("merge of {}", pull.id), told)?;
    match told["state"].as_str() {
        Some("MERGED") => merged(host, pull, told).await,
        Some("OPEN") if told["queued"] == true => Ok(Merging::Queued),
        _ => Err(HostError::Unavailable {
            what: format!("merge of {}", pull.id),
            message: "the host has answered, and not merged".to_owned(),
        }),
    }
}

/// Reads a pull request that is merged: by this attempt, by an earlier one whose answer was lost, or by somebody else. Another head than
/// the known one is an error, as it was never applied.
async fn merged(host: &BitbucketCloud, pull: &PullRequest, told: &Value) -> Result<Merging, HostError> {
    let made = match answers::start(&told["merge_commit"]) {
        Some(start) => host.merge_commit(&pull.id.repo, start).await,
        None => None,
    };
    if !is_of_head(host, pull, told, made.as_ref()).await? {
        let message = format!(
            "it was merged with another head than {}, which somebody pushed at the same time; what that changes is not applied",
            pull.head.commit.short()
        );
        return Err(HostError::Rejected { what: format!("merge of {}", pull.id), status: 409, message });
    }
    Ok(Merging::Merged(made.map(|commit| commit.id)))
}

/// Returns true if the known head was merged: it is the merge commit or a parent of it, or the head that the pull request has now. Where
/// that is gone, as with a fork that was deleted, its first digits count, if they are told.
async fn is_of_head(
    host: &BitbucketCloud,
    pull: &PullRequest,
    told: &Value,
    made: Option<&ToldCommit>,
) -> Result<bool, HostError> {
    let head = &pull.head.commit;
    if answers::start(&told["source"]["commit"]).is_some_and(|start| !head.as_str().starts_with(start)) {
        return Ok(false);
    }
    if made.is_some_and(|made| made.id == *head || made.parents.contains(head)) {
        return Ok(true);
    }
    match host.head_commit(&pull.id, told).await {
        Ok(now) => Ok(now == *head),
        Err(HostError::UnknownCommit { what, message }) => {
            tracing::warn!(pull = %pull.id, "the merged head cannot be compared: {what}: {message}");
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Returns the refusal of a merge that may succeed later: a branch changed at the same time (409), or it took too long (555).
fn not_yet(error: HostError) -> HostError {
    match error {
        HostError::Rejected { what, status: 409, message } => {
            let message = format!("a branch changed at the same time: {message}");
            HostError::Unavailable { what, message }
        }
        error => error,
    }
}

/// Finds out why a merge failed. It may have been done all the same.
async fn refused(host: &BitbucketCloud, pull: &PullRequest, error: HostError) -> Result<Merging, HostError> {
    if matches!(error, HostError::Denied { .. } | HostError::RateLimited { .. } | HostError::Moved { .. }) {
        return Err(error);
    }
    let Ok(told) = host.pull(&pull.id).await else { return Err(error) };
    if told["state"] == "MERGED" {
        return merged(host, pull, &told).await;
    }
    let what = format!("merge of {}", pull.id);
    if let Ok(Some(obstacle)) = obstacle(pull, &told) {
        return Err(HostError::Rejected { what, status: 405, message: obstacle.to_owned() });
    }
    if error.is_transient() {
        return Err(error);
    }
    match obstacles(host, pull, &told).await {
        Ok(found) if !found.is_empty() => {
            // What cannot be judged is among them, so the host's own words stay.
            let message = format!("{}; {error}", found.join("; "));
            Err(HostError::Rejected { what, status: 405, message })
        }
        Ok(_) | Err(_) => Err(error),
    }
}

/// Returns the requested way to merge, which the base branch must allow; without a request none, so that the branch's own is used.
fn chosen(branch: &Value, asked: Option<&str>) -> Result<Option<String>, String> {
    let offered = branch["default_merge_strategy"].as_str().map(str::to_owned);
    let Some(asked) = asked.filter(|name| !name.is_empty()) else { return Ok(offered) };
    let name = METHODS.iter().find(|(ours, _)| *ours == asked).map_or(asked, |(_, theirs)| theirs);
    let allowed: Vec<&str> =
        branch["merge_strategies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Where the host names none, it decides itself.
    let is_known = METHODS.iter().any(|(_, theirs)| *theirs == name) || name == "squash_fast_forward";
    match allowed.contains(&name) || allowed.is_empty() && is_known {
        true => Ok(Some(name.to_owned())),
        false => {
            let allowed: Vec<String> = allowed.into_iter().map(answers::quoted).collect();
            Err(format!("merge method `{asked}` is not allowed here; allowed: {}", allowed.join(", ")))
        }
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn the_base_branch_decides_how_to_merge() {
        let both = json!({"default_merge_strategy": "squash", "merge_strategies": ["merge_commit", "squash"]});
        assert_eq!(chosen(&both, None), Ok(Some("squash".to_owned())));
        assert_eq!(chosen(&both, Some("")), Ok(Some("squash".to_owned())));
        assert_eq!(chosen(&both, Some("merge")), Ok(Some("merge_commit".to_owned())));
        assert_eq!(chosen(&both, Some("merge_commit")), Ok(Some("merge_commit".to_owned())));
        assert!(chosen(&both, Some("rebase")).unwrap_err().contains("allowed: merge_commit, squash"));
        let untold = json!({"name": "main"});
        assert_eq!(chosen(&untold, None), Ok(None));
        assert_eq!(chosen(&untold, Some("fast-forward-only")), Ok(Some("fast_forward".to_owned())));
        assert!(chosen(&untold, Some("octopus")).is_err());
    }
}
