//! The forge as GitLab Self-Managed 18: REST API v4, webhooks by secret and signing token, git, and quick actions in notes. Merge statuses
//! are computed after they are asked for, commit statuses are jobs of pipelines, and a failing webhook switches itself off.
//!
//! Each refusal names its source: a page of docs.gitlab.com, or a file of GitLab's own source.

mod api;
mod approvals;
mod events;
mod hooks;
mod members;
mod merge_requests;
mod merge_trains;
mod merging;
mod notes;
mod quick_actions;
mod repository;
mod settings;
mod shapes;
mod statuses;
#[cfg(test)]
mod tests;
mod webhooks;

pub(super) use hooks::{drops, emit_comment, emit_pull, emit_push, emit_review, headers, note_result};
pub(super) use merging::check;

use super::git_http::{self, Fetches, SERVICES};
use super::state::{CommentState, State};
use super::{Shared, kind, server};
use api::Call;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header, request};
use secrecy::SecretString;
use serde_json::{Value, json};
use statuses::Pipelines;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest note, in characters (docs.gitlab.com/administration/instance_limits, "Size of comments").
pub(super) const MAX_NOTE: usize = 1_000_000;

/// State that only GitLab has.
#[derive(Default)]
pub(super) struct GitlabState {
    pipelines: Pipelines,
    /// Merge requests by their global id.
    merges: BTreeMap<u64, MergeState>,
    /// Settings of projects, by their id.
    projects: BTreeMap<u64, ProjectSettings>,
    /// Direct members of groups with their levels of access. Paths and logins are in lower case.
    groups: BTreeMap<String, BTreeMap<String, u64>>,
    hook: HookState,
    /// Signs deliveries besides the secret.
    signing_token: Option<SecretString>,
    token: TokenState,
    /// True for an instance older than 18.3, which refuses to set a status again to the state that it has.
    refuses_repeated_states: bool,
}

/// State of a merge request that other hosts do not have.
#[derive(Default)]
struct MergeState {
    /// Head and target branch whose mergeability a request has asked for.
    checked: Option<(String, String)>,
    /// Person who merges it once all checks pass, and how.
    auto_merge: Option<merging::Merge>,
    /// Person who has added it to the merge train of its target branch, and how it is merged.
    on_train: Option<merging::Merge>,
    /// True if the merge has squashed its commits.
    is_squashed: bool,
    /// Notes of the host itself, such as "approved this merge request".
    system_notes: Vec<CommentState>,
    /// Threads that nobody has resolved.
    open_threads: usize,
}

/// Settings of a project; the default is that of a new one.
#[derive(Default)]
struct ProjectSettings {
    approvals_required: usize,
    /// Rules of Premium, as `approval_state` has them; absent without a license.
    approval_rules: Option<Vec<Value>>,
    needs_successful_pipeline: bool,
    needs_resolved_threads: bool,
    /// True if a push removes all approvals.
    resets_approvals: bool,
    /// True if the project merges by trains, which needs a license.
    has_merge_trains: bool,
}

/// Failures of the webhook in a row, and the time until which it is switched off.
#[derive(Default)]
struct HookState {
    failures: u32,
    disabled_until: Option<jiff::Timestamp>,
    /// True on an instance that never switches a webhook off.
    never_disabled: bool,
    /// Deliveries that are sent although it is switched off: tests and repetitions.
    forced: Vec<u64>,
    /// Times of the latest repetitions.
    resent: Vec<jiff::Timestamp>,
}

/// The token of the server under test.
struct TokenState {
    /// True for a project or group token, whose user is a bot.
    is_of_bot: bool,
    scopes: Vec<String>,
    /// Day on which it expires.
    expires_at: Option<String>,
}

impl Default for TokenState {
    fn default() -> TokenState {
        TokenState { is_of_bot: false, scopes: vec!["api".to_owned()], expires_at: None }
    }
}

impl GitlabState {
    /// Forgets the failures of the webhook, as if it was a new one.
    pub(super) fn renew_hook(&mut self) {
        self.hook = HookState { never_disabled: self.hook.never_disabled, ..HookState::default() };
    }
}

/// A refusal: status and body.
#[derive(Debug)]
struct Refusal(StatusCode, Value);

type Result<T = Response> = std::result::Result<T, Refusal>;

impl Refusal {
    fn new(status: StatusCode, message: impl Into<Value>) -> Refusal {
        Refusal(status, json!({ "message": message.into() }))
    }

    /// Names what is not found: `not_found!` of lib/api/helpers.rb.
    fn not_found(what: &str) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, format!("404 {what} Not Found"))
    }

    fn unauthorized() -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "401 Unauthorized")
    }

    fn forbidden() -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "403 Forbidden")
    }

    fn bad_request(message: impl Into<Value>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    /// A parameter that is missing or has no valid value, in the words of the framework (docs.gitlab.com/api/rest/troubleshooting).
    fn parameter(name: &str, problem: &str) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, json!({ "error": format!("{name} {problem}") }))
    }

    fn broken(error: &anyhow::Error) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("500 Internal Server Error: {error:#}"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, axum::Json(self.1)).into_response()
    }
}

/// Returns true if a path is one of git's requests.
pub(super) fn is_git(path: &str) -> bool {
    git_service(path).is_some()
}

/// Path of the project and service of a git request: `<project>.git/<service>`.
fn git_service(path: &str) -> Option<(&str, &'static str)> {
    let path = path.strip_prefix('/')?;
    SERVICES.into_iter().find_map(|service| {
        Some((path.strip_suffix(service)?.strip_suffix(".git/")?, service)).filter(|(name, _)| name.contains('/'))
    })
}

/// Answers the API.
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    match Call::answer(shared, parts, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

/// Answers git. It asks for credentials first, also for a project that does not exist
/// (docs.gitlab.com/topics/git/troubleshooting_git, "HTTP Basic: Access denied").
pub(super) async fn git(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let Some((full_name, service)) = git_service(parts.uri.path()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let is_basic =
        parts.headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Basic "));
    let login = server::principal(shared, &parts.headers).ok().flatten().filter(|_| is_basic);
    let Some(login) = login else {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"GitLab\"")];
        return (StatusCode::UNAUTHORIZED, ask, "HTTP Basic: Access denied.\n").into_response();
    };
    let query = parts.uri.query().unwrap_or_default();
    let is_push = service == "git-receive-pack" || query.contains("git-receive-pack");
    let repo = {
        let state = shared.lock();
        if let Some(now) = state.moved.get(&full_name.to_lowercase()) {
            let location = format!("{}/{now}.git/{service}?{query}", shared.url);
            return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)]).into_response();
        }
        match state.repo(full_name) {
            Ok(found) if is_push && members::level(&state, found, &login) < members::DEVELOPER => {
                return (StatusCode::FORBIDDEN, "You are not allowed to push code to this project.\n").into_response();
            }
            Ok(found) if members::level(&state, found, &login) > 0 => found.git.clone(),
            _ => return StatusCode::NOT_FOUND.into_response(),
        }
    };
    git_http::serve(shared, &repo, full_name, service, parts, body, &login, Fetches::Anything).await
}

/// Returns the token of a request (docs.gitlab.com/api/rest/authentication).
fn token(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bearer = || text("authorization")?.strip_prefix("Bearer ").map(str::to_owned);
    text("private-token").or_else(bearer)
}

/// Returns the segments of a path in the API.
fn api_segments(path: &str) -> Option<Vec<String>> {
    path.strip_prefix("/api/v4/").map(kind::segments)
}

/// The present time of the host.
fn now(state: &State) -> jiff::Timestamp {
    jiff::Timestamp::now() + state.clock_ahead
}
