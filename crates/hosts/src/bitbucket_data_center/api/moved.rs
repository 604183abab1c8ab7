//! Repositories that were renamed or moved to another project. The server rejects what it would read under a former name, as the repository
//! may not be on the allowlist. Its posts, such as the result of an apply, follow the repository if its present name is served.

use super::{API, BitbucketDataCenter};
use crate::bitbucket_data_center::BitbucketDataCenterAddress;
use crate::vcs::HostError;
use crate::vcs::http::Answer;
use reqwest::Method;
use serde_json::Value;
use tidelock_core::domain::RepoId;

impl BitbucketDataCenter {
    /// Sends a change below a repository's path, and repeats it under the present name if the repository has moved.
    pub(super) async fn say(
        &self,
        method: Method,
        repo: &RepoId,
        tail: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        self.say_at(API, method, repo, tail, body).await
    }

    /// Does the same with the path of another part of the API.
    pub(super) async fn say_at(
        &self,
        api: &str,
        method: Method,
        repo: &RepoId,
        tail: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        let path = |repo| Ok::<_, HostError>(format!("{api}{}{tail}", BitbucketDataCenterAddress::path(repo)?));
        match self.http.send(method.clone(), &path(repo)?, body.clone()).await {
            Err(error) if may_have_moved(repo, &error) => match self.other_name(repo).await? {
                Some(now) => self.http.send(method, &path(&now)?, body).await,
                None => Err(error),
            },
            answered => answered,
        }
    }

    /// Returns the present name of a repository that is not found there, if it is another one and served.
    pub(super) async fn other_name(&self, before: &RepoId) -> Result<Option<RepoId>, HostError> {
        let Some(key) = self.told.get(before) else { return Ok(None) };
        let now = self.name_of_key(before, &key).await?;
        let now = now.filter(|now| !now.is_named(&before.owner, &before.name) && (self.serves)(now));
        if let Some(now) = &now {
            tracing::warn!(%before, %now, "the repository moved; what is left to say is said there");
        }
        Ok(now)
    }
}

/// Returns true if an error may be about a former name. The host answers that of a renamed person with 500 (jira.atlassian.com,
/// BSERV-11763).
pub(super) fn may_have_moved(repo: &RepoId, error: &HostError) -> bool {
    match error {
        HostError::Moved { .. } | HostError::NotFound { .. } => true,
        HostError::Unavailable { .. } => repo.owner.starts_with('~'),
        _ => false,
    }
}
