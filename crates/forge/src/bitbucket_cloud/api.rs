//! Requests of the REST API 2.0: credentials, scopes, repository, parameters, pages, and the way to the part that answers.

use super::super::git::GitRepo;
use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, kind};
use super::{Refusal, Result, access, query, shapes};
use axum::response::IntoResponse;
use http::{Method, StatusCode, request};
use serde_json::{Value, json};

/// Rows of a page if the request gives no number, and most of them (developer.atlassian.com/cloud/bitbucket/rest/intro, "Pagination").
const USUAL_ROWS: usize = 10;
const MAX_ROWS: usize = 100;
/// Most rows of a page of pull requests (khbb: 400 "Invalid pagelen" for 100).
pub(super) const MAX_PULLS: usize = 50;

/// One request, with its user.
pub(super) struct Call<'a> {
    pub shared: &'a Shared,
    pub login: String,
    pub method: Method,
    /// Path of the address, without its query.
    path: &'a str,
    query: Vec<(String, String)>,
    body: Value,
}

/// One request about a repository.
pub(super) struct RepoCall<'a> {
    pub call: Call<'a>,
    pub full_name: String,
}

pub(super) fn ok(body: Value) -> Result {
    Ok(axum::Json(body).into_response())
}

pub(super) fn created(body: Value) -> Result {
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

pub(super) fn no_content() -> Result {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The answer for a path that the API does not have.
pub(super) fn no_route() -> Refusal {
    Refusal::not_found("Resource not found")
}

/// The answer for lists of all workspaces, which are gone since 14 April 2026
/// (developer.atlassian.com/cloud/bitbucket/changelog, CHANGE-2770).
fn gone() -> Refusal {
    Refusal::new(StatusCode::GONE, "This API has been removed. See CHANGE-2770.")
}

impl<'a> Call<'a> {
    pub(super) async fn answer(shared: &'a Shared, parts: &'a request::Parts, body: &[u8]) -> Result {
        let path = parts.uri.path();
        let tail = path.strip_prefix("/2.0/").ok_or_else(no_route)?;
        let segments = kind::segments(tail);
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let login = access::of_api(&shared.lock(), &parts.headers).ok_or_else(Refusal::unauthorized)?;
        let method = parts.method.clone();
        access::check(&shared.lock(), &login, access::needed(&method, &segments))?;
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned();
        let body = parsed(body)?;
        let call = Call { shared, login, method, path, query: query.collect(), body };
        match segments.as_slice() {
            ["user"] => ok(shapes::account(&shared.url, &shared.lock(), &call.login)),
            ["users", person] => {
                let state = shared.lock();
                let login = shapes::login_of(&state, person).ok_or_else(|| Refusal::not_found(*person))?;
                ok(shapes::account(&shared.url, &state, &login))
            }
            ["workspaces"] | ["user", "permissions", ..] => Err(gone()),
            ["user", "workspaces"] => call.workspaces(),
            ["workspaces", workspace] => call.workspace(workspace),
            ["workspaces", workspace, "hooks"] => call.workspace_hooks(workspace),
            ["user", "workspaces", workspace, "permissions", "repositories"] => call.own_permissions(workspace),
            ["workspaces", workspace, "permissions", "repositories", name] => call.permissions(workspace, name),
            ["repositories", workspace] => call.repos(workspace),
            ["repositories", workspace, name, rest @ ..] => {
                let full_name = call.find(workspace, name).map_err(|refusal| match rest {
                    // The answer is a page here (khbb).
                    ["commits", ..] => Refusal(StatusCode::NOT_FOUND, json!("<!DOCTYPE html><title>404</title>")),
                    _ => refusal,
                })?;
                RepoCall { call, full_name }.answer(rest).await
            }
            _ => Err(no_route()),
        }
    }

    /// Names of the workspaces of the repositories that the account sees.
    fn own_workspaces(&self, state: &State) -> Vec<String> {
        let seen = state.repos.values().filter(|repo| access::can_read(repo, &self.login));
        let mut names: Vec<String> = seen.map(|repo| repo.owner.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Workspaces of the account, each with its access (OpenAPI, `workspace_access`).
    fn workspaces(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            let row = |name: &String| shapes::workspace_access(&self.shared.url, name);
            self.own_workspaces(&state).iter().map(row).collect()
        };
        self.page(rows, MAX_ROWS)
    }

    fn workspace(&self, name: &str) -> Result {
        let known = self.own_workspaces(&self.shared.lock());
        let known = known.iter().find(|known| known.eq_ignore_ascii_case(name) || shapes::uuid_of(known) == name);
        let known = known.ok_or_else(|| Refusal::not_found(format!("No workspace with identifier '{name}'.")))?;
        ok(shapes::workspace(&self.shared.url, known))
    }

    /// Webhooks of a workspace: there are none.
    fn workspace_hooks(&self, name: &str) -> Result {
        self.workspace(name)?;
        self.page(Vec::new(), MAX_ROWS)
    }

    /// Repositories of a workspace to which the account was given access, with its permission
    /// (OpenAPI, `/user/workspaces/{workspace}/permissions/repositories`).
    fn own_permissions(&self, workspace: &str) -> Result {
        self.workspace(workspace)?;
        let rows = {
            let state = self.shared.lock();
            let row = |repo: &RepoState| {
                let level = repo.permission(&self.login).to_owned();
                let is_here = repo.owner.eq_ignore_ascii_case(workspace) || shapes::uuid_of(&repo.owner) == workspace;
                (is_here && level != "none")
                    .then(|| shapes::permission(&self.shared.url, &state, repo, &self.login, &level))
            };
            state.repos.values().filter_map(row).collect()
        };
        self.page(rows, MAX_ROWS)
    }

    fn repos(&self, workspace: &str) -> Result {
        let rows = {
            let state = self.shared.lock();
            let seen = |repo: &&RepoState| {
                let is_here = repo.owner.eq_ignore_ascii_case(workspace) || shapes::uuid_of(&repo.owner) == workspace;
                is_here && access::can_read(repo, &self.login)
            };
            let mut repos: Vec<&RepoState> = state.repos.values().filter(seen).collect();
            repos.sort_by_key(|repo| repo.id);
            repos.into_iter().map(|repo| shapes::repo(&self.shared.url, &state, repo)).collect()
        };
        self.page(rows, MAX_ROWS)
    }

    /// Effective permissions of people. Only administrators of the repository see them (OpenAPI).
    fn permissions(&self, workspace: &str, name: &str) -> Result {
        let full_name = self.find(workspace, name)?;
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&full_name).map_err(|_| Refusal::no_repository(&full_name))?;
            if !access::is_admin(repo, &self.login) {
                return Err(Refusal::forbidden());
            }
            let people = repo.permissions.iter().filter(|(_, level)| *level != "none");
            let row =
                |(login, level): (&String, &String)| shapes::permission(&self.shared.url, &state, repo, login, level);
            people.map(row).collect()
        };
        self.page(rows, MAX_ROWS)
    }

    /// Finds a repository by names or unique ids. Former names are unknown, and what the account may not see is not there.
    fn find(&self, workspace: &str, name: &str) -> Result<String> {
        let state = self.shared.lock();
        let is_it = |repo: &&RepoState| {
            let is_owner = repo.owner.eq_ignore_ascii_case(workspace) || shapes::uuid_of(&repo.owner) == workspace;
            is_owner && (repo.name.eq_ignore_ascii_case(name) || shapes::uuid(repo.id) == name)
        };
        let found = state.repos.values().find(is_it).filter(|repo| access::can_read(repo, &self.login));
        found.map(RepoState::full_name).ok_or_else(|| Refusal::no_repository(&format!("{workspace}/{name}")))
    }

    /// Returns a part of the body by its path.
    pub(super) fn part(&self, pointer: &str) -> Option<&Value> {
        self.body.pointer(pointer).filter(|value| !value.is_null())
    }

    /// Returns a text of the body by its path.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.part(pointer)?.as_str()
    }

    /// Returns a parameter of the address, unless it is empty.
    pub(super) fn asked(&self, name: &str) -> Option<&str> {
        self.all_asked(name).next()
    }

    /// Returns every value of a parameter that may be repeated.
    pub(super) fn all_asked(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.trim()).filter(|v| !v.is_empty())
    }

    /// Returns one page of a list, filtered by `q` and in the order of `sort`, with the address of the next one. A page that is too long is
    /// refused.
    pub(super) fn page(&self, rows: Vec<Value>, most: usize) -> Result {
        self.page_of(rows, USUAL_ROWS, most)
    }

    /// Does so for a list with another number of rows if the request gives none.
    pub(super) fn page_of(&self, rows: Vec<Value>, usual: usize, most: usize) -> Result {
        let rows = query::select(rows, self.asked("q"), self.asked("sort"))?;
        let number = |name: &str, usual: usize| match self.asked(name) {
            None => Some(usual),
            Some(text) => text.parse::<usize>().ok().filter(|number| *number > 0),
        };
        let limit = number("pagelen", usual).filter(|limit| *limit <= most);
        let limit = limit.ok_or_else(|| Refusal::invalid("Invalid pagelen"))?;
        let page = number("page", 1).ok_or_else(|| Refusal::invalid("Invalid page"))?;
        let size = rows.len();
        let values: Vec<Value> = rows.into_iter().skip((page - 1).saturating_mul(limit)).take(limit).collect();
        let mut body = json!({"values": values, "pagelen": limit, "size": size, "page": page});
        if page.saturating_mul(limit) < size {
            body["next"] = self.address_of(page + 1).into();
        }
        if page > 1 {
            body["previous"] = self.address_of(page - 1).into();
        }
        ok(body)
    }

    fn address_of(&self, page: usize) -> String {
        let mut pairs: Vec<(String, String)> = self.query.iter().filter(|(key, _)| key != "page").cloned().collect();
        pairs.push(("page".to_owned(), page.to_string()));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        format!("{}{}?{query}", self.shared.url, self.path)
    }
}

/// Reads a body.
fn parsed(body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("Bad request: {error}")))
}

impl RepoCall<'_> {
    async fn answer(&self, rest: &[&str]) -> Result {
        match (self.call.method.as_str(), rest) {
            ("GET", []) => {
                let state = self.call.shared.lock();
                ok(shapes::repo(self.url(), &state, self.repo_in(&state)?))
            }
            (method, ["pullrequests", rest @ ..]) => self.of_pulls(method, rest).await,
            ("GET", ["commit", name]) => self.commit(name).await,
            (method, ["commit", name, "statuses", rest @ ..]) => self.of_statuses(method, name, rest).await,
            ("GET", ["commits", name]) => self.commits(name).await,
            ("GET", ["effective-default-reviewers"]) => self.call.page(Vec::new(), MAX_ROWS),
            ("GET", ["effective-branching-model"]) => ok(json!({
                "type": "effective_repo_branching_model", "branch_types": [], "production": null,
                "development": {"name": "main", "use_mainbranch": true, "branch": {"type": "branch", "name": "main"}},
            })),
            ("GET", ["diffstat", spec @ ..]) => self.diffstat(&spec.join("/")).await,
            ("GET", ["src", commit, path @ ..]) => self.source(commit, &path.join("/")).await,
            (method, ["refs", "branches", name @ ..]) => self.of_branches(method, &name.join("/")).await,
            ("GET", ["branch-restrictions", rest @ ..]) => self.restrictions(rest),
            (method, ["hooks", rest @ ..]) => self.of_hooks(method, rest),
            _ => Err(no_route()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.call.shared.url
    }

    /// The repository in the state.
    pub(super) fn repo_in<'a>(&self, state: &'a State) -> Result<&'a RepoState> {
        state.repo(&self.full_name).map_err(|_| Refusal::no_repository(&self.full_name))
    }

    /// Returns what is found of a pull request.
    pub(super) fn of_pull<T>(&self, number: u64, find: impl FnOnce(&State, &RepoState, &PullState) -> T) -> Result<T> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let pull = state.pull(&self.full_name, number).map_err(|_| Refusal::not_found("Not found"))?;
        Ok(find(&state, repo, pull))
    }

    pub(super) fn git(&self) -> Result<GitRepo> {
        self.call.shared.git(&self.full_name).map_err(|error| Refusal::broken(&error))
    }

    /// Refuses people without administration.
    pub(super) fn check_admin(&self) -> Result<()> {
        let state = self.call.shared.lock();
        if access::is_admin(self.repo_in(&state)?, &self.call.login) { Ok(()) } else { Err(Refusal::forbidden()) }
    }

    /// Refuses people who may not push.
    pub(super) fn check_writer(&self) -> Result<()> {
        let state = self.call.shared.lock();
        if access::can_write(self.repo_in(&state)?, &self.call.login) { Ok(()) } else { Err(Refusal::forbidden()) }
    }
}
