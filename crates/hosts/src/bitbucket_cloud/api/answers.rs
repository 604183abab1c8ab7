//! Bitbucket Cloud's JSON → our data.

use crate::bitbucket_cloud::commit_start::is_start;
use crate::bitbucket_cloud::person::ToldPerson;
use crate::bitbucket_cloud::{BitbucketCloudAddress, person, times};
use crate::vcs::HostError;
use crate::vcs::http::odd;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::{Base, CommitSha, Head, Login, PullId, PullRequest, PullState, RepoId};

/// Fails if a repository is not the requested one.
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
    is_repository(&id.repo, what, &told["destination"]["repository"])?;
    if told["id"] == id.number { Ok(()) } else { Err(odd(what, "another number")) }
}

/// Id of a repository. It stays the same if the repository is renamed or transferred.
pub(super) fn key(repository: &Value) -> Option<String> {
    repository["uuid"].as_str().filter(|uuid| person::is_uuid(uuid)).map(str::to_owned)
}

/// Name of the branch of one side of a pull request.
pub(super) fn branch(side: &Value) -> Option<String> {
    text(&side["branch"]["name"])
}

/// First digits of the commit of one side of a pull request, or of its merge.
pub(super) fn start(commit: &Value) -> Option<&str> {
    commit["hash"].as_str().filter(|hash| is_start(hash))
}

/// Repository of the head; absent if it was deleted, or if we may not see it.
pub(super) fn source(address: &BitbucketCloudAddress, told: &Value) -> Option<RepoId> {
    told["source"]["repository"]["full_name"].as_str().and_then(|name| address.repository(name))
}

/// Whole ids of the commits of a pull request, which the host cuts.
pub(super) struct PullCommits {
    pub(super) head: CommitSha,
    pub(super) base: CommitSha,
    /// Commit of the merge; absent before it, and if it is not known.
    pub(super) merge: Option<CommitSha>,
}

/// Reads a pull request; the error names the missing field.
pub(super) fn pull_request(
    address: &BitbucketCloudAddress,
    id: &PullId,
    told: &Value,
    commits: PullCommits,
) -> Result<PullRequest, &'static str> {
    let source = source(address, told);
    let fork = !source.as_ref().is_some_and(|source| source.is_named(&id.repo.owner, &id.repo.name));
    // There are no refs of pull requests: the base repository does not have the commits of a fork.
    let of_fork = source.as_ref().filter(|_| fork).and_then(|source| address.clone_url(source));
    let (repo_owner, repo_name) = source.map(|source| (source.owner, source.name)).unwrap_or_default();
    Ok(PullRequest {
        id: id.clone(),
        title: text(&told["title"]).ok_or("no title")?,
        url: format!("{}/{}/pull-requests/{}", address.site(), id.repo.full_name(), id.number),
        author: login(&told["author"]),
        head: Head {
            branch: branch(&told["source"]).ok_or("no source.branch")?,
            commit: commits.head,
            repo_owner,
            repo_name,
            clone_url: of_fork,
        },
        base: Base { branch: branch(&told["destination"]).ok_or("no destination.branch")?, commit: commits.base },
        draft: told["draft"] == true,
        state: state(told, commits.merge)?,
        fork,
        labels: Vec::new(),
        repo_size_kib: None,
        clone_url: address.clone_url(&id.repo).ok_or("a name that no repository can have")?,
    })
}

fn state(told: &Value, merge: Option<CommitSha>) -> Result<PullState, &'static str> {
    match told["state"].as_str() {
        Some("OPEN") => Ok(PullState::Open),
        Some("MERGED") => Ok(PullState::Merged { commit: merge }),
        Some("DECLINED" | "SUPERSEDED") => Ok(PullState::Closed),
        _ => Err("no state"),
    }
}

/// Login of a person; unknown if the account is deleted.
pub(super) fn login(person: &Value) -> Login {
    person::person(ToldPerson {
        account_id: person["account_id"].as_str(),
        uuid: person["uuid"].as_str(),
        display_name: person["display_name"].as_str(),
    })
}

/// Returns true if two answers are about the same person. One of them may tell the UUID alone.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    ["account_id", "uuid"].iter().any(|key| one[key].is_string() && one[key] == other[key])
}

/// Reads a time.
pub(super) fn moment(value: &Value) -> Option<Timestamp> {
    times::moment(value.as_str()?)
}

/// Version of a pull request.
pub(super) fn version(told: &Value) -> Option<String> {
    times::version(told["updated_on"].as_str()?, told["comment_count"].as_u64().unwrap_or_default())
}

/// Reads the full id of a commit.
pub(super) fn sha(value: &Value) -> Option<CommitSha> {
    CommitSha::parse(value.as_str()?).ok()
}

/// Returns a short text of others that cannot leave the quotation marks around it.
pub(super) fn quoted(text: &str) -> String {
    /// Longest name that is quoted, in characters.
    const MAX_QUOTED: usize = 100;
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTED).collect::<String>().replace('`', "'")
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}
