//! The forge as Bitbucket Data Center below the context path `/bitbucket`: REST API, webhooks, git and merge checks. Changes name the
//! version that they are made to, comments come as activities, and Markdown has no HTML.
//!
//! Each refusal names its source. "OpenAPI" is the description of developer.atlassian.com/server/bitbucket/rest, typed in
//! `@coderabbitai/bitbucket` 1.1.4 on npm (`dist/server/openapi`), and "webhooks" are the payloads of its `dist/server/webhooks`. "go-scm"
//! are the examples of github.com/drone/go-scm 1.39.1 (`scm/driver/stash/testdata`), and "go-playground" those of
//! github.com/go-playground/webhooks 6.4.0 (`testdata/bitbucket-server`). "bb" is what github.com/vriesdemichael/bitbucket-data-center-cli
//! has recorded of Data Center 10.2 and 10.4 (`tests/integration/live`, `bitbucket-error-registry.json`).

mod access;
mod activities;
mod api;
mod builds;
mod checks;
mod comments;
mod commits;
mod hooks;
mod merging;
mod people;
mod pulls;
mod reviews;
mod settings;
mod shapes;
#[cfg(test)]
mod tests;
mod webhooks;

pub(super) use checks::{check, force, require_approvals};
pub(super) use comments::delete as delete_comment;
pub(super) use hooks::{emit_comment, emit_pull, emit_push, headers, note_result, skips};
pub(super) use merging::merge_requested;
pub(super) use reviews::vote;
pub(super) use settings::{comment_on_line, set_circuit_breaker, set_display_name, take_secret};

use super::git_http::{self, Fetches};
use super::kind::is_name;
use super::state::{RepoState, State};
use super::{BOT, Shared};
use access::Level;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header, request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Context path of the server.
pub(super) const ROOT: &str = "/bitbucket";
/// Prefix of the paths of the REST API.
const REST: &str = "/bitbucket/rest/";
/// Prefix of the paths of repositories for git.
pub(super) const CLONES: &str = "/bitbucket/scm";
/// Path that answers with the user name of the credentials.
const WHO_AM_I: &str = "/bitbucket/plugins/servlet/applinks/whoami";

const NOT_PERMITTED: &str = "You are not permitted to access this resource";

/// Longest comment, in characters (runatlantis/atlantis, server/events/vcs/bitbucketserver/client.go).
pub(super) const MAX_COMMENT: usize = 32_768;

/// State that only Bitbucket Data Center has.
#[derive(Default)]
pub(super) struct BitbucketDataCenterState {
    /// Display names that people have chosen, by the login in lower case.
    display_names: BTreeMap<String, String>,
    /// Names that projects were given, by the key in lower case.
    project_names: BTreeMap<String, String>,
    /// Version that the server tells, if tests have chosen one.
    version: Option<String>,
    /// Facts of pull requests, by id.
    pulls: BTreeMap<u64, pulls::PullFacts>,
    /// Facts of comments, by id.
    comments: BTreeMap<u64, comments::CommentFacts>,
    /// Facts of build statuses, by id.
    builds: BTreeMap<u64, builds::BuildFacts>,
    /// Merge checks and settings, by the id of the repository.
    rules: BTreeMap<u64, checks::RepositoryRules>,
    hook: hooks::HookState,
}

/// A refusal: status, and the error of the body.
#[derive(Debug)]
struct Refusal(StatusCode, Value);

type Result<T = Response> = std::result::Result<T, Refusal>;

impl Refusal {
    /// The form of all errors: `RestErrorMessage` of OpenAPI. The exception is without its common package.
    fn new(status: StatusCode, exception: &str, message: impl Into<String>) -> Refusal {
        let name = format!("com.atlassian.bitbucket.{exception}");
        Refusal(status, json!({"context": null, "message": message.into(), "exceptionName": name}))
    }

    /// A refused field, which the context names.
    fn field(name: &str, message: impl Into<String>) -> Refusal {
        let error = json!({"context": name, "message": message.into(), "exceptionName": null});
        Refusal(StatusCode::BAD_REQUEST, error)
    }

    fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "validation.ArgumentValidationException", message)
    }

    fn conflict(exception: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, exception, message)
    }

    fn not_found(exception: &str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, exception, message)
    }

    /// The answer for missing permissions, which is 401 and not 403 (OpenAPI, bb).
    fn unauthorized() -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "AuthorisationException", NOT_PERMITTED)
    }

    /// The answer for missing credentials (bb).
    fn anonymous() -> Refusal {
        let name = "com.atlassian.plugins.rest.api.security.exception.AuthenticationRequiredException";
        let error = json!({"context": null, "message": NOT_PERMITTED, "exceptionName": name});
        Refusal(StatusCode::UNAUTHORIZED, error)
    }

    /// The answer for wrong credentials (bb).
    fn wrong_credentials() -> Refusal {
        let text = "Authentication failed. Please check your credentials and try again.";
        Refusal::new(StatusCode::UNAUTHORIZED, "auth.IncorrectPasswordAuthenticationException", text)
    }

    fn broken(error: &anyhow::Error) -> Refusal {
        let error = json!({"context": null, "message": format!("{error:#}"), "exceptionName": null});
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// The same with more fields in the error.
    fn with(mut self, more: Value) -> Refusal {
        if let (Some(error), Value::Object(more)) = (self.1.as_object_mut(), more) {
            error.extend(more);
        }
        self
    }
}

/// Body of an injected refusal with this status.
pub(super) fn fault(status: u16) -> Value {
    json!({"errors": [{"context": null, "message": format!("{status} a fault of the test"), "exceptionName": null}]})
}

/// Returns true for a path of the REST API, or of the servlet that tells a user name.
pub(super) fn is_api(path: &str) -> bool {
    path.starts_with(REST) || path == WHO_AM_I
}

/// Returns true if a path is one of git's requests.
pub(super) fn is_git(path: &str) -> bool {
    path.strip_prefix(CLONES).is_some_and(git_http::is_git)
}

/// Answers the API.
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    let login = access::of_api(&shared.lock(), &parts.headers).ok().flatten();
    let mut response = match parts.uri.path() {
        WHO_AM_I => login.clone().unwrap_or_default().into_response(),
        _ => match api::answer(shared, parts, &body).await {
            Ok(response) => response,
            // The servlet container's own answers have no list (bb).
            Err(Refusal(status, error)) if error["status-code"].is_number() => {
                (status, axum::Json(error)).into_response()
            }
            Err(Refusal(status, error)) => (status, axum::Json(json!({"errors": [error]}))).into_response(),
        },
    };
    // The account of the credentials is in a header of each answer.
    if let Some(name) = login.and_then(|login| HeaderValue::from_str(&login).ok()) {
        response.headers_mut().insert("x-ausername", name);
    }
    super::api::set_date(shared, &mut response);
    response
}

/// Answers git, by basic auth with the token as password, or by the token as bearer
/// (confluence.atlassian.com/bitbucketserver/http-access-tokens).
pub(super) async fn git(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let path = parts.uri.path().strip_prefix(CLONES).unwrap_or_default();
    let Some((full_name, service)) = git_http::split(path) else { return StatusCode::NOT_FOUND.into_response() };
    let Some(login) = access::of_git(&shared.lock(), &parts.headers) else {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"Atlassian Bitbucket\"")];
        return (StatusCode::UNAUTHORIZED, ask, "a user name and token is required\n").into_response();
    };
    let is_push = service == "git-receive-pack" || parts.uri.query().unwrap_or_default().contains("git-receive-pack");
    let repo = {
        let state = shared.lock();
        match api::find(&state, full_name) {
            Some(repo) if is_push && access::level(repo, &login) < Level::Write => {
                return (StatusCode::FORBIDDEN, "You are not permitted to push to this repository\n").into_response();
            }
            Some(repo) if access::level(repo, &login) >= Level::Read => repo.git.clone(),
            _ => return StatusCode::NOT_FOUND.into_response(),
        }
    };
    git_http::serve(shared, &repo, full_name, service, parts, body, &login, Fetches::Anything).await
}

/// Returns true if a text is the key of a project, or of somebody's personal one (OpenAPI, `RestProject`).
pub(super) fn is_key(text: &str) -> bool {
    match text.strip_prefix('~') {
        Some(user) => is_name(user),
        None => {
            text.len() <= 128
                && text.starts_with(|c: char| c.is_ascii_uppercase())
                && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        }
    }
}

/// Path of a project's page, by its key.
fn project_home(key: &str) -> String {
    match key.strip_prefix('~') {
        Some(user) => format!("{ROOT}/users/{user}"),
        None => format!("{ROOT}/projects/{key}"),
    }
}

/// Path of a repository's page, without its last part `browse`.
pub(super) fn home(full_name: &str) -> String {
    let (key, slug) = full_name.split_once('/').unwrap_or((full_name, ""));
    format!("{}/repos/{slug}", project_home(key))
}

/// Path of a repository for git; the key is in lower case (go-scm, repo.json).
pub(super) fn clone_path(full_name: &str) -> String {
    format!("{CLONES}/{}.git", full_name.to_lowercase())
}

/// Returns the repository of a page's path, and the rest of the path; absent if the path names none.
pub(super) fn split(segments: &[String]) -> Option<(String, Vec<&str>)> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (key, slug, rest) = match words.as_slice() {
        ["bitbucket", "projects", key, "repos", slug, rest @ ..] => ((*key).to_owned(), slug, rest),
        ["bitbucket", "users", user, "repos", slug, rest @ ..] => (format!("~{user}"), slug, rest),
        _ => return None,
    };
    let rest = if rest == ["browse"] { Vec::new() } else { rest.to_vec() };
    Some((format!("{key}/{slug}"), rest))
}

/// Key of the project of an account's forks, and the login of the account. Words in capitals are keys of projects, all others people.
pub(super) fn fork_owner(account: &str) -> (String, &str) {
    let login = account.trim_start_matches('~');
    if is_key(account) { (account.to_owned(), login) } else { (format!("~{account}"), login) }
}

/// A new fork is its owner's alone.
pub(super) fn make_fork(fork: &mut RepoState, account: &str) {
    fork.permissions.retain(|login, _| *login == account.to_lowercase());
    fork.permissions.insert(BOT.to_owned(), "none".to_owned());
}

impl State {
    /// Forgets what a former webhook was like.
    pub(super) fn renew_bitbucket_data_center_hook(&mut self) {
        self.bitbucket_data_center.hook.renew();
    }
}
