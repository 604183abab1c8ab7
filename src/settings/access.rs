//! Checks of the settings of access to the server.

use super::addresses::is_loopback;
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

/// Reads emails and domains in lower case; `@` before a domain may be left out.
pub(super) fn admins(r: &mut Reader, name: &str) -> Vec<String> {
    let admins: Vec<String> = r.list(name).iter().map(|rule| rule.to_lowercase()).collect();
    let is_sound = |rule: &String| {
        let (_, domain) = rule.rsplit_once('@').unwrap_or(("", rule));
        domain.contains('.') && !rule.contains(|c: char| c.is_whitespace() || c == '*' || c == '/')
    };
    if r.is_given(name) && (admins.is_empty() || !admins.iter().all(is_sound)) {
        r.wrong(name, "is no list of emails and domains such as ada@example.com,@example.org");
    }
    if !admins.is_empty() && r.list("iap-audience").is_empty() && !r.switch("events-only") {
        r.wrong(
            name,
            "needs iap-audience: without Identity-Aware Proxy nobody has an email. Set it, or leave admins out",
        );
    }
    admins
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
