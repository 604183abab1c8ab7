//! Verifies the signed assertion of Identity-Aware Proxy (`x-goog-iap-jwt-assertion`) in the server itself, since the
//! load balancer is not the only way in (cloud.google.com/iap/docs/signed-headers-howto).

use http::HeaderMap;
use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

/// Address at which Google publishes the keys, as JWK set.
pub(crate) const KEYS_URL: &str = "https://www.gstatic.com/iap/verify/public_key-jwk";
/// Header of the assertion. IAP drops any header of this name from a client.
pub(crate) const HEADER: &str = "x-goog-iap-jwt-assertion";
const ISSUER: &str = "https://cloud.google.com/iap";
/// Largest difference of clocks, in seconds, as the documentation allows.
const SKEW: u64 = 30;
/// Longest lifetime of an assertion, in seconds; IAP's is ten minutes.
const MAX_LIFE: u64 = 600;
/// Longest assertion, in bytes.
const MAX_ASSERTION: usize = 16 * 1024;
/// Age from which keys are refreshed at the next request; old keys stay valid while that fails.
const FRESH: Duration = Duration::from_secs(3600);
/// Shortest interval between two requests for keys, also for unknown key IDs.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Timeout of a request to the key server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest key set, in bytes, and its maximum number of keys.
const MAX_BODY: usize = 256 * 1024;
const MAX_KEYS: usize = 64;

/// A person whom IAP authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// E-mail address, lower case.
    pub email: String,
    /// Google Workspace domain (`hd`), lower case; absent for accounts of no organisation.
    pub domain: Option<String>,
}

/// Reason for which an assertion is rejected, for the log and the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    /// The request did not come through IAP.
    #[error("there is no assertion of Identity-Aware Proxy")]
    Absent,
    /// Two headers: one of them is forged.
    #[error("there is more than one assertion")]
    Several,
    /// Not a valid token.
    #[error("the assertion cannot be read")]
    Unreadable,
    /// Signed with another algorithm than ES256.
    #[error("the assertion is not signed with ES256")]
    Algorithm,
    /// Signed with a key that Google does not publish.
    #[error("the assertion's key is unknown")]
    UnknownKey,
    /// No key could be loaded.
    #[error("the keys of Identity-Aware Proxy could not be loaded")]
    NoKeys,
    /// The signature does not match.
    #[error("the assertion's signature is wrong")]
    Signature,
    /// Issued by another party.
    #[error("the assertion is of another issuer")]
    Issuer,
    /// Issued for another service.
    #[error("the assertion is for another audience than --iap-audience names")]
    Audience,
    /// Expired, issued in the future, or with too long a lifetime.
    #[error("the assertion is not valid at this time")]
    Time,
    /// Contains no email.
    #[error("the assertion names nobody")]
    Nobody,
}

/// Verifier, with its cache of keys.
pub struct Iap {
    audiences: Vec<String>,
    keys_url: String,
    keys: Mutex<Keys>,
    /// Allows one request for keys at a time.
    asking: AsyncMutex<()>,
    client: OnceCell<reqwest::Client>,
}

#[derive(Default)]
struct Keys {
    by_id: HashMap<String, Arc<DecodingKey>>,
    loaded: Option<Instant>,
    asked: Option<Instant>,
}

#[derive(Deserialize)]
struct Claims {
    iat: u64,
    exp: u64,
    #[serde(default)]
    email: String,
    hd: Option<String>,
}

impl Iap {
    /// Creates a verifier for exactly these audiences, such as `/projects/1/global/backendServices/2`. Loads no key yet.
    pub fn new(audiences: Vec<String>, keys_url: &str) -> Iap {
        let keys = Mutex::new(Keys::default());
        Iap { audiences, keys_url: keys_url.to_owned(), keys, asking: AsyncMutex::new(()), client: OnceCell::new() }
    }

    /// Returns the person who sent this request. Fails if there is not exactly one assertion, or it is rejected.
    pub async fn verify(&self, headers: &HeaderMap) -> Result<Person, NotBelieved> {
        let mut values = headers.get_all(HEADER).iter();
        let assertion = values.next().ok_or(NotBelieved::Absent)?;
        if values.next().is_some() {
            return Err(NotBelieved::Several);
        }
        let assertion = assertion.to_str().map_err(|_| NotBelieved::Unreadable)?;
        if assertion.len() > MAX_ASSERTION {
            return Err(NotBelieved::Unreadable);
        }
        let header = jsonwebtoken::decode_header(assertion).map_err(|error| match error.kind() {
            // `none`, and algorithms that the library does not know.
            jsonwebtoken::errors::ErrorKind::InvalidAlgorithm | jsonwebtoken::errors::ErrorKind::Json(_) => {
                NotBelieved::Algorithm
            }
            _ => NotBelieved::Unreadable,
        })?;
        if header.alg != Algorithm::ES256 {
            return Err(NotBelieved::Algorithm);
        }
        let key = self.key(&header.kid.ok_or(NotBelieved::UnknownKey)?).await?;
        self.believe(assertion, &key)
    }

    fn believe(&self, assertion: &str, key: &DecodingKey) -> Result<Person, NotBelieved> {
        use jsonwebtoken::errors::ErrorKind;
        let mut rules = Validation::new(Algorithm::ES256);
        rules.leeway = SKEW;
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        rules.set_issuer(&[ISSUER]);
        rules.set_audience(&self.audiences);
        rules.validate_nbf = true;
        let claims = jsonwebtoken::decode::<Claims>(assertion, key, &rules).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => NotBelieved::Signature,
            ErrorKind::InvalidIssuer => NotBelieved::Issuer,
            ErrorKind::InvalidAudience => NotBelieved::Audience,
            ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => NotBelieved::Time,
            ErrorKind::InvalidAlgorithm => NotBelieved::Algorithm,
            _ => NotBelieved::Unreadable,
        })?;
        let Claims { iat, exp, email, hd } = claims.claims;
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        if iat > now.saturating_add(SKEW) || exp.saturating_sub(iat) > MAX_LIFE + 2 * SKEW {
            return Err(NotBelieved::Time);
        }
        if email.is_empty() {
            return Err(NotBelieved::Nobody);
        }
        Ok(Person { email: email.to_lowercase(), domain: hd.map(|domain| domain.to_lowercase()) })
    }

    /// Returns the key of that ID; refreshes the keys if it is unknown or they are old.
    async fn key(&self, id: &str) -> Result<Arc<DecodingKey>, NotBelieved> {
        if let Some(key) = self.cached_key(id, FRESH) {
            return Ok(key);
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(key) = self.cached_key(id, FRESH) {
            return Ok(key);
        }
        let due = {
            let mut keys = lock(&self.keys);
            let due = keys.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
            if due {
                keys.asked = Some(Instant::now());
            }
            due
        };
        if due {
            match self.fetch_keys().await {
                Ok(by_id) => {
                    let mut keys = lock(&self.keys);
                    (keys.by_id, keys.loaded) = (by_id, Some(Instant::now()));
                }
                Err(error) => {
                    tracing::warn!(
                        url = self.keys_url,
                        "the keys of Identity-Aware Proxy could not be loaded: {error:#}"
                    );
                }
            }
        }
        match self.cached_key(id, Duration::MAX) {
            Some(key) => Ok(key),
            None if lock(&self.keys).loaded.is_none() => Err(NotBelieved::NoKeys),
            None => Err(NotBelieved::UnknownKey),
        }
    }

    /// Returns the key of that ID, if the keys were loaded within `max_age`.
    fn cached_key(&self, id: &str, max_age: Duration) -> Option<Arc<DecodingKey>> {
        let keys = lock(&self.keys);
        let is_recent = keys.loaded.is_some_and(|loaded| loaded.elapsed() < max_age);
        is_recent.then(|| keys.by_id.get(id).cloned()).flatten()
    }

    async fn fetch_keys(&self) -> anyhow::Result<HashMap<String, Arc<DecodingKey>>> {
        let client = self.client.get_or_try_init(async || client()).await?;
        let body = bounded(client.get(&self.keys_url).send().await?.error_for_status()?).await?;
        let set: JwkSet = serde_json::from_slice(&body)?;
        let keys = set.keys.into_iter().take(MAX_KEYS).filter_map(|key| {
            let signs = key.common.key_algorithm.is_none_or(|algorithm| algorithm == KeyAlgorithm::ES256);
            let id = key.common.key_id.clone().filter(|_| signs)?;
            Some((id, Arc::new(DecodingKey::from_jwk(&key).ok()?)))
        });
        let keys: HashMap<_, _> = keys.collect();
        anyhow::ensure!(!keys.is_empty(), "it has no key for ES256");
        Ok(keys)
    }
}

/// Builds a client for small public documents.
pub(super) fn client() -> anyhow::Result<reqwest::Client> {
    // Another part of the process may have installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build()?)
}

/// Reads the body, up to a limit.
pub(super) async fn bounded(mut response: reqwest::Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        anyhow::ensure!(body.len() <= MAX_BODY, "the answer is longer than {MAX_BODY} bytes");
    }
    Ok(body)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
