//! Commit statuses, which are jobs of pipelines on this host (docs.gitlab.com/ci/ci_cd_for_external_repos/external_commit_statuses).
//! A merge request shows one pipeline. A status without a pipeline joins the newest one of its commit and branch, or makes one.

use super::{Gitlab, answers};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, own_status};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, PullId};

/// Longest name, description and address of a status, in characters (docs.gitlab.com/api/commits, "Set commit pipeline status").
const LIMIT: usize = 255;
/// Statuses on one page: the host's maximum.
const PER_PAGE: u32 = 100;
/// Most pipelines of a commit in which a status of one name is ended.
const MAX_ENDED: usize = 20;
/// Start of the refusal of a state that cannot follow the present one, such as `pending` after `pending` before 18.3.
const NO_TRANSITION: &str = "Cannot transition status via";

/// Place of the statuses of a commit.
enum StatusPlace {
    /// The pipeline with this id, which the merge request shows.
    Pipeline(u64),
    /// The newest pipeline of this branch.
    Branch(String),
    /// The newest pipeline of any branch with the commit.
    Anywhere,
}

impl StatusPlace {
    /// Returns the place for a commit of a merge request.
    async fn of(host: &Gitlab, pull: &PullId, commit: &CommitSha) -> Result<StatusPlace, HostError> {
        if pull.is_branch() {
            return Ok(StatusPlace::Anywhere);
        }
        let told = host.merge_request(pull).await?;
        let pipeline = &told["head_pipeline"];
        let is_commit = |value: &Value| answers::sha(value).as_ref() == Some(commit);
        // The pipeline of a fork is the fork's project's, where we have no rights.
        let is_here = pipeline["project_id"].is_null() || pipeline["project_id"] == told["target_project_id"];
        Ok(match pipeline["id"].as_u64() {
            Some(id) if is_here && is_commit(&pipeline["sha"]) => StatusPlace::Pipeline(id),
            _ => match told["source_branch"].as_str() {
                Some(branch) if is_commit(&told["sha"]) => StatusPlace::Branch(branch.to_owned()),
                _ => StatusPlace::Anywhere,
            },
        })
    }
}

/// Sets a status. One that ends also ends those of its name that another pipeline of the commit still runs: the first statuses often come
/// before the pipeline of CI, and a pipeline with an unfinished one never ends.
pub(super) async fn set(
    host: &Gitlab,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let state = match status.state {
        // A pending or running job keeps its pipeline running, perhaps for ever. A canceled one ends it without success.
        StatusState::Pending if status.waits => "canceled",
        StatusState::Pending => "running",
        StatusState::Success => "success",
        StatusState::Failure => "failed",
    };
    let name = name(&status.context);
    let mut body = json!({
        "state": state,
        "name": name,
        "description": status.description.chars().take(LIMIT).collect::<String>(),
    });
    if !status.url.is_empty() && status.url.chars().count() <= LIMIT {
        body["target_url"] = json!(status.url);
    }
    let mut placed = body.clone();
    match StatusPlace::of(host, pull, commit).await? {
        StatusPlace::Pipeline(id) => placed["pipeline_id"] = json!(id),
        StatusPlace::Branch(branch) => placed["ref"] = json!(branch),
        StatusPlace::Anywhere => {}
    }
    post(host, pull, commit, placed).await?;
    if state == "running" {
        return Ok(());
    }
    for pipeline in unfinished(host, pull, commit, &name).await? {
        body["pipeline_id"] = json!(pipeline);
        match post(host, pull, commit, body.clone()).await {
            Err(error) if error.is_transient() => return Err(error),
            // The merge request shows the status all the same.
            Err(error) => tracing::warn!(%pull, pipeline, "the status `{name}` cannot be ended there: {error}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

async fn post(host: &Gitlab, pull: &PullId, commit: &CommitSha, body: Value) -> Result<(), HostError> {
    let path = format!("{}/statuses/{}", host.address.project_path(&pull.repo)?, segment(commit.as_str()));
    match host.change(Method::POST, &path, Some(body)).await {
        // The host says so of a state that is set already.
        Err(HostError::Rejected { status: 400, message, .. }) if message.contains(NO_TRANSITION) => Ok(()),
        // Another request is changing the pipeline (docs.gitlab.com/api/commits, "Set commit pipeline status").
        Err(HostError::Rejected { what, status: 409, message }) => Err(HostError::Unavailable { what, message }),
        // The merge request was found: it is the commit that is not.
        Err(HostError::NotFound { what }) if !pull.is_branch() => {
            Err(HostError::UnknownCommit { what, message: format!("the host does not know commit {commit}") })
        }
        answered => answered.map(drop),
    }
}

/// Returns the pipelines of a commit that have an unfinished status of ours with this name.
async fn unfinished(host: &Gitlab, pull: &PullId, commit: &CommitSha, name: &str) -> Result<Vec<u64>, HostError> {
    let rows = own_rows(host, pull, commit, &format!("&name={}", segment(name))).await?.ours;
    let is_unfinished =
        |row: &&Value| row["name"] == name && matches!(row["status"].as_str(), Some("created" | "pending" | "running"));
    let mut pipelines: Vec<u64> =
        rows.iter().filter(is_unfinished).filter_map(|row| row["pipeline_id"].as_u64()).collect();
    pipelines.sort_unstable();
    pipelines.dedup();
    pipelines.truncate(MAX_ENDED);
    Ok(pipelines)
}

/// Statuses of a commit.
struct CommitRows {
    /// Those of our account, newest first.
    ours: Vec<Value>,
    /// True if all, those of others included, are of one pipeline.
    are_of_one_pipeline: bool,
}

/// Requests the latest statuses of each pipeline of a commit, as far as one page reports them. `filter`: further parameters.
async fn own_rows(host: &Gitlab, pull: &PullId, commit: &CommitSha, filter: &str) -> Result<CommitRows, HostError> {
    let own = &host.account().await?.login;
    let project = host.address.project_path(&pull.repo)?;
    let path = format!("{project}/repository/commits/{}/statuses", segment(commit.as_str()));
    let body = host.http.get(&format!("{path}?per_page={PER_PAGE}&order_by=id&sort=desc{filter}")).await?.body;
    let Value::Array(mut ours) = body else { return Err(odd(&path, "not a list")) };
    let are_of_one_pipeline = ours.windows(2).all(|pair| pair[0]["pipeline_id"] == pair[1]["pipeline_id"]);
    ours.retain(|row| answers::login(&row["author"]).is(own));
    ours.sort_by_key(|row| std::cmp::Reverse(row["id"].as_u64()));
    Ok(CommitRows { ours, are_of_one_pipeline })
}

/// Returns the latest status of each of our names, as the merge request shows it. One that only another pipeline of the commit has is
/// reported without a description, so that it differs from what was told and is set again: a pipeline may appear after its statuses.
pub(super) async fn own(host: &Gitlab, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
    let CommitRows { ours, are_of_one_pipeline } = own_rows(host, pull, commit, "").await?;
    // Which pipeline is shown takes another request, and matters only if there are several.
    let shown = match are_of_one_pipeline || ours.is_empty() {
        true => None,
        false => match StatusPlace::of(host, pull, commit).await? {
            StatusPlace::Pipeline(id) => Some(id),
            StatusPlace::Branch(_) | StatusPlace::Anywhere => None,
        },
    };
    let is_there = |row: &Value| shown.is_none_or(|id| row["pipeline_id"].is_null() || row["pipeline_id"] == id);
    let mut latest: Vec<CommitStatus> = Vec::new();
    for row in ours.iter().filter(|row| is_there(row)) {
        add(&mut latest, status(row));
    }
    for row in ours.iter().filter(|row| !is_there(row)) {
        add(&mut latest, CommitStatus { description: String::new(), ..status(row) });
    }
    Ok(latest)
}

/// Adds a status unless there is one of this name.
fn add(latest: &mut Vec<CommitStatus>, status: CommitStatus) {
    if !latest.iter().any(|known| known.context == status.context) {
        latest.push(status);
    }
}

fn status(row: &Value) -> CommitStatus {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let state = match row["status"].as_str() {
        Some("created" | "pending" | "running" | "canceled") => StatusState::Pending,
        Some("success") => StatusState::Success,
        _ => StatusState::Failure,
    };
    CommitStatus::told(text("name"), state, text("description"), text("target_url"))
}

/// Returns the name of a status. One that is too long is cut, and stays different from others that begin alike.
fn name(context: &str) -> String {
    /// Digits of the hash that end a cut name.
    const DIGITS: usize = 16;
    own_status::cut(context, LIMIT, DIGITS)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let long = |end: &str| name(&format!("atlantis/plan: {}{end}", "ä".repeat(300)));
        assert_eq!(long("a").chars().count(), LIMIT);
        assert_ne!(long("a"), long("b"));
        assert_eq!(name("atlantis/plan"), "atlantis/plan");
    }
}
