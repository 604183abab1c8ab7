//! People, groups and permissions.

use super::super::state::{RepoState, State};
use super::access::{self, Level};
use super::api::{Call, RepoCall, find, most, no_route, ok};
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl Call<'_> {
    pub(super) fn of_users(&self, rest: &[&str]) -> Result {
        match (self.method.as_str(), rest) {
            ("GET", []) => self.users(),
            ("GET", [slug]) => {
                let state = self.shared.lock();
                let found = state.users.values().find(|user| shapes::slug_of(&user.login) == *slug);
                let found = found.map(|user| shapes::person(&self.shared.url, &state, &user.login));
                ok(found.ok_or_else(|| {
                    Refusal::not_found("user.NoSuchUserException", format!("User {slug} does not exist."))
                })?)
            }
            _ => Err(no_route()),
        }
    }

    /// Lists people by a part of their names, by group, and by permissions that they have in any way (OpenAPI, "Get all users").
    fn users(&self) -> Result {
        let state = self.shared.lock();
        let filters = self.permission_filters(&state)?;
        let members = self.asked("group").map(|group| members(&state, group));
        let filter = self.asked("filter").map(str::to_lowercase);
        let is_named = |login: &str| {
            let names = [login.to_owned(), format!("{login}@example.com"), shapes::display_name(&state, login)];
            filter.as_ref().is_none_or(|part| names.iter().any(|name| name.to_lowercase().contains(part)))
        };
        let rows = state
            .users
            .values()
            .map(|user| user.login.as_str())
            .filter(|login| is_named(login))
            .filter(|login| members.as_ref().is_none_or(|members| members.contains(&login.to_lowercase())))
            .filter(|login| filters.iter().all(|(repo, least)| access::level(repo, login) >= *least))
            .map(|login| shapes::person(&self.shared.url, &state, login))
            .collect();
        self.page(rows, most::PEOPLE)
    }

    /// Reads `permission`, `permission.1`, `permission.2`, …, each with the repository that it is about.
    fn permission_filters<'a>(&self, state: &'a State) -> Result<Vec<(&'a RepoState, Level)>> {
        let mut filters = Vec::new();
        let roots = std::iter::once("permission".to_owned()).chain((1..=50).map(|n| format!("permission.{n}")));
        for root in roots {
            let Some(name) = self.asked(&root) else {
                // Numbers have to begin with 1, and to follow each other.
                if root == "permission" {
                    continue;
                }
                break;
            };
            let least = Level::of_name(name).ok_or_else(|| Refusal::field(&root, format!("{name} is unknown")))?;
            let (Some(key), Some(slug)) =
                (self.asked(&format!("{root}.projectKey")), self.asked(&format!("{root}.repositorySlug")))
            else {
                return Err(Refusal::field(&root, "A repository permission needs a repository"));
            };
            let unknown = || Refusal::field(&root, format!("Repository {key}/{slug} does not exist."));
            filters.push((find(state, &format!("{key}/{slug}")).ok_or_else(unknown)?, least));
        }
        Ok(filters)
    }

    /// Names of groups. They belong to no project.
    pub(super) fn groups(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            let names: BTreeSet<&str> = state.teams.keys().filter_map(|key| Some(key.rsplit_once('/')?.1)).collect();
            let filter = self.asked("filter").unwrap_or_default().to_lowercase();
            names.into_iter().filter(|name| name.contains(&filter)).map(Value::from).collect()
        };
        self.page(rows, most::PEOPLE)
    }
}

/// Logins of the members of a group, in lower case. The groups of several organizations with one name are one group here.
fn members(state: &State, group: &str) -> BTreeSet<String> {
    let is_it = |key: &str| key.rsplit_once('/').is_some_and(|(_, name)| name.eq_ignore_ascii_case(group));
    let teams = state.teams.iter().filter(|(key, _)| is_it(key));
    teams.flat_map(|(_, members)| members).filter(|(_, joined)| **joined).map(|(login, _)| login.clone()).collect()
}

impl RepoCall<'_> {
    /// Permissions that people were given for the repository itself. Only its administrators see them (OpenAPI).
    pub(super) fn permissions(&self, rest: &[&str]) -> Result {
        self.check_level(Level::Admin)?;
        match rest {
            ["users"] => {}
            // Groups have no permissions here.
            ["groups"] => return self.call.page(Vec::new(), most::PEOPLE),
            _ => return Err(no_route()),
        }
        let filter = self.call.asked("filter").unwrap_or_default().to_lowercase();
        let rows = {
            let state = self.call.shared.lock();
            let repo = self.repo_in(&state)?;
            let people = repo.permissions.keys().filter(|login| login.contains(&filter));
            let row = |login: &String| {
                let name = access::level(repo, login).name()?;
                Some(json!({"user": shapes::person(self.url(), &state, login), "permission": name}))
            };
            people.filter_map(row).collect()
        };
        self.call.page(rows, most::PEOPLE)
    }
}
