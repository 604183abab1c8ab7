//! Messages about applies and drift in Atlantis' words and format. Pure functions.

use super::ApplyEnd;
use crate::domain::drift::DriftDetection;
use crate::domain::outcome::PlanSummary;
use crate::domain::{PullRequest, PullState};
use serde_json::{Value, json};

/// Maximum number of projects with drift that a message names.
const MAX_NAMED: usize = 100;

/// Returns the JSON for HTTP addresses. Unlike in Atlantis', no address in it contains a token.
pub(super) fn http(end: &ApplyEnd<'_>, host_kind: u8) -> Value {
    let ApplyEnd { project, pull, command, success, .. } = end;
    let repo = repo(pull, host_kind);
    json!({
        "Workspace": project.workspace,
        "Repo": repo,
        "Pull": {
            "Num": pull.id.number,
            "HeadCommit": pull.head.commit,
            "URL": pull.url,
            "HeadBranch": pull.head.branch,
            "BaseBranch": pull.base.branch,
            "Author": pull.author.as_str(),
            "State": if pull.state == PullState::Open { 0 } else { 1 },
            "BaseRepo": repo,
        },
        "User": {"Username": command.user.as_str(), "Teams": null},
        "Success": success,
        "Directory": project.dir,
        "ProjectName": project.name.as_deref().unwrap_or_default(),
    })
}

fn repo(pull: &PullRequest, host_kind: u8) -> Value {
    let repo = &pull.id.repo;
    json!({
        "FullName": repo.full_name(),
        "Owner": repo.owner,
        "Name": repo.name,
        "CloneURL": pull.clone_url,
        "SanitizedCloneURL": pull.clone_url,
        "VCSHost": {"Hostname": repo.host, "Type": host_kind},
    })
}

/// Returns the attachment for a channel of Slack.
pub(super) fn slack(end: &ApplyEnd<'_>) -> Value {
    let ApplyEnd { project, pull, command, success, .. } = end;
    let (color, word) = if *success { ("good", "succeeded") } else { ("danger", "failed") };
    let field = |title: &str, value: &str| json!({"title": title, "value": escaped(value), "short": true});
    let directory = if project.dir == "." { "/" } else { &project.dir };
    json!({
        "color": color,
        "text": format!("Apply {word} for <{}|{}>", escaped(&pull.url), escaped(&pull.id.repo.full_name())),
        "fields": [
            field("Workspace", &project.workspace),
            field("Branch", &pull.head.branch),
            field("User", command.user.shown()),
            field("Directory", directory),
        ],
    })
}

/// Returns the JSON about drift for HTTP addresses, in the words of `/api/drift/detect`.
pub(super) fn http_drift(detection: &DriftDetection) -> Value {
    let drifted = detection.projects.iter().filter(|(found, _)| found.finding.has_drift());
    let projects = drifted.take(MAX_NAMED).map(|(found, _)| {
        let (project, totals) = (&found.project, found.finding.summary());
        let count = |of: fn(&PlanSummary) -> u64| totals.map(of).unwrap_or_default();
        json!({
            "project_name": project.name.as_deref().unwrap_or_default(),
            "directory": project.dir,
            "workspace": project.workspace,
            "to_add": count(|totals| totals.add),
            "to_change": count(|totals| totals.change),
            "to_destroy": count(|totals| totals.destroy),
        })
    });
    json!({
        "event": "drift",
        "repository": detection.repo.full_name(),
        "ref": detection.reference,
        "base_branch": detection.branch,
        "resolved_commit": detection.commit,
        "detection_id": detection.id,
        "projects_with_drift": with_drift(detection),
        "total_projects": detection.projects.len(),
        "projects": projects.collect::<Vec<_>>(),
    })
}

/// Returns the attachment about drift for a channel of Slack.
pub(super) fn slack_drift(detection: &DriftDetection) -> Value {
    let field = |title: &str, value: &str| json!({"title": title, "value": escaped(value), "short": true});
    let repo = detection.repo.full_name();
    let count = format!("{} of {}", with_drift(detection), detection.projects.len());
    json!({
        "color": "danger",
        "text": format!("Drift detected in {}", escaped(&repo)),
        "fields": [
            field("Repository", &repo),
            field("Ref", &detection.reference),
            field("Projects with drift", &count),
            field("Detection ID", detection.id.as_str()),
        ],
    })
}

fn with_drift(detection: &DriftDetection) -> usize {
    detection.projects.iter().filter(|(found, _)| found.finding.has_drift()).count()
}

/// Escapes text so that Slack reads it neither as a link nor as a mention.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
