//! Mergeability: `detailed_merge_status`, which names the first obstacle only (docs.gitlab.com/api/merge_requests, "Merge status"). Our own
//! unfinished statuses and those of applies do not count: they announce what is about to be done. What they hide is requested besides.

use super::{Gitlab, answers, reviews};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, Mergeability, own_status};
use backon::BackoffBuilder as _;
use serde_json::Value;
use tidelock_core::domain::{CommitSha, PullRequest};

/// Most requests while the host checks whether a merge request can be merged: up to half a minute.
const POLLS: usize = 10;
/// Statuses on one page.
const PER_PAGE: u32 = 100;
/// Most pages of statuses of one pipeline.
const MAX_PAGES: u32 = 20;
/// Most statuses that are named.
const MAX_NAMED: usize = 5;

pub(super) async fn mergeability(host: &Gitlab, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let told = settled(host, pull).await?;
    let obstacles = obstacles(host, pull, &told).await?;
    Ok(match obstacles.is_empty() {
        true => Mergeability { mergeable: true, detail: "GitLab would merge it".to_owned() },
        false => Mergeability { mergeable: false, detail: obstacles.join("; ") },
    })
}

/// Returns the merge request once the host has checked whether it can be merged, or as it is after some polls. A GET begins the check.
pub(super) async fn settled(host: &Gitlab, pull: &PullRequest) -> Result<Value, HostError> {
    let mut told = host.merge_request(&pull.id).await?;
    for wait in host.http.waits(POLLS).build() {
        let is_open = matches!(told["state"].as_str(), Some("opened" | "locked"));
        if !is_open || !is_being_checked(&told) && told["state"] != "locked" {
            break;
        }
        tokio::time::sleep(wait).await;
        told = host.merge_request(&pull.id).await?;
    }
    Ok(told)
}

fn is_being_checked(told: &Value) -> bool {
    matches!(
        told["detailed_merge_status"].as_str(),
        None | Some("unchecked" | "checking" | "preparing" | "approvals_syncing")
    )
}

/// Returns true if the pipeline is what the host reports as the obstacle.
pub(super) fn waits_for_pipeline(told: &Value) -> bool {
    matches!(told["detailed_merge_status"].as_str(), Some("ci_must_pass" | "ci_still_running"))
}

/// Returns the obstacles to a merge besides our own statuses, for people; empty if it could be merged without them.
async fn obstacles(host: &Gitlab, pull: &PullRequest, told: &Value) -> Result<Vec<String>, HostError> {
    if let Some(obstacle) = obstacle(pull, told) {
        return Ok(vec![obstacle]);
    }
    if !waits_for_pipeline(told) {
        return Ok(Vec::new());
    }
    let mut found = of_pipeline(host, pull, told).await?;
    found.extend(reviews::missing(host, pull).await?);
    Ok(found)
}

/// Returns the obstacle that the merge request itself tells.
fn obstacle(pull: &PullRequest, told: &Value) -> Option<String> {
    let branch = &pull.base.branch;
    let of_status = match told["detailed_merge_status"].as_str() {
        _ if told["state"] == "locked" => "it is being merged",
        _ if told["state"] != "opened" => "the merge request is closed",
        _ if answers::sha(&told["sha"]).as_ref() != Some(&pull.head.commit) => "its head has moved on",
        _ if answers::is_draft(told) => "it is a draft",
        _ if told["has_conflicts"] == true => return Some(format!("it has conflicts with `{branch}`")),
        _ if is_being_checked(told) => "GitLab has not found out yet; try again in a minute",
        _ if told["blocking_discussions_resolved"] == false => "threads are not resolved",
        None | Some("mergeable" | "ci_must_pass" | "ci_still_running") => return None,
        Some("conflict") => return Some(format!("it has conflicts with `{branch}`")),
        Some("need_rebase") => return Some(format!("it has to be rebased onto `{branch}` first")),
        Some("commits_status") => "its source branch is gone, or has no commits",
        Some("discussions_not_resolved") => "threads are not resolved",
        Some("draft_status") => "it is a draft",
        Some("jira_association_missing") => "its title or description has to name a Jira issue",
        Some("locked_lfs_files" | "locked_paths") => "files that it changes are locked",
        Some("merge_request_blocked") => "another merge request has to be merged first",
        Some("merge_time") => "it may not be merged before its scheduled time",
        Some("not_approved") => "required approvals are missing",
        Some("not_open") => "the merge request is closed",
        Some("requested_changes") => "a reviewer has requested changes",
        Some("security_policy_violations" | "policies_denied") => "a security policy is violated",
        Some("status_checks_must_pass" | "external_status_checks") => "external status checks have not passed",
        Some("title_regex" | "title_not_matching") => "its title does not match the project's rule",
        Some(other) => {
            let other: String =
                other.chars().filter(|char| char.is_ascii_alphanumeric() || *char == '_').take(40).collect();
            return Some(format!("GitLab says `{other}`"));
        }
    };
    Some(of_status.to_owned())
}

/// Returns true if a pipeline is one of the head: of this commit, or of its merge result, which is another commit
/// (docs.gitlab.com/ci/pipelines/merged_results_pipelines). The merge request shows the pipeline of an earlier head for a moment.
fn is_of_head(pull: &PullRequest, pipeline: &Value, commit: &CommitSha) -> bool {
    let of_result = |kind: &str| pipeline["ref"] == format!("refs/merge-requests/{}/{kind}", pull.id.number);
    *commit == pull.head.commit || of_result("merge") || of_result("train")
}

/// Returns the obstacles in the pipeline that the merge request shows, besides statuses of ours that announce something.
async fn of_pipeline(host: &Gitlab, pull: &PullRequest, told: &Value) -> Result<Vec<String>, HostError> {
    let pipeline = &told["head_pipeline"];
    let (Some(id), Some(commit)) = (pipeline["id"].as_u64(), answers::sha(&pipeline["sha"])) else {
        return Ok(vec!["a pipeline has to succeed, and there is none".to_owned()]);
    };
    if !is_of_head(pull, pipeline, &commit) {
        return Ok(vec!["its pipeline has not started".to_owned()]);
    }
    let own = &host.account().await?.login;
    let of = pipeline["project_id"]
        .as_u64()
        .map_or_else(|| host.address.project_path(&pull.id.repo), |project| Ok(format!("/projects/{project}")))?;
    let path = format!("{of}/repository/commits/{}/statuses?pipeline_id={id}", segment(commit.as_str()));
    let rows = host.http.pages(&path, PER_PAGE, MAX_PAGES, Some).await?;
    if rows.iter().any(|row| !row["name"].is_string()) {
        return Err(odd(&path, "a status without a name"));
    }
    let (ignored, others): (Vec<&Value>, Vec<&Value>) = rows.iter().filter(|row| blocks(row)).partition(|row| {
        let name = row["name"].as_str().unwrap_or_default();
        let is_ours = own_status::is_ours(name, &host.status_name) && answers::login(&row["author"]).is(own);
        // A plan or policy check of ours that failed is an obstacle as on other hosts; a failed apply may be tried again.
        is_ours && (is_unfinished(row) || own_status::is_of_apply(name, &host.status_name))
    });
    let named = |row: &&Value| {
        let text = |key: &str| {
            row[key]
                .as_str()
                .unwrap_or_default()
                .chars()
                .filter(|char| !char.is_control())
                .take(100)
                .collect::<String>()
        };
        format!("`{}` is {}", text("name").replace('`', "'"), text("status"))
    };
    let mut found: Vec<String> = others.iter().take(MAX_NAMED).map(named).collect();
    if others.len() > MAX_NAMED {
        found.push(format!("and {} more jobs", others.len() - MAX_NAMED));
    }
    if ignored.is_empty() && others.is_empty() {
        // Jobs of its child pipelines, for example, or all were skipped.
        let state = pipeline["status"]
            .as_str()
            .filter(|state| state.chars().all(|char| char.is_ascii_lowercase() || char == '_'));
        found.push(format!("its pipeline is {}", state.unwrap_or("unfinished")));
    }
    Ok(found)
}

/// Returns true if a job keeps its pipeline from success. A manual job that may not fail blocks it.
fn blocks(job: &Value) -> bool {
    let passes = matches!(job["status"].as_str(), Some("success" | "skipped"));
    !passes && job["allow_failure"] != true
}

/// Returns true if a status of ours announces what is yet to be done. A canceled one waits for people.
fn is_unfinished(status: &Value) -> bool {
    matches!(status["status"].as_str(), Some("created" | "pending" | "running" | "canceled"))
}
