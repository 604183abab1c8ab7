//! Sign-in of people where there is no Identity-Aware Proxy: pages that lead to an identity provider and back, and sessions in signed
//! cookies. The server remembers neither attempts nor sessions, so a standby and the leader accept each other's cookies.

mod cookies;
pub(crate) mod oidc;
pub(crate) mod way;

use super::access::people::{Person, PersonRules};
use super::access::{AccessDenied, Caller, LOGOUT};
use super::answer::{HttpProblem, Visit};
use super::filters::address;
use super::openapi::about;
use super::pages::shown;
use super::{Route, Site, Who, route};
use crate::domain::is_secret;
use crate::store::audit;
use axum::Extension;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Redirect, Response};
use cookies::{CookieKey, CookieName, GivenCookie};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use jiff::Timestamp;
use minijinja::context;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use url::{Url, form_urlencoded};
use way::{SignInAttempt, SignInError, SignInWay};

/// Path at which an attempt begins, and the one to which providers send people back.
const LOGIN: &str = "/login";
const CALLBACK: &str = "/login/callback";
/// Version of sessions; others are ignored.
const VERSION: u8 = 1;
/// Time in which an attempt has to end.
const ATTEMPT: Duration = Duration::from_secs(600);
/// Largest difference between the clocks of two servers that accept each other's sessions.
const CLOCKS: Duration = Duration::from_secs(60);
/// Longest path to open after signing in, in bytes.
const MAX_NEXT: usize = 1_500;
/// Longest code of a provider, in bytes.
const MAX_CODE: usize = 4_096;
/// Longest error of a provider that is repeated, in characters.
const MAX_ERROR: usize = 200;

/// Ways in which people sign in, and those who may view pages then.
pub struct SignIn {
    ways: Vec<Arc<dyn SignInWay>>,
    viewers: PersonRules,
    /// Keys of sessions and of attempts.
    keys: (CookieKey, CookieKey),
    /// Names of their cookies.
    names: (CookieName, CookieName),
    length: Duration,
    /// Address to which providers send people back.
    callback: String,
}

/// A session, as its cookie has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PageSession {
    version: u8,
    /// Time in seconds at which it ends.
    until: i64,
    /// [`SignInWay::realm`].
    realm: String,
    name: String,
    domain: Option<String>,
    groups: Vec<String>,
}

impl SignIn {
    /// `secret` signs cookies; `url` is the server's address, whose scheme decides over their names.
    pub(crate) fn new(
        ways: Vec<Arc<dyn SignInWay>>,
        viewers: PersonRules,
        secret: &SecretString,
        length: Duration,
        url: &str,
    ) -> SignIn {
        let key = |kind| CookieKey::derive(secret.expose_secret(), kind);
        let address = Url::parse(url).ok();
        let is_https = address.as_ref().is_some_and(|address| address.scheme() == "https");
        // Servers below other paths of this host have cookies of their own.
        let path = address.as_ref().map_or("", |address| address.path()).trim_matches('/');
        let suffix =
            if path.is_empty() { String::new() } else { format!("-{}", &hex::encode(Sha256::digest(path))[..8]) };
        let name = |name| CookieName::new(&format!("{name}{suffix}"), is_https);
        SignIn {
            ways,
            viewers,
            keys: (key("tidelock session"), key("tidelock sign-in attempt")),
            names: (name("tidelock-session"), name("tidelock-sign-in")),
            length,
            callback: format!("{url}{CALLBACK}"),
        }
    }

    /// Returns the person whose session a request has.
    pub(super) fn person(&self, headers: &HeaderMap, now: Timestamp) -> Result<Person, AccessDenied> {
        let GivenCookie::Value(value) = self.names.0.find(headers) else { return Err(AccessDenied::SignIn) };
        let session: PageSession = self.keys.0.open(value).ok_or(AccessDenied::SignIn)?;
        let longest = now.as_second().saturating_add(seconds(self.length + CLOCKS));
        let is_current = session.version == VERSION && session.until > now.as_second() && session.until <= longest;
        if !is_current || !self.ways.iter().any(|way| way.realm() == session.realm) {
            return Err(AccessDenied::SignIn);
        }
        let person = Person { name: session.name, domain: session.domain, groups: session.groups };
        if self.viewers.allow(&person) { Ok(person) } else { Err(AccessDenied::NotViewer(person.name)) }
    }

    /// Returns the header that begins a session; `None` if the person is in too many groups for a cookie.
    fn begin_session(&self, realm: &str, person: &Person, now: Timestamp) -> Option<HeaderValue> {
        let session = PageSession {
            version: VERSION,
            until: now.as_second().saturating_add(seconds(self.length)),
            realm: realm.to_owned(),
            name: person.name.clone(),
            domain: person.domain.clone(),
            groups: person.groups.clone(),
        };
        Some(self.names.0.set(&self.keys.0.seal(&session)?, self.length))
    }

    /// Returns the attempt that the cookie of a request has and the answer of the provider belongs to.
    fn attempt(&self, headers: &HeaderMap, state: &str, now: Timestamp) -> Option<(SignInAttempt, &dyn SignInWay)> {
        let GivenCookie::Value(value) = self.names.1.find(headers) else { return None };
        let attempt: SignInAttempt = self.keys.1.open(value)?;
        let way = self.ways.iter().find(|way| way.realm() == attempt.realm)?;
        let is_its_own = attempt.until > now.as_second() && is_secret(&attempt.state, state);
        is_its_own.then_some((attempt, &**way))
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the routes of a server at which people sign in.
pub(super) fn routes() -> Vec<Route> {
    let login = about("Leads to the identity provider, or to a choice of them.");
    let login = login.optional_query("next", "Path to open afterwards.").optional_query("with", "Word of a provider.");
    let callback = about("Signs in the person whom the identity provider sends back, and opens the page from before.");
    let callback = callback.optional_query("code", "Code of the provider.").optional_query("state", "Of the attempt.");
    let logout = about("Ends the session of this browser.").change();
    vec![
        route(Method::GET, LOGIN, Who::Everyone, page, login.page().redirect().problems(&[404, 502])),
        route(
            Method::GET,
            CALLBACK,
            Who::Everyone,
            callback_of_provider,
            callback.redirect().problems(&[400, 404, 502]),
        ),
        route(Method::POST, LOGOUT, Who::People, logout_of_browser, logout.problems(&[404])),
    ]
}

/// Returns the response to a request without a valid session. Browsers that open a page are led to the sign-in; a cookie that was not
/// accepted is deleted.
pub(super) fn refuse(sign_in: &SignIn, visit: &Visit, caller: &Caller<'_>, refusal: AccessDenied) -> Response {
    // Scripts of pages ask for pages too: only a visit can go to another origin.
    let visits = caller.headers.get("sec-fetch-mode").is_none_or(|mode| mode == "navigate");
    let opens_page = *caller.method == Method::GET && visit.browser && visits;
    let is_about_session = matches!(refusal, AccessDenied::SignIn | AccessDenied::NotViewer(_));
    let mut response = if opens_page && refusal == AccessDenied::SignIn {
        let next = caller.uri.path_and_query().map_or("/", |path| path.as_str());
        let query: &[(&str, &str)] = if is_local(next) && next != "/" { &[("next", next)] } else { &[] };
        let login = format!("{}{}", visit.root, address("login", query));
        if caller.uri.query().is_some() {
            // Possibly a form: browsers apply `form-action` to what it is redirected to, and the provider is another origin.
            let refresh = crate::web::header_value(&format!("0; url={login}"));
            let page = format!(
                "<!doctype html>\n<html lang=\"en\"><title>Sign in</title><p><a href=\"{login}\">Sign in</a></p></html>\n"
            );
            let headers = [
                (header::REFRESH, refresh),
                (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            ];
            (StatusCode::UNAUTHORIZED, headers, page).into_response()
        } else {
            Redirect::to(&login).into_response()
        }
    } else {
        HttpProblem::access_denied(refusal).into_response()
    };
    if is_about_session && sign_in.names.0.find(caller.headers) != GivenCookie::Absent {
        response.headers_mut().append(header::SET_COOKIE, sign_in.names.0.delete());
    }
    response
}

/// Returns true for a path of this server, with or without a query, that can be opened after signing in.
fn is_local(next: &str) -> bool {
    let path = next.split('?').next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#');
    next.len() <= MAX_NEXT
        && next.bytes().all(is_plain)
        && path.starts_with('/')
        && !path.starts_with("//")
        && !path.contains("..")
        // Browsers take `%2e` for a dot of `..` as well.
        && !path.to_ascii_lowercase().contains("%2e")
        && path != LOGIN
        && !path.starts_with("/login/")
}

fn parameter(uri: &Uri, name: &str) -> String {
    let found = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn not_here() -> HttpProblem {
    HttpProblem::not_found("People do not sign in at this server.")
}

/// Leads to the only provider, or shows a choice of them.
async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    uri: Uri,
) -> Result<Response, HttpProblem> {
    let sign_in = site.state.access.sign_in.as_ref().ok_or_else(not_here)?;
    let next = Some(parameter(&uri, "next")).filter(|next| is_local(next)).unwrap_or_else(|| "/".to_owned());
    // Who has just signed out is not signed in again by the provider's own session.
    let signed_out = parameter(&uri, "signed_out") == "yes";
    let word = parameter(&uri, "with");
    let chosen = match &*sign_in.ways {
        [only] if !signed_out => Some(only),
        ways => ways.iter().find(|way| way.word() == word),
    };
    let Some(way) = chosen else {
        let row = |way: &Arc<dyn SignInWay>| {
            let query = [("with", way.word()), ("next", &next)];
            context! { title => way.title(), address => address("login", &query) }
        };
        let ways: Vec<minijinja::Value> = sign_in.ways.iter().map(row).collect();
        return Ok(site.pages.render("login.html", &visit, context! { ways, signed_out })?);
    };
    let until = Timestamp::now().as_second().saturating_add(seconds(ATTEMPT));
    let attempt = SignInAttempt::new(until, way.realm(), &next)?;
    let url = way.begin(&attempt, &sign_in.callback).await;
    let url = url.map_err(|error| unavailable(&**way, error))?;
    let cookie =
        sign_in.keys.1.seal(&attempt).ok_or_else(|| anyhow::anyhow!("the attempt is too long for a cookie"))?;
    let cookie = sign_in.names.1.set(&cookie, ATTEMPT);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(url.as_str())).into_response())
}

fn unavailable(way: &dyn SignInWay, error: anyhow::Error) -> HttpProblem {
    let text = format!(
        "{} cannot be asked who you are. Try again in a moment; the server's log says why, under the request id of this answer.",
        way.title()
    );
    HttpProblem::new(StatusCode::BAD_GATEWAY, "Nobody can sign in now", text)
        .with_cause(error.context(format!("signing in at {}", way.title())))
}

/// Takes the answer of a provider. Its attempt ends, whatever the answer is.
async fn callback_of_provider(
    State(site): State<Arc<Site>>,
    Extension(mut visit): Extension<Visit>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Some(sign_in) = &site.state.access.sign_in else { return not_here().into_response() };
    let now = Timestamp::now();
    let attempt = sign_in.attempt(&headers, &parameter(&uri, "state"), now);
    let is_attempted = attempt.is_some();
    if !is_attempted && sign_in.person(&headers, now).is_ok() {
        // Another tab of this browser has signed in meanwhile.
        return Redirect::to(&visit.root).into_response();
    }
    let address = site.state.access.address(peer, &headers);
    let mut response = match finish(&site, sign_in, &mut visit, address, &uri, attempt).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    };
    if is_attempted {
        // The answer to another attempt leaves the one of this cookie.
        response.headers_mut().append(header::SET_COOKIE, sign_in.names.1.delete());
    }
    response
}

async fn finish(
    site: &Site,
    sign_in: &SignIn,
    visit: &mut Visit,
    address: IpAddr,
    uri: &Uri,
    attempt: Option<(SignInAttempt, &dyn SignInWay)>,
) -> Result<Response, HttpProblem> {
    if let Some(seconds) = site.logins.wait(address) {
        return Err(HttpProblem::access_denied(AccessDenied::TooMany(seconds)));
    }
    let Some((attempt, way)) = attempt else {
        let text = "This sign-in was not begun in this browser, or longer than ten minutes ago, or has ended already. Open the page \
                    that you want to see, at the address that --atlantis-url names, and sign in again.";
        return Err(HttpProblem::new(StatusCode::BAD_REQUEST, "Sign in again", text));
    };
    let not_signed_in = |why: String| {
        let text = format!("{} did not say who you are: {why}.", way.title());
        HttpProblem::new(StatusCode::FORBIDDEN, "Not signed in", text)
    };
    let issuer = parameter(uri, "iss");
    if way.issuer().is_some_and(|expected| !issuer.is_empty() && issuer != expected) {
        return Err(not_signed_in("its answer is of another issuer".to_owned()));
    }
    let said: String = parameter(uri, "error").chars().take(MAX_ERROR).collect();
    if !said.is_empty() {
        let more: String = parameter(uri, "error_description").chars().take(MAX_ERROR).collect();
        return Err(not_signed_in(shown(&[said, more].join(" ")).trim().to_owned()));
    }
    let code = parameter(uri, "code");
    if code.is_empty() || code.len() > MAX_CODE {
        return Err(not_signed_in("there is no code in its answer".to_owned()));
    }
    let person = way.finish(&attempt, &sign_in.callback, &code).await.map_err(|error| match error {
        SignInError::Unavailable(error) => unavailable(way, error),
        SignInError::NotProven(why) => {
            site.logins.failed(address);
            not_signed_in(why)
        }
    })?;
    visit.name.clone_from(&person.name);
    if !sign_in.viewers.allow(&person) {
        audit::log(&visit.entry("sign in", way.title(), "refused: not named by --web-viewers"));
        return Err(HttpProblem::access_denied(AccessDenied::NotViewer(person.name)));
    }
    let Some(cookie) = sign_in.begin_session(way.realm(), &person, Timestamp::now()) else {
        return Err(not_signed_in("you are in too many organizations and teams that rules name".to_owned()));
    };
    audit::log(&visit.entry("sign in", way.title(), "done"));
    let next = attempt.next.trim_start_matches('/');
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&format!("{}{next}", visit.root))).into_response())
}

/// Ends the session of this browser. The gate has refused requests of other sites.
async fn logout_of_browser(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
) -> Result<Response, HttpProblem> {
    let sign_in = site.state.access.sign_in.as_ref().ok_or_else(not_here)?;
    audit::log(&visit.entry("sign out", "", "done"));
    let cookie = [(header::SET_COOKIE, sign_in.names.0.delete())];
    Ok(if visit.browser {
        (cookie, Redirect::to(&format!("{}login?signed_out=yes", visit.root))).into_response()
    } else {
        (cookie, "Signed out").into_response()
    })
}

#[cfg(test)]
mod provider;
#[cfg(test)]
mod tests;
