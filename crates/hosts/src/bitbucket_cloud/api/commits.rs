//! Whole ids of commits. Pull requests have their first digits only, which an author can give to two commits, so nothing is bound to them:
//! a head is the tip of its branch, which the host tells whole, and the first digits are looked up only if the branch is gone.

use super::BitbucketCloud;
use super::answers::{self, PullCommits};
use crate::bitbucket_cloud::commit_start::is_start;
use crate::vcs::HostError;
use crate::vcs::http::{odd, segment};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::{CommitSha, PullId, PullRequest, RepoId};

/// Most ids that are remembered. At this number all are removed.
const MOST: usize = 20_000;

/// Whole ids by repository and first digits, from the last answers.
#[derive(Default)]
pub(super) struct FullCommits(Mutex<HashMap<(RepoId, String), CommitSha>>);

impl FullCommits {
    fn lock(&self) -> MutexGuard<'_, HashMap<(RepoId, String), CommitSha>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, repo: &RepoId, start: &str, commit: CommitSha) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert((repo.clone(), start.to_owned()), commit);
    }

    fn get(&self, repo: &RepoId, start: &str) -> Option<CommitSha> {
        self.lock().get(&(repo.clone(), start.to_owned())).cloned()
    }
}

/// A commit as the host tells it.
pub(super) struct ToldCommit {
    pub(super) id: CommitSha,
    pub(super) parents: Vec<CommitSha>,
}

impl BitbucketCloud {
    /// Returns a pull request with whole commits.
    pub(super) async fn whole_pull(&self, id: &PullId, told: &Value) -> Result<PullRequest, HostError> {
        let what = format!("pull request {id}");
        let is_open = told["state"] == "OPEN";
        let head = match self.head_commit(id, told).await {
            // A fork may be gone. What the pull request holds is freed all the same.
            Err(HostError::UnknownCommit { .. }) if !is_open => self.heads.last(id)?,
            found => {
                let head = found?;
                self.heads.record(id, answers::version(told), Some(head.clone()));
                head
            }
        };
        let base = match answers::start(&told["destination"]["commit"]) {
            Some(start) => match self.known_commit(&id.repo, start).await {
                Err(HostError::UnknownCommit { .. }) if !is_open => head.clone(),
                Err(HostError::UnknownCommit { what, message }) => {
                    return Err(HostError::Unavailable { what, message });
                }
                found => found?,
            },
            // The branch has no commit that is told, so nothing is known to lie between it and the head.
            None => head.clone(),
        };
        let merge = match answers::start(&told["merge_commit"]) {
            Some(start) => match self.commits.get(&id.repo, start) {
                Some(known) => Some(known),
                None => self.merge_commit(&id.repo, start).await.map(|commit| commit.id),
            },
            None => None,
        };
        answers::pull_request(&self.address, id, told, PullCommits { head, base, merge })
            .map_err(|wrong| odd(&what, wrong))
    }

    /// Returns the whole id of the head of a pull request: the tip of its branch. If the branch is gone, the first digits are looked up in
    /// the repository that it comes from, and in the base repository where that is gone or hidden. Fails with
    /// [`HostError::UnknownCommit`] if none has it.
    pub(super) async fn head_commit(&self, id: &PullId, told: &Value) -> Result<CommitSha, HostError> {
        let what = format!("head of {id}");
        if told["source"]["commit"].is_null() {
            let message = "the host tells no commit: the repository that it comes from may be gone".to_owned();
            return Err(HostError::UnknownCommit { what, message });
        }
        let start = head_start(id, told)?;
        let source = answers::source(&self.address, told);
        let fork = source.as_ref().filter(|source| !source.is_named(&id.repo.owner, &id.repo.name));
        if let (Some(source), Some(branch)) = (&source, answers::branch(&told["source"])) {
            match seen(fork, self.branch_tip(source, &branch).await)? {
                Some(tip) if tip.as_str().starts_with(start) => return Ok(tip),
                Some(_) if told["state"] == "OPEN" => {
                    let message =
                        "its branch has moved, and the host does not tell it of the pull request yet".to_owned();
                    return Err(HostError::Unavailable { what, message });
                }
                Some(_) | None => {}
            }
        }
        if let Some(fork) = fork
            && let Some(commit) = seen(Some(fork), self.asked_commit(fork, start).await)?
        {
            return Ok(commit.id);
        }
        self.full_commit(&id.repo, start).await
    }

    /// Returns the tip of a branch; absent if there is no such branch.
    pub(super) async fn branch_tip(&self, repo: &RepoId, branch: &str) -> Result<Option<CommitSha>, HostError> {
        let path = format!("{}/refs/branches/{}", self.address.repo_path(repo)?, segment(branch));
        let told = match self.http.get(&path).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        if told["name"] != branch {
            return Err(odd(&path, "another branch"));
        }
        answers::sha(&told["target"]["hash"]).map(Some).ok_or_else(|| odd(&path, "a branch without a commit"))
    }

    /// Returns the whole id of a commit, and asks the host for it. Fails with [`HostError::UnknownCommit`] if it is gone, or if several
    /// commits have these first digits.
    async fn full_commit(&self, repo: &RepoId, start: &str) -> Result<CommitSha, HostError> {
        let found = self.asked_commit(repo, start).await?;
        found.map(|commit| commit.id).ok_or_else(|| HostError::UnknownCommit {
            what: format!("commit {start} of {repo}"),
            message: "the host has no commit with these first digits, or several".to_owned(),
        })
    }

    /// Returns the same, from an earlier answer if there is one.
    async fn known_commit(&self, repo: &RepoId, start: &str) -> Result<CommitSha, HostError> {
        let whole = CommitSha::parse(start).ok();
        match whole.or_else(|| self.commits.get(repo, start)) {
            Some(known) => Ok(known),
            None => self.full_commit(repo, start).await,
        }
    }

    /// Returns the commit that a merge made; absent if the host does not tell it. The answer to a merge has its whole id
    /// (github.com/khipu/khbb, "Bitbucket Cloud API findings").
    pub(super) async fn merge_commit(&self, repo: &RepoId, start: &str) -> Option<ToldCommit> {
        let told = self.asked_commit(repo, start).await.unwrap_or_else(|error| {
            tracing::warn!(%repo, "the commit of a merge is not known: {error}");
            None
        });
        told.or_else(|| CommitSha::parse(start).ok().map(|id| ToldCommit { id, parents: Vec::new() }))
    }

    /// Asks for a commit; absent if the host finds none, or several.
    async fn asked_commit(&self, repo: &RepoId, start: &str) -> Result<Option<ToldCommit>, HostError> {
        if !is_start(start) {
            return Err(odd(&format!("commit of {repo}"), "no digits of a commit"));
        }
        let path = format!("{}/commit/{start}", self.address.repo_path(repo)?);
        let body = match self.http.get(&path).await {
            Ok(answer) => answer.body,
            Err(HostError::NotFound { .. } | HostError::Rejected { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let id = answers::sha(&body["hash"]).ok_or_else(|| odd(&path, "a commit without a whole hash"))?;
        if !id.as_str().starts_with(start) {
            return Err(odd(&path, "another commit"));
        }
        self.commits.record(repo, start, id.clone());
        let parents = body["parents"].as_array().into_iter().flatten();
        let parents = parents.filter_map(|parent| answers::sha(&parent["hash"])).collect();
        Ok(Some(ToldCommit { id, parents }))
    }
}

/// Returns an answer about the repository of a head; absent if that is a fork that our token may not see.
fn seen<T>(fork: Option<&RepoId>, answer: Result<Option<T>, HostError>) -> Result<Option<T>, HostError> {
    match answer {
        Err(HostError::Denied { .. }) if fork.is_some() => Ok(None),
        answer => answer,
    }
}

/// Returns the first digits of the head of a pull request.
pub(super) fn head_start<'a>(id: &PullId, told: &'a Value) -> Result<&'a str, HostError> {
    answers::start(&told["source"]["commit"]).ok_or_else(|| odd(&format!("pull request {id}"), "no source.commit"))
}
