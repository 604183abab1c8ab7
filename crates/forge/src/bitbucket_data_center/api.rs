//! Requests of the REST API: credentials, repository, parameters, pages, and the way to the part that answers.

use super::super::Shared;
use super::super::git::GitRepo;
use super::super::kind;
use super::super::state::{PullState, RepoState, State};
use super::access::{self, Level};
use super::{REST, Refusal, Result, shapes};
use axum::response::IntoResponse;
use http::{Method, StatusCode, header, request};
use serde_json::{Value, json};

/// Rows of a page if the request gives no number (OpenAPI, `limit`).
const USUAL_ROWS: usize = 25;

/// Most rows of a page of each kind; a larger number is cut
/// (confluence.atlassian.com/bitbucketserver/bitbucket-server-config-properties, `page.max.*`).
pub(super) mod most {
    pub(in super::super) const ACTIVITIES: usize = 500;
    pub(in super::super) const BRANCHES: usize = 1000;
    pub(in super::super) const CHANGES: usize = 1000;
    pub(in super::super) const COMMITS: usize = 100;
    pub(in super::super) const FILES: usize = 1000;
    pub(in super::super) const PULLS: usize = 100;
    pub(in super::super) const REPOSITORIES: usize = 1000;
    pub(in super::super) const PEOPLE: usize = 1000;
}

/// Version of the server if tests choose none.
const VERSION: &str = "9.4.3";

/// One request, with its user.
pub(super) struct Call<'a> {
    pub shared: &'a Shared,
    pub login: String,
    pub method: Method,
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
    Refusal(StatusCode::NOT_FOUND, json!({"message": "HTTP 404 Not Found", "status-code": 404, "sub-code": -1}))
}

/// Finds a repository by key and slug. Former names are unknown: that the host redirects them is in no source.
pub(super) fn find<'a>(state: &'a State, full_name: &str) -> Option<&'a RepoState> {
    state.repos.get(&full_name.to_lowercase())
}

/// Answers a request of the REST API.
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: &[u8]) -> Result {
    let tail = parts.uri.path().strip_prefix(REST).ok_or_else(no_route)?;
    let segments = kind::segments(tail);
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let [module, "latest" | "1.0", rest @ ..] = segments.as_slice() else { return Err(no_route()) };
    // OpenAPI: "No authentication is required to call this resource."
    if (*module, rest) == ("api", &["application-properties"]) {
        return ok(application_properties(&shared.lock()));
    }
    let login = access::of_api(&shared.lock(), &parts.headers)?.ok_or_else(Refusal::anonymous)?;
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let call = Call { shared, login, method: parts.method.clone(), query, body: parsed(parts, body)? };
    match (*module, rest) {
        ("api", ["users", rest @ ..]) => call.of_users(rest),
        ("api", ["groups"]) => call.groups(),
        ("api", ["repos"]) => call.repos(None),
        ("api", ["projects", key]) => call.project(key),
        ("api", ["projects", key, "repos"]) => call.repos(Some(key)),
        ("build-status", ["commits", commit]) => call.builds_of_commit(commit),
        (_, ["projects", key, "repos", slug, rest @ ..]) => {
            let full_name = call.find(key, slug)?;
            RepoCall { call, full_name }.answer(module, rest).await
        }
        _ => Err(no_route()),
    }
}

fn application_properties(state: &State) -> Value {
    let version = state.bitbucket_data_center.version.as_deref().unwrap_or(VERSION);
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or_default());
    let mut part = || parts.next().unwrap_or_default();
    let number = part() * 1_000_000 + part() * 1000 + part();
    json!({
        "version": version, "buildNumber": number.to_string(), "buildDate": "1763596800000", "displayName": "Bitbucket",
    })
}

/// Reads a body, which is JSON.
fn parsed(parts: &request::Parts, body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        let error = json!({"message": "HTTP 415 Unsupported Media Type", "status-code": 415, "sub-code": -1});
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("The request is malformed: {error}")))
}

impl Call<'_> {
    /// Finds a repository that the account may read.
    fn find(&self, key: &str, slug: &str) -> Result<String> {
        let state = self.shared.lock();
        let Some(repo) = find(&state, &format!("{key}/{slug}")) else {
            return Err(match state.repos.values().any(|repo| repo.owner.eq_ignore_ascii_case(key)) {
                // Texts and exceptions: bb.
                true => Refusal::not_found(
                    "repository.NoSuchRepositoryException",
                    format!("Repository {key}/{slug} does not exist."),
                ),
                false => Refusal::not_found("project.NoSuchProjectException", format!("Project {key} does not exist.")),
            });
        };
        if access::level(repo, &self.login) == Level::None {
            return Err(Refusal::unauthorized());
        }
        Ok(repo.full_name())
    }

    fn project(&self, key: &str) -> Result {
        let state = self.shared.lock();
        let found = state.repos.values().find(|repo| repo.owner.eq_ignore_ascii_case(key));
        let found = found.map(|repo| shapes::project(&self.shared.url, &state, &repo.owner));
        ok(found.ok_or_else(|| {
            Refusal::not_found("project.NoSuchProjectException", format!("Project {key} does not exist."))
        })?)
    }

    /// Repositories that the account may read, of one project or of all; of those the ones that the request asks for by permission, project
    /// and a part of the name (OpenAPI, "Search for repositories").
    fn repos(&self, key: Option<&str>) -> Result {
        let asked = if key.is_none() { self.asked("permission") } else { None };
        let least = match asked {
            Some(name) => {
                Level::of_name(name).ok_or_else(|| Refusal::field("permission", format!("{name} is unknown")))?
            }
            None => Level::Read,
        };
        let key = key.or_else(|| self.asked("projectkey"));
        let part = self.asked("name").map(str::to_lowercase);
        let rows = {
            let state = self.shared.lock();
            let is_seen = |repo: &&RepoState| {
                access::level(repo, &self.login) >= least && key.is_none_or(|key| repo.owner.eq_ignore_ascii_case(key))
            };
            let mut repos: Vec<&RepoState> = state.repos.values().filter(is_seen).collect();
            repos.sort_by_key(|repo| repo.id);
            let shaped = repos.into_iter().map(|repo| shapes::repo(&self.shared.url, &state, repo));
            let has_part = |repo: &Value| {
                let name = repo["name"].as_str().unwrap_or_default().to_lowercase();
                part.as_ref().is_none_or(|part| name.contains(part))
            };
            shaped.filter(has_part).collect()
        };
        self.page(rows, most::REPOSITORIES)
    }

    /// Returns a part of the body by its path.
    pub(super) fn part(&self, pointer: &str) -> Option<&Value> {
        self.body.pointer(pointer).filter(|value| !value.is_null())
    }

    /// Returns a text of the body by its path.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.part(pointer)?.as_str()
    }

    /// Returns a flag of the body by its path.
    pub(super) fn flag(&self, pointer: &str) -> Option<bool> {
        self.part(pointer)?.as_bool()
    }

    /// Returns a parameter of the address, unless it is empty.
    pub(super) fn asked(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, value)| key == name && !value.trim().is_empty());
        found.map(|(_, value)| value.trim())
    }

    /// Version of the request, in its body or its address; absent if it is in neither.
    pub(super) fn version(&self) -> Option<i64> {
        self.part("/version").and_then(Value::as_i64).or_else(|| self.asked("version")?.parse().ok())
    }

    /// Returns one page of a list. A page that is too long is cut.
    pub(super) fn page(&self, rows: Vec<Value>, most: usize) -> Result {
        let number = |name: &str, usual: usize| match self.asked(name) {
            None => Ok(usual),
            Some(text) => text.parse::<usize>().map_err(|_| Refusal::invalid(format!("'{text}' is no {name}"))),
        };
        let (limit, start) = (number("limit", USUAL_ROWS)?.clamp(1, most), number("start", 0)?);
        let total = rows.len();
        let values: Vec<Value> = rows.into_iter().skip(start).take(limit).collect();
        let next = start.saturating_add(limit);
        let is_last = next >= total;
        ok(json!({
            "size": values.len(), "limit": limit, "isLastPage": is_last, "values": values, "start": start,
            "nextPageStart": (!is_last).then_some(next),
        }))
    }
}

impl RepoCall<'_> {
    async fn answer(&self, module: &str, rest: &[&str]) -> Result {
        match (module, self.call.method.as_str(), rest) {
            ("api", "GET", []) => {
                let state = self.call.shared.lock();
                ok(shapes::repo(self.url(), &state, self.repo_in(&state)?))
            }
            ("api", method, ["pull-requests", rest @ ..]) => self.of_pulls(method, rest).await,
            ("api", method, ["commits", rest @ ..]) => self.of_commits(method, rest).await,
            ("api", "GET", ["branches"]) => self.branches().await,
            ("api", "GET", ["branches", "default"] | ["default-branch"]) => self.default_branch().await,
            ("api", "GET", ["raw", path @ ..]) => self.raw(&path.join("/")).await,
            ("api", "GET", ["files", path @ ..]) => self.files(&path.join("/")).await,
            ("api", "GET", ["compare", "changes"]) => self.compared().await,
            ("api", "GET", ["permissions", rest @ ..]) => self.permissions(rest),
            ("api", "GET", ["settings", "pull-requests"]) => self.pull_settings(),
            ("api", "GET", ["settings", "auto-merge"]) => self.auto_merge_settings(),
            ("api", method, ["webhooks", rest @ ..]) => self.of_hooks(method, rest).await,
            ("required-builds", "GET", ["conditions"]) => self.required_builds(),
            ("branch-permissions", "GET", ["restrictions"]) => self.restrictions(),
            ("branch-utils", "DELETE", ["branches"]) => self.delete_branch().await,
            (
                "comment-likes",
                method @ ("PUT" | "DELETE"),
                ["pull-requests", number, "comments", id, "reactions", emoticon],
            ) => self.react(method, number, id, emoticon),
            _ => Err(no_route()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.call.shared.url
    }

    /// The repository in the state.
    pub(super) fn repo_in<'a>(&self, state: &'a State) -> Result<&'a RepoState> {
        find(state, &self.full_name).ok_or_else(|| {
            Refusal::not_found(
                "repository.NoSuchRepositoryException",
                format!("Repository {} does not exist.", self.full_name),
            )
        })
    }

    /// Returns what is found of a pull request (refusal: bb).
    pub(super) fn of_pull<T>(&self, number: u64, find: impl FnOnce(&State, &RepoState, &PullState) -> T) -> Result<T> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let pull = state.pull(&self.full_name, number).map_err(|_| {
            let text = format!("Pull request {number} does not exist in {}.", self.full_name);
            Refusal::not_found("pull.NoSuchPullRequestException", text)
        })?;
        Ok(find(&state, repo, pull))
    }

    pub(super) fn git(&self) -> Result<GitRepo> {
        self.call.shared.git(&self.full_name).map_err(|error| Refusal::broken(&error))
    }

    /// Refuses people below a level.
    pub(super) fn check_level(&self, least: Level) -> Result<()> {
        let state = self.call.shared.lock();
        match access::level(self.repo_in(&state)?, &self.call.login) >= least {
            true => Ok(()),
            false => Err(Refusal::unauthorized()),
        }
    }
}
