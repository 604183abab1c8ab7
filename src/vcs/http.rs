//! A small JSON client for the hosts' APIs: bounded bodies and times, a token that can change under us, errors told apart by
//! what may help.

use super::{Budget, HostError, TokenSource};
use crate::retry;
use backon::{ExponentialBuilder, Retryable as _};
use jiff::Timestamp;
use reqwest::header::{DATE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Largest answer that is read, in bytes: a page of fifty of the longest comments fits.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Most time for one request, answer included.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Most time to get a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections are kept so long.
const KEEP_ALIVE: Duration = Duration::from_secs(90);
/// How often a GET is tried.
const GET_TRIES: usize = 3;
/// Before the second try of what may succeed; doubles…
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// …up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Longest text of a host that is passed on, in characters.
const MAX_MESSAGE: usize = 300;
/// How long a rate limit is believed that does not say when it is reset.
const UNNAMED_RESET: Duration = Duration::from_secs(3600);
/// Wait after a rate limit that names no time (GitHub's advice for secondary limits).
const UNNAMED_WAIT: Duration = Duration::from_secs(60);
/// Longest wait that is believed: GitHub's limits are per hour.
const MAX_WAIT: Duration = Duration::from_secs(65 * 60);

/// A client of one API.
pub(super) struct Http {
    base: String,
    token: TokenSource,
    /// The token goes as the password of basic auth, and not as a bearer token.
    basic: bool,
    headers: HeaderMap,
    client: OnceCell<Client>,
    /// What the rate limit last said, and when it is reset.
    budget: Mutex<Option<(Budget, Instant)>>,
    retries: ExponentialBuilder,
    timeout: Duration,
}

/// An answer of 2xx, or of 304 to a conditional request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The body; null when it was empty.
    pub(super) body: Value,
    /// Names this very answer in a later conditional request.
    pub(super) etag: Option<String>,
    /// 304: it is still as the etag of the request says.
    pub(super) unchanged: bool,
    /// The `Link` header names a next page.
    pub(super) has_next: bool,
    /// Names the next page (`x-ms-continuationtoken`).
    pub(super) continuation: Option<String>,
    /// The moment of the answer, by the host's clock.
    pub(super) at: Option<Timestamp>,
}

impl Http {
    /// `base` without trailing slash. Nothing is opened or read yet: certificates are loaded at the first request.
    pub(super) fn new(base: String, token: TokenSource, headers: HeaderMap) -> Http {
        let (retries, timeout) = (retry::jittered(FIRST_WAIT, LONGEST_WAIT), TOTAL_TIMEOUT);
        Http { base, token, basic: false, headers, client: OnceCell::new(), budget: Mutex::default(), retries, timeout }
    }

    /// The same with the token as the password of basic auth, without a user name.
    pub(super) fn basic(self) -> Http {
        Http { basic: true, ..self }
    }

    /// The same with short times, for tests.
    #[cfg(test)]
    pub(super) fn hasty(self) -> Http {
        let retries = retry::jittered(Duration::from_millis(5), Duration::from_millis(20));
        Http { retries, timeout: Duration::from_millis(300), ..self }
    }

    /// What the rate limit last said, until it is reset.
    pub(super) fn budget(&self) -> Option<Budget> {
        let noted = *self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        noted.filter(|(_, reset)| Instant::now() < *reset).map(|(budget, _)| budget)
    }

    /// `at`: the moment of the answer by the host's clock, which its reset is told by.
    fn note_budget(&self, headers: &HeaderMap, at: Option<Timestamp>) {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let (Some(left), Some(all)) = (number("x-ratelimit-remaining"), number("x-ratelimit-limit")) else { return };
        let now = at.unwrap_or_else(Timestamp::now).as_second().unsigned_abs();
        let reset = number("x-ratelimit-reset").map(|reset| Duration::from_secs(reset.saturating_sub(now)));
        let until = Instant::now() + reset.unwrap_or(UNNAMED_RESET).min(MAX_WAIT);
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner) = Some((Budget { left, all }, until));
    }

    /// The path below the API's address that an address leads to.
    pub(super) fn path_of<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.strip_prefix(&self.base).filter(|path| path.starts_with('/'))
    }

    /// The waits between so many tries.
    pub(super) fn waits(&self, tries: usize) -> ExponentialBuilder {
        self.retries.with_max_times(tries.saturating_sub(1))
    }

    /// What every address begins with.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Where the token comes from.
    pub(super) fn token(&self) -> &TokenSource {
        &self.token
    }

    /// Makes the client now.
    pub(super) async fn prepare(&self) -> Result<(), HostError> {
        self.client().await.map(drop)
    }

    /// GET, tried again on errors that may pass.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, HostError> {
        self.get_unless(path, None).await
    }

    /// The same, without a body where the answer is still the one that `etag` names. That costs nothing of the rate limit.
    pub(super) async fn get_unless(&self, path: &str, etag: Option<&str>) -> Result<Answer, HostError> {
        (|| self.exchange(Method::GET, path, None, etag))
            .retry(self.waits(GET_TRIES))
            .when(|error| matches!(error, HostError::Unavailable { .. }))
            .notify(|error, wait| tracing::debug!("{error}; trying again in {wait:?}"))
            .await
    }

    /// What `keep` makes of all pages of a list, `per_page` items each; more than `max_pages` is an error, never a silent cut.
    pub(super) async fn pages<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
    ) -> Result<Vec<T>, HostError> {
        self.each_page(path, per_page, max_pages, keep, &mut None).await
    }

    async fn each_page<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
        at: &mut Option<Timestamp>,
    ) -> Result<Vec<T>, HostError> {
        let mut items = Vec::new();
        for page in 1..=max_pages {
            let answer = self.get(&page_of(path, per_page, page)).await?;
            *at = at.or(answer.at);
            let Value::Array(found) = answer.body else { return Err(odd(path, "not a list")) };
            items.extend(found.into_iter().filter_map(&keep));
            if !answer.has_next {
                return Ok(items);
            }
        }
        Err(too_many(path, per_page, max_pages))
    }

    /// The same with the moment of the first page, by the host's clock, or by ours where it does not say.
    pub(super) async fn pages_at<T>(
        &self,
        path: &str,
        per_page: u32,
        max_pages: u32,
        keep: impl Fn(Value) -> Option<T> + Send,
    ) -> Result<(Vec<T>, Timestamp), HostError> {
        let mut at = None;
        let items = self.each_page(path, per_page, max_pages, keep, &mut at).await?;
        Ok((items, at.unwrap_or_else(Timestamp::now)))
    }

    /// One request, tried once.
    pub(super) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer, HostError> {
        self.exchange(method, path, body, None).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        etag: Option<&str>,
    ) -> Result<Answer, HostError> {
        let what = format!("{method} {path}");
        let broke = |error: reqwest::Error| HostError::Unavailable { what: what.clone(), message: explain(&error) };
        let token = self.token.read().await.map_err(|message| HostError::Denied { what: what.clone(), message })?;
        let mut request = self
            .client()
            .await?
            .request(method, format!("{}{path}", self.base))
            .headers(self.headers.clone())
            .timeout(self.timeout);
        if let Some(token) = token {
            let token = token.expose_secret();
            request = if self.basic { request.basic_auth("", Some(token)) } else { request.bearer_auth(token) };
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let mut response = request.send().await.map_err(broke)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broke)? {
            if bytes.len() + chunk.len() > MAX_BODY {
                let message = format!("the answer is larger than {MAX_BODY} bytes");
                return Err(HostError::Rejected { what, status: response.status().as_u16(), message });
            }
            bytes.extend_from_slice(&chunk);
        }
        let (status, headers) = (response.status(), response.headers());
        let unchanged = etag.is_some() && status == StatusCode::NOT_MODIFIED;
        // A page to sign in, to whoever has no valid token (Azure DevOps).
        let is_sign_in = self.basic && status == StatusCode::NON_AUTHORITATIVE_INFORMATION;
        if !status.is_success() && !unchanged || is_sign_in {
            // Its headers may tell of another limit: that of requests without a token, or a secondary one.
            return Err(refusal(what, status, headers, &bytes));
        }
        let continuation = headers.get("x-ms-continuationtoken").and_then(|token| token.to_str().ok());
        let continuation = continuation.filter(|token| !token.is_empty()).map(str::to_owned);
        let has_next = headers.get_all("link").iter().any(|v| v.to_str().is_ok_and(|v| v.contains("rel=\"next\"")));
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let at = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|at| at.timestamp());
        self.note_budget(headers, at);
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Answer { body: Value::Null, etag, unchanged, has_next, continuation, at });
        }
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { body, etag, unchanged, has_next, continuation, at }),
            Err(error) => Err(HostError::Unavailable { what, message: format!("the answer is no JSON: {error}") }),
        }
    }

    /// Made on first use, off the async threads: reading the platform's certificates takes milliseconds.
    async fn client(&self) -> Result<&Client, HostError> {
        let broke = |message: String| HostError::Unavailable { what: format!("client of {}", self.base), message };
        let direct = is_loopback(&self.base);
        let make = || async move {
            tokio::task::spawn_blocking(move || build(direct))
                .await
                .map_err(|e| broke(e.to_string()))?
                .map_err(|e| broke(explain(&e)))
        };
        self.client.get_or_try_init(make).await
    }
}

/// A client that trusts the platform's store (`SSL_CERT_FILE` included), with rustls and ring. No proxy to loopback.
fn build(direct: bool) -> reqwest::Result<Client> {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(KEEP_ALIVE)
        // A redirect leads to another repository, or away with our token.
        .redirect(reqwest::redirect::Policy::none());
    if direct { builder.no_proxy().build() } else { builder.build() }
}

fn is_loopback(base: &str) -> bool {
    match url::Url::parse(base).ok().as_ref().and_then(url::Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// The error's causes in one line, without the address (it is in `what`).
fn explain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "timed out".to_owned() } else { "no answer".to_owned() };
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}

/// An answer that is not what the API promises.
pub(super) fn odd(what: &str, message: &str) -> HostError {
    HostError::Unavailable { what: what.to_owned(), message: format!("odd answer: {message}") }
}

/// The address of one page of a list.
pub(super) fn page_of(path: &str, per_page: u32, page: u32) -> String {
    let join = if path.contains('?') { '&' } else { '?' };
    format!("{path}{join}per_page={per_page}&page={page}")
}

/// A list is longer than it may be.
pub(super) fn too_many(path: &str, per_page: u32, max_pages: u32) -> HostError {
    let message = format!("more than {} entries", u64::from(max_pages) * u64::from(per_page));
    HostError::Rejected { what: format!("GET {path}"), status: 200, message }
}

fn refusal(what: String, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> HostError {
    let message = said(body);
    match status.as_u16() {
        203 => HostError::Denied { what, message: "a page to sign in: the token is not taken there".to_owned() },
        301 | 302 | 303 | 307 | 308 => HostError::Moved { what, to: location(headers) },
        410 if !what.starts_with("POST") => HostError::NotFound { what },
        404 => HostError::NotFound { what },
        429 => HostError::RateLimited { what, wait: wait(headers).unwrap_or(UNNAMED_WAIT) },
        403 if is_locked(&message) => HostError::Rejected { what, status: 403, message },
        403 | 422 if is_too_quick(&message) => HostError::RateLimited { what, wait: UNNAMED_WAIT },
        401 | 403 => match wait(headers) {
            Some(wait) => HostError::RateLimited { what, wait },
            None if is_limit(&message) => HostError::RateLimited { what, wait: UNNAMED_WAIT },
            None => HostError::Denied { what, message },
        },
        408 | 500..=599 => HostError::Unavailable { what, message: format!("{status}: {message}") },
        status => HostError::Rejected { what, status, message },
    }
}

fn is_limit(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["rate limit", "abuse detection"].iter().any(|words| message.contains(words))
}

/// Nobody of those who may not write can comment there, until somebody unlocks it.
fn is_locked(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["issue is locked", "conversation is locked"].iter().any(|words| message.contains(words))
}

/// GitHub's answer to many comments in a row, with the status of an invalid request.
fn is_too_quick(message: &str) -> bool {
    message.to_ascii_lowercase().contains("submitted too quickly")
}

/// How long a rate limit lasts, if the headers speak of one.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let number = |value: Option<&HeaderValue>| value?.to_str().ok()?.trim().parse::<u64>().ok();
    if let Some(seconds) = number(headers.get(RETRY_AFTER)) {
        return Some(Duration::from_secs(seconds.max(1)).min(MAX_WAIT));
    }
    if number(headers.get("x-ratelimit-remaining")) != Some(0) {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let reset = number(headers.get("x-ratelimit-reset")).map(|at| at.saturating_sub(now).max(1));
    Some(reset.map_or(UNNAMED_WAIT, Duration::from_secs).min(MAX_WAIT))
}

/// Where a redirect leads.
fn location(headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
    location.chars().take(MAX_MESSAGE).collect()
}

/// The host's own words in an error's body, in one line.
fn said(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return "no reason given".to_owned() };
    let mut words = vec![value["message"].as_str().unwrap_or("no reason given").to_owned()];
    for error in value["errors"].as_array().into_iter().flatten() {
        let field = |name: &str| error[name].as_str().unwrap_or_default();
        words.push(match error.as_str().unwrap_or(field("message")) {
            "" => format!("{} {}", field("field"), field("code")),
            text => text.to_owned(),
        });
    }
    let text = words.join("; ");
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_MESSAGE)
        .collect()
}

/// One segment of a path, percent-encoded.
pub(super) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'.' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl TokenSource {
    /// The same for git; none, and a line in the log, where it cannot be read.
    pub(super) fn now(&self) -> Option<SecretString> {
        match self {
            TokenSource::Value(token) => Some(token.clone()),
            // A small file, mounted in memory where it matters; git waits for it anyway.
            TokenSource::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Some(SecretString::from(text.trim())),
                Err(error) => {
                    tracing::error!("cannot read the token file {}: {error}", path.display());
                    None
                }
            },
        }
    }

    /// The token as it is now; none where the source is empty by intent.
    async fn read(&self) -> Result<Option<SecretString>, String> {
        match self {
            TokenSource::Value(token) => Ok(Some(token.clone()).filter(|token| !token.expose_secret().is_empty())),
            TokenSource::File(path) => match tokio::fs::read_to_string(path).await {
                Ok(text) if text.trim().is_empty() => Err(format!("the token file {} is empty", path.display())),
                Ok(text) => Ok(Some(SecretString::from(text.trim()))),
                Err(error) => Err(format!("cannot read the token file {}: {error}", path.display())),
            },
        }
    }
}
