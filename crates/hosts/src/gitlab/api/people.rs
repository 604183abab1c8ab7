//! Accounts, their roles in projects, and their groups (docs.gitlab.com/api/project_members, docs.gitlab.com/api/group_members).

use super::{Gitlab, answers};
use crate::vcs::HostError;
use crate::vcs::http::{odd, segment};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidelock_core::domain::{Login, PullRequest, RepoId};
use tokio::time::{Duration, Instant};

/// Access level of a guest, the least one of a member: below it is "minimal access", which is none to any project
/// (docs.gitlab.com/api/access_requests, "Valid access levels").
const GUEST: u64 = 10;
/// Access level that may push to branches.
pub(super) const DEVELOPER: u64 = 30;
/// Access level that administers a project.
pub(super) const MAINTAINER: u64 = 40;
/// Time for which the id of an account is cached: a login may pass to somebody else.
const BELIEVED: Duration = Duration::from_secs(300);
/// Most cached ids; the cache is cleared when it is full.
const MAX_REMEMBERED: usize = 10_000;

/// Account of our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitlabAccount {
    /// Number of the account on the host.
    pub id: u64,
    /// Username. A project or group access token has a bot user, such as `project_7_bot_1a2b`.
    pub login: Login,
}

/// Ids of accounts by login, in lower case, with the time of the host's answer.
#[derive(Default)]
pub(super) struct UserIds(Mutex<HashMap<String, (u64, Instant)>>);

impl UserIds {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (u64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gitlab {
    /// Returns the account of the token. It is requested once.
    pub async fn account(&self) -> Result<&GitlabAccount, HostError> {
        if let Some(account) = self.account.get() {
            return Ok(account);
        }
        let body = self.http.get("/user").await?.body;
        let id = body["id"].as_u64().ok_or_else(|| odd("GET /user", "no id"))?;
        let login = body["username"].as_str().ok_or_else(|| odd("GET /user", "no username"))?;
        Ok(self.account.get_or_init(|| GitlabAccount { id, login: Login::new(login) }))
    }

    /// Loads certificates, and learns our login, before the first request of others.
    pub async fn prepare(&self) -> Result<(), HostError> {
        self.http.prepare().await?;
        self.account().await.map(drop)
    }

    /// Fills in the project of a fork, which the host tells by its number. It stays empty if the fork is hidden or deleted.
    pub(super) async fn with_source(&self, mut pull: PullRequest, source: &Value) -> Result<PullRequest, HostError> {
        let Some(id) = source.as_u64().filter(|_| pull.fork) else { return Ok(pull) };
        match self.http.get(&format!("/projects/{id}")).await {
            Ok(answer) => {
                let name = answer.body["path_with_namespace"].as_str().unwrap_or_default();
                if let Some(repo) = self.address.repository(name) {
                    (pull.head.repo_owner, pull.head.repo_name) = (repo.owner, repo.name);
                }
                Ok(pull)
            }
            Err(HostError::NotFound { .. } | HostError::Denied { .. }) => Ok(pull),
            Err(error) => Err(error),
        }
    }
}

/// Returns the id of the account with this login; absent if there is none.
async fn user_id(host: &Gitlab, login: &str) -> Result<Option<u64>, HostError> {
    let key = login.to_lowercase();
    if let Some((id, at)) = host.users.lock().get(&key)
        && at.elapsed() < BELIEVED
    {
        return Ok(Some(*id));
    }
    let path = format!("/users?username={}", segment(login));
    let body = host.http.get(&path).await?.body;
    let Value::Array(rows) = &body else { return Err(odd(&path, "not a list")) };
    // The host compares without case, and never by a part of the name.
    let asked = Login::new(login);
    let id = rows.iter().find(|row| answers::login(row).is(&asked)).and_then(|row| row["id"].as_u64());
    if let Some(id) = id {
        let mut known = host.users.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(key, (id, Instant::now()));
    }
    Ok(id)
}

/// Returns the access level of a person in a project, inherited ones included; 0 for none.
pub(super) async fn access_level(host: &Gitlab, repo: &RepoId, login: &str) -> Result<u64, HostError> {
    match user_id(host, login).await? {
        Some(id) => access_level_of(host, &host.address.project_path(repo)?, id).await,
        None => Ok(0),
    }
}

/// Returns the access level of an account below this path of a project or group; 0 for none. `members/all` includes inherited members and
/// those of invited groups.
pub(super) async fn access_level_of(host: &Gitlab, path: &str, id: u64) -> Result<u64, HostError> {
    let member = match host.http.get(&format!("{path}/members/all/{id}")).await {
        Err(HostError::NotFound { .. }) => return Ok(0),
        answered => answered?.body,
    };
    let is_active = member["state"] == "active"
        && ["active", ""].contains(&member["membership_state"].as_str().unwrap_or_default());
    if member["id"] != id || !is_active {
        return Ok(0);
    }
    Ok(member["access_level"].as_u64().unwrap_or_default())
}

/// Returns true if a person is a member of a group, which is named by its full path, or of a group above it.
pub(super) async fn is_in_group(host: &Gitlab, group: &str, login: &str) -> Result<bool, HostError> {
    // Empty parts and parts of dots would change the path, and a number alone is the id of some group.
    let is_number = group.chars().all(|char| char.is_ascii_digit() || char == '-');
    let is_path = !is_number && group.split('/').all(|part| !part.chars().all(|char| char == '.'));
    match user_id(host, login).await? {
        Some(id) if is_path => Ok(access_level_of(host, &format!("/groups/{}", segment(group)), id).await? >= GUEST),
        _ => Ok(false),
    }
}

/// Returns those of the configured groups that a person is a member of.
pub(super) async fn groups_of(host: &Gitlab, login: &str) -> Result<Vec<String>, HostError> {
    let mut found = Vec::new();
    for group in &host.groups {
        if is_in_group(host, group, login).await? {
            found.push(group.clone());
        }
    }
    Ok(found)
}
