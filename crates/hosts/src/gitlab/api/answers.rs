//! GitLab's JSON → our data.

use crate::gitlab::address::GitlabAddress;
use crate::gitlab::times;
use crate::vcs::HostError;
use crate::vcs::http::odd;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState, RepoId};

/// Fails if this is not the requested merge request, but one of another project or number.
pub(super) fn is_asked_for(id: &PullId, what: &str, told: &Value) -> Result<(), HostError> {
    if told["iid"] != id.number {
        return Err(odd(what, "another number"));
    }
    let full = told["references"]["full"].as_str().ok_or_else(|| odd(what, "no references.full"))?;
    let project = full.strip_suffix(&format!("!{}", id.number)).unwrap_or(full);
    is_project(&id.repo, what, project)
}

/// Fails if a path of a project (`path_with_namespace`) is not the requested one's.
pub(super) fn is_project(asked: &RepoId, what: &str, path: &str) -> Result<(), HostError> {
    if path.eq_ignore_ascii_case(&asked.full_name()) {
        return Ok(());
    }
    let to: String = path.chars().filter(char::is_ascii_graphic).collect();
    Err(HostError::Moved { what: what.to_owned(), to })
}

/// Id of the project that a merge request belongs to. It stays the same if the project is renamed or transferred.
pub(super) fn key(merge_request: &Value) -> Option<String> {
    merge_request["target_project_id"].as_u64().map(|id| id.to_string())
}

/// Reads a merge request; the error names the missing field. Lists lack `diff_refs`; the head then stands for the
/// commit of the base, so that nothing is known to lie between them.
pub(super) fn pull_request(address: &GitlabAddress, id: &PullId, told: &Value) -> Result<PullRequest, &'static str> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let target = told["target_project_id"].as_u64().ok_or("no target_project_id")?;
    // Null if the fork was deleted.
    let fork = told["source_project_id"] != target;
    let (repo_owner, repo_name) = if fork { Default::default() } else { (id.repo.owner.clone(), id.repo.name.clone()) };
    let refs = &told["diff_refs"];
    let base = sha(&refs["start_sha"]).or_else(|| sha(&refs["base_sha"]));
    let commit = sha(&told["sha"]).ok_or("no sha")?;
    let labels = told["labels"].as_array().into_iter().flatten();
    Ok(PullRequest {
        id: id.clone(),
        title: text(&told["title"]).ok_or("no title")?,
        url: address.merge_request_page(&id.repo, id.number).ok_or("a name that no project can have")?,
        author: login(&told["author"]),
        head: Head {
            branch: text(&told["source_branch"]).ok_or("no source_branch")?,
            commit: commit.clone(),
            repo_owner,
            repo_name,
            clone_url: None,
        },
        base: Base { branch: text(&told["target_branch"]).ok_or("no target_branch")?, commit: base.unwrap_or(commit) },
        draft: is_draft(told),
        state: state(told)?,
        fork,
        labels: labels.filter_map(text).collect(),
        repo_size_kib: None,
        clone_url: address.clone_url(&id.repo).ok_or("a name that no project can have")?,
    })
}

/// Reads the state. A locked merge request is being merged, or was not merged after all; it is open again then.
fn state(told: &Value) -> Result<PullState, &'static str> {
    match told["state"].as_str() {
        Some("opened" | "locked") => Ok(PullState::Open),
        Some("merged") => Ok(PullState::Merged { commit: merged_commit(told) }),
        Some("closed") => Ok(PullState::Closed),
        _ => Err("no state"),
    }
}

/// Returns the commit on the target branch that a merge made: the merge commit, else the squashed one, else the head after a
/// fast-forward (docs.gitlab.com/api/merge_requests, "Get MR").
pub(super) fn merged_commit(told: &Value) -> Option<CommitSha> {
    sha(&told["merge_commit_sha"]).or_else(|| sha(&told["squash_commit_sha"])).or_else(|| sha(&told["sha"]))
}

/// Returns true if a merge request is a draft. Versions before 14.0 say `work_in_progress`.
pub(super) fn is_draft(told: &Value) -> bool {
    told["draft"] == true || told["work_in_progress"] == true
}

/// Login of a person; unknown if there is none.
pub(super) fn login(person: &Value) -> Login {
    person["username"].as_str().map_or_else(Login::unknown, Login::new)
}

/// Reads a time.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    times::moment(value.as_str()?)
}

/// Reads the full id of a commit.
pub(super) fn sha(value: &Value) -> Option<CommitSha> {
    CommitSha::parse(value.as_str()?).ok()
}
