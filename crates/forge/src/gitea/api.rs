//! Requests of the REST API v1: token, scope, repository, parameters, paging, and the way to the part that answers.

use super::super::state::{PullState, RepoState, State};
use super::super::{Shared, kind, server};
use super::{Refusal, Result, VERSION, access, shapes, teams};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request};
use serde_json::{Value, json};

/// Rows of a page if the request gives no number, and most of them (modules/setting/api.go).
const USUAL_ROWS: usize = 30;
const MAX_ROWS: usize = 50;

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
    Refusal(StatusCode::NOT_FOUND, json!("404 page not found\n"))
}

impl<'a> Call<'a> {
    pub(super) async fn answer(shared: &'a Shared, parts: &'a request::Parts, body: &[u8]) -> Result {
        let Some(tail) = parts.uri.path().strip_prefix("/api/v1/") else { return Err(no_route()) };
        let segments = kind::segments(tail);
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        // `apiAuth` of routers/api/v1/api.go.
        let unknown = || Refusal::new(StatusCode::UNAUTHORIZED, "invalid username, password or token");
        let login = server::principal(shared, &parts.headers).map_err(|()| unknown())?;
        if segments == ["version"] {
            return ok(json!({ "version": VERSION }));
        }
        // Repositories of the forge are private: without a token, there are none.
        let login = login.ok_or_else(|| match segments.as_slice() {
            ["repos", ..] => Refusal::not_found(),
            _ => Refusal::new(StatusCode::UNAUTHORIZED, "token is required"),
        })?;
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned();
        let method = parts.method.clone();
        let body = parsed(body)?;
        let call = Call { shared, login, method, path: parts.uri.path(), query: query.collect(), body };
        match segments.as_slice() {
            ["user"] => {
                call.check_scope("user")?;
                ok(shapes::viewed(&shared.url, &shared.lock(), &call.login, &call.login))
            }
            ["user", "repos"] => {
                call.check_scope("user")?;
                call.check_scope("repository")?;
                call.repos()
            }
            // The accounts of a forge are in no organization of their own.
            ["user", "orgs"] => {
                call.check_scope("user")?;
                call.check_scope("organization")?;
                call.page(Vec::new())
            }
            // No account of a forge administers the instance (`reqSiteAdmin` of routers/api/v1/api.go).
            ["admin", ..] => {
                call.check_scope("admin")?;
                Err(Refusal::forbidden("user should be the site admin"))
            }
            ["repositories", id] => {
                call.check_scope("repository")?;
                call.repo_by_id(id)
            }
            ["repos", owner, name, rest @ ..] => {
                let category =
                    if matches!(rest.first(), Some(&("issues" | "labels"))) { "issue" } else { "repository" };
                call.check_scope(category)?;
                match call.find(&format!("{owner}/{name}"), parts.uri.query())? {
                    Found::Here(full_name) => RepoCall { call, full_name }.answer(rest).await,
                    Found::Moved(redirect) => Ok(redirect),
                }
            }
            ["orgs", organization, "teams"] => {
                call.check_scope("organization")?;
                teams::list(&call, organization)
            }
            ["orgs", organization, "teams", "search"] => {
                call.check_scope("organization")?;
                teams::search(&call, organization)
            }
            ["teams", id, "members", user] => {
                call.check_scope("organization")?;
                teams::member(&call, id, user)
            }
            _ => Err(no_route()),
        }
    }

    fn check_scope(&self, category: &str) -> Result<()> {
        access::check_scope(&self.shared.lock(), &self.login, &self.method, category)
    }

    /// Lists the repositories that the account sees, in the order of their ids.
    fn repos(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            let mut seen: Vec<&RepoState> =
                state.repos.values().filter(|repo| access::level(repo, &self.login) != "none").collect();
            seen.sort_by_key(|repo| repo.id);
            let shape =
                |repo: &RepoState| shapes::repo(&self.shared.url, &state, repo, access::level(repo, &self.login));
            seen.into_iter().map(shape).collect()
        };
        self.page(rows)
    }

    fn repo_by_id(&self, id: &str) -> Result {
        let state = self.shared.lock();
        let found = state.repos.values().find(|repo| repo.id.to_string() == id);
        let found = found.filter(|repo| access::level(repo, &self.login) != "none").ok_or_else(Refusal::not_found)?;
        ok(shapes::repo(&self.shared.url, &state, found, access::level(found, &self.login)))
    }

    /// Finds a repository by its name. A former name redirects requests of every method, before rights are checked
    /// (routers/api/v1/api.go, `repoAssignment`; services/context/repo.go, `RedirectToRepo`).
    fn find(&self, full_name: &str, query: Option<&str>) -> Result<Found> {
        let state = self.shared.lock();
        let key = full_name.to_lowercase();
        if let Some(now) = state.moved.get(&key) {
            let place = self.path.replacen(full_name, now, 1);
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            let location = format!("{place}{query}");
            let page = format!("<a href=\"{}\">Moved Permanently</a>.\n\n", location.replace('&', "&amp;"));
            // `http.Redirect` of Go writes a page to readers only.
            let page = if self.method == Method::GET { page } else { String::new() };
            let moved = (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)], page);
            return Ok(Found::Moved(moved.into_response()));
        }
        let found = state.repo(full_name).ok().filter(|repo| access::level(repo, &self.login) != "none");
        found.map(|repo| Found::Here(repo.full_name())).ok_or_else(Refusal::not_found)
    }

    /// Returns a text of the body.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.body.get(name)?.as_str().map(str::to_owned)
    }

    /// Returns true if the body says so.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.body.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a part of the body.
    pub(super) fn part(&self, name: &str) -> Option<&Value> {
        self.body.get(name).filter(|value| !value.is_null())
    }

    /// Returns a parameter of the address, unless it is empty.
    pub(super) fn asked(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns a text of the body that must be there; the binding refuses others (modules/web/middleware/binding.go).
    pub(super) fn required(&self, name: &str, field: &str) -> Result<String> {
        self.text(name).filter(|text| !text.is_empty()).ok_or_else(|| Refusal::invalid(format!("[{field}]: Required")))
    }

    /// Number of the page, and its rows: a larger limit is cut silently (services/convert/utils.go, `ToCorrectPageSize`).
    pub(super) fn paging(&self) -> (usize, usize) {
        let number = |name: &str| self.asked(name).and_then(|text| text.parse::<usize>().ok()).unwrap_or_default();
        let limit = match number("limit") {
            0 => USUAL_ROWS,
            limit => limit.min(MAX_ROWS),
        };
        (number("page").max(1), limit)
    }

    /// Returns one page of a list, with links to the others.
    pub(super) fn page(&self, rows: Vec<Value>) -> Result {
        let ((page, limit), total) = (self.paging(), rows.len());
        let body: Vec<Value> = rows.into_iter().skip((page - 1).saturating_mul(limit)).take(limit).collect();
        Ok((self.links(total), total_count(total), axum::Json(body)).into_response())
    }

    /// Returns one page of a list that has the number of all rows, and no links.
    pub(super) fn page_without_links(&self, rows: Vec<Value>) -> Result {
        let ((page, limit), total) = (self.paging(), rows.len());
        let body: Vec<Value> = rows.into_iter().skip((page - 1).saturating_mul(limit)).take(limit).collect();
        Ok((total_count(total), axum::Json(body)).into_response())
    }

    /// Links to other pages: `genAPILinks` of services/context/api.go. Parameters are sorted by their names.
    pub(super) fn links(&self, total: usize) -> HeaderMap {
        let (page, limit) = self.paging();
        let last = total.div_ceil(limit).max(1);
        let page = page.min(last);
        let link = |page: usize, rel: &str| {
            let mut pairs: Vec<(String, String)> =
                self.query.iter().filter(|(key, _)| key != "page").cloned().collect();
            pairs.push(("page".to_owned(), page.to_string()));
            pairs.sort();
            let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
            format!("<{}{}?{query}>; rel=\"{rel}\"", self.shared.url, self.path)
        };
        let mut links = Vec::new();
        if page < last {
            links.extend([link(page + 1, "next"), link(last, "last")]);
        }
        if page > 1 {
            links.extend([link(1, "first"), link(page - 1, "prev")]);
        }
        let value = HeaderValue::from_str(&links.join(",")).ok().filter(|_| !links.is_empty());
        value.map(|value| (header::LINK, value)).into_iter().collect()
    }
}

/// The header that has the number of all rows.
pub(super) fn total_count(total: usize) -> [(HeaderName, String); 1] {
    [(HeaderName::from_static("x-total-count"), total.to_string())]
}

/// A repository that a request names.
enum Found {
    /// Its full name.
    Here(String),
    /// A redirect from a former name.
    Moved(Response),
}

/// Reads a body.
fn parsed(body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("[]: {error}")))
}

impl RepoCall<'_> {
    async fn answer(&self, rest: &[&str]) -> Result {
        match (self.call.method.as_str(), rest) {
            ("GET", []) => {
                self.read(|state, repo| shapes::repo(self.url(), state, repo, access::level(repo, &self.call.login)))
            }
            (method, ["pulls", rest @ ..]) => self.of_pulls(method, rest).await,
            (method, ["issues", rest @ ..]) => self.of_issues(method, rest),
            ("POST", ["statuses", sha]) => self.set_status(sha).await,
            ("GET", ["statuses", sha]) => self.statuses_of(sha),
            ("GET", ["commits", reference @ .., "status"]) => self.combined_status(&reference.join("/")).await,
            ("GET", ["commits", reference @ .., "statuses"]) => self.statuses(&reference.join("/")).await,
            (method, ["branches", branch @ ..]) => self.of_branches(method, &branch.join("/")).await,
            (method, ["branch_protections", rest @ ..]) => self.of_protections(method, &rest.join("/")),
            ("GET", ["collaborators", user, "permission"]) => self.permission(user),
            ("GET", ["compare", range @ ..]) => self.compare(&range.join("/")).await,
            (method, ["hooks", rest @ ..]) => self.of_hooks(method, rest).await,
            ("GET", ["activities", "feeds"]) => self.feed(),
            ("GET", ["raw", path @ ..]) => self.raw(&path.join("/")).await,
            ("GET", ["contents", path @ ..]) => self.contents(&path.join("/")).await,
            _ => Err(no_route()),
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.call.shared.url
    }

    /// Answers with what is found in the repository.
    pub(super) fn read(&self, find: impl FnOnce(&State, &RepoState) -> Value) -> Result {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        ok(find(&state, repo))
    }

    /// Returns what is found of a pull request.
    pub(super) fn of_pull<T>(&self, number: u64, find: impl FnOnce(&State, &RepoState, &PullState) -> T) -> Result<T> {
        let state = self.call.shared.lock();
        match (state.repo(&self.full_name), state.pull(&self.full_name, number)) {
            (Ok(repo), Ok(pull)) => Ok(find(&state, repo, pull)),
            _ => Err(Refusal::not_found()),
        }
    }

    /// The caller's level of access.
    pub(super) fn level(&self) -> String {
        let state = self.call.shared.lock();
        state.repo(&self.full_name).map_or("none", |repo| access::level(repo, &self.call.login)).to_owned()
    }

    /// Refuses people without administration: `reqAdmin` of routers/api/v1/api.go.
    pub(super) fn check_admin(&self) -> Result<()> {
        match access::is_admin(&self.level()) {
            true => Ok(()),
            false => {
                Err(Refusal::forbidden("user should be an owner or a collaborator with admin write of a repository"))
            }
        }
    }

    /// Refuses people who may not push: `reqRepoWriter` of routers/api/v1/api.go.
    pub(super) fn check_writer(&self) -> Result<()> {
        match access::is_writer(&self.level()) {
            true => Ok(()),
            false => Err(Refusal::forbidden("user should have a permission to write to a repo")),
        }
    }

    /// Administrators may ask about everybody, others about themselves (routers/api/v1/repo/collaborators.go, `GetRepoPermissions`).
    fn permission(&self, user: &str) -> Result {
        if !user.eq_ignore_ascii_case(&self.call.login) && !access::is_admin(&self.level()) {
            return Err(Refusal::forbidden(
                "Only admins can query all permissions, repo admins can query all repo permissions, collaborators can query only their own",
            ));
        }
        let state = self.call.shared.lock();
        if !state.users.contains_key(&user.to_lowercase()) {
            let message = format!("user does not exist [uid: 0, name: {user}]");
            return Err(Refusal::new(StatusCode::NOT_FOUND, message));
        }
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        let level = access::level(repo, user);
        ok(json!({"permission": level, "role_name": level, "user": shapes::user(self.url(), &state, user)}))
    }
}
