//! The forge as Azure DevOps Server. Collections lie below `/tfs`, names are case-insensitive, git uses the old protocol and serves only
//! tips of branches, and service hooks report pull requests. Each refusal names its documentation.

mod api;
mod shapes;
#[cfg(test)]
mod tests;

use super::git_http::{self, Fetches, SERVICES};
use super::state::State;
use super::{BOT, Forge, HostKind, Shared, hooks, kind, server};
use api::Call;
use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header, request};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Longest comment, in characters (learn.microsoft.com, "Work tracking, process, and project limits").
pub(super) const MAX_COMMENT: usize = 150_000;

/// Policies of the branch `main`, as the API has them.
#[derive(Default)]
pub(super) struct BranchPolicies {
    pub evaluations: Vec<Value>,
    pub configurations: Vec<Value>,
}

/// A refusal: status, kind of the error, and message.
struct Refusal(u16, &'static str, String);

impl Refusal {
    fn new(status: u16, key: &'static str, message: impl Into<String>) -> Refusal {
        Refusal(status, key, message.into())
    }

    fn body(&self) -> Value {
        json!({"$id": "1", "message": self.2, "typeKey": self.1, "errorCode": 0, "eventId": 3000})
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.body())).into_response()
    }
}

/// Body of a refusal that a test orders.
pub(super) fn fault(status: u16) -> Value {
    Refusal::new(status, "VS800075", "a fault of the test").body()
}

impl Forge {
    /// Sets the answer of `policy/evaluations` for every pull request.
    pub fn set_policy_evaluations(&self, evaluations: Vec<Value>) {
        self.shared.change(|state| state.policies.evaluations = evaluations);
    }

    /// Sets the answer of `git/policy/configurations` for every branch.
    pub fn set_policy_configurations(&self, configurations: Vec<Value>) {
        self.shared.change(|state| state.policies.configurations = configurations);
    }

    /// Invalidates the token of the server's account.
    pub fn revoke_token(&self) -> anyhow::Result<()> {
        let fresh = super::random_hex()?;
        self.shared.change(|state| {
            if let Some(user) = state.users.get_mut(BOT) {
                user.token = fresh;
            }
        });
        Ok(())
    }
}

/// Returns true if a path is a page for people.
pub(super) fn is_page(path: &str) -> bool {
    let segments = kind::segments(path);
    !segments.iter().any(|segment| segment == "_apis") && git_service(&segments).is_none()
}

/// Repository and service of a git request; absent for other paths.
fn git_service(segments: &[String]) -> Option<(String, &'static str)> {
    let (full_name, rest) = HostKind::AzureDevOps.split(segments)?;
    let asked = rest.join("/");
    SERVICES.into_iter().find(|service| *service == asked).map(|service| (full_name, service))
}

/// Answers the API and git.
pub(super) async fn answer(shared: &Arc<Shared>, parts: &request::Parts, body: Bytes) -> Response {
    let segments = kind::segments(parts.uri.path());
    let collection = match segments.as_slice() {
        [root, collection, ..] if root == "tfs" && has_collection(&shared.lock(), collection) => collection,
        // learn.microsoft.com/azure/devops/server/admin/websitesettings: collections lie below the server's virtual directory.
        _ => return Refusal::new(404, "TF400898", "no such collection").into_response(),
    };
    let login = server::principal(shared, &parts.headers).ok().flatten();
    if let Some((full_name, service)) = git_service(&segments) {
        let Some(login) = login else {
            // learn.microsoft.com/azure/devops/repos/git/auth-overview.
            let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"tfs\"")];
            return (StatusCode::UNAUTHORIZED, ask, "sign in").into_response();
        };
        let Ok(git) = shared.git(&full_name) else {
            // learn.microsoft.com/azure/devops/repos/git/clone: TF401019 if the repository does not exist, or is hidden from this person.
            return Refusal::new(404, "GitRepositoryNotFoundException", "TF401019: no such repository").into_response();
        };
        return git_http::serve(shared, &git, &full_name, service, parts, body, &login, Fetches::Tips).await;
    }
    let Some(login) = login else {
        // learn.microsoft.com/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate: a sign-in page.
        let page = "<html>Azure DevOps Services | Sign In</html>";
        return (StatusCode::NON_AUTHORITATIVE_INFORMATION, [(header::CONTENT_TYPE, "text/html")], page)
            .into_response();
    };
    let query: HashMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    if !query.contains_key("api-version") {
        // learn.microsoft.com/azure/devops/integrate/concepts/rest-api-versioning.
        return Refusal::new(400, "VssVersionNotSpecifiedException", "no api-version").into_response();
    }
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let call = Call { shared, collection, login, query, body };
    match call.answer(&parts.method, segments.get(2..).unwrap_or_default()).await {
        Ok(body) => axum::Json(body).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Checks for a collection. Names are case-insensitive: learn.microsoft.com/azure/devops/organizations/settings/naming-restrictions.
fn has_collection(state: &State, name: &str) -> bool {
    state.repos.values().any(|repo| shapes::collection(repo).eq_ignore_ascii_case(name))
}

/// Queues the events of service hooks for this action on a pull request, in GitHub's word
/// (learn.microsoft.com/azure/devops/service-hooks/events).
pub(super) fn emit_pull(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    action: &str,
) -> anyhow::Result<()> {
    let merged = state.pull(full_name, number)?.merged.is_some();
    let events: &[&str] = match action {
        "opened" => &["git.pullrequest.created"],
        // One completion causes events of both kinds.
        "closed" if merged => &["git.pullrequest.updated", "git.pullrequest.merged"],
        _ => &["git.pullrequest.updated"],
    };
    for event in events {
        let mut resource = shapes::pull(url, state, state.repo(full_name)?, state.pull(full_name, number)?);
        // learn.microsoft.com/azure/devops/service-hooks/events#git.pullrequest.created: the resource has no labels.
        resource.as_object_mut().map(|fields| fields.remove("labels"));
        emit(state, url, full_name, event, resource)?;
    }
    Ok(())
}

/// Queues the event of a push to a branch (learn.microsoft.com/azure/devops/service-hooks/events#git.push).
pub(super) fn emit_push(
    state: &mut State,
    url: &str,
    full_name: &str,
    (branch, before, after): (&str, &str, &str),
) -> anyhow::Result<()> {
    let update = json!({"name": format!("refs/heads/{branch}"), "oldObjectId": before, "newObjectId": after});
    let repository = shapes::repo(url, state.repo(full_name)?);
    emit(state, url, full_name, "git.push", json!({"refUpdates": [update], "repository": repository, "commits": []}))
}

/// Queues the event of a comment, which is the same for a new one and for an edit.
pub(super) fn emit_comment(state: &mut State, url: &str, full_name: &str, number: u64, id: u64) -> anyhow::Result<()> {
    let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
    let said = pull.comments.iter().find(|comment| comment.id == id);
    let said = said.ok_or_else(|| anyhow::anyhow!("!{number} has no comment {id}"))?;
    let mut comment = shapes::comment(state, said);
    let at = format!("{}/pullRequests/{number}/threads/{id}", shapes::repo_address(url, repo));
    comment["_links"] = json!({"self": {"href": format!("{at}/comments/1")}, "threads": {"href": at}});
    let resource = json!({"comment": comment, "pullRequest": shapes::pull(url, state, repo, pull)});
    emit(state, url, full_name, "ms.vss-code.git-pullrequest-comment-event", resource)
}

fn emit(state: &mut State, url: &str, full_name: &str, event: &str, resource: Value) -> anyhow::Result<()> {
    let id = state.new_id();
    let base = shapes::collection_address(url, state.repo(full_name)?);
    let body = json!({
        "subscriptionId": "00000000-0000-0000-0000-000000000001", "notificationId": id, "id": format!("event-{id}"),
        "eventType": event, "publisherId": "tfs", "resource": resource, "resourceVersion": "1.0",
        "resourceContainers": {"collection": {"id": "b1b1", "baseUrl": format!("{base}/")}},
        "createdDate": super::timestamp(),
    });
    hooks::emit(state, event, None, &body);
    Ok(())
}
