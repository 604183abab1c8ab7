//! Checks of the settings of access to the server.

use super::addresses::is_loopback;
use super::sign_in::GOOGLE;
use super::typed::Reader;
use url::Url;

/// Reads audiences in the form in which IAP writes them: a mistake here would silently lock everybody out.
pub(super) fn iap_audience(r: &mut Reader, name: &str) -> Vec<String> {
    let audiences = r.list(name);
    if r.is_given(name) && audiences.is_empty() {
        r.wrong(name, "names no audience");
    }
    if audiences.iter().any(|audience| !audience.starts_with("/projects/")) {
        r.wrong(
            name,
            "is not of the form /projects/NUMBER/global/backendServices/ID or /projects/NUMBER/locations/REGION/services/NAME",
        );
    }
    for login in ["web-basic-auth", "allow-unauthenticated-pages"] {
        if !audiences.is_empty() && r.switch(login) {
            r.warn(login, "has no effect: with iap-audience people come in through Identity-Aware Proxy");
        }
    }
    audiences
}

/// Most organizations and teams that rules name: each is a question to the host at a sign-in, and a part of the cookie.
const MAX_GROUPS: usize = 20;

/// Reads who may change state.
pub(super) fn admins(r: &mut Reader, name: &str) -> Vec<String> {
    if r.is_given(name) && r.switch("events-only") {
        return Vec::new();
    }
    people(r, name)
}

/// Reads rules in lower case: emails, domains (`@` in front may be left out), and accounts and groups on a VCS host. Reports rules that
/// nobody who signs in can meet.
pub(super) fn people(r: &mut Reader, name: &str) -> Vec<String> {
    let rules: Vec<String> = r.list(name).iter().map(|rule| rule.to_lowercase()).collect();
    if r.is_given(name) && (rules.is_empty() || !rules.iter().all(|rule| is_email(rule) || is_account(rule))) {
        r.wrong(
            name,
            "is no list of emails and domains such as ada@example.com,@example.org, of accounts such as github.com/ada, or of \
             teams and organizations such as github.com/acme/sre,github.com/acme/*",
        );
        return rules;
    }
    let (accounts, emails): (Vec<&String>, Vec<&String>) = rules.iter().partition(|rule| is_account(rule));
    let (has_iap, has_issuer) = (!r.list("iap-audience").is_empty(), r.is_given("oidc-issuer"));
    if !emails.is_empty() && !has_iap && !has_issuer {
        r.wrong(name, "needs iap-audience or oidc-issuer: without one of them nobody has an email");
    }
    let names_domain = emails.iter().any(|rule| !rule.trim_start_matches('@').contains('@'));
    let knows_domains = r.text("oidc-issuer").trim_end_matches('/') == GOOGLE || r.switch("oidc-email-domains");
    if names_domain && has_issuer && !knows_domains {
        r.wrong(
            name,
            "names a domain: the issuer has to be one whose accounts you administer (oidc-email-domains), or Google; else name \
             emails",
        );
    }
    if !accounts.is_empty() && !r.is_given("gh-oauth-client-id") {
        r.wrong(name, "names accounts of GitHub, and needs gh-oauth-client-id: without it nobody signs in there");
    } else if let Some((host, _)) = super::hosts::github::place(r) {
        if let Some(rule) = accounts.iter().find(|rule| rule.split('/').next() != Some(&*host)) {
            r.wrong(name, format!("names {rule}, but people sign in at {host}"));
        }
        if accounts.iter().filter(|rule| rule.matches('/').count() > 1).count() > MAX_GROUPS {
            r.wrong(name, format!("names more than {MAX_GROUPS} organizations and teams"));
        }
    }
    rules
}

/// Returns true for `ada@example.com`, `@example.com` and `example.com`.
fn is_email(rule: &str) -> bool {
    let (_, domain) = rule.rsplit_once('@').unwrap_or(("", rule));
    domain.contains('.') && !rule.contains(|c: char| c.is_whitespace() || c == '*' || c == '/')
}

/// Returns true for `HOST/LOGIN`, `HOST/ORGANIZATION/TEAM` and `HOST/ORGANIZATION/*`.
fn is_account(rule: &str) -> bool {
    let is_name = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        part.chars().all(is_plain) && part.contains(|c: char| c.is_ascii_alphanumeric())
    };
    match rule.split('/').collect::<Vec<_>>()[..] {
        [host, login] => is_name(host) && is_name(login),
        [host, organization, team] => is_name(host) && is_name(organization) && (team == "*" || is_name(team)),
        _ => false,
    }
}

/// Reads an address that only tests set: https, or on this machine.
pub(super) fn test_address(r: &mut Reader, name: &str) -> Option<String> {
    let text = r.optional(name)?;
    match Url::parse(&text) {
        Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)) => Some(text),
        _ => {
            r.wrong(name, "begins neither with https:// nor with http://LOOPBACK");
            None
        }
    }
}

#[cfg(test)]
mod tests;
