//! Settings of the sign-in of people: by OpenID Connect and by OAuth of GitHub.

use super::addresses::is_loopback;
use super::hosts::github;
use super::typed::Reader;
use super::{access, check};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;
use url::Url;

rows! {
    static SIGN_IN {
        Tidelock {
            /// People sign in at this issuer of OpenID Connect, such as https://accounts.google.com; docs/sign-in.md.
            oidc_issuer: Text,
            /// Id of the server as a client of the issuer.
            oidc_client_id: Text,
            /// Secret of that client.
            oidc_client_secret: Secret,
            /// Take the end of a verified email for the person's domain. Only for an issuer whose accounts you administer; Google's tokens
            /// name the domain themselves.
            oidc_email_domains: Switch = "false",
            /// People sign in at gh-hostname, with the OAuth app of this id; docs/sign-in.md.
            gh_oauth_client_id: Text,
            /// Secret of that OAuth app.
            gh_oauth_client_secret: Secret,
            /// Who may view pages after signing in: emails, domains such as @example.com, and with gh-oauth-client-id accounts
            /// (github.com/ada), teams (github.com/acme/sre) and organizations (github.com/acme/*); * stands for everybody who can sign in.
            web_viewers: List,
            /// Secret that signs the cookies of people who have signed in, 32 characters or more; by default it is derived from the secrets
            /// of the clients. A new one ends all sessions.
            web_session_key: Secret,
            /// Time after which people sign in again, from 1m to 720h.
            web_session_length: Duration = "12h",
        }
    }
}

/// Settings that have no meaning without a way to sign in.
const WITHOUT_A_WAY: [&str; 4] = ["oidc-email-domains", "web-viewers", "web-session-key", "web-session-length"];
/// Issuer of Google, whose tokens name the domain of an account.
pub(super) const GOOGLE: &str = "https://accounts.google.com";
/// Shortest `web-session-key`, in bytes.
const SHORTEST_KEY: usize = 32;
/// Shortest secret of a client that signs cookies without `web-session-key`, in bytes.
const SHORTEST_CLIENT_SECRET: usize = 16;
/// Bounds of `web-session-length`.
const LENGTHS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 24 * 3600));
/// Rule that admits everybody.
const EVERYBODY: &str = "*";

/// How people sign in.
#[derive(Clone)]
pub struct SignInSettings {
    /// `oidc-issuer` and its client.
    pub oidc: Option<OidcSettings>,
    /// `gh-oauth-client-id`, and where people sign in with it.
    pub github: Option<GithubOauthSettings>,
    /// `web-viewers`; absent if everybody who can sign in may view.
    pub viewers: Option<Vec<String>>,
    /// `web-session-key`.
    pub session_key: Option<SecretString>,
    /// `web-session-length`.
    pub session_length: Duration,
}

/// Issuer of OpenID Connect, and the server as its client.
#[derive(Clone)]
pub struct OidcSettings {
    /// `oidc-issuer`, as written.
    pub issuer: String,
    /// `oidc-client-id`.
    pub client_id: String,
    /// `oidc-client-secret`.
    pub client_secret: SecretString,
    /// Source of a person's domain.
    pub domains: DomainSource,
}

/// Source of a person's domain, which rules can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainSource {
    /// None: rules name emails.
    None,
    /// The claim `hd` of Google.
    HostedDomain,
    /// The end of a verified email.
    Email,
}

/// OAuth app on GitHub.
#[derive(Clone)]
pub struct GithubOauthSettings {
    /// `gh-hostname`, as in repository ids.
    pub hostname: String,
    /// `https://api.github.com`, `https://HOST/api/v3`, without trailing slash.
    pub api_url: String,
    /// `gh-oauth-client-id`.
    pub client_id: String,
    /// `gh-oauth-client-secret`.
    pub client_secret: SecretString,
    /// Organizations and teams that rules name, `ORG/*` and `ORG/TEAM`.
    pub groups: Vec<String>,
}

/// Reads how people sign in, and reports what contradicts it; absent if they do not, and for a server without pages.
pub(super) fn read(r: &mut Reader) -> Option<SignInSettings> {
    if r.switch("events-only") {
        return None;
    }
    let (oidc, github) = (oidc(r), github(r));
    let is_meant =
        ["oidc-issuer", "oidc-client-id", "oidc-client-secret", "gh-oauth-client-id", "gh-oauth-client-secret"];
    if !is_meant.iter().any(|name| r.is_given(name)) {
        for name in WITHOUT_A_WAY.into_iter().filter(|name| r.is_given(name)).collect::<Vec<_>>() {
            r.wrong(name, "needs a way to sign in: oidc-issuer, or gh-oauth-client-id");
        }
        return None;
    }
    contradictions(r);
    let viewers = viewers(r);
    let session_key = session_key(r);
    let session_length = r.duration("web-session-length");
    if !(LENGTHS.0..=LENGTHS.1).contains(&session_length) {
        r.wrong("web-session-length", "is not from 1m to 720h");
    }
    Some(SignInSettings { oidc, github, viewers, session_key, session_length })
}

/// Reads the secret of cookies. Everybody who signs in has a cookie to try secrets with, so a short one is refused.
fn session_key(r: &mut Reader) -> Option<SecretString> {
    let key = r.secret("web-session-key");
    let is_short = |secret: Option<SecretString>, least| secret.is_some_and(|text| text.expose_secret().len() < least);
    if is_short(key.clone(), SHORTEST_KEY) {
        r.wrong("web-session-key", "is shorter than 32 characters: take the output of `openssl rand -base64 32`");
    }
    for name in ["oidc-client-secret", "gh-oauth-client-secret"] {
        if key.is_none() && is_short(r.secret(name), SHORTEST_CLIENT_SECRET) {
            r.wrong(
                name,
                "is too short to sign cookies with: set web-session-key, or take a secret of 16 characters or more",
            );
        }
    }
    key
}

/// Returns true if all of these settings are given; reports missing ones if only some are.
fn client(r: &mut Reader, names: &[&str]) -> bool {
    let given: Vec<bool> = names.iter().map(|name| r.is_given(name)).collect();
    if !given.contains(&true) {
        return false;
    }
    for (name, _) in names.iter().zip(&given).filter(|(_, given)| !**given) {
        r.wrong(name, format!("is missing: {} belong together", names.join(", ")));
    }
    !given.contains(&false)
}

fn oidc(r: &mut Reader) -> Option<OidcSettings> {
    let is_complete = client(r, &["oidc-issuer", "oidc-client-id", "oidc-client-secret"]);
    let issuer = r.optional("oidc-issuer");
    let takes_ends = r.switch("oidc-email-domains");
    let is_google = issuer.as_deref().is_some_and(|issuer| issuer.trim_end_matches('/') == GOOGLE);
    if let Some(issuer) = &issuer {
        let url = Url::parse(issuer).ok().filter(|url| url.query().is_none() && url.fragment().is_none());
        if !url.is_some_and(|url| url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url)) {
            r.wrong("oidc-issuer", "is no address that begins with https://, without a query");
        }
        if takes_ends && is_google {
            r.wrong(
                "oidc-email-domains",
                "is not for Google, where anybody can have an account with an address of yours: rules of domains compare the \
                 domain that Google names",
            );
        }
    } else if takes_ends {
        r.wrong("oidc-email-domains", "needs oidc-issuer");
    }
    let domains = match (is_google, takes_ends) {
        (true, _) => DomainSource::HostedDomain,
        (false, true) => DomainSource::Email,
        (false, false) => DomainSource::None,
    };
    let (client_id, client_secret) = (r.text("oidc-client-id"), r.secret("oidc-client-secret"));
    is_complete.then_some(())?;
    Some(OidcSettings { issuer: issuer?, client_id, client_secret: client_secret?, domains })
}

fn github(r: &mut Reader) -> Option<GithubOauthSettings> {
    let is_complete = client(r, &["gh-oauth-client-id", "gh-oauth-client-secret"]);
    let (client_id, client_secret) = (r.text("gh-oauth-client-id"), r.secret("gh-oauth-client-secret"));
    is_complete.then_some(())?;
    let (hostname, api_url) = github::place(r)?;
    let rules = [r.list("web-viewers"), r.list("admins")].concat();
    let start = format!("{hostname}/");
    let of_group =
        |rule: &String| rule.to_lowercase().strip_prefix(&start).filter(|rest| rest.contains('/')).map(str::to_owned);
    let mut groups: Vec<String> = rules.iter().filter_map(of_group).collect();
    groups.sort_unstable();
    groups.dedup();
    Some(GithubOauthSettings { hostname, api_url, client_id, client_secret: client_secret?, groups })
}

/// Reports other logins, and an address whose cookies anybody on the way can read.
fn contradictions(r: &mut Reader) {
    if r.is_given("iap-audience") {
        r.wrong("iap-audience", "and a way to sign in are both given: people sign in at one place, so leave one out");
    }
    for login in ["web-basic-auth", "allow-unauthenticated-pages"] {
        if r.switch(login) {
            r.wrong(login, "and a way to sign in (oidc-issuer, gh-oauth-client-id) are both given: leave one out");
        }
    }
    let url = check::atlantis_url(r, "atlantis-url");
    let is_sound = |url: Url| url.scheme() == "https" || is_loopback(&url);
    if !Url::parse(&url).is_ok_and(is_sound) {
        r.wrong(
            "atlantis-url",
            "has to begin with https:// where people sign in: it is where they come back to, and their cookies need it",
        );
    }
}

/// Reads who may view. There is no default: an issuer such as Google signs in anybody.
fn viewers(r: &mut Reader) -> Option<Vec<String>> {
    if r.list("web-viewers") == [EVERYBODY] {
        return None;
    }
    if !r.is_given("web-viewers") {
        r.wrong(
            "web-viewers",
            "is missing: name who may view, such as @example.com, ada@example.com or github.com/acme/sre; or say * for \
             everybody who can sign in, which at Google and GitHub is anybody",
        );
    }
    Some(access::people(r, "web-viewers"))
}

#[cfg(test)]
mod tests;
