//! Credentials, and levels of access.

use super::super::server;
use super::super::state::{RepoState, State};
use super::{Refusal, Result};
use http::HeaderMap;

/// User of git for tokens of projects and repositories (confluence.atlassian.com/bitbucketserver/http-access-tokens).
const TOKEN_USER: &str = "x-token-auth";

/// Permission of a person in a repository. Each level includes the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    None,
    Read,
    Write,
    Admin,
}

impl Level {
    /// Name of the permission; absent for none.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Level::None => None,
            Level::Read => Some("REPO_READ"),
            Level::Write => Some("REPO_WRITE"),
            Level::Admin => Some("REPO_ADMIN"),
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Level> {
        [Level::Read, Level::Write, Level::Admin].into_iter().find(|level| level.name() == Some(name))
    }
}

/// Level of a person; people administer their personal repositories.
pub(super) fn level(repo: &RepoState, login: &str) -> Level {
    if repo.owner.strip_prefix('~').is_some_and(|owner| owner.eq_ignore_ascii_case(login)) {
        return Level::Admin;
    }
    match repo.permission(login) {
        "admin" => Level::Admin,
        "write" => Level::Write,
        "read" => Level::Read,
        _ => Level::None,
    }
}

/// The person of a request of the API, by a token as bearer; absent without credentials. Tokens are no passwords of basic auth here.
pub(super) fn of_api(state: &State, headers: &HeaderMap) -> Result<Option<String>> {
    let Some(found) = server::credentials(headers).map_err(|()| Refusal::wrong_credentials())? else {
        return Ok(None);
    };
    let login = state.login_of_token(&found.token).filter(|_| found.user.is_none());
    login.map(Some).ok_or_else(Refusal::wrong_credentials)
}

/// The person of a request of git.
pub(super) fn of_git(state: &State, headers: &HeaderMap) -> Option<String> {
    let found = server::credentials(headers).ok()??;
    let login = state.login_of_token(&found.token)?;
    let is_right = found.user.is_none_or(|user| user == TOKEN_USER || user.eq_ignore_ascii_case(&login));
    is_right.then_some(login)
}
