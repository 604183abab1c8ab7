//! The veto of builds. It names no build, and our own ones, which announce what is about to be done, may be all that it is about. What it
//! hides is asked for: required builds, and the number of builds that have to succeed
//! (confluence.atlassian.com/bitbucketserver, "Checks for merging pull requests").

use super::{BitbucketDataCenter, answers, statuses};
use crate::bitbucket_data_center::BitbucketDataCenterAddress;
use crate::vcs::{HostError, own_status};
use serde_json::Value;
use tidelock_core::domain::PullRequest;

/// Conditions on one page.
const PER_PAGE: u32 = 100;
/// Most pages of conditions of one repository.
const MAX_PAGES: u32 = 10;
/// Most builds that are asked for one by one.
const MOST_ASKED: usize = 20;
/// Most builds that are named.
const MAX_NAMED: usize = 5;
/// Summary of the veto in English, which is the language of an account that has chosen none (yontrack/yontrack#1120).
const SUMMARY: &str = "Not all required builds are successful yet";

/// Builds of a head, and what may be in their way.
pub(super) struct Builds {
    /// Obstacles besides our own builds that announce something; empty if there is none.
    pub(super) obstacles: Vec<String>,
    /// True if one of our own builds is unfinished, or an apply of ours has failed.
    pub(super) announces: bool,
    /// True if all that is missing is in progress.
    pub(super) is_running: bool,
}

/// Returns true for a veto of builds.
pub(super) fn is_veto(veto: &Value) -> bool {
    veto["summaryMessage"].as_str().is_some_and(|summary| summary.trim() == SUMMARY)
}

/// Judges the builds of the head as the host does.
pub(super) async fn judge(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Builds, HostError> {
    let rows = statuses::all(host, &pull.head.commit).await?;
    let first = &host.status_name;
    let (ours, others): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| statuses::is_ours(row, first));
    let is_apply = |row: &Value| own_status::is_of_apply(row["name"].as_str().unwrap_or_default(), first);
    // A plan or policy check of ours that failed is an obstacle as on other hosts; a failed apply may be tried again.
    let (announced, failed): (Vec<&Value>, Vec<&Value>) =
        ours.iter().filter(|row| !passes(row)).partition(|row| is_running(row) || is_apply(row));
    let mut wanting = failed;
    let least = least_builds(host, pull).await?;
    if least > 0 {
        wanting.extend(others.iter().copied().filter(|row| is_running(row) || row["state"] == "FAILED"));
    }
    let blocking: Vec<&Value> = wanting.iter().chain(&announced).copied().collect();
    let mut is_only_running = blocking.iter().all(|row| is_running(row));
    let mut runs = blocking.iter().any(|row| is_running(row));
    let mut obstacles: Vec<String> = wanting.iter().take(MAX_NAMED).map(|row| named(row)).collect();
    if wanting.len() > MAX_NAMED {
        obstacles.push(format!("and {} more builds", wanting.len() - MAX_NAMED));
    }
    let passing = others.iter().filter(|row| passes(row)).count() + ours.len();
    if passing < least && wanting.is_empty() {
        is_only_running = false;
        obstacles.push(format!("{} of {least} builds have succeeded", passing - ours.len()));
    }
    let required: Vec<String> =
        required(host, pull).await?.into_iter().filter(|key| !own_status::is_ours(key, first)).collect();
    let candidates = candidates(host, pull, &required, &others).await?;
    for wanted in required {
        let state = candidates.state_of(&wanted);
        if state == Some("SUCCESSFUL") {
            continue;
        }
        let is_in_progress = state == Some("INPROGRESS");
        (is_only_running, runs) = (is_only_running && is_in_progress, runs || is_in_progress);
        let words = match state {
            Some(state) => format!("is {}", answers::quoted(state).to_ascii_lowercase()),
            None if candidates.is_cut => format!("cannot be judged: more than {MOST_ASKED} builds might be it"),
            None => "is missing".to_owned(),
        };
        let words = format!("the required build `{}` {words}", answers::quoted(&wanted));
        obstacles.push(words);
    }
    Ok(Builds { obstacles, announces: !announced.is_empty(), is_running: runs && is_only_running })
}

fn passes(row: &Value) -> bool {
    row["state"] == "SUCCESSFUL"
}

fn is_running(row: &Value) -> bool {
    row["state"] == "INPROGRESS"
}

fn named(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().filter(|text| !text.is_empty());
    let name = answers::quoted(text("name").or_else(|| text("key")).unwrap_or_default());
    format!("`{name}` is {}", answers::quoted(text("state").unwrap_or_default()).to_ascii_lowercase())
}

/// Returns the number of builds that have to succeed; 0 if the host asks for none, or does not say so
/// (`GET .../settings/pull-requests`: a number before 8, and an object since).
async fn least_builds(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<usize, HostError> {
    let settings = host.pull_settings(&pull.id.repo).await?;
    let hook = &settings["com.atlassian.bitbucket.server.bitbucket-build.requiredBuildsMergeCheck"];
    let told = [hook, &settings["requiredSuccessfulBuilds"], &settings["requiredSuccessfulBuildsDeprecated"]];
    let count = |value: &Value| match value {
        Value::Object(check) if check.get("enabled").or(check.get("enable")) == Some(&Value::Bool(false)) => Some(0),
        Value::Object(check) => number(&check.get("count").cloned().unwrap_or_default()),
        value => number(value),
    };
    Ok(told.into_iter().find_map(count).unwrap_or_default())
}

fn number(value: &Value) -> Option<usize> {
    let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
    usize::try_from(number).ok()
}

/// Returns the keys of builds that have to be successful for the base branch
/// (`GET /rest/required-builds/latest/projects/{projectKey}/repos/{repositorySlug}/conditions`).
async fn required(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Vec<String>, HostError> {
    let repo = BitbucketDataCenterAddress::path(&pull.id.repo)?;
    let path = format!("/rest/required-builds/latest{repo}/conditions");
    let rows = match host.http.start_pages(&path, PER_PAGE, MAX_PAGES).await {
        // The part of the host that has them is switched off.
        Err(HostError::NotFound { .. }) => return Ok(Vec::new()),
        found => found?.rows,
    };
    let applies = |row: &&Value| {
        let is_exempt = matches(&row["exemptRefMatcher"], &pull.head.branch) == Some(true);
        !is_exempt && matches(&row["refMatcher"], &pull.base.branch) != Some(false)
    };
    let keys = rows.iter().filter(applies).flat_map(|row| row["buildParentKeys"].as_array().into_iter().flatten());
    let mut once: Vec<String> = Vec::new();
    for key in keys.filter_map(Value::as_str) {
        if !once.iter().any(|known| known == key) {
            once.push(key.to_owned());
        }
    }
    Ok(once)
}

/// Returns true if a branch is one of those that a matcher names; absent for one that is not judged here, such as a pattern.
fn matches(matcher: &Value, branch: &str) -> Option<bool> {
    match matcher["type"]["id"].as_str()? {
        "ANY_REF" => Some(true),
        "BRANCH" => {
            let id = matcher["id"].as_str()?;
            Some(id.strip_prefix(answers::HEADS).unwrap_or(id) == branch)
        }
        _ => None,
    }
}

/// Builds that may be required ones, the newest first.
#[derive(Default)]
struct Candidates {
    rows: Vec<Value>,
    /// True if there are more builds than were asked for.
    is_cut: bool,
}

impl Candidates {
    /// Returns the state of a required build; absent if there is none. A build counts under its parent or under its own key.
    fn state_of(&self, wanted: &str) -> Option<&str> {
        self.rows.iter().find(|row| row["parent"] == wanted || row["key"] == wanted)?["state"].as_str()
    }
}

/// Returns the builds of others for the source branch, or for a branch that the host does not tell. The list leaves parent and branch out, so
/// that each build is asked for, those with required keys first.
async fn candidates(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    required: &[String],
    others: &[&Value],
) -> Result<Candidates, HostError> {
    if required.is_empty() {
        return Ok(Candidates::default());
    }
    let is_required = |row: &Value| required.iter().any(|key| row["key"] == key.as_str());
    let mut rows: Vec<Value> = others.iter().copied().cloned().collect();
    let is_told = |row: &Value| row["ref"].is_string() && (row["parent"].is_string() || is_required(row));
    let mut asked: Vec<usize> = (0..rows.len()).filter(|index| !rows.get(*index).is_some_and(is_told)).collect();
    asked.sort_by_key(|index| !rows.get(*index).is_some_and(is_required));
    let is_cut = asked.len() > MOST_ASKED;
    for (count, index) in asked.into_iter().enumerate() {
        let Some(row) = rows.get_mut(index) else { continue };
        if count >= MOST_ASKED {
            *row = Value::Null;
            continue;
        }
        let Some(key) = row["key"].as_str() else { continue };
        // The builds of versions before 7.14 cannot be asked for.
        if let Some(whole) = statuses::one(host, &pull.id, &pull.head.commit, key).await? {
            *row = whole;
        }
    }
    let branch = format!("{}{}", answers::HEADS, pull.head.branch);
    rows.retain(|row| row.is_object() && (row["ref"].is_null() || row["ref"] == branch.as_str()));
    Ok(Candidates { rows, is_cut })
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_matcher_that_is_not_judged_applies() {
        let of = |kind: &str, id: &str| json!({"id": id, "type": {"id": kind}});
        assert_eq!(matches(&of("ANY_REF", "x"), "main"), Some(true));
        assert_eq!(matches(&of("BRANCH", "refs/heads/main"), "main"), Some(true));
        assert_eq!(matches(&of("BRANCH", "refs/heads/release"), "main"), Some(false));
        assert_eq!(matches(&of("PATTERN", "ma*"), "main"), None);
        assert_eq!(matches(&Value::Null, "main"), None);
    }
}
