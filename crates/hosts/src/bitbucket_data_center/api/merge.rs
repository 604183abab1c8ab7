//! Merges. A request names the version of the pull request, which a push does not change: so the head is compared before, and what was
//! merged is looked at afterwards (`POST .../pull-requests/{pullRequestId}/merge`).

use super::mergeability::{obstacle, obstacles};
use super::{API, BitbucketDataCenter, answers};
use crate::bitbucket_data_center::BitbucketDataCenterAddress;
use crate::vcs::http::{Answer, odd};
use crate::vcs::{HostError, Merging};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::{PullRequest, RepoId};

/// Most tries of a merge, each with the version that the pull request has then.
const TRIES: usize = 3;
/// Ways to merge that have a name on all hosts, with the host's names. Its own names are accepted as well
/// (confluence.atlassian.com/bitbucketserver, "Pull request merge strategies").
pub(super) const METHODS: [(&str, &str); 5] = [
    ("merge", "no-ff"),
    ("rebase", "rebase-ff-only"),
    ("rebase-merge", "rebase-no-ff"),
    ("squash", "squash"),
    ("fast-forward-only", "ff-only"),
];

/// Merges a pull request if its head is the known one, or has the host merge it when builds in progress have succeeded.
pub(super) async fn merge(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    method: Option<&str>,
) -> Result<Merging, HostError> {
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let rejected = |message: String| HostError::Rejected { what: format!("POST {path}"), status: 405, message };
    let strategy = match method.filter(|name| !name.is_empty()) {
        Some(name) => Some(chosen(&host.pull_settings(&pull.id.repo).await?, name).map_err(rejected)?),
        None => None,
    };
    let mut before: Option<(HostError, u64)> = None;
    for _ in 0..TRIES {
        let told = host.pull(&pull.id).await?;
        if told["state"] == "MERGED" {
            return merged(pull, &told);
        }
        if let Some(obstacle) = obstacle(pull, &told) {
            return Err(rejected(obstacle.to_owned()));
        }
        let version = version(pull, &told)?;
        if let Some((error, _)) = before.take_if(|(_, refused)| *refused == version) {
            return refused(host, pull, &told, error, strategy.as_deref()).await;
        }
        match attempt(host, pull, version, strategy.as_deref(), false).await {
            Ok(answer) => return ended(host, pull, &answer.body),
            // Another version, or a refusal for good; or it may have been done all the same.
            Err(error @ (HostError::Rejected { .. } | HostError::Unavailable { .. } | HostError::NotFound { .. })) => {
                before = Some((error, version));
            }
            Err(error) => return Err(error),
        }
    }
    let message = "it is changed by others all the time".to_owned();
    Err(HostError::Unavailable { what: path, message })
}

fn version(pull: &PullRequest, told: &Value) -> Result<u64, HostError> {
    told["version"].as_u64().ok_or_else(|| odd(&format!("pull request {}", pull.id), "no version"))
}

/// Asks for the merge, at once or when all checks pass.
async fn attempt(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    version: u64,
    strategy: Option<&str>,
    waits: bool,
) -> Result<Answer, HostError> {
    let mut body = json!({ "version": version });
    if let Some(strategy) = strategy {
        body["strategyId"] = json!(strategy);
    }
    if waits {
        body["autoMerge"] = json!(true);
    }
    let path = format!("{}/merge?version={version}", host.pull_path(&pull.id)?);
    host.http.send(Method::POST, &path, Some(body)).await
}

/// Reads the pull request that a merge has left. One that is open is merged by the host later.
fn ended(host: &BitbucketDataCenter, pull: &PullRequest, told: &Value) -> Result<Merging, HostError> {
    host.check_pull(&pull.id, &format!("merge of {}", pull.id), told)?;
    match told["state"].as_str() {
        Some("MERGED") => merged(pull, told),
        Some("OPEN") => Ok(Merging::Queued),
        _ => Err(HostError::Unavailable {
            what: format!("merge of {}", pull.id),
            message: "the host has answered, and not merged".to_owned(),
        }),
    }
}

/// Reads a pull request that is merged: by this attempt, by an earlier one whose answer was lost, or by somebody else. Another head or
/// base branch than the known one is an error, as it was never applied.
fn merged(pull: &PullRequest, told: &Value) -> Result<Merging, HostError> {
    let message = if answers::head(told).as_ref() != Some(&pull.head.commit) {
        format!(
            "it was merged with another head than {}, which somebody pushed at the same time; what that changes is not applied",
            pull.head.commit.short()
        )
    } else if answers::branch(&told["toRef"]).as_ref() != Some(&pull.base.branch) {
        format!(
            "it was merged into another branch than `{}`, which somebody chose at the same time",
            answers::quoted(&pull.base.branch)
        )
    } else {
        return Ok(Merging::Merged(answers::merge_commit(told)));
    };
    Err(HostError::Rejected { what: format!("merge of {}", pull.id), status: 409, message })
}

/// Finds out why a merge failed at the present version. If it waits for builds in progress alone, the host is to merge it then.
async fn refused(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    told: &Value,
    error: HostError,
    strategy: Option<&str>,
) -> Result<Merging, HostError> {
    let HostError::Rejected { status: 409, .. } = error else { return Err(error) };
    let found = match obstacles(host, pull, told).await {
        Ok(found) => found,
        Err(failed) if failed.is_transient() => return Err(failed),
        Err(_) => return Err(error),
    };
    let what = format!("merge of {}", pull.id);
    if found.is_undecided {
        return Err(HostError::Unavailable { what, message: found.list.join("; ") });
    }
    if found.waits_for_builds {
        return match wait(host, pull, told, strategy).await {
            Ok(merging) => Ok(merging),
            Err(failed) if failed.is_transient() => Err(failed),
            // Merges do not wait there. Our own builds end soon; those of others take their time.
            Err(_) if found.list.is_empty() => {
                Err(HostError::Unavailable { what, message: "our own build statuses are in progress there".to_owned() })
            }
            Err(_) => Err(HostError::Rejected { what, status: 405, message: found.list.join("; ") }),
        };
    }
    match (found.list.is_empty(), found.is_refused) {
        // The base branch may have got another commit at the same time. A refusal for good, as of a fast-forward that is none, stays.
        (true, false) => {
            let answer = attempt(host, pull, version(pull, told)?, strategy, false).await;
            ended(host, pull, &answer?.body)
        }
        (true, true) => Err(error),
        (false, _) => Err(HostError::Rejected { what, status: 405, message: found.list.join("; ") }),
    }
}

/// Has the host merge the known head into the known branch when all checks pass. A push cancels it (`RestAutoMergeProcessingResult`:
/// `STALE`).
async fn wait(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    told: &Value,
    strategy: Option<&str>,
) -> Result<Merging, HostError> {
    let asked = match attempt(host, pull, version(pull, told)?, strategy, true).await {
        Ok(answer) => ended(host, pull, &answer.body)?,
        // An earlier request may wait already.
        Err(HostError::Rejected { status: 409, .. }) => Merging::Queued,
        Err(error) => return Err(error),
    };
    if asked != Merging::Queued {
        return Ok(asked);
    }
    let path = format!("{}/auto-merge", host.pull_path(&pull.id)?);
    let request = host.http.get(&path).await?.body;
    let base = format!("{}{}", answers::HEADS, pull.base.branch);
    if request["fromHash"] == pull.head.commit.as_str() && request["toRefId"] == base.as_str() {
        return Ok(Merging::Queued);
    }
    host.http.send(Method::DELETE, &path, None).await?;
    let message = "its head has moved on, or its base branch has changed".to_owned();
    Err(HostError::Rejected { what: format!("merge of {}", pull.id), status: 405, message })
}

/// Returns the requested way to merge, which the repository must allow.
fn chosen(settings: &Value, asked: &str) -> Result<String, String> {
    let name = METHODS.iter().find(|(ours, _)| *ours == asked).map_or(asked, |(_, theirs)| theirs);
    let offered = settings["mergeConfig"]["strategies"].as_array();
    let allowed: Vec<&str> = offered
        .into_iter()
        .flatten()
        .filter(|strategy| strategy["enabled"] != false)
        .filter_map(|strategy| strategy["id"].as_str())
        .collect();
    // Where the host names none, it decides itself.
    match allowed.contains(&name) || allowed.is_empty() {
        true => Ok(name.to_owned()),
        false => {
            let allowed: Vec<String> = allowed.into_iter().map(answers::quoted).collect();
            Err(format!(
                "merge method `{}` is not allowed here; allowed: {}",
                answers::quoted(asked),
                allowed.join(", ")
            ))
        }
    }
}

impl BitbucketDataCenter {
    /// Returns the settings of pull requests: ways to merge, and merge checks (`GET .../settings/pull-requests`); null if our token may not
    /// read them.
    pub(super) async fn pull_settings(&self, repo: &RepoId) -> Result<Value, HostError> {
        match self.http.get(&format!("{}/settings/pull-requests", self.address.repo_path(repo)?)).await {
            Err(HostError::Denied { .. } | HostError::NotFound { .. }) => Ok(Value::Null),
            answered => answered.map(|answer| answer.body),
        }
    }
}

/// Deletes the source branch of a merged pull request, unless it may be the default branch, or has moved since
/// (`DELETE /rest/branch-utils/latest/projects/{projectKey}/repos/{repositorySlug}/branches`).
pub(super) async fn delete_source_branch(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<(), HostError> {
    if pull.fork || pull.head.branch == pull.base.branch {
        return Ok(());
    }
    let repo = BitbucketDataCenterAddress::path(&pull.id.repo)?;
    let name = format!("{}{}", answers::HEADS, pull.head.branch);
    match host.http.get(&format!("{API}{repo}/default-branch")).await {
        Ok(answer) if answer.body["id"].as_str().is_some_and(|default| default != name) => {}
        // It is the default branch, or the host does not tell which one is.
        Ok(_) | Err(HostError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    }
    let body = json!({ "name": name, "dryRun": false, "endPoint": pull.head.commit });
    match host.http.send(Method::DELETE, &format!("/rest/branch-utils/latest{repo}/branches"), Some(body)).await {
        // It points to another commit.
        Ok(_) | Err(HostError::Rejected { status: 400, .. } | HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn the_repository_decides_how_to_merge() {
        let strategy = |id: &str, enabled: bool| json!({"id": id, "enabled": enabled});
        let settings = json!({"mergeConfig": {"strategies": [strategy("no-ff", true), strategy("squash", true), strategy("ff", false)]}});
        assert_eq!(chosen(&settings, "merge"), Ok("no-ff".to_owned()));
        assert_eq!(chosen(&settings, "squash"), Ok("squash".to_owned()));
        assert_eq!(chosen(&settings, "no-ff"), Ok("no-ff".to_owned()));
        let refused = chosen(&settings, "ff").unwrap_err();
        assert_eq!(refused, "merge method `ff` is not allowed here; allowed: no-ff, squash");
        assert!(chosen(&settings, "rebase").is_err());
        assert_eq!(chosen(&Value::Null, "rebase"), Ok("rebase-ff-only".to_owned()));
    }
}
