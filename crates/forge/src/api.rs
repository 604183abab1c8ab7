//! The part of GitHub's REST API that the server uses, with GitHub's answers, errors and paging.

mod app;
mod branches;
mod checks;
mod graphql;
mod issues;
mod moved;
mod teams;
mod webhooks;

use super::state::{CommentState, ReactionState, State, StatusState};
use super::{Shared, comments, pull, server, shapes, timestamp};
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};
use moved::{moved, redirect};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Most statuses of one commit and context, as on GitHub.
const MAX_STATUSES: usize = 1000;

/// Most rows on one page.
const MAX_PER_PAGE: usize = 100;

/// An answer: status, body, further headers.
struct ApiReply(StatusCode, Value, HeaderMap);

/// A refusal in GitHub's form.
struct Refusal(StatusCode, String);

type Result<T = ApiReply> = std::result::Result<T, Refusal>;

/// One request, with its user and its repository.
struct Call<'a> {
    shared: &'a Shared,
    login: String,
    full_name: String,
    query: &'a str,
    body: Value,
}

const NOT_FOUND: fn() -> Refusal = || Refusal(StatusCode::NOT_FOUND, "Not Found".to_owned());

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal(StatusCode::UNPROCESSABLE_ENTITY, message.into())
}

fn ok(body: Value) -> Result {
    Ok(ApiReply(StatusCode::OK, body, HeaderMap::new()))
}

fn created(body: Value) -> Result {
    Ok(ApiReply(StatusCode::CREATED, body, HeaderMap::new()))
}

/// Answers one request below `/api/v3`.
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    let mut response = answered(shared, parts, body).await;
    set_date(shared, &mut response);
    response
}

/// Writes the time of a host whose clock is ahead into its answer.
pub(super) fn set_date(shared: &Shared, response: &mut Response) {
    let ahead = shared.lock().clock_ahead;
    if !ahead.is_zero() {
        let then = jiff::Timestamp::now() + ahead;
        let date = then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        response.headers_mut().extend(HeaderValue::from_str(&date).ok().map(|date| (header::DATE, date)));
    }
}

async fn answered(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    match route(shared, parts, body).await {
        Ok(ApiReply(StatusCode::NO_CONTENT, _, headers)) => (StatusCode::NO_CONTENT, headers).into_response(),
        Ok(ApiReply(StatusCode::OK, body, headers)) if parts.method == Method::GET => {
            conditional(&parts.headers, body, headers)
        }
        Ok(ApiReply(status, body, headers)) => (status, headers, axum::Json(body)).into_response(),
        Err(Refusal(status, message)) => {
            let body = json!({"message": message, "documentation_url": "https://docs.github.com/rest", "status": status.as_str()});
            (status, axum::Json(body)).into_response()
        }
    }
}

/// Answers 304 without a body if the client has this very answer.
fn conditional(asked: &HeaderMap, body: Value, mut headers: HeaderMap) -> Response {
    let digest = Sha256::digest(format!("{body}{:?}", headers.get(header::LINK)));
    let etag = HeaderValue::from_str(&format!("W/\"{}\"", hex::encode(digest))).ok();
    headers.extend(etag.clone().map(|etag| (header::ETAG, etag)));
    match etag.is_some() && asked.get(header::IF_NONE_MATCH) == etag.as_ref() {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, axum::Json(body)).into_response(),
    }
}

async fn route(shared: &Shared, parts: &request::Parts, body: Bytes) -> Result {
    if parts.uri.path() == graphql::PATH {
        return graphql::answer(shared, parts, &body);
    }
    let Some(path) = parts.uri.path().strip_prefix("/api/v3/") else { return Err(NOT_FOUND()) };
    if app::is_of_apps(path) {
        return app::answer(shared, parts, path, &body);
    }
    let login = server::principal(shared, &parts.headers)
        .map_err(|()| Refusal(StatusCode::UNAUTHORIZED, "Bad credentials".to_owned()))?
        .ok_or_else(NOT_FOUND)?;
    let segments: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let (full_name, rest) = match segments.as_slice() {
        ["repos", owner, name, rest @ ..] => {
            let full_name = format!("{owner}/{name}");
            if let Some(id) = moved(shared, &full_name) {
                return redirect(shared, parts, id, rest);
            }
            (full_name, rest)
        }
        // The form in GitHub's own `Link` headers.
        ["repositories", id, rest @ ..] => {
            let state = shared.lock();
            let found = state.repos.values().find(|repo| repo.id.to_string() == *id).ok_or_else(NOT_FOUND)?;
            (found.full_name(), rest)
        }
        ["orgs", org, "teams", slug, "memberships", login] => return teams::membership(shared, org, slug, login),
        ["installation", "repositories"] => return app::repositories(shared, parts),
        ["user"] => return ok(shapes::user(&shared.url, &shared.lock(), &login)),
        ["user", "repos"] => return ok(shapes::repos_of(&shared.url, &shared.lock(), &login)),
        _ => return Err(NOT_FOUND()),
    };
    let body = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&body)
            .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "Problems parsing JSON".to_owned()))?,
    };
    let call = Call { shared, login, full_name, query: parts.uri.query().unwrap_or_default(), body };
    app::check_token(shared, parts, &call.full_name)?;
    call.check_access(parts.method != Method::GET && rest.first() != Some(&"issues"))?;
    if let Some(answer) = call.of_issues(parts.method.as_str(), rest) {
        return answer;
    }
    match (parts.method.as_str(), rest) {
        ("GET", []) => call.repo(),
        ("GET", ["hooks"]) => call.webhooks(),
        ("GET", ["hooks", "1", "deliveries"]) => call.deliveries(),
        ("GET", ["hooks", "1", "deliveries", id]) => call.delivery(id),
        ("GET", ["pulls"]) => call.open_pulls(),
        ("GET", ["pulls", number]) => call.pull(number),
        ("GET", ["pulls", number, "reviews"]) => call.reviews(number),
        ("PUT", ["pulls", number, "reviews", id, "dismissals"]) => call.dismiss(number, id),
        ("PUT", ["pulls", number, "merge"]) => call.merge(number).await,
        ("GET", ["git", "ref", "heads", branch @ ..]) => call.branch(&branch.join("/")).await,
        ("DELETE", ["git", "refs", "heads", branch @ ..]) => call.delete_branch(&branch.join("/")).await,
        ("GET", ["collaborators", user, "permission"]) => call.permission(user),
        ("GET", ["issues", number, "comments"]) => call.comments(number),
        ("POST", ["issues", number, "comments"]) => call.create_comment(number),
        ("GET", ["issues", "comments", id]) => call.comment(id),
        ("DELETE", ["issues", "comments", id]) => call.delete_comment(id),
        ("POST", ["issues", "comments", id, "reactions"]) => call.react(id),
        ("GET", ["commits", sha, "statuses"]) => call.statuses(sha),
        ("GET", ["commits", sha, "check-runs"]) => call.checks(sha),
        (method, ["check-runs", id @ ..]) => call.change_check(method, id).await,
        ("GET", ["compare", commits]) => call.compare(commits).await,
        ("POST", ["statuses", sha]) => call.set_status(sha).await,
        _ => Err(NOT_FOUND()),
    }
}

impl Call<'_> {
    /// Fails with 404 without read access, and with 403 without write access.
    fn check_access(&self, write: bool) -> Result<()> {
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        match repo.permission(&self.login) {
            "none" => Err(NOT_FOUND()),
            "read" if write => Err(Refusal(StatusCode::FORBIDDEN, "Must have push access to Repository.".to_owned())),
            _ => Ok(()),
        }
    }

    fn number(&self, text: &str) -> Result<u64> {
        let number = text.parse().map_err(|_| NOT_FOUND())?;
        self.shared.lock().pull(&self.full_name, number).map(|_| number).map_err(|_| NOT_FOUND())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.body.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    fn repo(&self) -> Result {
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        ok(shapes::repo(&self.shared.url, &state, repo))
    }

    fn pull(&self, number: &str) -> Result {
        let number = self.number(number)?;
        let state = self.shared.lock();
        match (state.repo(&self.full_name), state.pull(&self.full_name, number)) {
            (Ok(repo), Ok(pull)) => ok(shapes::pull(&self.shared.url, &state, repo, pull, false)),
            _ => Err(NOT_FOUND()),
        }
    }

    fn open_pulls(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let all = self.asked("state").is_some_and(|wanted| wanted == "all");
            let wanted = repo.pulls.iter().rev().filter(|pull| pull.open || all);
            wanted.map(|pull| shapes::pull(&self.shared.url, &state, repo, pull, false)).collect()
        };
        self.page(rows, "pulls")
    }

    fn statuses(&self, sha: &str) -> Result {
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let of_commit = repo.statuses.iter().rev().filter(|status| status.sha == sha);
            of_commit.map(|status| shapes::status(&self.shared.url, &state, repo, status)).collect()
        };
        self.page(rows, &format!("commits/{sha}/statuses"))
    }

    /// Returns a parameter of the address.
    fn asked(&self, key: &str) -> Option<String> {
        let found = url::form_urlencoded::parse(self.query.as_bytes()).find(|(name, _)| name == key);
        found.map(|(_, value)| value.into_owned())
    }

    fn reviews(&self, number: &str) -> Result {
        let number = self.number(number)?;
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let pull = state.pull(&self.full_name, number).map_err(|_| NOT_FOUND())?;
            let shape = |review| shapes::review(&self.shared.url, &state, repo, number, review);
            pull.reviews.iter().map(shape).collect()
        };
        self.page(rows, &format!("pulls/{number}/reviews"))
    }

    /// docs.github.com/rest/pulls/reviews: dismiss a review for a pull request.
    fn dismiss(&self, number: &str, id: &str) -> Result {
        let number = self.number(number)?;
        self.text("message").filter(|text| !text.is_empty()).ok_or_else(|| invalid("\"message\" wasn't supplied."))?;
        self.shared.change(|state| {
            let pull = state.pull_mut(&self.full_name, number).map_err(|_| NOT_FOUND())?;
            let review = pull.reviews.iter_mut().find(|review| review.id.to_string() == id).ok_or_else(NOT_FOUND)?;
            if review.state == "DISMISSED" {
                return Err(invalid("Can not dismiss a dismissed pull request review"));
            }
            (review.state, review.vote) = ("DISMISSED", 0);
            ok(json!({"id": review.id, "state": "DISMISSED"}))
        })
    }

    async fn merge(&self, number: &str) -> Result {
        let number = self.number(number)?;
        let head =
            self.shared.lock().pull(&self.full_name, number).map(|p| p.head_sha.clone()).map_err(|_| NOT_FOUND())?;
        if self.text("sha").is_some_and(|sha| sha != head) {
            let message = "Head branch was modified. Review and try the merge again.";
            return Err(Refusal(StatusCode::CONFLICT, message.to_owned()));
        }
        let method = self.text("merge_method").unwrap_or_else(|| "merge".to_owned());
        let sha = pull::merge(self.shared, &self.full_name, number, &self.login, &method)
            .await
            .map_err(|error| Refusal(StatusCode::METHOD_NOT_ALLOWED, error.to_string()))?;
        ok(json!({"sha": sha, "merged": true, "message": "Pull Request successfully merged"}))
    }

    fn permission(&self, user: &str) -> Result {
        let state = self.shared.lock();
        if !state.users.contains_key(&user.to_lowercase()) {
            return Err(NOT_FOUND());
        }
        let level = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?.permission(user).to_owned();
        ok(json!({"permission": level, "role_name": level, "user": shapes::user(&self.shared.url, &state, user)}))
    }

    fn comments(&self, number: &str) -> Result {
        let number = self.number(number)?;
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let pull = state.pull(&self.full_name, number).map_err(|_| NOT_FOUND())?;
            let shape = |comment| shapes::comment(&self.shared.url, &state, repo, number, comment);
            let since = self.asked("since").and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let updated = |comment: &CommentState| shapes::changed(comment).parse::<jiff::Timestamp>().ok();
            let is_wanted = |comment: &&CommentState| since.is_none_or(|since| updated(comment) >= Some(since));
            pull.comments.iter().filter(is_wanted).map(shape).collect()
        };
        self.page(rows, &format!("issues/{number}/comments"))
    }

    fn create_comment(&self, number: &str) -> Result {
        let number = self.number(number)?;
        let body = self.text("body").ok_or_else(|| invalid("Invalid request.\n\n\"body\" wasn't supplied."))?;
        let url = &self.shared.url;
        let id = self
            .shared
            .change(|state| comments::add(state, url, &self.full_name, number, &self.login, &body))
            .map_err(|error| invalid(error.to_string()))?;
        let mut answer = self.comment(&id.to_string())?;
        answer.0 = StatusCode::CREATED;
        Ok(answer)
    }

    fn comment(&self, id: &str) -> Result {
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        let mut all = repo.pulls.iter().flat_map(|pull| pull.comments.iter().map(|comment| (pull.number, comment)));
        let (number, comment) = all.find(|(_, comment)| comment.id.to_string() == id).ok_or_else(NOT_FOUND)?;
        ok(shapes::comment(&self.shared.url, &state, repo, number, comment))
    }

    fn delete_comment(&self, id: &str) -> Result {
        self.shared.change(|state| {
            let author = comment_mut(state, &self.full_name, id)?.author.clone();
            let repo = state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?;
            if author != self.login && !repo.can_write(&self.login) {
                return Err(Refusal(StatusCode::FORBIDDEN, "Must have admin rights to Repository.".to_owned()));
            }
            for pull in &mut repo.pulls {
                pull.comments.retain(|comment| comment.id.to_string() != id);
            }
            Ok(ApiReply(StatusCode::NO_CONTENT, Value::Null, HeaderMap::new()))
        })
    }

    fn react(&self, id: &str) -> Result {
        let content = self.text("content").filter(|content| shapes::is_reaction(content));
        let content = content.ok_or_else(|| invalid("Validation Failed: content is not included in the list"))?;
        let url = &self.shared.url;
        self.shared.change(|state| {
            let fresh = state.new_id();
            let comment = comment_mut(state, &self.full_name, id)?;
            let same = |old: &ReactionState| old.user == self.login && old.content == content;
            let known = comment.reactions.iter().position(same);
            if known.is_none() {
                let (user, created_at) = (self.login.clone(), timestamp());
                comment.reactions.push(ReactionState { id: fresh, user, content: content.clone(), created_at });
            }
            let at = known.unwrap_or(comment.reactions.len() - 1);
            let reaction = comment.reactions.get(at).cloned();
            let body = reaction.map(|reaction| shapes::reaction(url, state, &reaction));
            if known.is_some() { ok(body.into()) } else { created(body.into()) }
        })
    }

    async fn set_status(&self, sha: &str) -> Result {
        let state_word = self.text("state").unwrap_or_default();
        if !["error", "failure", "pending", "success"].contains(&state_word.as_str()) {
            return Err(invalid("Validation Failed: state is not included in the list"));
        }
        let context = self.text("context").unwrap_or_else(|| "default".to_owned());
        let description = self.text("description");
        let target_url = self.text("target_url").filter(|url| !url.is_empty());
        let too_long = |text: &str, limit| text.chars().count() > limit;
        if description.as_deref().is_some_and(|text| too_long(text, 140)) {
            return Err(invalid("Validation Failed: description is too long (maximum is 140 characters)"));
        }
        if too_long(&context, 255) {
            return Err(invalid("Validation Failed: context is too long (maximum is 255 characters)"));
        }
        if target_url.as_deref().is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
            return Err(invalid("Validation Failed: target_url must use http(s) scheme"));
        }
        if !self.has_commit(sha).await? {
            return Err(invalid(format!("No commit found for SHA: {sha}")));
        }
        self.shared.change(|state| {
            let id = state.new_id();
            let repo = state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?;
            let same = |old: &&StatusState| old.sha == sha && old.context == context;
            if repo.statuses.iter().filter(same).count() >= MAX_STATUSES {
                return Err(invalid("This SHA and context has reached the maximum number of statuses."));
            }
            let (creator, created_at) = (self.login.clone(), timestamp());
            repo.statuses.push(StatusState {
                id,
                sha: sha.to_owned(),
                creator,
                state: state_word,
                context,
                description,
                target_url,
                created_at,
                of_push: None,
            });
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let latest = repo.statuses.last().map(|status| shapes::status(&self.shared.url, state, repo, status));
            created(latest.into())
        })
    }

    /// Returns true if the commit exists. Heads of pull requests need no git command.
    async fn has_commit(&self, sha: &str) -> Result<bool> {
        let git = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            if repo.pulls.iter().any(|pull| pull.head_sha == sha) {
                return Ok(true);
            }
            repo.git.clone()
        };
        Ok(git.has_commit(sha).await)
    }

    /// Returns one page of a list, with `Link` to the others by repository id, as on GitHub.
    fn page(&self, rows: Vec<Value>, tail: &str) -> Result {
        let asked = |key: &str, default: usize| {
            self.asked(key).and_then(|value| value.parse().ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        let (per_page, page) = (asked("per_page", 30).min(MAX_PER_PAGE), asked("page", 1));
        let last = rows.len().div_ceil(per_page).max(1);
        let id = self.shared.lock().repo(&self.full_name).map(|repo| repo.id).map_err(|_| NOT_FOUND())?;
        let at = |page: usize, rel: &str| {
            let base = format!("{}/api/v3/repositories/{id}/{tail}", self.shared.url);
            format!("<{base}?per_page={per_page}&page={page}>; rel=\"{rel}\"")
        };
        let mut links = Vec::new();
        if page > 1 {
            links.extend([at(page - 1, "prev"), at(1, "first")]);
        }
        if page < last {
            links.extend([at(page + 1, "next"), at(last, "last")]);
        }
        let mut headers = HeaderMap::new();
        if let (false, Ok(value)) = (links.is_empty(), HeaderValue::from_str(&links.join(", "))) {
            headers.insert(header::LINK, value);
        }
        let start = (page - 1).saturating_mul(per_page);
        let body = rows.into_iter().skip(start).take(per_page).collect();
        Ok(ApiReply(StatusCode::OK, Value::Array(body), headers))
    }
}

fn comment_mut<'a>(state: &'a mut State, full_name: &str, id: &str) -> Result<&'a mut CommentState> {
    let repo = state.repo_mut(full_name).map_err(|_| NOT_FOUND())?;
    let mut all = repo.pulls.iter_mut().flat_map(|pull| &mut pull.comments);
    all.find(|comment| comment.id.to_string() == id).ok_or_else(NOT_FOUND)
}
