//! Repositories that were renamed or transferred. The server rejects what it would read under a former name, as the repository may not be
//! on the allowlist. Its posts, such as the result of an apply, follow the repository if its present name is served.

use super::{BitbucketCloud, answers};
use crate::bitbucket_cloud::person::is_uuid;
use crate::vcs::HostError;
use crate::vcs::http::{Answer, odd, segment};
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::RepoId;

impl BitbucketCloud {
    /// Sends a change below a repository's path, and repeats it under the present name if the repository has moved: the host redirects
    /// from the former name, or does not know it.
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
            Err(error @ HostError::NotFound { .. }) => match self.other_name(repo).await? {
                Some(now) => self.http.send(method, &format!("{}{tail}", self.address.repo_path(&now)?), body).await,
                None => Err(error),
            },
            answered => answered,
        }
    }

    /// Returns the present name of a repository that is not found, if it is another one and served.
    pub(super) async fn other_name(&self, before: &RepoId) -> Result<Option<RepoId>, HostError> {
        let Some(key) = self.told.get(before) else { return Ok(None) };
        let now = self.name_of_key(before, &key).await?;
        let now = now.filter(|now| !now.is_named(&before.owner, &before.name) && (self.serves)(now));
        if let Some(now) = &now {
            tracing::warn!(%before, %now, "the repository moved; what is left to say is said there");
        }
        Ok(now)
    }

    /// Returns the present name of a repository, by the id that an earlier answer told; fails if that name is not served.
    pub(super) async fn served_name(&self, before: &RepoId) -> Result<RepoId, HostError> {
        let moved = |to: String| HostError::Moved { what: before.to_string(), to };
        let key = self.told.get(before).ok_or_else(|| moved("its present name".to_owned()))?;
        let now = self.name_of_key(before, &key).await?.ok_or_else(|| moved("its present name".to_owned()))?;
        if !(self.serves)(&now) {
            return Err(moved(now.full_name()));
        }
        if now != *before {
            tracing::warn!(%before, %now, "the repository moved; what is left to say is said there");
        }
        Ok(now)
    }

    /// Returns the present name of the repository with this id; absent if the host does not find it. The id stands for the name below any
    /// workspace that the repository is in: that of a former name.
    pub(super) async fn name_of_key(&self, near: &RepoId, key: &str) -> Result<Option<RepoId>, HostError> {
        if !is_uuid(key) {
            return Ok(None);
        }
        // Checks the name of the workspace as well.
        self.address.repo_path(near)?;
        let path = format!("/repositories/{}/{}", segment(&near.owner), segment(key));
        let found = match self.http.get(&path).await {
            Err(HostError::NotFound { .. }) => return Ok(None),
            answered => answered?.body,
        };
        if answers::key(&found).as_deref() != Some(key) {
            return Err(odd(&path, "another repository"));
        }
        let name = found["full_name"].as_str().and_then(|name| self.address.repository(name));
        name.map(Some).ok_or_else(|| odd(&path, "a name that no repository can have"))
    }
}
