//! Users, members of projects and groups, and pushes (docs.gitlab.com/api/users, docs.gitlab.com/api/members, docs.gitlab.com/api/events).

use super::super::state::{RepoState, State};
use super::api::{Call, ProjectCall, ok};
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

/// Levels of access (docs.gitlab.com/api/members, "Roles").
const REPORTER: u64 = 20;
pub(super) const DEVELOPER: u64 = 30;
pub(super) const MAINTAINER: u64 = 40;

/// Level of access of a direct member; 0 for others.
fn direct_level(repo: &RepoState, login: &str) -> u64 {
    match repo.permission(login) {
        "admin" => MAINTAINER,
        "write" => DEVELOPER,
        "read" => REPORTER,
        _ => 0,
    }
}

/// Level of access to a group and what is below, with what its parents give; 0 for others.
fn group_level(state: &State, path: &str, login: &str) -> u64 {
    let path = path.to_lowercase();
    let is_above = |group: &str| path == group || path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
    let groups = state.gitlab.groups.iter().filter(|(group, _)| is_above(group));
    groups.filter_map(|(_, members)| members.get(&login.to_lowercase())).copied().max().unwrap_or_default()
}

/// Level of access to a project; 0 for somebody who may not see it.
pub(super) fn level(state: &State, repo: &RepoState, login: &str) -> u64 {
    direct_level(repo, login).max(group_level(state, &repo.owner, login))
}

/// Returns the login of a user's id.
fn login_of(state: &State, id: &str) -> Option<String> {
    state.users.values().find(|user| user.id.to_string() == id).map(|user| user.login.clone())
}

fn member(url: &str, state: &State, login: &str, level: u64) -> Value {
    let mut body = shapes::person(url, state, login);
    body["access_level"] = level.into();
    body["expires_at"] = Value::Null;
    body["created_at"] = json!("2026-01-01T00:00:00.000Z");
    body["membership_state"] = json!("active");
    body
}

impl Call<'_> {
    /// Lists the user with this name, or nobody.
    pub(super) fn users(&self) -> Result {
        let name = self.text("username").ok_or_else(Refusal::forbidden)?;
        let rows = {
            let state = self.shared.lock();
            let found = state.users.get(&name.to_lowercase()).map(|user| user.login.clone());
            found.map(|login| shapes::person(&self.shared.url, &state, &login)).into_iter().collect()
        };
        self.page(rows)
    }

    /// Without `all`, members of parent groups are missing.
    pub(super) fn group_member(&self, path: &str, user: &str, all: bool) -> Result {
        let state = self.shared.lock();
        let key = path.to_lowercase();
        let below = format!("{key}/");
        let is_owner = |repo: &RepoState| format!("{}/", repo.owner.to_lowercase()).starts_with(&below);
        if !state.gitlab.groups.contains_key(&key) && !state.repos.values().any(is_owner) {
            return Err(Refusal::not_found("Group"));
        }
        let login = login_of(&state, user).ok_or_else(|| Refusal::not_found("User"))?;
        let direct = || state.gitlab.groups.get(&key)?.get(&login.to_lowercase()).copied();
        let level = if all { group_level(&state, path, &login) } else { direct().unwrap_or_default() };
        match level {
            0 => Err(super::api::no_record()),
            level => ok(member(&self.shared.url, &state, &login, level)),
        }
    }
}

impl ProjectCall<'_> {
    /// Without `all`, inherited members are missing.
    pub(super) fn member(&self, user: &str, all: bool) -> Result {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        let login = login_of(&state, user).ok_or_else(|| Refusal::not_found("User"))?;
        let level = if all { level(&state, repo, &login) } else { direct_level(repo, &login) };
        match level {
            0 => Err(super::api::no_record()),
            level => ok(member(self.url(), &state, &login, level)),
        }
    }
}
