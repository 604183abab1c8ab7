//! Gitea's JSON → our data.

use crate::gitea::address::GiteaAddress;
use crate::gitea::times;
use crate::vcs::HostError;
use crate::vcs::http::odd;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState, RepoId};

/// Number that stands for a deleted account (models/user/user_system.go, `GhostUserID`).
const GHOST: i64 = -1;

/// Fails if a repository is not the requested one. The host redirects from a former name; a name that another repository has since got is
/// answered with that one.
pub(super) fn is_repository(asked: &RepoId, what: &str, told: &Value) -> Result<(), HostError> {
    let name = told["full_name"].as_str().ok_or_else(|| odd(what, "a repository without full_name"))?;
    if name.eq_ignore_ascii_case(&asked.full_name()) {
        return Ok(());
    }
    let to: String = name.chars().filter(char::is_ascii_graphic).collect();
    Err(HostError::Moved { what: what.to_owned(), to })
}

/// Fails if this is not the requested pull request, but one of another repository or number.
pub(super) fn is_asked_for(id: &PullId, what: &str, told: &Value) -> Result<(), HostError> {
    is_repository(&id.repo, what, &told["base"]["repo"])?;
    if told["number"] == id.number { Ok(()) } else { Err(odd(what, "another number")) }
}

/// Id of a repository. It stays the same if the repository is renamed or transferred.
pub(super) fn key(repository: &Value) -> Option<String> {
    repository["id"].as_u64().map(|id| id.to_string())
}

/// Reads a pull request; the error names the missing field.
///
/// A pull request that was pushed to `refs/for/BRANCH` (AGit) has no branch, and an empty label (services/convert/pull.go). Whoever may read
/// the repository may push one, and the host reports the base repository as its source: it counts as one of a fork that is hidden.
pub(super) fn pull_request(address: &GiteaAddress, id: &PullId, told: &Value) -> Result<PullRequest, &'static str> {
    let (head, base) = (&told["head"], &told["base"]);
    let label = text(&head["label"]);
    // Null if the fork was deleted.
    let source = head["repo"]["full_name"].as_str().filter(|_| label.is_some());
    let (repo_owner, repo_name) = source.and_then(|name| name.split_once('/')).unwrap_or_default();
    let labels = told["labels"].as_array().into_iter().flatten();
    Ok(PullRequest {
        id: id.clone(),
        title: text(&told["title"]).ok_or("no title")?,
        url: format!("{}/{}/pulls/{}", address.base(), id.repo.full_name(), id.number),
        author: login(&told["user"]),
        head: Head {
            // The label is the branch also when that was deleted.
            branch: label.or_else(|| text(&head["ref"])).ok_or("no head.ref")?,
            commit: sha(&head["sha"]).ok_or("no head.sha")?,
            repo_owner: repo_owner.to_owned(),
            repo_name: repo_name.to_owned(),
            clone_url: None,
        },
        base: Base {
            branch: text(&base["ref"]).ok_or("no base.ref")?,
            // Absent if the branch was deleted.
            commit: sha(&base["sha"]).or_else(|| sha(&told["merge_base"])).ok_or("no base.sha")?,
        },
        draft: told["draft"] == true,
        state: state(told)?,
        fork: !id.repo.is_named(repo_owner, repo_name),
        labels: labels.filter_map(|label| text(&label["name"])).collect(),
        repo_size_kib: base["repo"]["size"].as_u64(),
        clone_url: address.clone_url(&id.repo).ok_or("a name that no repository can have")?,
    })
}

fn state(told: &Value) -> Result<PullState, &'static str> {
    match told["state"].as_str() {
        Some("open") => Ok(PullState::Open),
        Some("closed") if told["merged"] == true => Ok(PullState::Merged { commit: sha(&told["merge_commit_sha"]) }),
        Some("closed") => Ok(PullState::Closed),
        _ => Err("no state"),
    }
}

/// Login of a person; unknown if the account is deleted.
pub(super) fn login(person: &Value) -> Login {
    let is_ghost = person["id"].as_i64() == Some(GHOST);
    person["login"].as_str().filter(|_| !is_ghost).map_or_else(Login::unknown, Login::new)
}

/// Reads a time.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    times::moment(value.as_str()?)
}

/// Reads the full id of a commit.
pub(super) fn sha(value: &Value) -> Option<CommitSha> {
    CommitSha::parse(value.as_str()?).ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
