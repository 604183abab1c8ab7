//! The forge as Bitbucket Cloud: REST API 2.0, webhooks, git and merge checks. Commits of pull requests have 12 digits, comments no HTML,
//! pull requests have no refs, and declined ones stay declined.
//!
//! Each refusal names its source. "OpenAPI" is developer.atlassian.com/cloud/bitbucket/swagger.v3.json, typed in `@coderabbitai/bitbucket`
//! 1.1.4 on npm; "khbb" are the answers of bitbucket.org that github.com/khipu/khbb has recorded in October 2026; "go-scm" are the example
//! payloads of github.com/drone/go-scm 1.39.1.

mod access;
mod activity;
mod api;
mod comments;
mod commits;
mod hooks;
mod merging;
mod pulls;
mod query;
mod restrictions;
mod reviews;
mod settings;
mod shapes;
mod statuses;
#[cfg(test)]
mod tests;
mod webhooks;

pub(super) use hooks::{emit_comment, emit_pull, emit_push, emit_review, headers};
pub(super) use merging::{check, force};
pub(super) use restrictions::require_approvals;
pub(super) use reviews::vote;
pub(super) use settings::{delete, set_scopes, take_secret};

use super::git_http::{self, Fetches};
use super::state::{CommentState, RepoState, State};
use super::{BOT, Shared};
use api::Call;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header, request};
use restrictions::BranchRestriction;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Longest comment, in characters. Bitbucket does not document a limit; this is that of its Data Center.
pub(super) const MAX_COMMENT: usize = 32_768;

/// State that only Bitbucket Cloud has.
#[derive(Default)]
pub(super) struct BitbucketCloudState {
    /// Nickname and display name of people who have chosen others than their login, by that in lower case.
    names: BTreeMap<String, (String, String)>,
    /// True if the token of the server under test is an access token of a repository.
    has_access_token: bool,
    /// Scopes of that token; absent for all.
    scopes: Option<Vec<String>>,
    /// True if answers say that few requests are left.
    is_near_limit: bool,
    /// What is known of pull requests, by their id.
    pulls: BTreeMap<u64, PullFacts>,
    /// What is known of build statuses, by their id.
    builds: BTreeMap<u64, statuses::BuildFacts>,
    /// Rules of branches, by the id of the repository.
    restrictions: BTreeMap<u64, Vec<BranchRestriction>>,
    /// First digits of several commits.
    shared_starts: BTreeSet<String>,
    /// Repositories whose pull requests merge by a queue, by id.
    queues: BTreeSet<u64>,
    /// Merges that were answered with 202, by the id of their task.
    tasks: BTreeMap<String, merging::MergeTask>,
    /// Number of polls that a merge takes; absent if merges are done at once.
    slow_merges: Option<usize>,
    hook: HookState,
}

/// What Bitbucket knows of a pull request besides the shared state.
#[derive(Default)]
struct PullFacts {
    /// Login of the person who merged or declined it.
    closed_by: Option<String>,
    /// Text that a person gave for declining.
    reason: String,
    /// Deleted comments, which stay in the list.
    deleted: Vec<CommentState>,
    /// Fields that place a comment at a line of a file or below another comment, by its id.
    places: BTreeMap<u64, Map<String, Value>>,
    /// True if a merge deletes the source branch unless it says otherwise.
    closes_branch: bool,
    /// Number of open tasks.
    open_tasks: u64,
    /// True if it waits in the merge queue.
    is_queued: bool,
    /// True if its head is not told any more.
    has_no_head: bool,
    /// Opening and changes of head, base, title, text or state.
    updates: Vec<activity::Update>,
}

/// The webhook, as the API shows it.
#[derive(Default)]
struct HookState {
    /// Events that were chosen; absent for all.
    events: Option<Vec<String>>,
    description: String,
    has_no_secret: bool,
    /// True for a webhook that is not active.
    is_off: bool,
}

/// A refusal: status and body. A body that is a text is no JSON.
#[derive(Debug)]
struct Refusal(StatusCode, Value);

type Result<T = Response> = std::result::Result<T, Refusal>;

impl Refusal {
    /// The form of all errors: `error` of OpenAPI.
    fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal(status, json!({"type": "error", "error": {"message": message.into()}}))
    }

    /// A refused field: github.com/buildbot/buildbot/issues/7049 shows the form.
    fn field(name: &str, text: &str) -> Refusal {
        let error = json!({"message": format!("{name}: {text}"), "fields": {name: [text]}});
        Refusal(StatusCode::BAD_REQUEST, json!({"type": "error", "error": error}))
    }

    fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    fn forbidden() -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden")
    }

    fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, message)
    }

    /// go-scm, error.json.
    fn no_repository(full_name: &str) -> Refusal {
        Refusal::not_found(format!("Repository {full_name} not found"))
    }

    fn unauthorized() -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "Token is invalid, expired, or not supported for this endpoint.")
    }

    fn broken(error: &anyhow::Error) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
    }
}

/// Body of an injected refusal with this status.
pub(super) fn fault(status: u16) -> Value {
    json!({"type": "error", "error": {"message": format!("{status} a fault of the test")}})
}

/// Answers the API.
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    let mut response = match Call::answer(shared, parts, &body).await {
        Ok(response) => response,
        Err(Refusal(status, Value::String(page))) => {
            (status, [(header::CONTENT_TYPE, "text/html")], page).into_response()
        }
        Err(Refusal(status, body)) => (status, axum::Json(body)).into_response(),
    };
    access::describe(shared, parts, response.headers_mut());
    if shared.lock().bitbucket_cloud.is_near_limit {
        // support.atlassian.com/bitbucket-cloud/docs/api-request-limits: there is no number of requests that are left.
        response.headers_mut().insert("x-ratelimit-nearlimit", HeaderValue::from_static("true"));
    }
    super::api::set_date(shared, &mut response);
    response
}

/// Answers git, by basic auth with the user that belongs to the token, and for tips of branches alone.
pub(super) async fn git(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let Some(login) = access::of_git(&shared.lock(), &parts.headers) else {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"Bitbucket.org HTTP\"")];
        return (StatusCode::UNAUTHORIZED, ask, "a user name and token is required\n").into_response();
    };
    let query = parts.uri.query().unwrap_or_default();
    let is_push = parts.uri.path().ends_with("/git-receive-pack") || query.contains("git-receive-pack");
    let scope = if is_push { "write:repository" } else { "read:repository" };
    if access::check(&shared.lock(), &login, &[scope]).is_err() {
        return StatusCode::FORBIDDEN.into_response();
    }
    git_http::answer(shared, parts, body, Fetches::Tips).await
}

/// A new fork has its owner as administrator, and the server's account reads it.
pub(super) fn make_fork(fork: &mut RepoState) {
    let owner = fork.owner.to_lowercase();
    fork.permissions.retain(|login, _| *login == owner);
    fork.permissions.insert(BOT.to_owned(), "read".to_owned());
}

impl BitbucketCloudState {
    fn facts_mut(&mut self, pull: u64) -> &mut PullFacts {
        self.pulls.entry(pull).or_default()
    }
}

impl State {
    /// Forgets what a former webhook was like.
    pub(super) fn renew_bitbucket_cloud_hook(&mut self) {
        let has_no_secret = self.bitbucket_cloud.hook.has_no_secret;
        self.bitbucket_cloud.hook = HookState { has_no_secret, ..HookState::default() };
    }
}
