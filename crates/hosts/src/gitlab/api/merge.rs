//! Merges, as the project's settings say: its method and whether commits are squashed are not the request's to choose.

use super::mergeability::{mergeability, settled};
use super::{Gitlab, answers};
use crate::vcs::{HostError, Merging, SourceBranch};
use backon::BackoffBuilder as _;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullRequest;

/// Ways to merge that a request may ask for: as the project's settings say, and the same with squashed commits.
pub(super) const METHODS: [&str; 2] = ["merge", SQUASH];
const SQUASH: &str = "squash";
/// Most requests while the host merges, which may go on after its answer.
const POLLS: usize = 12;

/// Merges a merge request if its head is the known one, adds it to the merge train where there is one, or has the host merge it when its
/// pipeline succeeds.
pub(super) async fn merge(
    host: &Gitlab,
    pull: &PullRequest,
    method: Option<&str>,
    source: SourceBranch,
) -> Result<Merging, HostError> {
    let project = host.project(&pull.id.repo).await?;
    // The host refuses a merge until it has checked the mergeability.
    let told = settled(host, pull).await?;
    let is_running = told["detailed_merge_status"] == "ci_still_running";
    if project["merge_trains_enabled"] == true {
        return join_train(host, pull, is_running).await;
    }
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let mut body = json!({ "sha": pull.head.commit });
    if method == Some(SQUASH) {
        body["squash"] = json!(true);
    }
    if source == SourceBranch::Delete && !pull.fork {
        body["should_remove_source_branch"] = json!(true);
    }
    if is_running {
        // The second is the name before 17.11.
        body["auto_merge"] = json!(true);
        body["merge_when_pipeline_succeeds"] = json!(true);
    }
    match host.change(Method::PUT, &path, Some(body)).await {
        Ok(told) => merged(host, pull, told).await,
        // docs.gitlab.com/api/merge_requests, "Merge a merge request": the head is another one.
        Err(HostError::Rejected { what, status: 409, .. }) => {
            Err(HostError::Rejected { what, status: 409, message: "its head has moved on".to_owned() })
        }
        Err(HostError::Rejected { what, status: status @ (405 | 406 | 422), message }) => {
            let judged = mergeability(host, pull).await?;
            let message = if judged.mergeable { message } else { judged.detail };
            Err(HostError::Rejected { what, status, message })
        }
        Err(error) => Err(error),
    }
}

/// Waits until the host has merged. It reports `locked` meanwhile, and `opened` if it merges when the pipeline succeeds.
async fn merged(host: &Gitlab, pull: &PullRequest, mut told: Value) -> Result<Merging, HostError> {
    let mut waits = host.http.waits(POLLS).build();
    loop {
        match told["state"].as_str() {
            Some("merged") => return Ok(Merging::Merged(answers::merged_commit(&told))),
            Some("opened") if told["merge_when_pipeline_succeeds"] == true => return Ok(Merging::Queued),
            Some("closed") => {
                let message = "it was closed meanwhile".to_owned();
                return Err(HostError::Rejected { what: format!("merge of {}", pull.id), status: 405, message });
            }
            _ => {}
        }
        let Some(wait) = waits.next() else { break };
        tokio::time::sleep(wait).await;
        told = host.merge_request(&pull.id).await?;
    }
    let message = "the merge has not ended yet".to_owned();
    Err(HostError::Unavailable { what: format!("merge of {}", pull.id), message })
}

/// Adds a merge request to the merge train of its target branch (docs.gitlab.com/api/merge_trains), at once or when its pipeline succeeds.
async fn join_train(host: &Gitlab, pull: &PullRequest, is_running: bool) -> Result<Merging, HostError> {
    let project = host.address.project_path(&pull.id.repo)?;
    let path = format!("{project}/merge_trains/merge_requests/{}", pull.id.number);
    let body = json!({ "sha": pull.head.commit, "auto_merge": is_running, "when_pipeline_succeeds": is_running });
    match host.change(Method::POST, &path, Some(body)).await {
        Ok(_) => Ok(Merging::Queued),
        // An earlier attempt may have succeeded, and its answer been lost. The host words the refusal in various ways.
        Err(error @ (HostError::Rejected { .. } | HostError::Denied { .. })) => {
            match is_queued(host, pull, &path).await {
                Ok(true) => Ok(Merging::Queued),
                Err(failed) if failed.is_transient() => Err(failed),
                Ok(false) | Err(_) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Returns true if a merge request is on the merge train with the known head (docs.gitlab.com/api/merge_trains, "Get the status of a merge
/// request on a merge train"). `path` is that of its place on the train, which does not tell the head.
async fn is_queued(host: &Gitlab, pull: &PullRequest, path: &str) -> Result<bool, HostError> {
    let car = host.http.get(path).await?.body;
    if !matches!(car["status"].as_str(), Some("idle" | "fresh" | "stale" | "merging")) {
        return Ok(false);
    }
    let told = host.merge_request(&pull.id).await?;
    Ok(answers::sha(&told["sha"]).as_ref() == Some(&pull.head.commit))
}
