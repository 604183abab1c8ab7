//! Settings of who may reach what: Identity-Aware Proxy, proxies before us, who may deliver, who may change state.

use super::hosts::is_loopback;
use super::typed::Reader;
use super::{AccessSettings, GithubSettings};
use url::Url;

/// Where GitHub publishes the addresses of its deliveries, below its API.
const META: &str = "/meta";
/// Most proxies that may be trusted.
const MAX_HOPS: i64 = 2;

/// All of them; `github` says where its ranges are published.
pub(super) fn settings(r: &mut Reader, github: Option<&GithubSettings>) -> AccessSettings {
    let iap_audience = iap_audience(r);
    let admins = admins(r);
    let events_only = r.switch("events-only");
    if !admins.is_empty() && iap_audience.is_empty() && !events_only {
        r.wrong(
            "admins",
            "needs iap-audience: without Identity-Aware Proxy nobody has an email. Set it, or leave admins out",
        );
    }
    for name in ["web-basic-auth", "allow-unauthenticated-pages"] {
        if !iap_audience.is_empty() && r.switch(name) {
            let place = r.place(name);
            r.warnings
                .push(format!("{place} has no effect: with iap-audience people come in through Identity-Aware Proxy"));
        }
    }
    AccessSettings {
        iap_audience,
        iap_keys_url: test_address(r, "iap-keys-url"),
        trusted_proxy_hops: u8::try_from(r.number("trusted-proxy-hops", 0, MAX_HOPS)).unwrap_or_default(),
        webhook_allowlist: r.list("webhook-allowlist"),
        github_meta_url: test_address(r, "github-meta-url").or_else(|| github.and_then(published)),
        events_only,
        admins,
    }
}

/// Audiences as IAP writes them: a mistake here would lock everybody out without a word.
fn iap_audience(r: &mut Reader) -> Vec<String> {
    let audiences = r.list("iap-audience");
    if r.is_given("iap-audience") && audiences.is_empty() {
        r.wrong("iap-audience", "names no audience");
    }
    if audiences.iter().any(|audience| !audience.starts_with("/projects/")) {
        r.wrong(
            "iap-audience",
            "is not of the form /projects/NUMBER/global/backendServices/ID or /projects/NUMBER/locations/REGION/services/NAME",
        );
    }
    audiences
}

/// Lower case; `@` before a domain may be left out.
fn admins(r: &mut Reader) -> Vec<String> {
    let admins: Vec<String> = r.list("admins").iter().map(|rule| rule.to_lowercase()).collect();
    let is_sound = |rule: &String| {
        let (_, domain) = rule.rsplit_once('@').unwrap_or(("", rule));
        domain.contains('.') && !rule.contains(|c: char| c.is_whitespace() || c == '*' || c == '/')
    };
    if r.is_given("admins") && (admins.is_empty() || !admins.iter().all(is_sound)) {
        r.wrong("admins", "is no list of emails and domains such as ada@example.com,@example.org");
    }
    admins
}

/// An address that only tests set: https, or this machine.
fn test_address(r: &mut Reader, name: &str) -> Option<String> {
    let text = r.optional(name)?;
    match Url::parse(&text) {
        Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)) => Some(text),
        _ => {
            r.wrong(name, "begins neither with https:// nor with http://LOOPBACK");
            None
        }
    }
}

/// Enterprise servers deliver from their own address, and publish none.
fn published(github: &GithubSettings) -> Option<String> {
    let is_github = github.hostname == "github.com" || github.hostname.ends_with(".ghe.com");
    (is_github && github.api_url.starts_with("https://")).then(|| format!("{}{META}", github.api_url))
}

#[cfg(test)]
mod tests;
