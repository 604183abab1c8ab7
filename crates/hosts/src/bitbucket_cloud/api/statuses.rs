//! Build statuses of commits. One is known by its key; setting the key again replaces it
//! (`POST /repositories/{workspace}/{repo_slug}/commit/{commit}/statuses/build`).

use super::{BitbucketCloud, answers};
use crate::vcs::HostError;
use crate::vcs::http::{odd, segment};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, PullId};

/// Longest key, in characters (runatlantis/atlantis, `server/events/vcs/bitbucketcloud/client.go`).
const KEY_LIMIT: usize = 40;
/// Longest name and description, in characters.
const TEXT_LIMIT: usize = 255;
/// Most pages of statuses of one commit.
const MAX_PAGES: u32 = 10;
/// Most source branches that are remembered. At this number all are removed.
const MOST: usize = 20_000;

/// Names of source branches in the last answers.
#[derive(Default)]
pub(super) struct SourceBranches(Mutex<HashMap<PullId, String>>);

impl SourceBranches {
    pub(super) fn record(&self, pull: &PullId, branch: Option<String>) {
        let Some(branch) = branch else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(pull.clone(), branch);
    }

    fn get(&self, pull: &PullId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(pull).cloned()
    }
}

/// Sets a status. The name of the source branch ties it to the pull request.
pub(super) async fn set(
    host: &BitbucketCloud,
    pull: &PullId,
    commit: &CommitSha,
    status: &CommitStatus,
) -> Result<(), HostError> {
    let state = match status.state {
        StatusState::Pending => "INPROGRESS",
        StatusState::Success => "SUCCESSFUL",
        StatusState::Failure => "FAILED",
    };
    let cut = |text: &str| text.chars().take(TEXT_LIMIT).collect::<String>();
    let mut body = json!({
        "key": key(&status.context),
        "name": cut(&status.context),
        "state": state,
        "description": cut(&status.description),
        "url": literal(if status.url.is_empty() { &host.server_url } else { &status.url }),
    });
    if let Some(branch) = source_branch(host, pull).await? {
        body["refname"] = json!(branch);
    }
    let path = format!("/commit/{}/statuses/build", segment(commit.as_str()));
    match host.say(Method::POST, &pull.repo, &path, Some(body)).await {
        // The pull request was found, so it is the commit that is not.
        Err(HostError::NotFound { what }) if !pull.is_branch() => {
            Err(HostError::UnknownCommit { what, message: format!("the host does not know commit {commit}") })
        }
        answered => answered.map(drop),
    }
}

/// Returns the name of the source branch, from an earlier answer if there is one; absent for a branch without a pull request.
async fn source_branch(host: &BitbucketCloud, pull: &PullId) -> Result<Option<String>, HostError> {
    if pull.is_branch() {
        return Ok(None);
    }
    match host.branches.get(pull) {
        Some(known) => Ok(Some(known)),
        None => match host.pull(pull).await {
            Ok(told) => Ok(answers::branch(&told["source"])),
            // The post follows the repository, and the status is tied to the commit alone.
            Err(HostError::Moved { .. }) => Ok(None),
            Err(error) => Err(error),
        },
    }
}

/// Returns the latest status of each of our contexts, as far as one page reports them. The host does not say who has set one: ours are
/// those whose names and keys begin as ours do.
pub(super) async fn own(
    host: &BitbucketCloud,
    pull: &PullId,
    commit: &CommitSha,
) -> Result<Vec<CommitStatus>, HostError> {
    let path = format!("{}?pagelen=100&sort=-updated_on", statuses_path(host, pull, commit)?);
    let body = host.http.get(&path).await?.body;
    let rows = body["values"].as_array().ok_or_else(|| odd(&path, "no list of values"))?;
    Ok(rows.iter().filter(|row| is_ours(row, &host.status_name)).map(status).collect())
}

/// Returns all statuses of a commit, each key once.
pub(super) async fn all(host: &BitbucketCloud, pull: &PullId, commit: &CommitSha) -> Result<Vec<Value>, HostError> {
    let path = format!("{}?pagelen=100", statuses_path(host, pull, commit)?);
    Ok(host.http.value_pages(&path, MAX_PAGES).await?.rows)
}

fn statuses_path(host: &BitbucketCloud, pull: &PullId, commit: &CommitSha) -> Result<String, HostError> {
    Ok(format!("{}/commit/{}/statuses", host.address.repo_path(&pull.repo)?, segment(commit.as_str())))
}

fn status(row: &Value) -> CommitStatus {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let state = match row["state"].as_str() {
        Some("INPROGRESS") => StatusState::Pending,
        Some("SUCCESSFUL") => StatusState::Success,
        _ => StatusState::Failure,
    };
    CommitStatus { context: text("name"), state, description: text("description"), url: text("url"), waits: false }
}

/// Returns the key of a context. One that is too long is cut, and stays different from others that begin alike.
pub(super) fn key(context: &str) -> String {
    /// Digits of the hash that end a cut key.
    const DIGITS: usize = 12;
    if context.chars().count() <= KEY_LIMIT {
        return context.to_owned();
    }
    let hash = hex::encode(Sha256::digest(context));
    let kept: String = context.chars().take(KEY_LIMIT - DIGITS - 1).collect();
    format!("{kept}~{}", &hash[..DIGITS])
}

/// Returns an address in which the host replaces nothing: it takes `{…}` for names of its own values.
fn literal(url: &str) -> String {
    url.replace('{', "%7B").replace('}', "%7D")
}

/// Returns true if a status is one of ours, whose names begin with `first`.
pub(super) fn is_ours(row: &Value, first: &str) -> bool {
    let name = row["name"].as_str().unwrap_or_default();
    let is_name = name.strip_prefix(first).is_some_and(|rest| rest.starts_with('/'));
    is_name && (row["key"] == key(name).as_str() || name.chars().count() >= TEXT_LIMIT)
}

/// Returns true if a status of ours is that of an apply.
pub(super) fn is_of_apply(row: &Value, first: &str) -> bool {
    let name = row["name"].as_str().unwrap_or_default();
    let rest = name.strip_prefix(first).and_then(|rest| rest.strip_prefix("/apply"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn long_contexts_have_short_keys_that_stay_different() {
        let long = |end: &str| key(&format!("atlantis/plan: {}{end}", "ä".repeat(100)));
        assert_eq!(long("a").chars().count(), KEY_LIMIT);
        assert!(long("a").starts_with("atlantis/plan: ääää") && long("a") != long("b"));
        let most = "x".repeat(KEY_LIMIT);
        assert_eq!((key("atlantis/plan"), key(&most)), ("atlantis/plan".to_owned(), most));
    }

    #[test]
    fn an_address_is_no_template() {
        assert_eq!(literal("https://x/{repository.full_name}?a={b"), "https://x/%7Brepository.full_name%7D?a=%7Bb");
    }

    #[test]
    fn our_own_statuses_are_told_by_name_and_key() {
        let row = |name: &str| json!({"name": name, "key": key(name)});
        assert!(is_ours(&row("atlantis/apply"), "atlantis") && is_ours(&row("prod/eu/plan: a"), "prod/eu"));
        assert!(!is_ours(&row("atlantis-2/apply"), "atlantis") && !is_ours(&row("build"), "atlantis"));
        assert!(!is_ours(&json!({"name": "atlantis/apply", "key": "BUILD-1"}), "atlantis"));
        assert!(is_of_apply(&row("atlantis/apply"), "atlantis") && is_of_apply(&row("atlantis/apply: a"), "atlantis"));
        assert!(!is_of_apply(&row("atlantis/apply-all"), "atlantis") && !is_of_apply(&row("x/apply"), "atlantis"));
    }
}
