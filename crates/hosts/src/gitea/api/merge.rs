//! Merges. The host refuses one until it has checked for conflicts, and says `Please try again later` also of a conflict
//! (routers/api/v1/repo/pull.go, `MergePullRequest`): the reason is found out afterwards.

use super::mergeability::{may_be_unchecked, obstacle, obstacles, settled};
use super::setup::merge_styles;
use super::{Gitea, answers};
use crate::vcs::{HostError, Merging, SourceBranch};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullRequest;

/// Merges a pull request if its head is the known one.
pub(super) async fn merge(
    host: &Gitea,
    pull: &PullRequest,
    method: Option<&str>,
    source: SourceBranch,
) -> Result<Merging, HostError> {
    let repository = host.told_repository(&pull.id.repo).await?;
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let what = format!("POST {path}");
    let style = chosen(&repository, method).map_err(|message| HostError::Rejected { what, status: 405, message })?;
    let told = settled(host, pull).await?;
    if let Some(message) = obstacle(pull, &told).filter(|_| may_be_unchecked(pull, &told)) {
        return Err(HostError::Unavailable { what: format!("merge of {}", pull.id), message });
    }
    let mut body = json!({ "Do": style, "head_commit_id": pull.head.commit });
    if source == SourceBranch::Delete && !pull.fork {
        body["delete_branch_after_merge"] = json!(true);
    }
    match host.http.send(Method::POST, &path, Some(body)).await {
        Ok(_) => Ok(merged(&host.pull(&pull.id).await?)),
        // 404: it is closed.
        Err(
            error @ (HostError::Rejected { status: 405 | 409, .. }
            | HostError::Unavailable { .. }
            | HostError::NotFound { .. }),
        ) => refused(host, pull, known(pull, error)).await,
        Err(error) => Err(error),
    }
}

fn merged(told: &Value) -> Merging {
    Merging::Merged(answers::sha(&told["merge_commit_sha"]))
}

/// Returns the refusal of a merge in our words, where the host's have several meanings or none.
fn known(pull: &PullRequest, error: HostError) -> HostError {
    match error {
        HostError::Rejected { what, status: 405, message } if message.contains("try again later") => {
            HostError::Unavailable { what, message }
        }
        // The base branch got another commit at the same time.
        HostError::Rejected { what, status: 409, message } if message.contains("push out of date") => {
            HostError::Unavailable { what, message }
        }
        HostError::Rejected { what, status: 409, message } if message.contains("no reason given") => {
            let message = format!("it has conflicts with `{}`", pull.base.branch);
            HostError::Rejected { what, status: 409, message }
        }
        error => error,
    }
}

/// Finds out why a merge failed. It may have been done, by an earlier attempt whose answer was lost, or by somebody else.
async fn refused(host: &Gitea, pull: &PullRequest, error: HostError) -> Result<Merging, HostError> {
    let Ok(told) = settled(host, pull).await else { return Err(error) };
    if told["merged"] == true && answers::sha(&told["head"]["sha"]).as_ref() == Some(&pull.head.commit) {
        return Ok(merged(&told));
    }
    let found = match obstacles(host, pull, &told).await {
        Ok(found) if !found.is_empty() => found.join("; "),
        Ok(_) | Err(_) => return Err(error),
    };
    let what = format!("merge of {}", pull.id);
    Err(match may_be_unchecked(pull, &told) {
        true => HostError::Unavailable { what, message: found },
        false => HostError::Rejected { what, status: 405, message: found },
    })
}

/// Returns the requested way to merge, which the repository must allow, or without a request the one that it offers first.
fn chosen<'a>(repository: &'a Value, asked: Option<&'a str>) -> Result<&'a str, String> {
    let allowed = merge_styles(repository);
    let offered = repository["default_merge_style"].as_str().filter(|style| allowed.contains(style));
    match asked.filter(|name| !name.is_empty()) {
        None => offered.or(allowed.first().copied()).ok_or_else(|| "the repository allows no way to merge".to_owned()),
        Some(name) if allowed.contains(&name) => Ok(name),
        Some(name) => Err(format!("merge method `{name}` is not allowed here; allowed: {}", allowed.join(", "))),
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn the_repository_decides_how_to_merge() {
        let both = json!({"allow_rebase": true, "allow_squash_merge": true, "default_merge_style": "squash"});
        assert_eq!(chosen(&both, None), Ok("squash"));
        assert_eq!(chosen(&both, Some("")), Ok("squash"));
        assert_eq!(chosen(&both, Some("rebase")), Ok("rebase"));
        assert!(chosen(&both, Some("merge")).unwrap_err().contains("allowed: rebase, squash"));
        let odd = json!({"allow_rebase_explicit": true, "default_merge_style": "merge"});
        assert_eq!(chosen(&odd, None), Ok("rebase-merge"));
        assert!(chosen(&json!({}), None).is_err());
    }
}
