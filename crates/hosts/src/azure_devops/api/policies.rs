//! Mergeability on Azure DevOps: the merge status, and the policies of the branch that block. Our own statuses do not count: they announce
//! what is about to be done.

use super::{AzureDevOps, PREVIEW, list, statuses};
use crate::azure_devops::address::project_path;
use crate::vcs::http::{odd, segment, too_many};
use crate::vcs::{HostError, Mergeability};
use backon::BackoffBuilder as _;
use serde_json::Value;
use tidelock_core::domain::PullRequest;

/// Most requests while the host still computes whether a pull request can be merged.
const POLLS: usize = 5;
/// Evaluations of policies on one page.
const PER_PAGE: u32 = 100;
/// Most pages of evaluations.
const MAX_PAGES: u32 = 50;

pub(super) async fn mergeability(host: &AzureDevOps, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let mut body = host.pull(&pull.id).await?;
    for wait in host.http.waits(POLLS).build() {
        if !is_queued(&body) || body["status"] != "active" {
            break;
        }
        tokio::time::sleep(wait).await;
        body = host.pull(&pull.id).await?;
    }
    let refused = |detail: String| Ok(Mergeability { mergeable: false, detail });
    if let Some(detail) = obstacle(&body) {
        return refused(detail);
    }
    let blocking = blocking(host, pull, &body).await?;
    if !blocking.is_empty() {
        return refused(format!("blocked by policies of the branch: {}", blocking.join(", ")));
    }
    Ok(Mergeability { mergeable: true, detail: "Azure DevOps would complete it".to_owned() })
}

fn is_queued(pull: &Value) -> bool {
    matches!(pull["mergeStatus"].as_str(), None | Some("queued" | "notSet"))
}

/// Returns the reason, apart from policies, that the pull request cannot be completed.
fn obstacle(pull: &Value) -> Option<String> {
    let branch = pull["targetRefName"].as_str().unwrap_or_default().trim_start_matches(super::HEADS);
    match pull["mergeStatus"].as_str() {
        _ if pull["status"] != "active" => Some("the pull request is closed".to_owned()),
        _ if pull["isDraft"] == true => Some("it is a draft".to_owned()),
        _ if is_queued(pull) => Some("Azure DevOps has not found out yet; try again in a minute".to_owned()),
        Some("conflicts") => Some(format!("it has conflicts with `{branch}`")),
        Some("failure") => {
            let why = pull["mergeFailureMessage"].as_str().unwrap_or("no reason given");
            Some(format!("Azure DevOps could not merge it: {why}"))
        }
        // `rejectedByPolicy` is the result of an earlier attempt; the policies themselves are checked next.
        Some("succeeded" | "rejectedByPolicy") => None,
        Some(other) => Some(format!("Azure DevOps says `{other}`")),
        None => None,
    }
}

/// Returns the names of the policies that block, from all pages.
async fn blocking(host: &AzureDevOps, pull: &PullRequest, body: &Value) -> Result<Vec<String>, HostError> {
    let project = project_path(&pull.id.repo)?;
    let id = body["repository"]["project"]["id"].as_str().ok_or_else(|| odd(&project, "a project without id"))?;
    let artifact = format!("vstfs:///CodeReview/CodeReviewId/{id}/{}", pull.id.number);
    let path = format!("{project}/policy/evaluations?artifactId={}&{PREVIEW}", segment(&artifact));
    let (mut names, mut seen) = (Vec::new(), 0);
    for _ in 0..MAX_PAGES {
        let answer = host.http.get(&format!("{path}&$top={PER_PAGE}&$skip={seen}")).await?.body;
        let Value::Array(rows) = &answer["value"] else { return Err(odd(&path, "not a list")) };
        names.extend(list(&answer).filter(|row| blocks(row, &host.status_name)).map(name));
        // The host may send fewer rows than requested: only an empty page is the end.
        if rows.is_empty() {
            return Ok(names);
        }
        seen += rows.len();
    }
    Err(too_many(&path, PER_PAGE, MAX_PAGES))
}

fn blocks(evaluation: &Value, status_name: &str) -> bool {
    let configuration = &evaluation["configuration"];
    let settings = &configuration["settings"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let in_force = configuration["isBlocking"] == true
        && configuration["isEnabled"] != false
        && configuration["isDeleted"] != true;
    let ours = statuses::is_ours(&text(&settings["statusGenre"]), &text(&settings["statusName"]), status_name);
    let is_met = matches!(evaluation["status"].as_str(), Some("approved" | "notApplicable"));
    in_force && !ours && !is_met
}

/// Name of a policy for people, and its state.
fn name(evaluation: &Value) -> String {
    let (configuration, settings) = (&evaluation["configuration"], &evaluation["configuration"]["settings"]);
    let kind = configuration["type"]["displayName"].as_str().unwrap_or("a policy");
    let state = evaluation["status"].as_str().unwrap_or("unknown");
    let own = [&settings["displayName"], &settings["defaultDisplayName"], &settings["statusName"]];
    match own.into_iter().find_map(|name| name.as_str().filter(|name| !name.is_empty())) {
        Some(own) => format!("{kind} ({own}) is {state}"),
        None => format!("{kind} is {state}"),
    }
}
