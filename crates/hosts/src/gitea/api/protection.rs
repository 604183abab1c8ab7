//! The rule of a base branch. Administrators of the repository alone may read all of it; others see how many approvals and which statuses it
//! requires. What stays hidden is taken to be strict where the reviews tell, as a merge that is promised and then refused comes after the
//! apply.

use super::globs::GiteaGlob;
use super::{Gitea, answers, reviews, statuses};
use crate::vcs::http::segment;
use crate::vcs::{HostError, own_status};
use serde_json::Value;
use tidelock_core::domain::{Login, PullRequest};

/// Most pages of changed files, where the rule protects some.
const FILE_PAGES: u32 = 60;
/// Most statuses that are named.
const MAX_NAMED: usize = 5;
/// Longest name that is quoted, in characters.
const MAX_QUOTED: usize = 100;

/// Returns what the rule of the base branch, as the host has it, demands besides our own statuses; empty if nothing.
pub(super) async fn obstacles(host: &Gitea, pull: &PullRequest, told: &Value) -> Result<Vec<String>, HostError> {
    let base = &pull.base.branch;
    let branch = match host.branch(&pull.id.repo, base).await {
        Err(HostError::NotFound { .. }) => return Ok(vec![format!("`{base}` is gone")]),
        answered => answered?,
    };
    let mut found = Vec::new();
    if branch["user_can_merge"] == false {
        found.push(format!("the server's account may not merge into `{base}`"));
    }
    if branch["protected"] != true {
        return Ok(found);
    }
    let rule = rule(host, pull, &branch).await?;
    if branch["enable_status_check"] == true {
        let own = host.own_login().await?;
        let rows = statuses::latest(host, &pull.id.repo, &pull.head.commit).await?;
        found.extend(of_statuses(&rows, &branch["status_check_contexts"], own, &host.status_name));
    }
    let rows = reviews::all(host, &pull.id).await?;
    found.extend(of_reviews(&rows, branch["required_approvals"].as_u64().unwrap_or_default(), rule.as_ref()));
    let Some(rule) = rule else { return Ok(found) };
    if rule["block_on_outdated_branch"] == true && told["merge_base"] != told["base"]["sha"] {
        found.push(format!("it is behind `{base}`, which has to be merged into it first"));
    }
    found.extend(of_files(host, pull, rule["protected_file_patterns"].as_str().unwrap_or_default()).await?);
    Ok(found)
}

/// Returns the whole rule of a branch; absent if our account may not read it.
async fn rule(host: &Gitea, pull: &PullRequest, branch: &Value) -> Result<Option<Value>, HostError> {
    let Some(name) = branch["effective_branch_protection_name"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let path = format!("{}/branch_protections/{}", host.address.repo_path(&pull.id.repo)?, segment(name));
    match host.http.get(&path).await {
        Ok(answer) => Ok(Some(answer.body)),
        Err(HostError::Denied { .. } | HostError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Judges the latest status of each context (services/pull/commit_status.go, `MergeRequiredContextsCommitStatus`). Unfinished ones of ours
/// and those of applies do not count: they announce what is about to be done.
fn of_statuses(rows: &[Value], contexts: &Value, own: &Login, first: &str) -> Vec<String> {
    let context = |row: &Value| row["context"].as_str().unwrap_or_default().to_owned();
    let blocks = |row: &&Value| {
        let is_ours = answers::login(&row["creator"]).is(own) && own_status::is_ours(&context(row), first);
        let is_announced = is_ours && (row["status"] == "pending" || own_status::is_of_apply(&context(row), first));
        !is_announced && !matches!(row["status"].as_str(), Some("success" | "skipped"))
    };
    let patterns: Vec<&str> = contexts.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (mut wanting, mut missing): (Vec<&Value>, Vec<String>) = (Vec::new(), Vec::new());
    if patterns.is_empty() {
        wanting.extend(rows.iter().filter(blocks));
        missing.extend(rows.is_empty().then(|| "no status is set, and the branch requires them".to_owned()));
    }
    for pattern in patterns {
        let glob = GiteaGlob::new(pattern, &[]);
        let is_required = |row: &&Value| glob.as_ref().is_some_and(|glob| glob.matches(&context(row)));
        let required: Vec<&Value> = rows.iter().filter(is_required).collect();
        if required.is_empty() && !own_status::is_of_apply(pattern, first) {
            missing.push(format!("`{}` is not set", quoted(pattern)));
        }
        for row in required.into_iter().filter(blocks) {
            if !wanting.iter().any(|known| known["context"] == row["context"]) {
                wanting.push(row);
            }
        }
    }
    let state = |row: &Value| quoted(row["status"].as_str().unwrap_or_default());
    missing.extend(wanting.into_iter().map(|row| format!("`{}` is {}", quoted(&context(row)), state(row))));
    if missing.len() > MAX_NAMED {
        let more = missing.len() - MAX_NAMED;
        missing.truncate(MAX_NAMED);
        missing.push(format!("and {more} more statuses"));
    }
    missing
}

/// Judges reviews (models/issues/pull.go, `HasEnoughApprovals` and `MergeBlockedBy…`).
fn of_reviews(rows: &[Value], required: u64, rule: Option<&Value>) -> Vec<String> {
    let demands = |key: &str| rule.is_none_or(|rule| rule[key] == true);
    let official = |state: &str| {
        let state = state.to_owned();
        move |row: &&Value| row["state"] == state.as_str() && row["official"] == true && row["dismissed"] != true
    };
    let ignores_stale = demands("ignore_stale_approvals");
    let counts = |row: &&Value| !ignores_stale || row["stale"] != true;
    let granted = rows.iter().filter(official("APPROVED")).filter(counts).count() as u64;
    let mut found = Vec::new();
    if granted < required {
        let more = required - granted;
        found.push(format!("{more} more {} required", if more == 1 { "approval is" } else { "approvals are" }));
    }
    if demands("block_on_rejected_reviews")
        && let Some(row) = rows.iter().find(official("REQUEST_CHANGES"))
    {
        found.push(format!("{} requested changes", quoted(row["user"]["login"].as_str().unwrap_or("somebody"))));
    }
    if demands("block_on_official_review_requests") && rows.iter().any(|row| official("REQUEST_REVIEW")(&row)) {
        found.push("a requested review is missing".to_owned());
    }
    found
}

/// Returns the obstacle of a changed file that the rule protects: patterns are separated by `;` and ignore case
/// (models/git/protected_branch.go, `getFilePatterns`).
async fn of_files(host: &Gitea, pull: &PullRequest, patterns: &str) -> Result<Option<String>, HostError> {
    let patterns = patterns.to_lowercase();
    let patterns = patterns.split(';').map(str::trim).filter(|pattern| !pattern.is_empty());
    let globs: Vec<GiteaGlob> = patterns.filter_map(|pattern| GiteaGlob::new(pattern, &['.', '/'])).collect();
    if globs.is_empty() {
        return Ok(None);
    }
    let rows = host.rows(&format!("{}/files", host.pull_path(&pull.id)?), FILE_PAGES).await?;
    let names = rows.iter().flat_map(|row| [&row["filename"], &row["previous_filename"]]).filter_map(Value::as_str);
    let protected = |name: &&str| globs.iter().any(|glob| glob.matches(&name.to_lowercase()));
    let found = names.into_iter().find(protected);
    Ok(found.map(|name| format!("it changes `{}`, which is protected", quoted(name))))
}

/// Returns a short text of others that cannot leave the quotation marks around it.
fn quoted(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTED).collect::<String>().replace('`', "'")
}
