//! Repositories that were renamed or transferred, and owners that were renamed: the host redirects every request (routers/api/v1/api.go,
//! `repoAssignment`). The server rejects what it would read that way, as the repository may not be on the allowlist. Its posts, such as the
//! result of an apply, follow the repository if its present name is served.

use super::{API, Gitea, answers};
use crate::vcs::HostError;
use crate::vcs::http::{Answer, odd};
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::RepoId;

/// Most redirects that are followed: one for an owner's former name, one for the repository's, and as many again.
const MOST_MOVES: usize = 4;

impl Gitea {
    /// Sends a change below a repository's path, and repeats it under the present name if the repository has moved.
    pub(super) async fn say(
        &self,
        method: Method,
        repo: &RepoId,
        tail: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        let path = self.address.repo_path(repo)?;
        match self.http.send(method.clone(), &format!("{path}{tail}"), body.clone()).await {
            Err(HostError::Moved { .. }) => {
                let now = self.served_name(repo).await?;
                self.http.send(method, &format!("{}{tail}", self.address.repo_path(&now)?), body).await
            }
            answered => answered,
        }
    }

    /// Returns the present name of a repository; fails if that name is not served.
    pub(super) async fn served_name(&self, before: &RepoId) -> Result<RepoId, HostError> {
        let (mut at, mut moves) = (before.clone(), 0);
        let now = loop {
            let path = self.address.repo_path(&at)?;
            match self.http.get(&path).await {
                Ok(answer) => break self.named(&path, &answer.body)?,
                Err(HostError::Moved { what, to }) => {
                    moves += 1;
                    let next = self.repository_at(&to).filter(|_| moves <= MOST_MOVES);
                    at = next.ok_or(HostError::Moved { what, to })?;
                }
                Err(error) => return Err(error),
            }
        };
        if !(self.serves)(&now) {
            return Err(HostError::Moved { what: before.to_string(), to: now.full_name() });
        }
        if now != *before {
            tracing::warn!(%before, %now, "the repository moved; what is left to say is said there");
        }
        Ok(now)
    }

    /// Returns the present name of the repository with this id; absent if the host does not find it.
    pub(super) async fn name_of_key(&self, key: &str) -> Result<Option<RepoId>, HostError> {
        if !key.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(None);
        }
        let path = format!("/repositories/{key}");
        let found = match self.http.get(&path).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        if answers::key(&found).as_deref() != Some(key) {
            return Err(odd(&path, "another repository"));
        }
        self.named(&path, &found).map(Some)
    }

    fn named(&self, what: &str, repository: &Value) -> Result<RepoId, HostError> {
        let name = repository["full_name"].as_str().and_then(|name| self.address.repository(name));
        name.ok_or_else(|| odd(what, "a name that no repository can have"))
    }

    /// Returns the repository that a redirect leads to: a path of the API, with the instance's own path before it.
    fn repository_at(&self, location: &str) -> Option<RepoId> {
        let (_, rest) = location.split_once(&format!("{API}/repos/"))?;
        let mut names = rest.split(['/', '?']);
        self.address.repository(&format!("{}/{}", names.next()?, names.next()?))
    }
}
