//! Access rules. Deliveries and probes are open. Pages and API are for people: those whom Identity-Aware Proxy authenticated if it is
//! configured, otherwise those who signed in at an identity provider or with basic auth, if one of them is configured. Without all of
//! these, they are for everybody with `--allow-unauthenticated-pages`, and otherwise only for this machine.

pub(crate) mod address;
pub(crate) mod api_tokens;
pub(super) mod google_tokens;
pub(crate) mod iap;
pub(crate) mod people;
pub(super) mod throttle;
pub(crate) mod wake_tokens;

use super::login::SignIn;
use crate::dispatch::PageVisitor;
use crate::domain::is_secret;
use address::Sources;
pub use api_tokens::TokenScope;
use api_tokens::{ApiToken, TokenRefused};
use base64::Engine;
use google_tokens::NotBelieved;
use http::{HeaderMap, Method, Uri, header};
use iap::Iap;
use jiff::Timestamp;
use people::{Person, PersonRules};
use secrecy::{ExposeSecret, SecretString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use url::Url;
use wake_tokens::WakeTokens;

#[cfg(test)]
mod tests;

/// Rules for all routes.
#[derive(Default)]
pub struct AccessRules {
    /// `--iap-audience`: callers must be authenticated by Identity-Aware Proxy; `sign_in`, `basic_auth` and `open` have no effect
    /// then.
    pub iap: Option<Iap>,
    /// `--oidc-issuer`, `--gh-oauth-client-id`: people must have signed in there; `basic_auth` and `open` have no effect then.
    pub sign_in: Option<SignIn>,
    /// `--admins`.
    pub admins: PersonRules,
    /// `--trusted-proxy-hops`.
    pub hops: u8,
    /// `--poll`: deliveries are refused.
    pub polls: bool,
    /// `--webhook-allowlist`; if absent, deliveries may come from anywhere.
    pub sources: Option<Arc<Sources>>,
    /// `web-basic-auth`.
    pub basic_auth: Option<(String, SecretString)>,
    /// `--allow-unauthenticated-pages`.
    pub open: bool,
    /// `--wake-account`; if absent, there is no `/wake`.
    pub wake: Option<WakeTokens>,
}

/// Callers that a route admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The host: the route checks address and signature itself.
    Host,
    /// Probes, which cannot sign in: the route only says whether this server works.
    Probes,
    /// Cloud Tasks and Cloud Scheduler: the route checks their token itself.
    Wake,
    /// Everybody: the response contains no secrets. Behind Identity-Aware Proxy, people only.
    Everyone,
    /// People: pages and changes of state.
    People,
    /// People, and scripts with `X-Atlantis-Token`: the API's secret, or a token with this scope.
    Api(TokenScope),
    /// Only scripts with `X-Atlantis-Token`, as above: off if the server has no secret for it.
    Token(TokenScope),
}

/// A request, before it is admitted.
pub(super) struct Caller<'a> {
    pub(super) peer: SocketAddr,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    /// The result of Identity-Aware Proxy, if it is configured.
    pub(super) iap: Option<Result<Person, NotBelieved>>,
}

/// An admitted caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admitted {
    /// Name for the audit log.
    pub(super) name: String,
    /// True if the caller signed in, and the page may show the name.
    pub(super) signed_in: bool,
    /// True if the caller has a session, which can be ended.
    pub(super) can_sign_out: bool,
    /// True if the caller may change state.
    pub(super) may_change: bool,
    /// An operator is named by `--admins`, on the server's own machine, or has the API's secret.
    pub(super) visitor: PageVisitor,
}

/// Reason for which a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AccessDenied {
    /// Identity-Aware Proxy is configured and did not authenticate this request.
    NotThroughIap(NotBelieved),
    /// People sign in at an identity provider, and the request has no valid session.
    SignIn,
    /// This person has signed in and may not view pages.
    NotViewer(String),
    /// This person may not change state.
    NotAdmin(String),
    /// Too many wrong logins of this address; retry after this many seconds.
    TooMany(u32),
    /// Basic auth is configured, and is missing or wrong.
    Login,
    /// No login is configured, and the request does not come from a browser on this machine.
    NotLoopback,
    /// A page of another site requested the change.
    OtherOrigin,
    /// The request of a script is refused because of its token.
    Script(ScriptDenied),
}

/// Reason for which the token of a script is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScriptDenied {
    /// `X-Atlantis-Token` was given and is wrong.
    WrongToken,
    /// The token has ended.
    Expired(ApiToken),
    /// The token lacks this scope.
    NotInScope(ApiToken, TokenScope),
    /// `X-Atlantis-Token` is required and was not given.
    NoToken,
    /// `X-Atlantis-Token` is required, and the server has no secret for it.
    ApiOff,
}

/// Headers that proxies add: with one of them the peer's address is not the client's.
const FORWARDED: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// Name of a caller on the server's own machine.
const LOOPBACK: &str = "loopback";

/// Path that ends a session.
pub(super) const LOGOUT: &str = "/logout";

/// Atlantis' header for the API secret.
const TOKEN_HEADER: &str = "x-atlantis-token";

impl AccessRules {
    /// Admits the caller, or returns the reason for a refusal. `url` is the configured address of this server.
    pub(super) fn admit(
        &self,
        who: Who,
        api_secret: Option<&SecretString>,
        url: &str,
        caller: &Caller<'_>,
    ) -> Result<Admitted, AccessDenied> {
        let is_open =
            matches!(who, Who::Host | Who::Probes | Who::Wake) || (who == Who::Everyone && caller.iap.is_none());
        if is_open {
            return Ok(Admitted {
                name: "anyone".into(),
                signed_in: false,
                can_sign_out: false,
                may_change: false,
                visitor: PageVisitor::Other,
            });
        }
        let changes = !matches!(*caller.method, Method::GET | Method::HEAD);
        if changes && !same_origin(caller, url) {
            return Err(AccessDenied::OtherOrigin);
        }
        if let Who::Token(scope) = who {
            let otherwise = match &caller.iap {
                Some(Err(why)) => AccessDenied::NotThroughIap(*why),
                _ if api_secret.is_some() => AccessDenied::Script(ScriptDenied::NoToken),
                _ => AccessDenied::Script(ScriptDenied::ApiOff),
            };
            return token(api_secret, scope, caller.headers, otherwise);
        }
        let can_sign_out = caller.iap.is_none();
        // Whoever has a session may end it.
        let signs_out = can_sign_out && caller.uri.path() == LOGOUT;
        let refusal = match self.identify(caller) {
            Some(Ok(person)) if changes && !signs_out && !self.admins.allow(&person) => {
                return Err(AccessDenied::NotAdmin(person.name));
            }
            Some(Ok(person)) => {
                let may_change = self.admins.allow(&person);
                let visitor = if self.admins.name(&person) { PageVisitor::Operator } else { PageVisitor::Other };
                return Ok(Admitted { name: person.name, signed_in: true, can_sign_out, may_change, visitor });
            }
            Some(Err(refusal)) => refusal,
            None => match self.without_people(caller) {
                Ok(name) => {
                    let signed_in = self.basic_auth.is_some();
                    let is_here = !signed_in && name == LOOPBACK;
                    let visitor = if is_here { PageVisitor::Operator } else { PageVisitor::Other };
                    return Ok(Admitted { name, signed_in, can_sign_out: false, may_change: true, visitor });
                }
                Err(refusal) => refusal,
            },
        };
        if let Who::Api(scope) = who { token(api_secret, scope, caller.headers, refusal) } else { Err(refusal) }
    }

    /// Returns the person who sent a request, or the reason for which it is not known; `None` if callers are not known as people.
    fn identify(&self, caller: &Caller<'_>) -> Option<Result<Person, AccessDenied>> {
        match (&caller.iap, &self.sign_in) {
            (Some(result), _) => Some(result.clone().map_err(AccessDenied::NotThroughIap)),
            (None, Some(sign_in)) => Some(sign_in.person(caller.headers, Timestamp::now())),
            (None, None) => None,
        }
    }

    /// Returns the result of Identity-Aware Proxy, if it is configured. Its unsigned headers are ignored: anybody who bypasses it can
    /// send `X-Goog-Authenticated-User-Email`.
    pub(super) async fn ask_iap(&self, headers: &HeaderMap) -> Option<Result<Person, NotBelieved>> {
        match &self.iap {
            Some(iap) => Some(iap.verify(headers).await),
            None => None,
        }
    }

    /// Returns the client's address for counting; the peer's if it is unknown.
    pub(super) fn address(&self, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
        address::client(peer, headers, self.hops).unwrap_or_else(|| peer.ip().to_canonical())
    }

    /// Returns true if a request has a password or token that could be a guess.
    pub(super) fn may_guess(&self, headers: &HeaderMap) -> bool {
        let logs_in = self.iap.is_none()
            && self.sign_in.is_none()
            && self.basic_auth.is_some()
            && headers.contains_key(header::AUTHORIZATION);
        logs_in || headers.contains_key(TOKEN_HEADER)
    }

    fn without_people(&self, caller: &Caller<'_>) -> Result<String, AccessDenied> {
        if let Some((user, password)) = &self.basic_auth {
            let (given_user, given_password) = basic_credentials(caller.headers).ok_or(AccessDenied::Login)?;
            // Both are always compared, so that the time does not reveal which one is wrong.
            let right = is_secret(user, &given_user) & is_secret(password.expose_secret(), &given_password);
            return if right { Ok(user.clone()) } else { Err(AccessDenied::Login) };
        }
        if from_this_machine(caller) {
            return Ok(LOOPBACK.into());
        }
        if self.open { Ok(format!("anyone ({})", caller.peer.ip())) } else { Err(AccessDenied::NotLoopback) }
    }
}

/// Admits a script by its token, for a route that needs this scope.
fn token(
    secret: Option<&SecretString>,
    scope: TokenScope,
    headers: &HeaderMap,
    otherwise: AccessDenied,
) -> Result<Admitted, AccessDenied> {
    let given = headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok());
    let (Some(given), Some(secret)) = (given, secret) else { return Err(otherwise) };
    let admitted = |name| Admitted {
        name,
        signed_in: false,
        can_sign_out: false,
        may_change: true,
        visitor: PageVisitor::Operator,
    };
    if is_secret(secret.expose_secret(), given) {
        return Ok(admitted("api".into()));
    }
    match ApiToken::verify(given, secret, Timestamp::now()) {
        Some(Ok(token)) if token.allows(scope) => Ok(admitted(token.name())),
        Some(Ok(token)) => Err(AccessDenied::Script(ScriptDenied::NotInScope(token, scope))),
        Some(Err(TokenRefused::Expired(token))) => Err(AccessDenied::Script(ScriptDenied::Expired(token))),
        Some(Err(TokenRefused::Forged)) | None => Err(AccessDenied::Script(ScriptDenied::WrongToken)),
    }
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

/// Returns true if the peer is this machine without a proxy, and the browser addresses this machine. A site whose name was pointed at
/// 127.0.0.1 (DNS rebinding) sends its own name in `Host`.
fn from_this_machine(caller: &Caller<'_>) -> bool {
    caller.peer.ip().to_canonical().is_loopback()
        && !FORWARDED.iter().any(|name| caller.headers.contains_key(*name))
        && host(caller.headers).is_some_and(|(host, _)| is_loopback_name(&host))
        && caller.uri.host().is_none_or(is_loopback_name)
}

/// Returns host and port of the `Host` header; `None` unless there is exactly one and it is valid.
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

/// Returns true if a change was requested by our own pages or without a browser. Browsers send `Sec-Fetch-Site` to https and loopback
/// addresses, and `Origin` with every form.
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
