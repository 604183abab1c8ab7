//! Bitbucket Data Center's JSON → our data.

use crate::bitbucket_data_center::{BitbucketDataCenterAddress, person, times};
use crate::vcs::HostError;
use crate::vcs::http::odd;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState, RepoId};

/// Prefix of the names of all branches.
pub(super) const HEADS: &str = "refs/heads/";
/// Longest text of others that is quoted, in characters.
const MAX_QUOTED: usize = 200;

/// Fails if a repository is not the requested one. Its key and slug count, never its name or that of its project.
pub(super) fn is_repository(asked: &RepoId, what: &str, told: &Value) -> Result<(), HostError> {
    let (key, slug) = key_and_slug(told).ok_or_else(|| odd(what, "a repository without project.key and slug"))?;
    if asked.is_named(key, slug) {
        return Ok(());
    }
    let to: String = format!("{key}/{slug}").chars().filter(char::is_ascii_graphic).collect();
    Err(HostError::Moved { what: what.to_owned(), to })
}

/// Fails if this is not the requested pull request, but one of another repository or number.
pub(super) fn is_asked_for(id: &PullId, what: &str, told: &Value) -> Result<(), HostError> {
    is_repository(&id.repo, what, &told["toRef"]["repository"])?;
    if told["id"] == id.number { Ok(()) } else { Err(odd(what, "another number")) }
}

fn key_and_slug(repository: &Value) -> Option<(&str, &str)> {
    Some((repository["project"]["key"].as_str()?, repository["slug"].as_str()?))
}

/// Returns a repository that an answer names; absent if there can be none of this name.
pub(super) fn named(address: &BitbucketDataCenterAddress, repository: &Value) -> Option<RepoId> {
    key_and_slug(repository).and_then(|(key, slug)| address.repository(key, slug))
}

/// Id of a repository. It stays the same if the repository is renamed or moved.
pub(super) fn key(repository: &Value) -> Option<String> {
    repository["id"].as_u64().map(|id| id.to_string())
}

/// Name of the branch of one side of a pull request.
pub(super) fn branch(side: &Value) -> Option<String> {
    side["id"].as_str()?.strip_prefix(HEADS).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Reads a pull request; the error names the missing field. The base repository has the commits of forks
/// (`refs/pull-requests/7/from`).
pub(super) fn pull_request(
    address: &BitbucketDataCenterAddress,
    id: &PullId,
    told: &Value,
) -> Result<PullRequest, &'static str> {
    let source = named(address, &told["fromRef"]["repository"]);
    let fork = !source.as_ref().is_some_and(|source| source.is_named(&id.repo.owner, &id.repo.name));
    let (repo_owner, repo_name) = source.map(|source| (source.owner, source.name)).unwrap_or_default();
    let title = told["title"].as_str().filter(|title| !title.is_empty()).ok_or("no title")?;
    Ok(PullRequest {
        id: id.clone(),
        title: title.to_owned(),
        url: address.pull_url(&id.repo, id.number),
        author: login(&told["author"]["user"]),
        head: Head {
            branch: branch(&told["fromRef"]).ok_or("no fromRef.id of a branch")?,
            commit: head(told).ok_or("no fromRef.latestCommit")?,
            repo_owner,
            repo_name,
            clone_url: None,
        },
        base: Base {
            branch: branch(&told["toRef"]).ok_or("no toRef.id of a branch")?,
            commit: sha(&told["toRef"]["latestCommit"]).ok_or("no toRef.latestCommit")?,
        },
        draft: told["draft"] == true,
        state: state(told)?,
        fork,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: address.clone_url(&id.repo).ok_or("a name that no repository can have")?,
    })
}

/// Commit of the head of a pull request; of a merged one, that of its merge.
pub(super) fn head(told: &Value) -> Option<CommitSha> {
    sha(&told["fromRef"]["latestCommit"])
}

fn state(told: &Value) -> Result<PullState, &'static str> {
    match told["state"].as_str() {
        Some("OPEN") => Ok(PullState::Open),
        Some("MERGED") => Ok(PullState::Merged { commit: merge_commit(told) }),
        Some("DECLINED") => Ok(PullState::Closed),
        _ => Err("no state"),
    }
}

/// Commit that a merge made (github.com/drone/go-scm, `pr_merged.json`); absent before it, and if the host does not tell it.
pub(super) fn merge_commit(told: &Value) -> Option<CommitSha> {
    sha(&told["properties"]["mergeCommit"]["id"])
}

/// Login of a person; unknown if the host does not report one.
pub(super) fn login(person: &Value) -> Login {
    person::login(person["name"].as_str())
}

/// Returns false for a person who cannot sign in any more (`RestApplicationUser.active`).
pub(super) fn is_active(person: &Value) -> bool {
    person["active"] != false
}

/// Reads a time.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    times::moment(value.as_i64()?)
}

/// Version of a pull request, for reconciliation.
pub(super) fn version(told: &Value) -> Option<String> {
    times::version(told["updatedDate"].as_i64()?, told["version"].as_u64().unwrap_or_default())
}

/// Reads a commit id.
pub(super) fn sha(value: &Value) -> Option<CommitSha> {
    CommitSha::parse(value.as_str()?).ok()
}

/// Returns a short text of others as one line that cannot leave the quotation marks around it.
pub(super) fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|char| !char.is_control()).take(MAX_QUOTED).collect::<String>().replace('`', "'")
}
