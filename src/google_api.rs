//! Calls of Google's REST interfaces in JSON, with the credentials of this machine's account.

use crate::vault::jobs::without_keys;
use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials, anonymous};
use reqwest::{Client, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::error::Error as _;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Time limit of a connection, and of one call.
const TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));
/// Largest answer, in bytes.
const MAX_ANSWER: usize = 16 << 20;
/// Longest message of a service that is quoted, in characters.
const QUOTED: usize = 500;

/// Reason for which a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum GoogleApiError {
    /// Whether the call was carried out is not known.
    #[error("{service} did not answer: {message}")]
    Unanswered {
        /// Name of the service.
        service: &'static str,
        /// What happened.
        message: String,
    },
    /// It was not carried out, and may be later.
    #[error("{service} does not do it now: {message}")]
    NotNow {
        /// Name of the service.
        service: &'static str,
        /// What prevented it.
        message: String,
    },
    /// It was not carried out, for a reason that the caller may mend.
    #[error("{service} refuses it with {status}: {message}")]
    Refused {
        /// Name of the service.
        service: &'static str,
        /// Status of the answer.
        status: StatusCode,
        /// Message of the service.
        message: String,
    },
}

/// A service.
pub(crate) struct GoogleApi {
    /// Name for people.
    name: &'static str,
    /// Address without a path.
    address: String,
    /// True if the address is that of a double on this machine, which gets no credentials.
    is_double: bool,
    client: OnceCell<Client>,
    credentials: OnceCell<Credentials>,
}

/// Message of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GoogleRefusal {
    error: GoogleRefusalMessage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GoogleRefusalMessage {
    message: String,
}

impl GoogleApi {
    /// Makes no request. `double`: address of a double of the service.
    pub(crate) fn new(name: &'static str, address: &str, double: Option<String>) -> GoogleApi {
        // Needed before the credentials are loaded, which may be over TLS. An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (is_double, address) = (double.is_some(), double.unwrap_or_else(|| address.to_owned()));
        GoogleApi { name, address, is_double, client: OnceCell::new(), credentials: OnceCell::new() }
    }

    /// Makes a call, and reads its answer. Parameters of the query without a value are left out.
    pub(crate) async fn call<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&B>,
    ) -> Result<T, GoogleApiError> {
        let mut url = reqwest::Url::parse(&format!("{}/{path}", self.address))
            .map_err(|error| self.not_now(format!("no address: {error}")))?;
        for (name, value) in query.iter().filter(|(_, value)| !value.is_empty()) {
            url.query_pairs_mut().append_pair(name, value);
        }
        let request = self.client().await?.request(method, url).headers(self.headers().await?);
        let request = if let Some(body) = body { request.json(body) } else { request };
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let bytes = self.read(response).await?;
        if !status.is_success() {
            return Err(self.refusal(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| self.unanswered(format!("its answer is unknown: {error}")))
    }

    async fn client(&self) -> Result<&Client, GoogleApiError> {
        let make = async || {
            // Certificates are read from disk.
            let build = || {
                let builder = Client::builder().redirect(reqwest::redirect::Policy::none());
                builder.connect_timeout(TIMES.0).timeout(TIMES.1).build()
            };
            let built = tokio::task::spawn_blocking(build).await.map_err(|error| self.not_now(error.to_string()))?;
            built.map_err(|error| self.not_now(format!("no client: {error}")))
        };
        self.client.get_or_try_init(make).await
    }

    async fn headers(&self) -> Result<http::HeaderMap, GoogleApiError> {
        let without = |error: String| self.not_now(format!("no credentials: {error}"));
        let make = async || {
            if self.is_double {
                return Ok(anonymous::Builder::new().build());
            }
            let built = tokio::task::spawn_blocking(|| Builder::default().build()).await;
            built.map_err(|error| without(error.to_string()))?.map_err(|error| without(error.to_string()))
        };
        let credentials = self.credentials.get_or_try_init(make).await?;
        let asked = tokio::time::timeout(TIMES.1, credentials.headers(http::Extensions::new())).await;
        match asked.map_err(|_| without("no token within the time limit".to_owned()))? {
            Ok(CacheableResource::New { data, .. }) => Ok(data),
            // Not reached: the request names no earlier headers that could be unmodified.
            Ok(CacheableResource::NotModified) => Ok(http::HeaderMap::new()),
            Err(error) => Err(without(error.to_string())),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, GoogleApiError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER {
                return Err(self.unanswered(format!("its answer is larger than {MAX_ANSWER} bytes")));
            }
        }
        Ok(body)
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> GoogleApiError {
        let parsed: GoogleRefusal = serde_json::from_slice(body).unwrap_or_default();
        let message = quoted(&parsed.error.message);
        let told = format!("{status}: {message}");
        match status {
            StatusCode::REQUEST_TIMEOUT => self.unanswered(told),
            _ if status.is_server_error() => self.unanswered(told),
            // Wrong credentials are replaced.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED => self.not_now(told),
            status => GoogleApiError::Refused { service: self.name, status, message },
        }
    }

    fn failed(&self, error: &reqwest::Error) -> GoogleApiError {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(inner) = next {
            text = format!("{text}: {inner}");
            next = inner.source();
        }
        self.unanswered(quoted(&text))
    }

    fn unanswered(&self, message: String) -> GoogleApiError {
        GoogleApiError::Unanswered { service: self.name, message }
    }

    fn not_now(&self, message: String) -> GoogleApiError {
        GoogleApiError::NotNow { service: self.name, message }
    }
}

/// Returns a text of a service for people.
pub(crate) fn quoted(text: &str) -> String {
    let text = without_keys(text.trim().trim_end_matches('.'));
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTED).collect()
}
