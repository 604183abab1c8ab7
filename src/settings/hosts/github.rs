//! Settings of GitHub: `gh-hostname`, and the account or App there.

mod app;

use super::{HostSettings, ServedHost};
use crate::settings::addresses::is_loopback;
use crate::settings::typed::Reader;
use crate::settings::{Settings, TokenSetting, access, check, poll};
use secrecy::SecretString;
use std::path::PathBuf;
use url::Url;

rows! {
    static ROWS {
        Atlantis {
            /// GitHub App to be, by its id, instead of gh-user; docs/github-app.md.
            gh_app_id: Number = "0",
            /// The only installation of the App to use; 0: that of each repository's owner.
            gh_app_installation_id: Number = "0",
            /// Private key of the App, in PEM.
            gh_app_key: Secret,
            /// File with the private key of the App, read again on every use.
            gh_app_key_file: Path,
            /// Name of the App in addresses, by which its own comments are known; by default GitHub is asked.
            gh_app_slug: Text,
            /// GitHub: github.com, HOST.ghe.com, HOST[:PORT] of an Enterprise server, or http://LOOPBACK:PORT.
            gh_hostname: Text = "github.com",
            /// Organization in which /github-app/setup makes an App; by default one's own account.
            gh_org: Text,
            /// Token of gh-user.
            gh_token: Secret,
            /// File with the token, read again on every use.
            gh_token_file: Path,
            /// Login of the server's account.
            gh_user: Text,
            /// Secret with which GitHub signs deliveries.
            gh_webhook_secret: Secret,
        }
        Tidelock {
            /// Post the statuses of commits as check runs, with text, annotations and buttons. Needs a GitHub App; docs/checks.md.
            gh_checks: Switch = "false",
            /// Most comments, statuses and reactions in an hour, with as many in a minute as GitHub then allows (80 of 500); comments go
            /// first. 0: no limit. An Enterprise server has none unless it is given.
            gh_posts_per_hour: Number = "500",
            /// The previous webhook secret, still accepted: for a change of secrets without a lost delivery.
            gh_previous_webhook_secret: Secret,
        }
    }
}

/// GitHub among the hosts of the settings.
pub(super) static HOST: HostSettings = HostSettings {
    rows: ROWS,
    hostname: HOSTNAME,
    naming: &["gh-user", "gh-token", "gh-token-file", "gh-webhook-secret", "gh-app-id"],
    account: &["gh-user", "gh-app-id"],
    secret_files: &["gh-app-key-file", "gh-token-file"],
    git_address: None,
};

/// Address of GitHub, and our account there.
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GithubSettings {
    /// Name as in repository ids: without scheme and port.
    pub hostname: String,
    /// `https://api.github.com`, `https://HOST/api/v3`, without trailing slash.
    pub api_url: String,
    /// Login; for a GitHub App `SLUG[bot]`, or `app/ID` if its slug is not set.
    pub user: String,
    /// Absent only with `events-only`: a server that only accepts deliveries needs no token.
    pub token: Option<GithubToken>,
    pub webhook_secret: Option<SecretString>,
    /// Setting of ours: the previous secret, which is still accepted.
    pub previous_webhook_secret: Option<SecretString>,
    /// Setting of ours: limit of posts in an hour; absent if there is none.
    pub posts_per_hour: Option<u32>,
    /// Setting of ours: true if statuses are posted as check runs; only with an App.
    pub checks: bool,
    /// `gh-org`; empty for one's own account.
    pub organization: String,
}

/// Identity of the server on GitHub.
#[derive(Clone)]
pub enum GithubToken {
    /// An account, with its token.
    Account(TokenSetting),
    /// A GitHub App.
    App(GithubAppSettings),
}

/// GitHub App of the server.
#[derive(Clone)]
#[expect(missing_docs, reason = "each field is the setting of that name")]
pub struct GithubAppSettings {
    pub id: u64,
    pub key: GithubAppKey,
    /// Absent if `gh-app-slug` is not set: the server asks GitHub then.
    pub slug: Option<String>,
    /// Absent if the installation of each repository's owner is used.
    pub installation_id: Option<u64>,
}

/// Source of the private key of the GitHub App.
#[derive(Clone)]
#[expect(missing_docs, reason = "gh-app-key and gh-app-key-file")]
pub enum GithubAppKey {
    Value(SecretString),
    /// Read again on every use.
    File(PathBuf),
}

impl ServedHost for GithubSettings {
    fn hostname(&self) -> (&'static str, &str) {
        (HOSTNAME, &self.hostname)
    }

    fn team_rules<'a>(&'a self, settings: &'a Settings) -> Option<(&'static str, &'a [String])> {
        Some((TEAMS, &settings.gh_team_allowlist))
    }

    fn issues_reading_tokens(&self) -> bool {
        matches!(self.token, Some(GithubToken::App(_)))
    }
}

const HOSTNAME: &str = "gh-hostname";
/// Name of the setting with rules of teams.
const TEAMS: &str = "gh-team-allowlist";
/// Name of the setting for check runs.
const CHECKS: &str = "gh-checks";
/// Path below GitHub's API at which it publishes the addresses of its deliveries.
const META: &str = "/meta";
/// Highest `gh-posts-per-hour`.
const MAX_POSTS: i64 = 1_000_000;
/// Message about the rights that the token needs.
const PERMISSIONS: &str = "A fine-grained token needs, on the repositories: Contents read (and write for automerge), Pull requests read and write, \
     Commit statuses read and write, Issues read and write (reactions); Webhooks read is for `tidelock doctor`. A classic one needs the \
     scope repo (and admin:repo_hook for the doctor)";

/// Reads host and account, and reports everything that is missing. Absent if another host is set and no setting of this one is.
pub(super) fn read(r: &mut Reader) -> Option<GithubSettings> {
    if !HOST.is_named(r) && super::ALL.iter().any(|other| other.is_named(r)) {
        return None;
    }
    let host = host(&r.text(HOSTNAME)).map_err(|what| r.wrong(HOSTNAME, what)).ok();
    let app = app::read(r);
    let (user, token) = match app {
        Some(app) => {
            let user = app.slug.as_ref().map_or_else(|| format!("app/{}", app.id), |slug| format!("{slug}[bot]"));
            (user, Some(GithubToken::App(app)))
        }
        // Errors of the App have been reported.
        None if app::is_meant(r) => (String::new(), None),
        None => github_account(r),
    };
    let webhook_secret = r.secret("gh-webhook-secret");
    match (&webhook_secret, r.switch("allow-unsigned-webhooks")) {
        (None, _) if poll::is_on(r) => {}
        (None, false) => r.wrong(
            "gh-webhook-secret",
            "(ATLANTIS_GH_WEBHOOK_SECRET) is missing: without it everybody who reaches the port can run commands here. Set \
             the same text here and in the webhook on GitHub; or say --allow-unsigned-webhooks, which is unsafe",
        ),
        (None, true) => {
            r.warnings
                .push("deliveries are not signed: everybody who reaches the port can run commands here".to_owned());
        }
        (Some(_), true) => {
            r.warnings.push("allow-unsigned-webhooks has no effect: gh-webhook-secret is set".to_owned());
        }
        (Some(_), false) => {}
    }
    let previous_webhook_secret = r.secret("gh-previous-webhook-secret");
    let posts_per_hour = posts_per_hour(r, host.as_ref());
    let checks = checks(r, token.as_ref());
    let organization = r.text("gh-org").trim().to_owned();
    let host = host?;
    Some(GithubSettings {
        hostname: host.hostname,
        api_url: host.api_url,
        user,
        token: if r.switch("events-only") { token } else { Some(token?) },
        webhook_secret,
        previous_webhook_secret,
        posts_per_hour,
        checks,
        organization,
    })
}

/// Reads whether statuses are posted as check runs, which GitHub takes from Apps alone.
fn checks(r: &mut Reader, token: Option<&GithubToken>) -> bool {
    let is_set = r.switch(CHECKS);
    let is_app = matches!(token, Some(GithubToken::App(_)));
    // Errors of an App have been reported, and a server that only stores deliveries posts nothing.
    if is_set && !is_app && !app::is_meant(r) && !r.switch("events-only") {
        r.wrong(
            CHECKS,
            "needs a GitHub App: GitHub takes check runs from Apps only. Name the App by gh-app-id and gh-app-key-file and leave out \
             gh-user and gh-token (docs/github-app.md), or leave out gh-checks",
        );
    }
    is_set && is_app
}

/// Reads login and token of the server's account.
fn github_account(r: &mut Reader) -> (String, Option<GithubToken>) {
    let user = r.text("gh-user").trim().trim_start_matches('@').to_owned();
    let missing = format!("(ATLANTIS_GH_TOKEN) is missing, and so is gh-token-file. {PERMISSIONS}");
    let token = check::token(r, "gh-token", "gh-token-file", &missing).map(GithubToken::Account);
    if user.is_empty() {
        r.wrong(
            "gh-user",
            "(ATLANTIS_GH_USER) is missing: the login of the account that the token belongs to. A GitHub App is named by gh-app-id \
             instead",
        );
    }
    (user, token)
}

/// Reads the limit of posts: GitHub's own hosts have one by default, Enterprise servers only if it is set.
fn posts_per_hour(r: &mut Reader, host: Option<&GithubHost>) -> Option<u32> {
    let limit = r.number("gh-posts-per-hour", 0, MAX_POSTS);
    let asks = host.is_some_and(GithubHost::is_githubs_own);
    u32::try_from(limit).ok().filter(|limit| *limit > 0 && (asks || r.is_given("gh-posts-per-hour")))
}

/// Name for repository ids, and base of the API.
#[derive(Debug, PartialEq, Eq)]
struct GithubHost {
    hostname: String,
    api_url: String,
}

impl GithubHost {
    /// Returns true for GitHub's own hosts, as opposed to an Enterprise server.
    fn is_githubs_own(&self) -> bool {
        self.hostname == "github.com" || self.hostname.ends_with(".ghe.com")
    }
}

/// Reads `gh-hostname`: `github.com`, `NAME.ghe.com`, `HOST[:PORT]`, or `http://LOOPBACK:PORT`.
fn host(text: &str) -> Result<GithubHost, &'static str> {
    const FORM: &str = "is not of the form HOST or HOST:PORT";
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let url = Url::parse(&with_scheme).map_err(|_| FORM)?;
    let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty();
    let hostname = url.host_str().filter(|_| !has_more).ok_or(FORM)?.to_owned();
    let scheme = match url.scheme() {
        "https" => "https",
        "http" if is_loopback(&url) => "http",
        "http" => return Err("begins with http://, which is for loopback addresses only"),
        _ => return Err(FORM),
    };
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    let api_url = match hostname.as_str() {
        "github.com" if scheme == "https" && port.is_empty() => "https://api.github.com".to_owned(),
        name if name.ends_with(".ghe.com") => format!("https://api.{name}{port}"),
        name => format!("{scheme}://{name}{port}/api/v3"),
    };
    Ok(GithubHost { hostname, api_url })
}

/// Returns name and API of the host that `gh-hostname` names.
pub(in crate::settings) fn place(r: &mut Reader) -> Option<(String, String)> {
    let host = host(&r.text(HOSTNAME)).map_err(|what| r.wrong(HOSTNAME, what)).ok()?;
    Some((host.hostname, host.api_url))
}

/// Reads the address at which the host publishes the addresses of its deliveries. Enterprise servers deliver from their own address, and
/// publish none.
pub(in crate::settings) fn meta_url(r: &mut Reader, name: &str) -> Option<String> {
    let published = || {
        let host = host(&r.text(HOSTNAME)).ok()?;
        let publishes = host.is_githubs_own() && host.api_url.starts_with("https://");
        publishes.then(|| format!("{}{META}", host.api_url))
    };
    let published = published();
    access::test_address(r, name).or(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_gh_hostname_leads_to_its_api() {
        let cases = [
            ("github.com", "github.com", "https://api.github.com"),
            ("GitHub.com", "github.com", "https://api.github.com"),
            ("https://github.com/", "github.com", "https://api.github.com"),
            ("acme.ghe.com", "acme.ghe.com", "https://api.acme.ghe.com"),
            ("git.example.com", "git.example.com", "https://git.example.com/api/v3"),
            ("localhost:8443", "localhost", "https://localhost:8443/api/v3"),
            ("http://127.0.0.1:4000", "127.0.0.1", "http://127.0.0.1:4000/api/v3"),
            ("http://localhost:4000", "localhost", "http://localhost:4000/api/v3"),
        ];
        for (text, hostname, api_url) in cases {
            let expected = GithubHost { hostname: hostname.to_owned(), api_url: api_url.to_owned() };
            assert_eq!(host(text), Ok(expected), "{text}");
        }
        for text in
            ["http://git.example.com", "git.example.com/path", "ftp://x", "", "a b", "u:p@host", "http://128.0.0.1"]
        {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
