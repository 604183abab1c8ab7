//! Permissions of people in repositories. Only an administrator of the repository may read them
//! (`GET /workspaces/{workspace}/permissions/repositories/{repo_slug}`).

use super::{BitbucketCloud, answers};
use crate::bitbucket_cloud::person::{is_account_id, is_uuid};
use crate::vcs::HostError;
use crate::vcs::http::segment;
use serde_json::Value;
use std::collections::HashMap;
use tidelock_core::domain::RepoId;

/// Most pages of permissions in one repository.
const MAX_PAGES: u32 = 20;
/// Most people of one question, so that its address stays short.
const AT_ONCE: usize = 20;

/// Permission of a person in a repository, the highest that the person has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloudPermission {
    None,
    Read,
    Write,
    Admin,
}

impl CloudPermission {
    fn of(word: &Value) -> CloudPermission {
        match word.as_str() {
            Some("admin") => CloudPermission::Admin,
            Some("write") => CloudPermission::Write,
            Some("read") => CloudPermission::Read,
            _ => CloudPermission::None,
        }
    }

    pub(super) fn can_write(self) -> bool {
        matches!(self, CloudPermission::Write | CloudPermission::Admin)
    }

    pub(super) fn is_admin(self) -> bool {
        self == CloudPermission::Admin
    }
}

/// Returns the permission of a person, by account id or UUID. The host filters by both, so that a person need not be looked up, for which
/// access tokens have no scope.
pub(super) async fn permission(
    host: &BitbucketCloud,
    repo: &RepoId,
    login: &str,
) -> Result<CloudPermission, HostError> {
    let key = match login {
        uuid if is_uuid(uuid) => "uuid",
        id if is_account_id(id) => "account_id",
        _ => return Ok(CloudPermission::None),
    };
    let rows = rows(host, repo, &format!("user.{key}=\"{login}\"")).await?;
    let found = rows.iter().find(|row| row["user"][key] == login);
    Ok(found.map_or(CloudPermission::None, |row| CloudPermission::of(&row["permission"])))
}

/// Returns the permissions of people by UUID. Those without any are left out.
pub(super) async fn permissions(
    host: &BitbucketCloud,
    repo: &RepoId,
    uuids: &[String],
) -> Result<HashMap<String, CloudPermission>, HostError> {
    let mut found = HashMap::new();
    for some in uuids.chunks(AT_ONCE) {
        let wanted: Vec<String> = some.iter().map(|uuid| format!("user.uuid=\"{uuid}\"")).collect();
        for row in rows(host, repo, &wanted.join(" OR ")).await? {
            if let Some(uuid) = row["user"]["uuid"].as_str().filter(|uuid| some.iter().any(|one| one == uuid)) {
                found.insert(uuid.to_owned(), CloudPermission::of(&row["permission"]));
            }
        }
    }
    Ok(found)
}

/// Returns the permissions in a repository that a query selects.
async fn rows(host: &BitbucketCloud, repo: &RepoId, query: &str) -> Result<Vec<Value>, HostError> {
    // Checks the names.
    host.address.repo_path(repo)?;
    let path = format!("/workspaces/{}/permissions/repositories/{}", segment(&repo.owner), segment(&repo.name));
    let asked = format!("{path}?pagelen=100&q={}", segment(query));
    let rows = host.http.value_pages(&asked, MAX_PAGES).await.map_err(|error| named_right(repo, error))?.rows;
    for row in &rows {
        answers::is_repository(repo, &path, &row["repository"])?;
    }
    Ok(rows)
}

/// Says which right our account lacks.
fn named_right(repo: &RepoId, error: HostError) -> HostError {
    match error {
        HostError::Denied { what, message } => {
            let message = format!(
                "{message}: only an administrator of {repo} may read who may write to it, so the account of `--bitbucket-token` has to be \
                 one"
            );
            HostError::Denied { what, message }
        }
        error => error,
    }
}
