//! Checks of `tidelock doctor` on Bitbucket Cloud: the token, our permission in repositories, and their webhooks.

use super::BitbucketCloud;
use crate::bitbucket_cloud::BitbucketCloudCredentials;
use crate::vcs::HostError;
use crate::vcs::http::segment;
use serde_json::Value;
use tidelock_core::domain::RepoId;

/// Most pages of webhooks of one repository or workspace.
const HOOK_PAGES: u32 = 10;
/// Most pages of our permissions in one workspace.
const PERMISSION_PAGES: u32 = 20;
/// Longest text of the host that is kept, such as the name of a scope, in characters.
const MAX_WORD: usize = 100;

/// A repository, with what the host tells of our token there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketCloudRepository {
    /// Our permission: `admin`, `write` or `read`; absent if the host does not tell it, as to access tokens.
    pub permission: Option<String>,
    /// Scopes of the token, such as `write:pullrequest:bitbucket`; absent if the host does not tell them.
    pub scopes: Option<Vec<String>>,
    /// True if only people with access see it.
    pub private: bool,
}

/// A webhook of a repository or a workspace as the host has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitbucketCloudHook {
    /// Id of the hook, in braces.
    pub uuid: String,
    /// Address that it delivers to.
    pub url: String,
    /// True if it is enabled.
    pub active: bool,
    /// True if it has a secret; absent if the host does not tell it.
    pub has_secret: Option<bool>,
    /// True if the host verifies our certificate.
    pub verifies_tls: bool,
    /// Names of events, such as `pullrequest:created`.
    pub events: Vec<String>,
}

impl BitbucketCloud {
    /// Returns a repository, with what the host tells of our token there.
    pub async fn repository(&self, repo: &RepoId) -> Result<BitbucketCloudRepository, HostError> {
        let path = self.address.repo_path(repo)?;
        let answer = self.http.get(&path).await?;
        super::answers::is_repository(repo, &format!("GET {path}"), &answer.body)?;
        let scopes = answer.scopes.map(|listed| {
            let names = listed.split([',', ' ']).filter(|name| !name.is_empty());
            names.map(|name| word(&Value::from(name))).collect()
        });
        let permission = self.own_permission(repo).await?;
        Ok(BitbucketCloudRepository { permission, scopes, private: answer.body["is_private"] == true })
    }

    /// Returns our permission in a repository (`GET /user/workspaces/{workspace}/permissions/repositories`); absent if the host does not tell it.
    async fn own_permission(&self, repo: &RepoId) -> Result<Option<String>, HostError> {
        if self.credentials == BitbucketCloudCredentials::AccessToken {
            return Ok(None);
        }
        let wanted = segment(&format!("repository.full_name=\"{}\"", repo.full_name()));
        let path = format!("/user/workspaces/{}/permissions/repositories?pagelen=100&q={wanted}", segment(&repo.owner));
        let rows = match self.http.value_pages(&path, PERMISSION_PAGES).await {
            Err(HostError::Denied { .. } | HostError::NotFound { .. } | HostError::Rejected { .. }) => return Ok(None),
            answered => answered?.rows,
        };
        let is_it = |row: &&Value| {
            let name = row["repository"]["full_name"].as_str().unwrap_or_default();
            name.eq_ignore_ascii_case(&repo.full_name())
        };
        let found = rows.iter().find(is_it);
        Ok(found.map(|row| word(&row["permission"])))
    }

    /// Returns the webhooks of a repository; only its administrators see them, with the scope `read:webhook:bitbucket`.
    pub async fn repository_hooks(&self, repo: &RepoId) -> Result<Vec<BitbucketCloudHook>, HostError> {
        self.hooks(&format!("{}/hooks", self.address.repo_path(repo)?)).await
    }

    /// Returns the webhooks of a workspace; only its administrators see them.
    pub async fn workspace_hooks(&self, workspace: &str) -> Result<Vec<BitbucketCloudHook>, HostError> {
        self.hooks(&format!("/workspaces/{}/hooks", segment(workspace))).await
    }

    async fn hooks(&self, path: &str) -> Result<Vec<BitbucketCloudHook>, HostError> {
        let rows = self.http.value_pages(&format!("{path}?pagelen=100"), HOOK_PAGES).await?.rows;
        Ok(rows.iter().filter_map(hook).collect())
    }
}

fn hook(row: &Value) -> Option<BitbucketCloudHook> {
    Some(BitbucketCloudHook {
        uuid: word(&row["uuid"]),
        url: row["url"].as_str()?.to_owned(),
        active: row["active"] == true,
        has_secret: row["secret_set"].as_bool(),
        verifies_tls: row["skip_cert_verification"] != true,
        events: row["events"].as_array().into_iter().flatten().map(word).collect(),
    })
}

/// Returns a short text without spaces and control characters.
fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().chars().filter(char::is_ascii_graphic).take(MAX_WORD).collect()
}
