//! Check runs: what an App with `checks: write` may post, with GitHub's limits (docs.github.com/rest/checks/runs).

use super::super::app::BOT_OF_APP;
use super::super::checks::{CheckState, shape};
use super::super::state::StatusState;
use super::super::timestamp;
use super::{Call, NOT_FOUND, Refusal, Result, created, invalid, ok};
use http::StatusCode;
use serde_json::{Value, json};

/// Limits of GitHub, in characters if they are about texts, and in bytes for summary and text (as GitHub's refusal says).
const MAX_NAME: usize = 255;
const MAX_SUMMARY: usize = 65_535;
const MAX_ANNOTATIONS: usize = 50;
const MAX_MESSAGE_BYTES: usize = 64 << 10;
const MAX_ACTIONS: usize = 3;
const CONCLUSIONS: [&str; 7] =
    ["action_required", "cancelled", "failure", "neutral", "skipped", "success", "timed_out"];
const LEVELS: [&str; 3] = ["notice", "warning", "failure"];

fn chars(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.chars().count())
}

fn of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns GitHub's refusal of the texts and buttons of a check run.
fn refused(body: &Value) -> Option<String> {
    let output = &body["output"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (annotations, actions) = (list(&output["annotations"]), list(&body["actions"]));
    if !output.is_null() && (chars(&output["title"]) == 0 || !output["summary"].is_string()) {
        return Some("Invalid request.\n\n\"title\", \"summary\" weren't supplied.".to_owned());
    }
    for key in ["summary", "text"] {
        if output[key].as_str().is_some_and(|text| text.len() > MAX_SUMMARY) {
            return Some(format!("Validation Failed: {key} exceeds a maximum bytesize of 65535"));
        }
    }
    if annotations.len() > MAX_ANNOTATIONS {
        let count = annotations.len();
        return Some(format!("Invalid request.\n\nNo more than 50 items are allowed; {count} were supplied."));
    }
    let is_wrong = |one: &Value| {
        let lines = (one["start_line"].as_u64(), one["end_line"].as_u64());
        let (path, message) = (of(&one["path"]), of(&one["message"]));
        path.is_empty()
            || path.starts_with('/')
            || !matches!(lines, (Some(start), Some(end)) if start > 0 && end >= start)
            || !LEVELS.contains(&of(&one["annotation_level"]).as_str())
            || message.is_empty()
            || message.len() > MAX_MESSAGE_BYTES
            || chars(&one["title"]) > MAX_NAME
    };
    if annotations.iter().any(is_wrong) {
        return Some("Invalid request.\n\nAn annotation is not valid.".to_owned());
    }
    if actions.len() > MAX_ACTIONS {
        let count = actions.len();
        return Some(format!("Invalid request.\n\nNo more than 3 items are allowed; {count} were supplied."));
    }
    let is_long = |action: &Value| {
        let limits = [("label", 20), ("description", 40), ("identifier", 20)];
        limits.iter().any(|(key, most)| chars(&action[*key]) == 0 || chars(&action[*key]) > *most)
    };
    actions.iter().any(is_long).then(|| "Invalid request.\n\nAn action is too long or lacks a text.".to_owned())
}

/// Returns status and conclusion of a check run that is posted.
fn progress(body: &Value, before: Option<&CheckState>) -> Result<(String, Option<String>)> {
    let conclusion = body["conclusion"].as_str().map(str::to_owned);
    if conclusion.as_ref().is_some_and(|word| !CONCLUSIONS.contains(&word.as_str())) {
        return Err(invalid("Invalid request.\n\nconclusion is not a member of the list."));
    }
    let kept = before.map_or("queued", |check| check.status.as_str());
    let status = match (&conclusion, body["status"].as_str()) {
        (Some(_), _) => "completed",
        (None, Some("completed")) => return Err(invalid("Invalid request.\n\n\"conclusion\" wasn't supplied.")),
        (None, Some(word @ ("queued" | "in_progress"))) => word,
        (None, None) => kept,
        (None, Some(_)) => return Err(invalid("Invalid request.\n\nstatus is not a member of the list.")),
    };
    // Its status stays completed.
    if kept == "completed" && status != "completed" {
        return Ok((kept.to_owned(), before.and_then(|check| check.conclusion.clone())));
    }
    Ok((status.to_owned(), conclusion))
}

impl Call<'_> {
    /// Fails unless the App asks, with this level of the permission.
    fn check_app(&self, levels: &[&str]) -> Result<()> {
        let forbidden = |message: &str| Err(Refusal(StatusCode::FORBIDDEN, message.to_owned()));
        if !self.login.ends_with(BOT_OF_APP) {
            return forbidden("You must authenticate via a GitHub App.");
        }
        let state = self.shared.lock();
        let level = state.app.as_ref().map(|app| of(&app.permissions["checks"])).unwrap_or_default();
        if levels.contains(&level.as_str()) { Ok(()) } else { forbidden("Resource not accessible by integration") }
    }

    /// Creates or updates a check run.
    pub(super) async fn change_check(&self, method: &str, id: &[&str]) -> Result {
        match (method, id) {
            ("POST", []) => self.create_check().await,
            ("PATCH", [id]) => self.update_check(id),
            _ => Err(NOT_FOUND()),
        }
    }

    async fn create_check(&self) -> Result {
        self.check_app(&["write"])?;
        let (name, sha) = (of(&self.body["name"]), of(&self.body["head_sha"]));
        if name.is_empty() || sha.is_empty() {
            return Err(invalid("Invalid request.\n\n\"name\", \"head_sha\" weren't supplied."));
        }
        if name.chars().count() > MAX_NAME {
            return Err(invalid("Validation Failed: name is too long (maximum is 255 characters)"));
        }
        if let Some(message) = refused(&self.body) {
            return Err(invalid(message));
        }
        let (status, conclusion) = progress(&self.body, None)?;
        if !self.has_commit(&sha).await? {
            return Err(invalid(format!("No commit found for SHA: {sha}")));
        }
        let url = &self.shared.url;
        self.shared.change(|state| {
            let id = state.new_id();
            let as_status = StatusState {
                id,
                sha,
                creator: self.login.clone(),
                state: String::new(),
                context: name,
                description: None,
                target_url: None,
                created_at: timestamp(),
                of_push: None,
            };
            let mut check = CheckState {
                as_status,
                status,
                conclusion,
                external_id: String::new(),
                summary: String::new(),
                annotations: Vec::new(),
                actions: Vec::new(),
                updated_at: timestamp(),
            };
            write(&mut check, &self.body);
            state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?.checks.push(check);
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            created(repo.checks.last().map(|check| shape(url, state, repo, check)).into())
        })
    }

    fn update_check(&self, id: &str) -> Result {
        self.check_app(&["write"])?;
        if let Some(message) = refused(&self.body) {
            return Err(invalid(message));
        }
        let url = &self.shared.url;
        self.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?;
            let found = repo.checks.iter_mut().find(|check| check.as_status.id.to_string() == id);
            let check = found.ok_or_else(NOT_FOUND)?;
            (check.status, check.conclusion) = progress(&self.body, Some(&*check))?;
            write(check, &self.body);
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let check = repo.checks.iter().find(|check| check.as_status.id.to_string() == id);
            ok(check.map(|check| shape(url, state, repo, check)).into())
        })
    }

    /// Lists the check runs of a commit, the newest of each name with `filter=latest`.
    pub(super) fn checks(&self, sha: &str) -> Result {
        self.check_app(&["read", "write"])?;
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        let app = state.app.as_ref().map(|app| app.id.to_string());
        let is_other = self.asked("app_id").is_some_and(|asked| Some(asked) != app);
        let all = self.asked("filter").is_some_and(|filter| filter == "all");
        let name = self.asked("check_name");
        let is_wanted = |check: &&CheckState| {
            let of = &check.as_status;
            let is_latest = || repo.latest_check(sha, &of.context).is_some_and(|latest| latest.as_status.id == of.id);
            of.sha == sha && name.as_ref().is_none_or(|name| *name == of.context) && !is_other && (all || is_latest())
        };
        let found = repo.checks.iter().rev().filter(is_wanted);
        let rows: Vec<Value> = found.map(|check| shape(&self.shared.url, &state, repo, check)).collect();
        ok(json!({ "total_count": rows.len(), "check_runs": rows }))
    }
}

/// Writes the given fields. Annotations are added to those from before, as on GitHub.
fn write(check: &mut CheckState, body: &Value) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(external_id) = text(&body["external_id"]) {
        check.external_id = external_id;
    }
    if let Some(url) = text(&body["details_url"]) {
        check.as_status.target_url = Some(url);
    }
    let output = &body["output"];
    if !output.is_null() {
        (check.as_status.description, check.summary) = (text(&output["title"]), of(&output["summary"]));
        check.annotations.extend(output["annotations"].as_array().cloned().unwrap_or_default());
    }
    if let Some(actions) = body["actions"].as_array() {
        check.actions.clone_from(actions);
    }
    check.updated_at = timestamp();
    check.settle();
}
