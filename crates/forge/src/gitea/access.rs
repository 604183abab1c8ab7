//! Scopes of tokens, and levels of access to repositories.

use super::super::BOT;
use super::super::state::{RepoState, State};
use super::{Refusal, Result};
use http::Method;

/// Categories in the order in which the scopes of a token are written.
const ORDER: [&str; 8] =
    [":activitypub", ":admin", ":misc", ":notification", ":organization", ":issue", ":repository", ":user"];

/// Refuses a request that the scopes of the server's token do not cover; the category is one of models/auth/access_token_scope.go. A
/// request that changes something needs `write` (routers/api/v1/api.go, `tokenRequiresScopes`). Tokens of people have every scope.
pub(super) fn check_scope(state: &State, login: &str, method: &Method, category: &str) -> Result<()> {
    let Some(scopes) = state.gitea.scopes.as_ref().filter(|_| login == BOT) else { return Ok(()) };
    let is_write = matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    let level = if is_write { "write" } else { "read" };
    let needed = format!("{level}:{category}");
    let has = |scope: &String| *scope == "all" || *scope == needed || *scope == format!("write:{category}");
    if scopes.iter().any(has) {
        return Ok(());
    }
    let place = |scope: &&String| ORDER.iter().position(|known| scope.ends_with(known));
    let mut given: Vec<&String> = scopes.iter().collect();
    given.sort_by_key(place);
    let given = given.into_iter().map(String::as_str).collect::<Vec<_>>().join(",");
    Err(Refusal::forbidden(format!(
        "token does not have at least one of required scope(s), required=[{needed}], token scope={given}"
    )))
}

/// Level of access of a person: `owner` for the owner of a personal repository, or `admin`, `write`, `read`, `none`.
pub(super) fn level<'a>(repo: &'a RepoState, login: &str) -> &'a str {
    if repo.owner.eq_ignore_ascii_case(login) { "owner" } else { repo.permission(login) }
}

/// Returns true for `admin` and `owner`.
pub(super) fn is_admin(level: &str) -> bool {
    matches!(level, "admin" | "owner")
}

/// Returns true for a level that may push.
pub(super) fn is_writer(level: &str) -> bool {
    is_admin(level) || level == "write"
}
