//! Build statuses of commits. One is known by its key; setting the key again replaces it
//! (`POST /repositories/{workspace}/{repo_slug}/commit/{commit}/statuses/build`).

use super::{BitbucketCloud, answers};
use crate::vcs::http::{odd, segment};
use crate::vcs::{HostError, own_status};
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{CommitSha, PullId};

/// Longest key, in characters (runatlantis/atlantis, `server/events/vcs/bitbucketcloud/client.go`).
const KEY_LIMIT: usize = 40;
/// Digits of the hash that ends a cut key.
const KEY_DIGITS: usize = 12;
/// Longest name and description, in characters.
const TEXT_LIMIT: usize = 255;
/// Most pages of statuses of one commit.
const MAX_PAGES: u32 = 10;

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
    CommitStatus::told(text("name"), state, text("description"), text("url"))
}

/// Returns the key of a context.
pub(super) fn key(context: &str) -> String {
    own_status::cut(context, KEY_LIMIT, KEY_DIGITS)
}

/// Returns an address in which the host replaces nothing: it takes `{…}` for names of its own values.
fn literal(url: &str) -> String {
    url.replace('{', "%7B").replace('}', "%7D")
}

/// Returns true if a status is one of ours, whose names begin with `first`.
pub(super) fn is_ours(row: &Value, first: &str) -> bool {
    let name = row["name"].as_str().unwrap_or_default();
    own_status::is_ours(name, first) && (row["key"] == key(name).as_str() || name.chars().count() >= TEXT_LIMIT)
}

/// Returns true if a status of ours is that of an apply.
pub(super) fn is_of_apply(row: &Value, first: &str) -> bool {
    own_status::is_of_apply(row["name"].as_str().unwrap_or_default(), first)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

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
    }
}
