//! Credentials, scopes of tokens, and levels of access.

use super::super::state::{RepoState, State};
use super::super::{BOT, HostKind, Shared, server};
use super::{Refusal, Result};
use http::{HeaderMap, HeaderValue, Method, StatusCode, request};
use serde_json::json;

/// All scopes of a token, in the words of API tokens without their ending.
const ALL: [&str; 10] = [
    "read:user",
    "read:workspace",
    "read:repository",
    "write:repository",
    "admin:repository",
    "read:pullrequest",
    "write:pullrequest",
    "read:webhook",
    "write:webhook",
    "delete:webhook",
];

/// User of git with an API token (support.atlassian.com/bitbucket-cloud/docs/using-api-tokens).
const API_TOKEN_USER: &str = "x-bitbucket-api-token-auth";
/// User of git with an access token (support.atlassian.com/bitbucket-cloud/docs/using-project-access-tokens).
const ACCESS_TOKEN_USER: &str = "x-token-auth";

fn is_access_token(state: &State, login: &str) -> bool {
    login == BOT && state.bitbucket_cloud.has_access_token
}

/// User of git that belongs to the token of a person.
pub(super) fn git_user(state: &State, login: &str) -> &'static str {
    if is_access_token(state, login) { ACCESS_TOKEN_USER } else { API_TOKEN_USER }
}

/// The person of a request of the API; an API token comes with its owner's e-mail address, an access token as a bearer
/// (developer.atlassian.com/cloud/bitbucket/rest/intro, "Authentication").
pub(super) fn of_api(state: &State, headers: &HeaderMap) -> Option<String> {
    let found = server::credentials(headers).ok()??;
    let login = state.login_of_token(&found.token)?;
    let is_right = match found.user {
        None => is_access_token(state, &login),
        Some(user) => {
            let email = HostKind::BitbucketCloud.unique_name(&login);
            !is_access_token(state, &login) && user.eq_ignore_ascii_case(&email)
        }
    };
    is_right.then_some(login)
}

/// The person of a request of git: the user is the general one of the token's kind, or with an API token the person's own name.
pub(super) fn of_git(state: &State, headers: &HeaderMap) -> Option<String> {
    let found = server::credentials(headers).ok()??;
    let (login, user) = (state.login_of_token(&found.token)?, found.user?);
    let is_own_name = !is_access_token(state, &login) && user.eq_ignore_ascii_case(&login);
    (user == git_user(state, &login) || is_own_name).then_some(login)
}

/// Scopes that a request needs (OpenAPI, `x-atlassian-oauth2-scopes`, as read by khbb; of people's permissions and rules of branches:
/// support.atlassian.com/bitbucket-cloud/docs/api-token-permissions, "Admin"). The scope for build statuses is that of a header
/// `X-Accepted-OAuth-Scopes` in github.com/jenkinsci/bitbucket-branch-source-plugin/issues/192.
pub(super) fn needed(method: &Method, segments: &[&str]) -> &'static [&'static str] {
    let is_read = *method == Method::GET;
    let rest = segments.get(3..).unwrap_or_default();
    match (segments.first(), rest) {
        // The source of its scopes is in no list yet: both that may be meant are needed.
        (Some(&"user"), _) if segments.get(3) == Some(&"permissions") => &["read:workspace", "read:repository"],
        (Some(&"user"), _) if segments.get(1) == Some(&"workspaces") => &["read:workspace"],
        (Some(&"user" | &"users"), _) => &["read:user"],
        (Some(&"workspaces"), ["repositories", ..]) => &["admin:repository"],
        (Some(&"workspaces"), []) if segments.get(2) == Some(&"hooks") => &["read:webhook"],
        (Some(&"workspaces"), _) => &["read:workspace"],
        (_, ["pullrequests", _, "comments", ..]) => &["read:pullrequest"],
        (_, ["pullrequests" | "effective-default-reviewers", ..]) if is_read => &["read:pullrequest"],
        (_, ["pullrequests", ..]) => &["read:pullrequest", "write:pullrequest"],
        (_, ["hooks", ..]) if is_read => &["read:webhook"],
        (_, ["hooks", ..]) if *method == Method::DELETE => &["delete:webhook"],
        (_, ["hooks", ..]) => &["read:webhook", "write:webhook"],
        (_, ["branch-restrictions", ..]) => &["admin:repository"],
        (_, ["refs", ..]) if !is_read => &["write:repository"],
        _ => &["read:repository"],
    }
}

/// Name of a scope of API tokens, or of access tokens, which have fewer and others
/// (support.atlassian.com/bitbucket-cloud/docs/repository-access-token-permissions).
fn named(state: &State, login: &str, scope: &str) -> String {
    if !is_access_token(state, login) {
        return format!("{scope}:bitbucket");
    }
    match scope.split_once(':') {
        Some(("read", "user")) => "account".to_owned(),
        Some((_, "webhook")) => "webhook".to_owned(),
        Some(("read", of)) => of.to_owned(),
        Some((level, of)) => format!("{of}:{level}"),
        None => scope.to_owned(),
    }
}

/// Names of the scopes of the token of the server's account. Access tokens have none for an account or a workspace's data. People's tokens
/// have every scope.
pub(super) fn granted(state: &State, login: &str) -> Vec<String> {
    let chosen = state.bitbucket_cloud.scopes.as_ref().filter(|_| login == BOT);
    if let Some(chosen) = chosen {
        return chosen.clone();
    }
    let is_missing = |scope: &&str| is_access_token(state, login) && matches!(*scope, "read:user" | "read:workspace");
    let mut all: Vec<String> =
        ALL.iter().filter(|scope| !is_missing(scope)).map(|scope| named(state, login, scope)).collect();
    all.dedup();
    all
}

/// Checks that a token has these scopes. A scope does not imply another one
/// (support.atlassian.com/bitbucket-cloud/docs/api-token-permissions).
pub(super) fn check(state: &State, login: &str, scopes: &[&str]) -> Result<()> {
    let granted = granted(state, login);
    let required: Vec<String> = scopes.iter().map(|scope| named(state, login, scope)).collect();
    if required.iter().all(|scope| granted.contains(scope)) {
        return Ok(());
    }
    let error = json!({
        "message": "Your credentials lack one or more required privilege scopes.",
        "detail": {"granted": granted, "required": required},
    });
    Err(Refusal(StatusCode::FORBIDDEN, json!({"type": "error", "error": error})))
}

/// Adds the headers that describe the credentials (khbb).
pub(super) fn describe(shared: &Shared, parts: &request::Parts, headers: &mut HeaderMap) {
    let state = shared.lock();
    let Some(login) = of_api(&state, &parts.headers) else { return };
    let kind = if is_access_token(&state, &login) { "repository_access_token" } else { "api_token" };
    let path = parts.uri.path();
    let segments: Vec<&str> = path.trim_start_matches("/2.0/").split('/').collect();
    let accepted: Vec<String> =
        needed(&parts.method, &segments).iter().map(|scope| named(&state, &login, scope)).collect();
    for (name, value) in [
        ("x-oauth-scopes", granted(&state, &login).join(", ")),
        ("x-accepted-oauth-scopes", accepted.join(", ")),
        ("x-credential-type", kind.to_owned()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

/// Returns true if the person may push.
pub(super) fn can_write(repo: &RepoState, login: &str) -> bool {
    is_admin(repo, login) || repo.can_write(login)
}

/// Returns true for administrators, and the owner of a personal workspace.
pub(super) fn is_admin(repo: &RepoState, login: &str) -> bool {
    repo.owner.eq_ignore_ascii_case(login) || repo.permission(login) == "admin"
}

/// Returns true if the person sees the repository.
pub(super) fn can_read(repo: &RepoState, login: &str) -> bool {
    repo.owner.eq_ignore_ascii_case(login) || repo.permission(login) != "none"
}
