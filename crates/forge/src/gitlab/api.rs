//! Requests of the REST API v4: token, project, parameters, paging, and the way to the part that answers.

use super::super::state::{PullState, RepoState, State};
use super::super::{BOT, Shared};
use super::{Refusal, Result, api_segments, members, shapes, token};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request};
use serde_json::{Value, json};

/// Rows of a page if the request gives no number, and most of them (docs.gitlab.com/api/rest, "Offset-based pagination").
const USUAL_ROWS: usize = 20;
pub(super) const MAX_ROWS: usize = 100;

/// Version of the instance, and of one before 18.3.
const VERSION: &str = "18.6.1-ee";
const OLD_VERSION: &str = "18.2.8-ee";

/// One request, with its user.
pub(super) struct Call<'a> {
    pub shared: &'a Shared,
    pub login: String,
    /// Path of the address, without its query.
    path: &'a str,
    query: Vec<(String, String)>,
    body: Value,
}

/// One request about a project.
pub(super) struct ProjectCall<'a> {
    pub call: Call<'a>,
    pub full_name: String,
}

pub(super) fn ok(body: Value) -> Result {
    Ok(axum::Json(body).into_response())
}

pub(super) fn created(body: Value) -> Result {
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// The answer for a path that the API does not have (docs.gitlab.com/api/rest, "404").
pub(super) fn no_route() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, json!({"error": "404 Not Found"}))
}

/// The answer for a row that the project does not have: `ActiveRecord::RecordNotFound` in lib/api/api.rb.
pub(super) fn no_record() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "404 Not found")
}

impl<'a> Call<'a> {
    pub(super) async fn answer(shared: &'a Shared, parts: &'a request::Parts, body: &[u8]) -> Result {
        let segments = api_segments(parts.uri.path()).ok_or_else(no_route)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let login = token(&parts.headers).and_then(|token| shared.lock().login_of_token(&token));
        let login = login.ok_or_else(Refusal::unauthorized)?;
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned();
        let body = parsed(&parts.headers, body)?;
        let call = Call { shared, login, path: parts.uri.path(), query: query.collect(), body };
        call.check_scope(parts.method == "GET")?;
        match (parts.method.as_str(), segments.as_slice()) {
            ("GET", ["user"]) => ok(shapes::user(&shared.url, &shared.lock(), &call.login)),
            ("GET", ["version"]) => call.version(),
            ("GET", ["personal_access_tokens", "self"]) => call.own_token(),
            ("GET", ["users"]) => call.users(),
            ("GET", ["projects"]) => call.projects(),
            ("GET", ["groups", path, "members", all @ .., user]) if matches!(all, [] | ["all"]) => {
                call.group_member(path, user, !all.is_empty())
            }
            (method, ["projects", project, rest @ ..]) => match call.find(method, project, rest, parts.uri.query())? {
                Found::Here(full_name) => ProjectCall { call, full_name }.answer(method, rest).await,
                Found::Moved(redirect) => Ok(redirect),
            },
            _ => Err(no_route()),
        }
    }

    /// Refuses changes with a token that may only read (docs.gitlab.com/user/profile/personal_access_tokens, "scopes").
    fn check_scope(&self, is_read: bool) -> Result<()> {
        let state = self.shared.lock();
        let scopes = &state.gitlab.token.scopes;
        let has = |scope: &str| scopes.iter().any(|one| one == scope);
        if self.login != BOT || has("api") || (is_read && has("read_api")) {
            return Ok(());
        }
        let description = "The request requires higher privileges than provided by the access token.";
        let body = json!({"error": "insufficient_scope", "error_description": description, "scope": "api"});
        Err(Refusal(StatusCode::FORBIDDEN, body))
    }

    fn version(&self) -> Result {
        let old = self.shared.lock().gitlab.refuses_repeated_states;
        ok(json!({"version": if old { OLD_VERSION } else { VERSION }, "revision": "4e963fd1a2b"}))
    }

    /// docs.gitlab.com/api/personal_access_tokens, "Self-inform": also for tokens of projects and groups.
    fn own_token(&self) -> Result {
        let state = self.shared.lock();
        let (id, token) = (state.users.get(&self.login.to_lowercase()).map(|user| user.id), &state.gitlab.token);
        ok(json!({
            "id": id, "name": "tidelock", "revoked": false, "created_at": "2026-01-01T00:00:00.000Z", "description": null,
            "scopes": token.scopes, "user_id": id, "last_used_at": null, "active": true, "expires_at": token.expires_at,
        }))
    }

    /// Lists projects in the order of their ids, of `min_access_level` and more.
    fn projects(&self) -> Result {
        let least = self.number("min_access_level", 1)? as u64;
        let rows = {
            let state = self.shared.lock();
            let seen = state.repos.values().filter(|repo| members::level(&state, repo, &self.login) >= least);
            let mut seen: Vec<&RepoState> = seen.collect();
            seen.sort_by_key(|repo| repo.id);
            if self.text("sort").is_none_or(|sort| sort != "asc") {
                seen.reverse();
            }
            seen.into_iter().map(|repo| shapes::project(&self.shared.url, &state, repo, &self.login)).collect()
        };
        self.page(rows)
    }

    /// Finds a project by its number or its path. One that the user may not see does not exist
    /// (docs.gitlab.com/api/rest/authentication).
    fn find(&self, method: &str, project: &str, rest: &[&str], query: Option<&str>) -> Result<Found> {
        let state = self.shared.lock();
        let by_id = || state.repos.values().find(|repo| repo.id.to_string() == project);
        let found = by_id().or_else(|| state.repo(project).ok());
        let found = found.filter(|repo| members::level(&state, repo, &self.login) > 0);
        let found = found.ok_or_else(|| Refusal::not_found("Project"))?;
        if !state.moved.contains_key(&project.to_lowercase()) {
            return Ok(Found::Here(found.full_name()));
        }
        if method != "GET" {
            // `find_project!` in lib/api/helpers.rb.
            let message = "Non GET methods are not allowed for moved projects";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let tail: String = rest.iter().map(|segment| format!("/{}", shapes::encoded(segment))).collect();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let location = format!("{}/api/v4/projects/{}{tail}{query}", self.shared.url, found.id);
        let text = format!("This resource has been moved permanently to {location}.");
        Ok(Found::Moved((StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)], text).into_response()))
    }

    /// Returns a parameter of the body or the address.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.body.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Some(value.to_string()),
            _ => self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()),
        }
    }

    /// Returns all values of a parameter of the address.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name).as_deref(), Some("true" | "1"))
    }

    fn number(&self, name: &str, usual: usize) -> Result<usize> {
        match self.text(name).map(|text| text.parse()) {
            None => Ok(usual),
            Some(Ok(number)) if number > 0 => Ok(number),
            Some(_) => Err(Refusal::parameter(name, "does not have a valid value")),
        }
    }

    /// Returns one page of a list, with links to the others.
    pub(super) fn page(&self, rows: Vec<Value>) -> Result {
        self.page_of(rows, USUAL_ROWS, MAX_ROWS)
    }

    pub(super) fn page_of(&self, rows: Vec<Value>, usual: usize, most: usize) -> Result {
        let (per_page, page) = (self.number("per_page", usual)?.min(most), self.number("page", 1)?);
        let (total, last) = (rows.len(), rows.len().div_ceil(per_page).max(1));
        let link = |page: usize, rel: &str| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(self.query.iter().filter(|(key, _)| key != "page" && key != "per_page"));
            query.append_pair("page", &page.to_string()).append_pair("per_page", &per_page.to_string());
            format!("<{}{}?{}>; rel=\"{rel}\"", self.shared.url, self.path, query.finish())
        };
        let mut links = vec![link(1, "first"), link(last, "last")];
        if page < last {
            links.insert(0, link(page + 1, "next"));
        }
        let next = if page < last { (page + 1).to_string() } else { String::new() };
        let headers: HeaderMap = [
            ("link", links.join(", ")),
            ("x-page", page.to_string()),
            ("x-per-page", per_page.to_string()),
            ("x-next-page", next),
            ("x-total", total.to_string()),
            ("x-total-pages", last.to_string()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?)))
        .collect();
        let start = (page - 1).saturating_mul(per_page);
        let body: Vec<Value> = rows.into_iter().skip(start).take(per_page).collect();
        Ok((headers, axum::Json(body)).into_response())
    }
}

/// A project that a request names.
enum Found {
    /// Full name of the project.
    Here(String),
    /// A redirect from a former path.
    Moved(Response),
}

/// Reads a body: JSON, or a form.
fn parsed(headers: &HeaderMap, body: &[u8]) -> Result<Value> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if body.is_empty() {
        return Ok(Value::Null);
    }
    if kind.starts_with("application/json") {
        let problem = "message body does not match declared format";
        return serde_json::from_slice(body).map_err(|_| Refusal(StatusCode::BAD_REQUEST, json!({ "error": problem })));
    }
    let fields = url::form_urlencoded::parse(body).into_owned();
    Ok(Value::Object(fields.map(|(name, value)| (name, Value::String(value))).collect()))
}

impl ProjectCall<'_> {
    async fn answer(&self, method: &str, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => self.read(|state, repo| shapes::project(self.url(), state, repo, &self.call.login)),
            ("GET", ["merge_requests"]) => self.merge_requests(),
            (_, ["merge_requests", number, rest @ ..]) => {
                let number = number.parse().map_err(|_| Refusal::parameter("merge_request_iid", "is invalid"))?;
                self.check_pull(number)?;
                self.of_merge_request(method, number, rest).await
            }
            ("POST", ["statuses", sha]) => self.set_status(sha).await,
            ("GET", ["repository", "commits", sha, "statuses"]) => self.statuses(sha).await,
            (_, ["repository", rest @ ..]) => self.of_repository(method, rest).await,
            ("GET", ["members", all @ .., user]) if matches!(all, [] | ["all"]) => self.member(user, !all.is_empty()),
            ("GET", ["events"]) => self.events(),
            (_, ["merge_trains", rest @ ..]) => self.of_merge_trains(method, rest),
            (_, ["hooks", rest @ ..]) => self.of_hooks(method, rest).await,
            _ => Err(no_route()),
        }
    }

    async fn of_merge_request(&self, method: &str, number: u64, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => self.merge_request(number).await,
            ("PUT", ["merge"]) => self.merge(number).await,
            ("GET", ["commits"]) => self.commits(number).await,
            ("GET", ["versions"]) => self.versions(number).await,
            ("GET", ["reviewers"]) => self.reviewers(number),
            ("GET", ["approvals"]) => self.approvals(number),
            ("GET", ["approval_state"]) => self.approval_state(number),
            ("POST", ["approve"]) => self.approve(number).await,
            ("POST", ["unapprove"]) => self.unapprove(number),
            ("PUT", ["reset_approvals"]) => self.reset_approvals(number),
            ("POST", ["notes"]) => self.create_note(number).await,
            ("PUT", ["notes", id]) => self.update_note(number, id).await,
            (_, ["notes", rest @ ..]) => self.of_notes(method, number, rest),
            _ => Err(no_route()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.call.shared.url
    }

    /// Answers with what is found in the project.
    pub(super) fn read(&self, find: impl FnOnce(&State, &RepoState) -> Value) -> Result {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        ok(find(&state, repo))
    }

    /// Returns what is found of a merge request.
    pub(super) fn of_pull<T>(&self, number: u64, find: impl FnOnce(&State, &RepoState, &PullState) -> T) -> Result<T> {
        let state = self.call.shared.lock();
        match (state.repo(&self.full_name), state.pull(&self.full_name, number)) {
            (Ok(repo), Ok(pull)) => Ok(find(&state, repo, pull)),
            _ => Err(no_record()),
        }
    }

    fn check_pull(&self, number: u64) -> Result<()> {
        self.of_pull(number, |_, _, _| ())
    }

    /// Refuses a user with less access than this (docs.gitlab.com/user/permissions).
    pub(super) fn check_level(&self, least: u64) -> Result<()> {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found("Project"))?;
        if members::level(&state, repo, &self.call.login) < least {
            return Err(Refusal::forbidden());
        }
        Ok(())
    }
}
