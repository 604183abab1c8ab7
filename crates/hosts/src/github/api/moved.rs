//! Repositories that were renamed or transferred. GitHub answers for the former name, with a redirect or silently. The server rejects data
//! that it reads that way, as the repository may not be on the allowlist. Its posts, such as the result of an apply, follow the repository
//! if its present name is served.

use super::{Github, answers, repo_path};
use crate::vcs::HostError;
use crate::vcs::http::{Answer, odd, segment};
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::RepoId;

impl Github {
    /// Sends a change below a repository's path, and repeats it under the present name if the repository has moved.
    pub(super) async fn say(
        &self,
        method: Method,
        repo: &RepoId,
        tail: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        match self.http.send(method.clone(), &format!("{}{tail}", repo_path(repo)?), body.clone()).await {
            Err(HostError::Moved { .. }) => {
                let now = self.served_name(repo).await?;
                self.http.send(method, &format!("{}{tail}", repo_path(&now)?), body).await
            }
            answered => answered,
        }
    }

    /// Returns the present name of a repository; fails if that name is not served, or if the repository's address does not match it.
    pub(super) async fn served_name(&self, before: &RepoId) -> Result<RepoId, HostError> {
        let path = repo_path(before)?;
        let found = match self.http.get(&path).await {
            Err(HostError::Moved { what, to }) => match self.http.path_of(&to) {
                Some(path) => self.http.send_for(&before.owner, Method::GET, path, None).await?.body,
                None => return Err(HostError::Moved { what, to }),
            },
            answered => answered?.body,
        };
        let Some((owner, name)) = names(&found) else { return Err(odd(&path, "a repository without a name")) };
        let now = RepoId { host: self.hostname.clone(), owner: owner.to_owned(), name: name.to_owned() };
        let url = found["clone_url"].as_str().unwrap_or_default();
        if now.check_clone_url(url).is_err() || !(self.serves)(&now) {
            return Err(HostError::Moved { what: before.to_string(), to: now.full_name() });
        }
        if now != *before {
            tracing::warn!(%before, %now, "the repository moved; what is left to say is said there");
        }
        Ok(now)
    }
}

impl Github {
    /// Returns the present name of the repository with this id; absent if the host does not find it.
    pub(super) async fn name_of_key(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        let path = format!("/repositories/{}", segment(key));
        let found = match self.http.send_for(&near.owner, Method::GET, &path, None).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        let (Some((owner, name)), Some(told)) = (names(&found), answers::key(&found)) else {
            return Err(odd(&path, "a repository without a name"));
        };
        let now = RepoId { host: self.hostname.clone(), owner: owner.to_owned(), name: name.to_owned() };
        let is_sound = told == key && now.check_clone_url(found["clone_url"].as_str().unwrap_or_default()).is_ok();
        if is_sound { Ok(Some(now)) } else { Err(odd(&path, "another repository")) }
    }
}

/// Owner and name of a repository.
fn names(repo: &Value) -> Option<(&str, &str)> {
    Some((repo["owner"]["login"].as_str()?, repo["name"].as_str()?))
}

/// Fails if the host's data is about another repository than the requested one.
pub(super) fn is_asked_for(asked: &RepoId, what: &str, told: &Value) -> Result<(), HostError> {
    let Some((owner, name)) = names(told) else { return Err(odd(what, "a repository without a name")) };
    if asked.is_named(owner, name) {
        return Ok(());
    }
    let to: String = format!("{owner}/{name}").chars().filter(|c| c.is_ascii_graphic()).collect();
    Err(HostError::Moved { what: what.to_owned(), to })
}
