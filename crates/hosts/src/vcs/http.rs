//! A small JSON client for the hosts' APIs: bounded bodies and times, a token that can change under us, errors told apart by
//! what may help.

mod headers;
mod refusal;

use super::{Budget, HostError, TokenSource};
use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable as _};
use headers::{moment, next_page};
use jiff::Timestamp;
use refusal::refusal;
use reqwest::header::{ETAG, HeaderMap, IF_NONE_MATCH};
use reqwest::{Client, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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
/// Before the second try of what may succeed; doubles up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(300);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// How long a rate limit is believed that does not say when it is reset.
const UNNAMED_RESET: Duration = Duration::from_secs(3600);
/// Longest wait that is believed: GitHub's limits are per hour.
const MAX_WAIT: Duration = Duration::from_secs(65 * 60);

/// A client of one API.
pub(super) struct Http {
    base: String,
    token: TokenSource,
    /// Tokens that the host makes, instead of that one.
    issued: Option<Arc<dyn IssuedTokens>>,
    /// The token goes as the password of basic auth, and not as a bearer token.
    basic: bool,
    headers: HeaderMap,
    client: OnceCell<Client>,
    /// What the rate limit of each token's purse last said, and when it is reset.
    budgets: Mutex<HashMap<u64, (Budget, Instant)>>,
    retries: ExponentialBuilder,
    timeout: Duration,
}

/// The token of one request.
#[derive(Clone, Default)]
pub(super) struct RequestToken {
    /// The token; absent: the request goes without one.
    pub(super) value: Option<SecretString>,
    /// Tokens of the same purse share one rate limit.
    pub(super) purse: u64,
}

/// Tokens that depend on what is asked for and that are made by the host, such as those of the installations of an app.
#[async_trait]
pub(super) trait IssuedTokens: Send + Sync {
    /// The token for a request to this path. `owner`: whose repository it is about, where the path does not say; may be empty.
    async fn token(&self, http: &Http, path: &str, owner: &str) -> Result<RequestToken, HostError>;

    /// The host does not know a token any more (401); whether another one may be had.
    async fn refused(&self, path: &str, token: &RequestToken) -> bool;
}

/// A request that was not answered with 2xx.
pub(super) struct NotAnswered {
    /// What it means.
    pub(super) error: HostError,
    /// Status of the answer; 0 where there was none.
    pub(super) status: u16,
    /// The moment of the answer, by the host's clock.
    pub(super) at: Option<Timestamp>,
}

impl From<HostError> for NotAnswered {
    fn from(error: HostError) -> NotAnswered {
        NotAnswered { error, status: 0, at: None }
    }
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
    /// The address of the next page.
    pub(super) next: Option<String>,
    /// Names the next page (`x-ms-continuationtoken`).
    pub(super) continuation: Option<String>,
    /// The moment of the answer, by the host's clock.
    pub(super) at: Option<Timestamp>,
}

impl Http {
    /// `base` without trailing slash. Nothing is opened or read yet: certificates are loaded at the first request.
    pub(super) fn new(base: String, token: TokenSource, headers: HeaderMap) -> Http {
        let (retries, timeout) = (tidelock_retry::jittered(FIRST_WAIT, LONGEST_WAIT), TOTAL_TIMEOUT);
        let (client, budgets) = (OnceCell::new(), Mutex::default());
        Http { base, token, issued: None, basic: false, headers, client, budgets, retries, timeout }
    }

    /// The same with tokens that the host makes.
    pub(super) fn with_issued(self, tokens: Arc<dyn IssuedTokens>) -> Http {
        Http { issued: Some(tokens), ..self }
    }

    /// The same with the token as the password of basic auth, without a user name.
    pub(super) fn basic(self) -> Http {
        Http { basic: true, ..self }
    }

    /// The same with short times, for tests.
    #[cfg(test)]
    pub(super) fn hasty(self) -> Http {
        let retries = tidelock_retry::jittered(Duration::from_millis(5), Duration::from_millis(20));
        Http { retries, timeout: Duration::from_millis(300), ..self }
    }

    /// What the rate limit last said, until it is reset; of several the one with the smallest share left.
    pub(super) fn budget(&self) -> Option<Budget> {
        let mut noted = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, (_, reset)| Instant::now() < *reset);
        let all = noted.values().map(|(budget, _)| *budget);
        all.min_by(|one, other| {
            let (one, other) = ((one.left, one.all), (other.left, other.all));
            one.0.saturating_mul(other.1).cmp(&other.0.saturating_mul(one.1))
        })
    }

    /// `at`: the moment of the answer by the host's clock, which its reset is told by.
    fn note_budget(&self, purse: u64, headers: &HeaderMap, at: Option<Timestamp>) {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let (Some(left), Some(all)) = (number("x-ratelimit-remaining"), number("x-ratelimit-limit")) else { return };
        let now = at.unwrap_or_else(Timestamp::now).as_second().unsigned_abs();
        let reset = number("x-ratelimit-reset").map(|reset| Duration::from_secs(reset.saturating_sub(now)));
        let until = Instant::now() + reset.unwrap_or(UNNAMED_RESET).min(MAX_WAIT);
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.insert(purse, (Budget { left, all }, until));
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
        (|| self.exchange(Method::GET, path, None, etag, ""))
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
            if answer.next.is_none() {
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
        self.exchange(method, path, body, None, "").await
    }

    /// The same about a repository of `owner`, where the path does not say whose.
    pub(super) async fn send_for(
        &self,
        owner: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        self.exchange(method, path, body, None, owner).await
    }

    /// With the token that is right for the path. A token that the host does not know any more is made anew, once.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        etag: Option<&str>,
        owner: &str,
    ) -> Result<Answer, HostError> {
        let token = self.token_for(&method, path, owner).await?;
        let asked = self.exchange_as(&token, method.clone(), path, body.clone(), etag).await;
        match (asked, &self.issued) {
            (Err(refused), Some(issued)) if refused.status == 401 && issued.refused(path, &token).await => {
                let token = self.token_for(&method, path, owner).await?;
                self.exchange_as(&token, method, path, body, etag).await.map_err(|refused| refused.error)
            }
            (asked, _) => asked.map_err(|refused| refused.error),
        }
    }

    async fn token_for(&self, method: &Method, path: &str, owner: &str) -> Result<RequestToken, HostError> {
        if let Some(issued) = &self.issued {
            return issued.token(self, path, owner).await;
        }
        let denied = |message| HostError::Denied { what: format!("{method} {path}"), message };
        Ok(RequestToken { value: self.token.read().await.map_err(denied)?, purse: 0 })
    }

    /// One request with this token.
    pub(super) async fn exchange_as(
        &self,
        token: &RequestToken,
        method: Method,
        path: &str,
        body: Option<Value>,
        etag: Option<&str>,
    ) -> Result<Answer, NotAnswered> {
        let what = format!("{method} {path}");
        let broke = |error: reqwest::Error| HostError::Unavailable { what: what.clone(), message: explain(&error) };
        let mut request = self
            .client()
            .await?
            .request(method, format!("{}{path}", self.base))
            .headers(self.headers.clone())
            .timeout(self.timeout);
        if let Some(token) = &token.value {
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
                return Err(HostError::Rejected { what, status: response.status().as_u16(), message }.into());
            }
            bytes.extend_from_slice(&chunk);
        }
        let (status, headers) = (response.status(), response.headers());
        let unchanged = etag.is_some() && status == StatusCode::NOT_MODIFIED;
        let at = moment(headers);
        // A page to sign in, to whoever has no valid token (Azure DevOps).
        let is_sign_in = self.basic && status == StatusCode::NON_AUTHORITATIVE_INFORMATION;
        if !status.is_success() && !unchanged || is_sign_in {
            // Its headers may tell of another limit: that of requests without a token, or a secondary one.
            let error = refusal(what, status, headers, &bytes);
            return Err(NotAnswered { error, status: status.as_u16(), at });
        }
        let continuation = headers.get("x-ms-continuationtoken").and_then(|token| token.to_str().ok());
        let continuation = continuation.filter(|token| !token.is_empty()).map(str::to_owned);
        let next = next_page(headers);
        self.note_budget(token.purse, headers, at);
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Answer { body: Value::Null, etag, unchanged, next, continuation, at });
        }
        match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Answer { body, etag, unchanged, next, continuation, at }),
            Err(error) => {
                Err(HostError::Unavailable { what, message: format!("the answer is no JSON: {error}") }.into())
            }
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
    pub(super) async fn read(&self) -> Result<Option<SecretString>, String> {
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
