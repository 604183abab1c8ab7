//! GitHub's check runs: their state, their pages, and the events of their buttons (docs.github.com/rest/checks/runs).

use super::pull::Pull;
use super::state::{PullState, RepoState, State, StatusState};
use super::{hooks, shapes};
use anyhow::{Context, bail};
use serde_json::{Value, json};

/// A check run.
pub(super) struct CheckState {
    /// Name, commit, title and time as of a status: branch protections and pages count both alike.
    pub as_status: StatusState,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    pub conclusion: Option<String>,
    pub external_id: String,
    pub summary: String,
    /// Annotations as they were posted.
    pub annotations: Vec<Value>,
    /// Buttons as they were posted; GitHub shows them once the run is completed.
    pub actions: Vec<Value>,
    /// Time of the last change.
    pub updated_at: String,
}

/// A check run, as tests read it.
#[derive(Debug, Clone, PartialEq)]
pub struct PostedCheck {
    /// Its id; a later check run has a greater one.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    /// Conclusion of a completed one.
    pub conclusion: Option<String>,
    /// First line.
    pub title: String,
    /// Markdown.
    pub summary: String,
    /// Annotations: path, line, level and title.
    pub annotations: Vec<(String, u64, String, String)>,
    /// Identifiers of its buttons.
    pub buttons: Vec<String>,
}

impl From<&CheckState> for PostedCheck {
    fn from(check: &CheckState) -> PostedCheck {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let annotation = |one: &Value| {
            let line = one["start_line"].as_u64().unwrap_or_default();
            (text(&one["path"]), line, text(&one["annotation_level"]), text(&one["title"]))
        };
        PostedCheck {
            id: check.as_status.id,
            name: check.as_status.context.clone(),
            status: check.status.clone(),
            conclusion: check.conclusion.clone(),
            title: check.as_status.description.clone().unwrap_or_default(),
            summary: check.summary.clone(),
            annotations: check.annotations.iter().map(annotation).collect(),
            buttons: check.actions.iter().map(|action| text(&action["identifier"])).collect(),
        }
    }
}

impl CheckState {
    /// Sets the state of a status from that of the check run.
    pub(super) fn settle(&mut self) {
        let state = match (self.status.as_str(), self.conclusion.as_deref()) {
            ("completed", Some("success" | "neutral" | "skipped")) => "success",
            ("completed", _) => "failure",
            _ => "pending",
        };
        self.as_status.state = state.to_owned();
    }
}

impl RepoState {
    /// The newest check run of this name on a commit.
    pub(super) fn latest_check(&self, sha: &str, name: &str) -> Option<&CheckState> {
        let is_meant = |check: &&CheckState| check.as_status.sha == sha && check.as_status.context == name;
        self.checks.iter().rev().find(is_meant)
    }
}

/// A check run in GitHub's form.
pub(super) fn shape(url: &str, state: &State, repo: &RepoState, check: &CheckState) -> Value {
    let of = &check.as_status;
    let app = state.app.as_ref().map(|app| json!({ "id": app.id, "slug": app.slug }));
    let changes = repo.checks.iter().filter(|other| other.as_status.sha == of.sha);
    let latest = changes.map(|other| other.updated_at.as_str()).max().unwrap_or_default();
    let pulls: Vec<Value> = repo.pulls.iter().filter(|pull| is_listed(repo, pull, &of.sha)).map(listed).collect();
    json!({
        "id": of.id, "name": of.context, "head_sha": of.sha, "external_id": check.external_id, "status": check.status,
        "conclusion": check.conclusion, "details_url": of.target_url, "started_at": of.created_at,
        "html_url": format!("{url}/{}/runs/{}", repo.full_name(), of.id), "app": app, "pull_requests": pulls,
        "output": { "title": of.description, "summary": check.summary, "text": null,
            "annotations_count": check.annotations.len() },
        "check_suite": { "id": 1, "head_sha": of.sha, "updated_at": latest },
    })
}

/// Returns true if a check names a pull request: GitHub lists none with heads in forks.
fn is_listed(repo: &RepoState, pull: &PullState, sha: &str) -> bool {
    pull.open && pull.head_sha == sha && pull.head_repo.eq_ignore_ascii_case(&repo.full_name())
}

fn listed(pull: &PullState) -> Value {
    json!({ "number": pull.number, "head": { "sha": pull.head_sha }, "base": { "ref": pull.base_ref } })
}

/// Queues the event of a button of a check run, or of *Re-run* if there is no identifier.
pub(super) fn press(
    state: &mut State,
    url: &str,
    full_name: &str,
    id: u64,
    identifier: Option<&str>,
    sender: &str,
) -> anyhow::Result<()> {
    let repo = state.repo(full_name)?;
    let check = repo.checks.iter().find(|check| check.as_status.id == id).context("there is no such check run")?;
    let has = |word| check.actions.iter().any(|action| action["identifier"] == word);
    if check.status != "completed" || identifier.is_some_and(|word| !has(word)) {
        bail!("the check run {} does not show this button", check.as_status.context);
    }
    let (action, asked) = match identifier {
        Some(word) => ("requested_action", json!({ "identifier": word })),
        None => ("rerequested", Value::Null),
    };
    let payload = json!({
        "action": action, "check_run": shape(url, state, repo, check), "requested_action": asked,
        "repository": shapes::repo(url, state, repo), "sender": shapes::user(url, state, sender),
    });
    hooks::emit(state, "check_run", Some(action), &payload);
    Ok(())
}

impl Pull {
    /// The check runs of the head commit, oldest first.
    pub fn checks(&self) -> anyhow::Result<Vec<PostedCheck>> {
        let state = self.shared().lock();
        let head = &state.pull(&self.repo.full_name, self.number)?.head_sha;
        let all = state.repo(&self.repo.full_name)?.checks.iter();
        Ok(all.filter(|check| check.as_status.sha == *head).map(PostedCheck::from).collect())
    }

    /// The newest check run of this name on the head commit.
    pub fn check(&self, name: &str) -> anyhow::Result<PostedCheck> {
        let found = self.checks()?.into_iter().rfind(|check| check.name == name);
        found.with_context(|| format!("there is no check run {name}"))
    }

    /// Presses a button of a check run as this person; without an identifier *Re-run*.
    pub fn press(&self, user: &str, check: u64, identifier: Option<&str>) -> anyhow::Result<()> {
        let shared = self.shared();
        shared.change(|state| press(state, &shared.url, &self.repo.full_name, check, identifier, user))
    }

    /// Requests all checks of the head commit again, as this person.
    pub fn rerun_checks(&self, user: &str) -> anyhow::Result<()> {
        let shared = self.shared();
        shared.change(|state| {
            let repo = state.repo(&self.repo.full_name)?;
            let sha = state.pull(&self.repo.full_name, self.number)?.head_sha.clone();
            let pulls: Vec<Value> = repo.pulls.iter().filter(|pull| is_listed(repo, pull, &sha)).map(listed).collect();
            let app = state.app.as_ref().map(|app| json!({ "id": app.id, "slug": app.slug }));
            let latest = repo.checks.iter().map(|check| check.updated_at.as_str()).max().unwrap_or_default();
            let payload = json!({
                "action": "rerequested", "repository": shapes::repo(&shared.url, state, repo),
                "check_suite": { "id": 1, "head_sha": sha, "app": app, "pull_requests": pulls, "updated_at": latest },
                "sender": shapes::user(&shared.url, state, user),
            });
            hooks::emit(state, "check_suite", Some("rerequested"), &payload);
            Ok(())
        })
    }
}
