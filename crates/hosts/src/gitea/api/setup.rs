//! Checks of `tidelock doctor` on Gitea: the token, our permissions in repositories, and their webhooks.

use super::{Gitea, answers};
use crate::vcs::HostError;
use crate::vcs::http::{odd, segment};
use serde_json::Value;
use tidelock_core::domain::{Login, RepoId};

/// Most pages of webhooks of one repository or organization.
const HOOK_PAGES: u32 = 10;
/// Longest text of the host that is kept, such as a version, in characters.
const MAX_WORD: usize = 60;
/// Ways to merge, with the repository's key that allows each (modules/structs/repo.go).
pub(super) const STYLES: [(&str, &str); 5] = [
    ("merge", "allow_merge_commits"),
    ("rebase", "allow_rebase"),
    ("rebase-merge", "allow_rebase_explicit"),
    ("squash", "allow_squash_merge"),
    ("fast-forward-only", "allow_fast_forward_only_merge"),
];

/// Account of our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiteaAccount {
    /// Login.
    pub login: Login,
    /// True if it administers the instance.
    pub is_admin: bool,
}

/// Version of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GiteaVersion {
    /// Version, such as `1.26.0`, or `12.0.0+gitea-1.22.0` for Forgejo.
    pub version: String,
    /// True for Forgejo.
    pub is_forgejo: bool,
}

/// A repository, with our permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GiteaRepository {
    /// True if our account administers it: needed to read its webhooks and the rules of its branches, and to dismiss approvals.
    pub admin: bool,
    /// True if our account may push to it: needed for commit statuses and merges.
    pub push: bool,
    /// True if our account may read it.
    pub pull: bool,
    /// True if it is read-only.
    pub archived: bool,
    /// True if it has issues.
    pub has_issues: bool,
    /// True if it has pull requests.
    pub has_pull_requests: bool,
    /// Ways to merge that it allows, by their names in the API: `merge`, `rebase`, `rebase-merge`, `squash`, `fast-forward-only`.
    pub merge_styles: Vec<&'static str>,
    /// Way to merge that people are offered first.
    pub default_merge_style: String,
    /// Address from which git clones it, by the instance's `ROOT_URL`.
    pub clone_url: String,
}

/// A webhook of a repository or an organization as the host has it. It reports neither the secret nor deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GiteaHook {
    /// Number of the hook.
    pub id: u64,
    /// Kind, which makes the text of its deliveries: `gitea`, `gogs`, `slack` or another one.
    pub kind: String,
    /// Address that it delivers to.
    pub url: String,
    /// True if it is enabled.
    pub active: bool,
    /// True if its content type is JSON.
    pub json: bool,
    /// Names of events, such as `pull_request_sync`.
    pub events: Vec<String>,
    /// Pattern of branches whose events it delivers; empty or `*` for all.
    pub branch_filter: String,
}

/// Scopes that the host names in a refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenScopes {
    /// Scopes of which the request needs one, such as `read:organization`.
    pub required: Vec<String>,
    /// Scopes of the token, as far as the host's message is kept.
    pub present: Vec<String>,
}

impl Gitea {
    /// Loads certificates, and learns our login, before the first request of others. A token without the scope `read:user` is accepted if
    /// the settings have the login.
    pub async fn prepare(&self) -> Result<(), HostError> {
        self.http.prepare().await?;
        match self.account().await {
            Err(HostError::Denied { what, message }) if !self.user.is_unknown() => {
                tracing::debug!("{what}: {message}; the login of the settings is used");
                Ok(())
            }
            answered => answered.map(drop),
        }
    }

    /// Returns the account of the token; needs the scope `read:user`. It is requested once.
    pub async fn account(&self) -> Result<&GiteaAccount, HostError> {
        if let Some(account) = self.account.get() {
            return Ok(account);
        }
        let body = self.http.get("/user").await?.body;
        let login = body["login"].as_str().filter(|login| !login.is_empty());
        let login = Login::new(login.ok_or_else(|| odd("GET /user", "no login"))?);
        Ok(self.account.get_or_init(|| GiteaAccount { login, is_admin: body["is_admin"] == true }))
    }

    /// Returns the version of the instance. Forgejo has the version of Gitea whose API it keeps behind its own.
    pub async fn version(&self) -> Result<GiteaVersion, HostError> {
        let body = self.http.get("/version").await?.body;
        let version = word(&body["version"]);
        Ok(GiteaVersion { is_forgejo: version.contains("gitea-"), version })
    }

    /// Returns the scopes of the token; absent if it has also that of an administrator, which only `all` is likely to include. The host lists
    /// them to nobody but in refusals, so this asks for what needs a scope that we do not (routers/api/v1/api.go, `tokenRequiresScopes`).
    pub async fn token_scopes(&self) -> Result<Option<Vec<String>>, HostError> {
        match self.http.get("/admin/cron?limit=1").await {
            Ok(_) => Ok(None),
            // The scope is there, and the account administers nothing.
            Err(HostError::Denied { message, .. }) if message.contains("site admin") => Ok(None),
            Err(error) => scopes_in(&error).map(|scopes| Some(scopes.present)).ok_or(error),
        }
    }

    /// Returns a repository, with our permissions.
    pub async fn repository(&self, repo: &RepoId) -> Result<GiteaRepository, HostError> {
        let told = self.told_repository(repo).await?;
        let (permissions, is) = (&told["permissions"], |key: &str| told[key] == true);
        Ok(GiteaRepository {
            admin: permissions["admin"] == true,
            push: permissions["push"] == true,
            pull: permissions["pull"] == true,
            archived: is("archived"),
            has_issues: is("has_issues"),
            has_pull_requests: is("has_pull_requests"),
            merge_styles: merge_styles(&told),
            default_merge_style: word(&told["default_merge_style"]),
            clone_url: told["clone_url"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Returns the JSON of a repository, after checking that it is the requested one.
    pub(super) async fn told_repository(&self, repo: &RepoId) -> Result<Value, HostError> {
        let path = self.address.repo_path(repo)?;
        let body = self.http.get(&path).await?.body;
        answers::is_repository(repo, &format!("GET {path}"), &body)?;
        Ok(body)
    }

    /// Returns the webhooks of a repository; only its administrators see them.
    pub async fn repository_hooks(&self, repo: &RepoId) -> Result<Vec<GiteaHook>, HostError> {
        self.hooks(&format!("{}/hooks", self.address.repo_path(repo)?)).await
    }

    /// Returns the webhooks of an organization; only its owners see them, with the scope `read:organization`.
    pub async fn organization_hooks(&self, name: &str) -> Result<Vec<GiteaHook>, HostError> {
        self.hooks(&format!("/orgs/{}/hooks", segment(name))).await
    }

    async fn hooks(&self, path: &str) -> Result<Vec<GiteaHook>, HostError> {
        Ok(self.rows(path, HOOK_PAGES).await?.iter().filter_map(hook).collect())
    }
}

/// Returns the scopes that a refusal names; absent if it has another reason (routers/api/v1/api.go, `tokenRequiresScopes`).
pub fn scopes_in(refusal: &HostError) -> Option<TokenScopes> {
    let HostError::Denied { message, .. } = refusal else { return None };
    let (required, rest) = message.split_once("required=[")?.1.split_once(']')?;
    let present = rest.split_once("token scope=").map_or("", |(_, present)| present);
    let list = |text: &str| {
        let names = text.split([' ', ',']).filter(|name| !name.is_empty());
        names.map(|name| name.chars().filter(char::is_ascii_graphic).take(MAX_WORD).collect()).collect()
    };
    Some(TokenScopes { required: list(required), present: list(present) })
}

/// Returns the ways to merge that a repository allows.
pub(super) fn merge_styles(repository: &Value) -> Vec<&'static str> {
    STYLES.into_iter().filter(|(_, key)| repository[key] == true).map(|(style, _)| style).collect()
}

fn hook(row: &Value) -> Option<GiteaHook> {
    let config = &row["config"];
    Some(GiteaHook {
        id: row["id"].as_u64()?,
        kind: word(&row["type"]),
        url: config["url"].as_str()?.to_owned(),
        active: row["active"] == true,
        json: config["content_type"] == "json",
        events: row["events"].as_array().into_iter().flatten().map(word).collect(),
        branch_filter: row["branch_filter"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Returns a short text without spaces and control characters.
fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().chars().filter(char::is_ascii_graphic).take(MAX_WORD).collect()
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn scopes_are_read_from_a_refusal_for_their_sake_alone() {
        let denied = |message: &str| HostError::Denied { what: "GET /x".into(), message: message.into() };
        let scopes = scopes_in(&denied(
            "token does not have at least one of required scope(s), required=[read:user read:admin], token scope=write:issue,write:repository",
        ));
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let want = TokenScopes {
            required: list(&["read:user", "read:admin"]),
            present: list(&["write:issue", "write:repository"]),
        };
        assert_eq!(scopes, Some(want));
        assert_eq!(scopes_in(&denied("user should be the site admin")), None);
        let elsewhere = HostError::Unavailable { what: "GET /x".into(), message: "required=[a], token scope=b".into() };
        assert_eq!(scopes_in(&elsewhere), None);
    }
}
