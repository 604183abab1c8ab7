//! Who may reach what. Deliveries and probes are for everyone; pages and the API are for people: basic auth where it is
//! configured, else those that an operator let in by `--allow-unauthenticated-pages`, else only this machine itself.

pub mod address;
pub mod iap;

use base64::Engine;
use http::{HeaderMap, Method, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use subtle::ConstantTimeEq;
use url::Url;

#[cfg(test)]
mod tests;

/// Rules for pages and API.
pub struct Access {
    /// `web-basic-auth`.
    pub basic_auth: Option<(String, SecretString)>,
    /// `--allow-unauthenticated-pages`.
    pub open: bool,
}

/// For whom a route is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// Anybody: the route checks signatures itself or says nothing secret.
    Everyone,
    /// People: pages and what changes state.
    People,
    /// People, and scripts with `X-Atlantis-Token`.
    Api,
}

/// What is known of a request before anything else is looked at.
pub(super) struct Caller<'a> {
    pub(super) peer: SocketAddr,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Basic auth is configured, and absent or wrong.
    Login,
    /// No login is configured, and this does not come from this machine's own browser.
    NotLoopback,
    /// A change that was asked for by a page of another site.
    OtherOrigin,
    /// `X-Atlantis-Token` was given and is wrong.
    WrongToken,
}

/// Headers that a proxy adds: with one of them the peer's address is not the person's.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// Atlantis' header for the API secret.
const TOKEN_HEADER: &str = "x-atlantis-token";

impl Access {
    /// The name that the audit log shows for who asked, or why they may not. `url` is our own address as configured.
    pub(super) fn admit(
        &self,
        who: Who,
        api_secret: Option<&SecretString>,
        url: &str,
        caller: &Caller<'_>,
    ) -> Result<String, Refusal> {
        if who == Who::Everyone {
            return Ok("anyone".into());
        }
        let name = match self.person(caller) {
            Ok(name) => name,
            Err(refusal) if who == Who::Api => token(api_secret, caller.headers, refusal)?,
            Err(refusal) => return Err(refusal),
        };
        let changes = !matches!(*caller.method, Method::GET | Method::HEAD);
        if changes && !same_origin(caller, url) {
            return Err(Refusal::OtherOrigin);
        }
        Ok(name)
    }

    fn person(&self, caller: &Caller<'_>) -> Result<String, Refusal> {
        if let Some((user, password)) = &self.basic_auth {
            let (given_user, given_password) = basic_credentials(caller.headers).ok_or(Refusal::Login)?;
            // Both are compared, always: the time tells nothing about which one is wrong.
            let right = equal(user, &given_user) & equal(password.expose_secret(), &given_password);
            return if right { Ok(user.clone()) } else { Err(Refusal::Login) };
        }
        if from_this_machine(caller) {
            return Ok("loopback".into());
        }
        if self.open { Ok(format!("anyone ({})", caller.peer.ip())) } else { Err(Refusal::NotLoopback) }
    }
}

fn token(secret: Option<&SecretString>, headers: &HeaderMap, otherwise: Refusal) -> Result<String, Refusal> {
    match (headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok()), secret) {
        (Some(given), Some(secret)) if equal(secret.expose_secret(), given) => Ok("api".into()),
        (Some(_), Some(_)) => Err(Refusal::WrongToken),
        _ => Err(otherwise),
    }
}

/// Compares in a time that depends on neither text; an empty secret equals nothing.
fn equal(secret: &str, given: &str) -> bool {
    let same = Sha256::digest(secret).as_slice().ct_eq(Sha256::digest(given).as_slice());
    bool::from(same) & !secret.is_empty()
}

fn basic_credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).ok()?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The peer is this machine, no proxy stands between, and the browser believes to talk to this machine: a page of a site
/// whose name was made to point at 127.0.0.1 (DNS rebinding) has its own name in `Host`.
fn from_this_machine(caller: &Caller<'_>) -> bool {
    caller.peer.ip().to_canonical().is_loopback()
        && !FORWARDED.iter().any(|name| caller.headers.contains_key(*name))
        && host(caller.headers).is_some_and(|(host, _)| is_loopback_name(&host))
        && caller.uri.host().is_none_or(is_loopback_name)
}

/// Host and port of the one `Host` header; absent when there is none, several, or one that cannot be read.
fn host(headers: &HeaderMap) -> Option<(String, Option<u16>)> {
    let mut values = headers.get_all(header::HOST).iter();
    let authority: http::uri::Authority = values.next()?.to_str().ok()?.parse().ok()?;
    if values.next().is_some() || authority.as_str().contains('@') {
        return None;
    }
    Some((authority.host().to_ascii_lowercase(), authority.port_u16()))
}

fn is_loopback_name(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|address| address.parse::<IpAddr>().ok())
            .is_some_and(|address| address.to_canonical().is_loopback())
}

/// Whether a change was asked for by our own pages, or by no page at all. Browsers send `Sec-Fetch-Site` to https and to
/// loopback, and `Origin` with each form; what sends neither is not a browser.
fn same_origin(caller: &Caller<'_>, url: &str) -> bool {
    if let Some(site) = caller.headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = caller.headers.get(header::ORIGIN) else { return true };
    let Some(origin) = origin.to_str().ok().and_then(|text| Url::parse(text).ok()) else { return false };
    let Some(origin_host) = origin.host_str() else { return false };
    if Url::parse(url).is_ok_and(|own| own.origin() == origin.origin()) {
        return true;
    }
    host(caller.headers).is_some_and(|(host, port)| {
        let default = if origin.scheme() == "https" { 443 } else { 80 };
        host == origin_host && port.unwrap_or(default) == origin.port().unwrap_or(default)
    })
}
