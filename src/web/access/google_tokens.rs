//! Tokens that Google signs: verified with the keys that it publishes.

use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

/// Largest difference of clocks, in seconds, as the documentation of Identity-Aware Proxy allows.
pub(super) const SKEW: u64 = 30;
/// Longest token, in bytes.
pub(super) const MAX_TOKEN: usize = 16 * 1024;
/// Age from which keys are refreshed at the next request; old keys stay valid while that fails.
pub(in crate::web) const FRESH: Duration = Duration::from_secs(3600);
/// Shortest interval between two requests for keys, also for unknown key IDs.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Timeout of a request to the key server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest key set, in bytes, and its maximum number of keys.
const MAX_BODY: usize = 256 * 1024;
const MAX_KEYS: usize = 64;

/// Reason for which a token is rejected, for the log and the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    /// The request did not come through Identity-Aware Proxy.
    #[error("there is no assertion of Identity-Aware Proxy")]
    Absent,
    /// The request has no token.
    #[error("there is no token in the header Authorization")]
    NoToken,
    /// Two headers: one of them is forged.
    #[error("there is more than one assertion")]
    Several,
    /// Not a valid token.
    #[error("the token cannot be read")]
    Unreadable,
    /// Signed with another algorithm than the keys are for.
    #[error("the token is not signed with {0:?}")]
    Algorithm(Algorithm),
    /// Signed with a key that Google does not publish.
    #[error("the token's key is unknown")]
    UnknownKey,
    /// No key could be loaded.
    #[error("the keys of {0} could not be loaded")]
    NoKeys(&'static str),
    /// The signature does not match.
    #[error("the token's signature is wrong")]
    Signature,
    /// Issued by another party.
    #[error("the token is of another issuer")]
    Issuer,
    /// Issued for another service.
    #[error("the token is for another audience than --{0} names")]
    Audience(&'static str),
    /// Expired, issued in the future, or with too long a lifetime.
    #[error("the token is not valid at this time")]
    Time,
    /// Contains no email.
    #[error("the token names nobody")]
    Nobody,
    /// Of another account than the one that may call.
    #[error("the token is of another account than --wake-account names")]
    OtherAccount,
}

/// What a token must be.
pub(super) struct TokenRules {
    /// Name of what signs them, for people.
    pub(super) whose: &'static str,
    pub(super) algorithm: Algorithm,
    /// The same for a published key.
    pub(super) key_algorithm: KeyAlgorithm,
    pub(super) issuer: &'static str,
    pub(super) audiences: Vec<String>,
    /// Setting that names the audiences.
    pub(super) setting: &'static str,
    /// Longest lifetime, in seconds.
    pub(super) max_life: u64,
}

/// Verifier, with its cache of keys.
pub(super) struct GoogleTokens {
    pub(super) rules: TokenRules,
    pub(super) keys_url: String,
    pub(super) keys: Mutex<Keys>,
    /// Allows one request for keys at a time.
    pub(super) asking: AsyncMutex<()>,
    pub(super) client: OnceCell<reqwest::Client>,
}

#[derive(Default)]
pub(super) struct Keys {
    pub(super) by_id: HashMap<String, Arc<DecodingKey>>,
    pub(super) loaded: Option<Instant>,
    pub(super) asked: Option<Instant>,
}

/// Content of a token.
#[derive(Deserialize)]
pub(super) struct GoogleClaims {
    iat: u64,
    exp: u64,
    /// E-mail address; never empty in a token that was verified.
    #[serde(default)]
    pub(super) email: String,
    /// `true` if Google has verified that address.
    #[serde(default)]
    pub(super) email_verified: serde_json::Value,
    /// Domain of Google Workspace.
    pub(super) hd: Option<String>,
}

impl GoogleTokens {
    /// Loads no key yet.
    pub(super) fn new(rules: TokenRules, keys_url: &str) -> GoogleTokens {
        let keys = Mutex::new(Keys::default());
        let (asking, client) = (AsyncMutex::new(()), OnceCell::new());
        GoogleTokens { rules, keys_url: keys_url.to_owned(), keys, asking, client }
    }

    /// Returns the content of a token.
    pub(super) async fn verify(&self, token: &str) -> Result<GoogleClaims, NotBelieved> {
        let TokenRules { algorithm, .. } = self.rules;
        if token.len() > MAX_TOKEN {
            return Err(NotBelieved::Unreadable);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
            // `none`, and algorithms that the library does not know.
            jsonwebtoken::errors::ErrorKind::InvalidAlgorithm | jsonwebtoken::errors::ErrorKind::Json(_) => {
                NotBelieved::Algorithm(algorithm)
            }
            _ => NotBelieved::Unreadable,
        })?;
        if header.alg != algorithm {
            return Err(NotBelieved::Algorithm(algorithm));
        }
        let key = self.key(&header.kid.ok_or(NotBelieved::UnknownKey)?).await?;
        self.believe(token, &key)
    }

    fn believe(&self, token: &str, key: &DecodingKey) -> Result<GoogleClaims, NotBelieved> {
        use jsonwebtoken::errors::ErrorKind;
        let TokenRules { algorithm, issuer, audiences, setting, max_life, .. } = &self.rules;
        let mut rules = Validation::new(*algorithm);
        rules.leeway = SKEW;
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        rules.set_issuer(&[issuer]);
        rules.set_audience(audiences);
        rules.validate_nbf = true;
        let claims = jsonwebtoken::decode::<GoogleClaims>(token, key, &rules).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => NotBelieved::Signature,
            ErrorKind::InvalidIssuer => NotBelieved::Issuer,
            ErrorKind::InvalidAudience => NotBelieved::Audience(setting),
            ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => NotBelieved::Time,
            ErrorKind::InvalidAlgorithm => NotBelieved::Algorithm(*algorithm),
            _ => NotBelieved::Unreadable,
        })?;
        let claims = claims.claims;
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        if claims.iat > now.saturating_add(SKEW) || claims.exp.saturating_sub(claims.iat) > max_life + 2 * SKEW {
            return Err(NotBelieved::Time);
        }
        if claims.email.is_empty() {
            return Err(NotBelieved::Nobody);
        }
        Ok(claims)
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
                        "the keys of {} could not be loaded: {error:#}",
                        self.rules.whose
                    );
                }
            }
        }
        match self.cached_key(id, Duration::MAX) {
            Some(key) => Ok(key),
            None if lock(&self.keys).loaded.is_none() => Err(NotBelieved::NoKeys(self.rules.whose)),
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
            let signs = key.common.key_algorithm.is_none_or(|algorithm| algorithm == self.rules.key_algorithm);
            let id = key.common.key_id.clone().filter(|_| signs)?;
            Some((id, Arc::new(DecodingKey::from_jwk(&key).ok()?)))
        });
        let keys: HashMap<_, _> = keys.collect();
        anyhow::ensure!(!keys.is_empty(), "it has no key for {:?}", self.rules.algorithm);
        Ok(keys)
    }
}

/// Builds a client for small public documents.
pub(in crate::web) fn client() -> anyhow::Result<reqwest::Client> {
    // Another part of the process may have installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build()?)
}

/// Reads the body, up to a limit.
pub(in crate::web) async fn bounded(mut response: reqwest::Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        anyhow::ensure!(body.len() <= MAX_BODY, "the answer is longer than {MAX_BODY} bytes");
    }
    Ok(body)
}

pub(in crate::web) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
