//! A small JSON client for the hosts' APIs, with limits of size and time, tokens that may change, and errors distinguished by remedy.

mod clock;
mod headers;
mod pages;
mod refusal;

pub(crate) use pages::{StartRows, ValueRows, page_of, too_many};
pub(crate) use refusal::NO_REASON;

use super::{Budget, HostError, TokenSource};
use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable as _};
use clock::HostClock;
use headers::{ToldBudget, limit_number, moment, next_page, row_count};
use jiff::Timestamp;
use refusal::refusal;
use reqwest::header::{ETAG, HeaderMap, IF_NONE_MATCH};
use reqwest::{Client, ClientBuilder, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Largest answer that is read, in bytes. A page of fifty comments of the greatest length fits.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Time limit of one request, answer included.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which idle connections are kept.
const KEEP_ALIVE: Duration = Duration::from_secs(90);
/// Most tries of a GET.
const GET_TRIES: usize = 3;
/// Wait before the second try. It doubles up to the longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(300);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Assumed duration of a rate limit whose reset is not reported.
const UNNAMED_RESET: Duration = Duration::from_secs(3600);
/// Longest wait that is accepted from a host: GitHub's limits are per hour.
const MAX_WAIT: Duration = Duration::from_secs(65 * 60);

/// A client of one API.
pub(crate) struct Http {
    base: String,
    token: TokenSource,
    /// Source of tokens that the host issues; they replace `token`.
    issued: Option<Arc<dyn IssuedTokens>>,
    /// User name of basic auth, whose password the token is; absent: it is a bearer token.
    basic_user: Option<String>,
    headers: HeaderMap,
    client: OnceCell<Client>,
    /// Last reported rate limit of each token's purse, and its reset.
    budgets: Mutex<HashMap<u64, (Budget, Instant)>>,
    clock: HostClock,
    retries: ExponentialBuilder,
    timeout: Duration,
    /// Largest answer that is read, in bytes.
    most_bytes: usize,
}

/// The token of one request.
#[derive(Clone, Default)]
pub(crate) struct RequestToken {
    /// The token; absent: the request goes without one.
    pub(crate) value: Option<SecretString>,
    /// Tokens of the same purse share one rate limit.
    pub(crate) purse: u64,
}

/// Tokens that the host issues and that depend on the request, such as those of the installations of an App.
#[async_trait]
pub(crate) trait IssuedTokens: Send + Sync {
    /// Returns the token for a request to this path. `owner` owns the repository in question if the path names none; may be empty.
    async fn token(&self, http: &Http, path: &str, owner: &str) -> Result<RequestToken, HostError>;

    /// Handles a token that the host has rejected with 401. Returns true if another one can be requested.
    async fn on_rejected(&self, path: &str, token: &RequestToken) -> bool;
}

/// A request that was not answered with 2xx.
pub(crate) struct NotAnswered {
    /// Error that it stands for.
    pub(crate) error: HostError,
    /// Status of the answer; 0 where there was none.
    pub(crate) status: u16,
    /// Time of the answer, by the host's clock.
    pub(crate) at: Option<Timestamp>,
}

impl From<HostError> for NotAnswered {
    fn from(error: HostError) -> NotAnswered {
        NotAnswered { error, status: 0, at: None }
    }
}

/// An answer of 2xx, or of 304 to a conditional request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The body; null when it was empty.
    pub(crate) body: Value,
    /// Identifies this answer in a later conditional request.
    pub(crate) etag: Option<String>,
    /// True for 304: the answer of that etag is still current.
    pub(crate) unchanged: bool,
    /// Address of the next page.
    pub(crate) next: Option<String>,
    /// Token of the next page (`x-ms-continuationtoken`).
    pub(crate) continuation: Option<String>,
    /// Rows of the whole list (`x-total-count`).
    pub(crate) total: Option<u64>,
    /// Address of what an answer without a body has begun (`location`).
    pub(crate) location: Option<String>,
    /// Scopes of the token (`x-oauth-scopes`).
    pub(crate) scopes: Option<String>,
    /// Account of the token, as the host encodes it (`x-ausername`).
    pub(crate) account: Option<String>,
    /// Time of the answer, by the host's clock.
    pub(crate) at: Option<Timestamp>,
}

impl Http {
    /// Takes `base` without trailing slash. Nothing is opened or read yet: the first request loads certificates.
    pub(crate) fn new(base: String, token: TokenSource, headers: HeaderMap) -> Http {
        let (retries, timeout) = (tidelock_retry::jittered(FIRST_WAIT, LONGEST_WAIT), TOTAL_TIMEOUT);
        let (client, budgets) = (OnceCell::new(), Mutex::default());
        let (clock, most_bytes) = (HostClock::default(), MAX_BODY);
        let (issued, basic_user) = (None, None);
        Http { base, token, issued, basic_user, headers, client, budgets, clock, retries, timeout, most_bytes }
    }

    /// Uses tokens that the host issues.
    pub(crate) fn with_issued(self, tokens: Arc<dyn IssuedTokens>) -> Http {
        Http { issued: Some(tokens), ..self }
    }

    /// Sends the token as the password of basic auth, with this user name, which may be empty.
    pub(crate) fn basic(self, user: &str) -> Http {
        Http { basic_user: Some(user.to_owned()), ..self }
    }

    /// Uses short times, for tests.
    #[cfg(test)]
    pub(crate) fn hasty(self) -> Http {
        let retries = tidelock_retry::jittered(Duration::from_millis(5), Duration::from_millis(20));
        Http { retries, timeout: Duration::from_millis(300), ..self }
    }

    /// Reads answers of at most this many bytes, for tests.
    #[cfg(test)]
    pub(crate) fn reading_at_most(self, most_bytes: usize) -> Http {
        Http { most_bytes, ..self }
    }

    /// Returns true if an answer was not read to its end because of its size.
    fn is_too_large(&self, error: &HostError) -> bool {
        matches!(error, HostError::Rejected { message, .. } if *message == self.too_large())
    }

    fn too_large(&self) -> String {
        format!("the answer is larger than {} bytes", self.most_bytes)
    }

    /// Returns the last reported rate limit that is not reset yet; of several, the one with the smallest share left.
    pub(crate) fn budget(&self) -> Option<Budget> {
        let mut noted = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        noted.retain(|_, (_, reset)| Instant::now() < *reset);
        let all = noted.values().map(|(budget, _)| *budget);
        all.min_by(|one, other| {
            let (one, other) = ((one.left, one.all), (other.left, other.all));
            one.0.saturating_mul(other.1).cmp(&other.0.saturating_mul(one.1))
        })
    }

    /// Records the rate limit of an answer. `at` is the time of the answer by the host's clock, to which the reset refers.
    fn note_budget(&self, purse: u64, headers: &HeaderMap, at: Option<Timestamp>) {
        let told = headers::told_budget(headers);
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            ToldBudget::Counted(budget) => {
                let now = at.unwrap_or_else(Timestamp::now).as_second().unsigned_abs();
                let reset = limit_number(headers, "reset").map(|reset| Duration::from_secs(reset.saturating_sub(now)));
                let reset = reset.or_else(|| headers::refill(headers, budget)).unwrap_or(UNNAMED_RESET);
                let until = Instant::now() + reset.min(MAX_WAIT);
                budgets.insert(purse, (budget, until));
            }
            ToldBudget::Ample => drop(budgets.remove(&purse)),
            ToldBudget::Untold => {}
        }
    }

    /// Returns the path below the API's address of an address; absent if it is another host's.
    pub(crate) fn path_of<'a>(&self, address: &'a str) -> Option<&'a str> {
        address.strip_prefix(&self.base).filter(|path| path.starts_with('/'))
    }

    /// Returns the waits between this number of tries.
    pub(crate) fn waits(&self, tries: usize) -> ExponentialBuilder {
        self.retries.with_max_times(tries.saturating_sub(1))
    }

    /// Prefix of every address.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Source of the token.
    pub(crate) fn token(&self) -> &TokenSource {
        &self.token
    }

    /// Creates the client now.
    pub(crate) async fn prepare(&self) -> Result<(), HostError> {
        self.client().await.map(drop)
    }

    /// Sends a GET, and retries transient errors.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, HostError> {
        self.get_unless(path, None).await
    }

    /// Sends a conditional GET: an answer that is still the one of `etag` has no body and does not count against the rate limit.
    pub(crate) async fn get_unless(&self, path: &str, etag: Option<&str>) -> Result<Answer, HostError> {
        (|| self.exchange(Method::GET, path, None, etag, ""))
            .retry(self.waits(GET_TRIES))
            .when(|error| matches!(error, HostError::Unavailable { .. }))
            .notify(|error, wait| tracing::debug!("{error}; trying again in {wait:?}"))
            .await
    }

    /// Sends one request, without retries.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer, HostError> {
        self.exchange(method, path, body, None, "").await
    }

    /// Sends one request about a repository of `owner`, whom the path does not name.
    pub(crate) async fn send_for(
        &self,
        owner: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, HostError> {
        self.exchange(method, path, body, None, owner).await
    }

    /// Sends a request with the token for its path. If the host rejects that token, the request is repeated once with a new one.
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
            (Err(refused), Some(issued)) if refused.status == 401 && issued.on_rejected(path, &token).await => {
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

    /// Sends one request with this token.
    pub(crate) async fn exchange_as(
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
            request = match &self.basic_user {
                Some(user) => request.basic_auth(user, Some(token)),
                None => request.bearer_auth(token),
            };
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        self.clock.count();
        let mut response = request.send().await.map_err(broke)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broke)? {
            if bytes.len() + chunk.len() > self.most_bytes {
                let message = self.too_large();
                return Err(HostError::Rejected { what, status: response.status().as_u16(), message }.into());
            }
            bytes.extend_from_slice(&chunk);
        }
        let (status, headers) = (response.status(), response.headers());
        let unchanged = etag.is_some() && status == StatusCode::NOT_MODIFIED;
        let at = moment(headers);
        self.clock.told(at);
        // A sign-in page: Azure DevOps sends it to requests without a valid token.
        let is_sign_in = self.basic_user.is_some() && status == StatusCode::NON_AUTHORITATIVE_INFORMATION;
        if !status.is_success() && !unchanged || is_sign_in {
            // Its headers may be about another limit: that of requests without a token, or a secondary one.
            let error = refusal(what, status, headers, &bytes);
            return Err(NotAnswered { error, status: status.as_u16(), at });
        }
        let continuation = headers.get("x-ms-continuationtoken").and_then(|token| token.to_str().ok());
        let continuation = continuation.filter(|token| !token.is_empty()).map(str::to_owned);
        let (next, total) = (next_page(headers), row_count(headers));
        let (location, scopes) = (headers::text(headers, "location"), headers::text(headers, "x-oauth-scopes"));
        let account = headers::text(headers, "x-ausername");
        self.note_budget(token.purse, headers, at);
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let body = match bytes.iter().all(u8::is_ascii_whitespace) {
            true => Value::Null,
            false => serde_json::from_slice(&bytes)
                .map_err(|error| HostError::Unavailable { what, message: format!("the answer is no JSON: {error}") })?,
        };
        Ok(Answer { body, etag, unchanged, next, continuation, total, location, scopes, account, at })
    }

    /// Returns the client. It is created on first use, off the async threads: reading the platform's certificates takes milliseconds.
    /// Loopback uses no proxy.
    async fn client(&self) -> Result<&Client, HostError> {
        let broke = |message: String| HostError::Unavailable { what: format!("client of {}", self.base), message };
        let is_direct = is_loopback(&self.base);
        let make = || async move {
            let build = move || if is_direct { builder().no_proxy().build() } else { builder().build() };
            tokio::task::spawn_blocking(build).await.map_err(|e| broke(e.to_string()))?.map_err(|e| broke(explain(&e)))
        };
        self.client.get_or_try_init(make).await
    }
}

/// Configures a client that trusts the platform's store (`SSL_CERT_FILE` included), with rustls and ring.
fn builder() -> ClientBuilder {
    // An error means that a provider is installed already, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(KEEP_ALIVE)
        // A redirect leads to another repository, or sends our token elsewhere.
        .redirect(reqwest::redirect::Policy::none())
}

fn is_loopback(base: &str) -> bool {
    match url::Url::parse(base).ok().as_ref().and_then(url::Url::host) {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Joins the causes of an error in one line, without the address (it is in `what`).
fn explain(error: &reqwest::Error) -> String {
    if speaks_no_tls(error) {
        return "the host does not speak HTTPS there".to_owned();
    }
    let mut text = if error.is_timeout() { "timed out".to_owned() } else { "no answer".to_owned() };
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text = format!("{text}: {one}");
        cause = one.source();
    }
    text
}

/// Returns true if a handshake of TLS was answered with something else, as a server of plain HTTP does.
fn speaks_no_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(one) = cause {
        if let Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) = one.downcast_ref() {
            return true;
        }
        // `source` of an I/O error passes over the error that it wraps.
        let wrapped = one.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| one.source());
    }
    false
}

/// Error for an answer that does not match the API.
pub(crate) fn odd(what: &str, message: &str) -> HostError {
    HostError::Unavailable { what: what.to_owned(), message: format!("odd answer: {message}") }
}

/// One segment of a path, percent-encoded.
pub(crate) fn segment(text: &str) -> String {
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
    /// Returns the token for git. If it cannot be read, the error is logged and the result is absent.
    pub(crate) fn now(&self) -> Option<SecretString> {
        match self {
            TokenSource::Value(token) => Some(token.clone()),
            // The file is small and usually in memory, and git waits for it anyway.
            TokenSource::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Some(SecretString::from(text.trim())),
                Err(error) => {
                    tracing::error!("cannot read the token file {}: {error}", path.display());
                    None
                }
            },
        }
    }

    /// Returns the present token; absent if the source is deliberately empty.
    pub(crate) async fn read(&self) -> Result<Option<SecretString>, String> {
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
