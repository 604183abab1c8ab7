//! The forge as Gitea 1.26: REST API v1, webhooks, git, protected branches and scheduled merges. Mergeability is known only after a request
//! has asked for it, lists are cut at fifty rows, and a former name redirects every method.
//!
//! Each refusal names its source: a file of Gitea's own source.

mod access;
mod api;
mod branches;
mod comments;
mod commits;
mod feed;
mod hooks;
mod issues;
mod merging;
mod protection;
mod pulls;
mod reviews;
mod settings;
mod shapes;
mod statuses;
mod teams;
#[cfg(test)]
mod tests;
mod webhooks;

pub(super) use hooks::{emit_comment, emit_pull, emit_push, emit_review, send};
pub(super) use merging::{check, follow_heads, force, measure, merge_scheduled, note, retarget, take_prefix};
pub use protection::BranchProtection;
pub(super) use reviews::vote;
pub(super) use settings::require_approvals;

use super::git_http::{self, Fetches};
use super::state::{RepoState, State};
use super::{Shared, server};
use api::Call;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Version of the instance.
const VERSION: &str = "1.26.0";

/// State that only Gitea has.
#[derive(Default)]
pub(super) struct GiteaState {
    /// What is known of pull requests, by their id.
    pulls: BTreeMap<u64, PullFacts>,
    /// What shared reviews leave out, by their id.
    reviews: BTreeMap<u64, ReviewMarks>,
    /// Rules of protected branches, by the id of the repository and the name of the branch.
    protections: BTreeMap<(u64, String), BranchProtection>,
    /// Pushes, by the id of the repository.
    feeds: BTreeMap<u64, feed::Feed>,
    hook: HookState,
    /// Scopes of the token of the server under test; absent for the scope `all`.
    scopes: Option<Vec<String>>,
    /// True if that account owns no organization and is only in the teams that name it.
    owns_no_organization: bool,
    /// Offset of the times in answers and deliveries from UTC, in hours.
    offset_hours: i8,
}

/// What Gitea knows of a pull request besides the shared state.
#[derive(Default)]
struct PullFacts {
    measure: merging::Measure,
    /// Head and tip of the base branch whose mergeability a request has asked for.
    checked: Option<(String, String)>,
    /// True if the head branch was deleted.
    is_branch_gone: bool,
    /// A merge that waits for the rules of the base branch.
    scheduled: Option<merging::ScheduledMerge>,
}

/// Marks of a review.
struct ReviewMarks {
    /// `APPROVED`, `REQUEST_CHANGES` or `COMMENT`; a dismissal does not change it.
    kind: &'static str,
    /// The reviewer's latest verdict, if the reviewer may write.
    official: bool,
    /// A later push has changed the diff.
    stale: bool,
    dismissed: bool,
    updated_at: String,
}

/// The webhook, as the API shows it.
#[derive(Default)]
struct HookState {
    /// Events that were chosen; absent for all.
    events: Option<Vec<String>>,
    /// True for the content type `form`.
    is_form: bool,
    has_no_secret: bool,
    /// True for a webhook that is not active.
    is_off: bool,
}

/// A refusal: status and body.
#[derive(Debug)]
struct Refusal(StatusCode, Value);

type Result<T = Response> = std::result::Result<T, Refusal>;

impl Refusal {
    /// `APIError` of services/context/api.go. Its address is that of the API's description on every instance.
    fn new(status: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal(status, json!({"message": message.into(), "url": ""}))
    }

    /// `APIErrorNotFound` of services/context/api.go, which has a key more.
    fn not_found() -> Refusal {
        Refusal::absent(None)
    }

    /// The same with the text of the error that it was given.
    fn absent(error: Option<String>) -> Refusal {
        let errors = error.map(|text| vec![text]);
        Refusal(StatusCode::NOT_FOUND, json!({"message": "not found", "url": "", "errors": errors}))
    }

    /// The same with the name of what has failed.
    fn named(what: &str, errors: &[String]) -> Refusal {
        Refusal(StatusCode::NOT_FOUND, json!({"message": what, "url": "", "errors": errors}))
    }

    fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, message)
    }

    fn not_allowed(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// `ctx.Status`: no body.
    fn bare(status: StatusCode) -> Refusal {
        Refusal(status, Value::Null)
    }

    fn broken(error: &anyhow::Error) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
    }
}

/// Answers the API. Every body of a refusal names the description of the API (services/context/api.go, `APIError`).
pub(super) async fn answer(shared: &Shared, parts: &request::Parts, body: Bytes) -> Response {
    let mut response = answered(shared, parts, &body).await;
    super::api::set_date(shared, &mut response);
    response
}

async fn answered(shared: &Shared, parts: &request::Parts, body: &[u8]) -> Response {
    match Call::answer(shared, parts, body).await {
        Ok(response) => response,
        Err(Refusal(status, Value::Null)) => status.into_response(),
        Err(Refusal(status, Value::String(text))) => (status, text).into_response(),
        Err(Refusal(status, mut body)) => {
            if body.get("url").is_some() {
                body["url"] = json!(format!("{}/api/swagger", shared.url));
            }
            (status, axum::Json(body)).into_response()
        }
    }
}

/// Answers git. The token needs the scope of repositories (routers/web/repo/githttp.go, `CheckRepoScopedToken`).
pub(super) async fn git(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let query = parts.uri.query().unwrap_or_default();
    let is_push = parts.uri.path().ends_with("/git-receive-pack") || query.contains("git-receive-pack");
    if let Ok(Some(login)) = server::principal(shared, &parts.headers) {
        let method = if is_push { Method::POST } else { Method::GET };
        if access::check_scope(&shared.lock(), &login, &method, "repository").is_err() {
            return StatusCode::FORBIDDEN.into_response();
        }
    }
    git_http::answer(shared, parts, body, Fetches::Anything).await
}

/// A new fork has its owner's collaborators alone, no issues, and all methods of merging (services/repository/fork.go).
pub(super) fn make_fork(fork: &mut RepoState) {
    let owner = fork.owner.to_lowercase();
    fork.permissions.retain(|login, _| *login == owner);
    (fork.issues_disabled, fork.allow_rebase_merge) = (true, true);
}

impl GiteaState {
    fn facts_mut(&mut self, pull: u64) -> &mut PullFacts {
        self.pulls.entry(pull).or_default()
    }
}

impl State {
    /// Forgets what a former webhook was like.
    pub(super) fn renew_gitea_hook(&mut self) {
        self.gitea.hook = HookState { has_no_secret: self.gitea.hook.has_no_secret, ..HookState::default() };
    }
}
