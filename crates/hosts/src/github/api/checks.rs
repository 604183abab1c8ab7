//! Statuses as check runs, for an App with `checks: write` (docs.github.com/rest/checks/runs).
//!
//! Of several check runs of an App with one name on a commit, the newest one counts. A check run that is completed cannot be in progress
//! again, so a later status is a new check run; one that is not completed is updated. `external_id` names the pull request and the effect
//! that posted the status: if the newest check run has it, an earlier attempt of the same effect has posted it, and nothing is sent.

use super::{Github, lists};
use crate::vcs::HostError;
use crate::vcs::http::{odd, segment};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::state::{CommitStatus, StatusAnnotation, StatusDetails, StatusState};
use tidelock_core::domain::{CommitSha, PullId, RepoId};

/// Longest summary, in bytes. GitHub refuses more than 65,535.
const MAX_SUMMARY: usize = 65_000;
/// Longest message of an annotation, in characters. GitHub's limit is 64 KB.
const MAX_MESSAGE: usize = 16_000;
/// Longest title of an annotation, in characters.
const MAX_TITLE: usize = 255;
/// Most annotations of a request.
const MAX_ANNOTATIONS: usize = 50;
/// Rows on one page: GitHub's maximum.
const PER_PAGE: u32 = 100;

/// A button: GitHub shows at most three below a completed check run, with a label of 20 characters and a description of 40.
struct CheckButton {
    label: &'static str,
    description: &'static str,
    identifier: &'static str,
}

/// Returns the button of a command; absent for commands without one.
fn button(command: CommandName) -> Option<CheckButton> {
    let (label, description) = match command {
        CommandName::Plan => ("Plan again", "Plan this again at the same commit"),
        CommandName::Apply => ("Apply", "Apply this plan"),
        _ => return None,
    };
    Some(CheckButton { label, description, identifier: command.as_str() })
}

/// Posts a status as a check run of the App with this id.
pub(super) async fn set(
    github: &Github,
    app: u64,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let details = status.details.as_deref().cloned().unwrap_or_default();
    let external_id = format!("{}:{}", pull.number, details.effect);
    let newest = newest(github, app, &pull.repo, commit, &status.context).await?;
    let mut body = body_of(status, &details);
    body["external_id"] = json!(external_id);
    let (method, path) = match &newest {
        Some(known) if known["external_id"] == external_id => return Ok(()),
        Some(known) if known["status"] != "completed" => {
            let id = known["id"].as_u64().ok_or_else(|| odd("a check run", "no id"))?;
            (Method::PATCH, format!("/check-runs/{id}"))
        }
        _ => {
            body["name"] = json!(status.context);
            body["head_sha"] = json!(commit);
            (Method::POST, "/check-runs".to_owned())
        }
    };
    let posted = github.say(method.clone(), &pull.repo, &path, Some(body.clone())).await.map_err(lists::of_commit);
    let Err(HostError::Rejected { status: 422, message, .. }) = &posted else { return posted.map(drop) };
    // The state of the check must not depend on its decoration: one that stays in progress blocks the pull request.
    tracing::warn!(pull = %pull, check = status.context, "GitHub refuses a check run; it is posted without details: {message}");
    let plain = body_of(status, &StatusDetails::default());
    body["output"] = plain["output"].clone();
    body["actions"] = plain["actions"].clone();
    github.say(method, &pull.repo, &path, Some(body)).await.map(drop).map_err(lists::of_commit)
}

/// Returns the App's newest check run of this name.
async fn newest(
    github: &Github,
    app: u64,
    repo: &RepoId,
    commit: &CommitSha,
    name: &str,
) -> Result<Option<Value>, HostError> {
    let path = format!(
        "/commits/{}/check-runs?check_name={}&app_id={app}&filter=latest&per_page={PER_PAGE}",
        segment(commit.as_str()),
        segment(name)
    );
    let mut found = github.say(Method::GET, repo, &path, None).await.map_err(lists::of_commit)?.body;
    let Value::Array(rows) = found["check_runs"].take() else { return Err(odd(&path, "no list of check runs")) };
    let is_ours = |row: &Value| row["app"]["id"] == app && row["name"] == name;
    Ok(rows.into_iter().filter(is_ours).max_by_key(|row| row["id"].as_u64()))
}

/// Returns the App's latest check runs of a commit as statuses, as far as one page reports them.
pub(super) async fn own(
    github: &Github,
    app: u64,
    repo: &RepoId,
    commit: &CommitSha,
) -> Result<Vec<CommitStatus>, HostError> {
    let path =
        format!("/commits/{}/check-runs?app_id={app}&filter=latest&per_page={PER_PAGE}", segment(commit.as_str()));
    let mut found = github.say(Method::GET, repo, &path, None).await?.body;
    let Value::Array(mut rows) = found["check_runs"].take() else { return Err(odd(&path, "no list of check runs")) };
    rows.retain(|row| row["app"]["id"] == app);
    rows.sort_by_key(|row| std::cmp::Reverse(row["id"].as_u64()));
    let mut latest: Vec<CommitStatus> = Vec::new();
    for row in rows {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let state = match (row["status"].as_str(), row["conclusion"].as_str()) {
            (Some("completed"), Some("success")) => StatusState::Success,
            (Some("completed"), _) => StatusState::Failure,
            _ => StatusState::Pending,
        };
        let (context, description) = (text(&row["name"]), text(&row["output"]["title"]));
        if !latest.iter().any(|known| known.context == context) {
            let url = text(&row["details_url"]);
            latest.push(CommitStatus::told(context, state, description, url));
        }
    }
    Ok(latest)
}

/// Returns the fields that a new and a changed check run have in common.
fn body_of(status: &CommitStatus, details: &StatusDetails) -> Value {
    let title = &status.description;
    let summary = match details.summary.as_str() {
        // A title may quote code of the pull request, and GitHub reads a summary as Markdown.
        "" => format!("`{}`", title.replace(['`', '\n', '\r'], "'")),
        text => cut_to_bytes(text, MAX_SUMMARY).to_owned(),
    };
    let annotations: Vec<Value> = details.annotations.iter().take(MAX_ANNOTATIONS).map(annotation).collect();
    let actions = details.buttons.iter().filter_map(|command| button(*command)).map(
        |button| json!({ "label": button.label, "description": button.description, "identifier": button.identifier }),
    );
    let mut body = json!({
        "output": { "title": title, "summary": summary, "annotations": annotations },
        "actions": actions.collect::<Vec<_>>(),
    });
    match status.state {
        StatusState::Pending if status.waits => body["status"] = json!("queued"),
        StatusState::Pending => body["status"] = json!("in_progress"),
        StatusState::Success => body["conclusion"] = json!("success"),
        StatusState::Failure => body["conclusion"] = json!("failure"),
    }
    if status.state != StatusState::Pending {
        body["status"] = json!("completed");
    }
    if !status.url.is_empty() {
        body["details_url"] = json!(status.url);
    }
    body
}

/// Returns the longest beginning of a text with at most this many bytes.
fn cut_to_bytes(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

fn annotation(one: &StatusAnnotation) -> Value {
    let level = if one.is_error { "failure" } else { "warning" };
    let cut = |text: &str, most| text.chars().take(most).collect::<String>();
    json!({
        "path": one.path, "start_line": one.line, "end_line": one.line, "annotation_level": level,
        "title": cut(&one.title, MAX_TITLE), "message": cut(&one.message, MAX_MESSAGE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_keeps_githubs_limits() {
        let annotation = StatusAnnotation {
            path: "a.tf".to_owned(),
            line: 3,
            is_error: true,
            title: "é".repeat(999),
            message: "x".repeat(99_999),
        };
        let details = StatusDetails {
            effect: 7,
            summary: "é".repeat(99_999),
            annotations: vec![annotation; 99],
            buttons: vec![CommandName::Plan, CommandName::Apply, CommandName::Unlock],
        };
        let status = CommitStatus {
            context: "atlantis/plan".to_owned(),
            state: StatusState::Failure,
            description: "Plan failed".to_owned(),
            url: "https://t/jobs/j".to_owned(),
            waits: false,
            details: None,
        };
        let body = body_of(&status, &details);
        let chars = |value: &Value| value.as_str().unwrap().chars().count();
        let output = &body["output"];
        assert!(output["summary"].as_str().unwrap().len() <= 65_535);
        let annotations = output["annotations"].as_array().unwrap();
        assert_eq!(annotations.len(), 50);
        assert!(
            chars(&annotations[0]["title"]) <= 255 && annotations[0]["message"].as_str().unwrap().len() <= 64 << 10
        );
        let actions = body["actions"].as_array().unwrap();
        assert_eq!(actions.len(), 2, "a command without a button has none");
        for action in actions {
            let limits = [("label", 20), ("description", 40), ("identifier", 20)];
            assert!(limits.iter().all(|(key, most)| chars(&action[key]) <= *most), "{action}");
        }
        assert_eq!((&body["status"], &body["conclusion"]), (&json!("completed"), &json!("failure")));
        let waits = CommitStatus { state: StatusState::Pending, waits: true, ..status };
        let body = body_of(&waits, &StatusDetails::default());
        assert_eq!((&body["status"], &body["conclusion"]), (&json!("queued"), &Value::Null));
        assert_eq!(body["output"]["summary"], "`Plan failed`", "GitHub requires a summary");
        let hostile = CommitStatus { description: "![x](https://evil) @acme/team `x`".to_owned(), ..waits };
        let body = body_of(&hostile, &StatusDetails::default());
        let summary = body["output"]["summary"].as_str().unwrap();
        assert_eq!(summary, "`![x](https://evil) @acme/team 'x'`", "a code span has neither links nor mentions");
    }
}
