//! Verifies the tokens with which Cloud Tasks and Cloud Scheduler call `/wake` (cloud.google.com/tasks/docs/creating-http-target-tasks):
//! OpenID Connect tokens of one service account, for one audience.

use super::google_tokens::{GoogleTokens, NotBelieved, TokenRules};
use http::{HeaderMap, header};
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::KeyAlgorithm;

/// Address at which Google publishes the keys, as JWK set (`jwks_uri` of accounts.google.com/.well-known/openid-configuration).
pub(crate) const KEYS_URL: &str = "https://www.googleapis.com/oauth2/v3/certs";
const ISSUER: &str = "https://accounts.google.com";
/// Lifetime of such a token, in seconds.
const MAX_LIFE: u64 = 3600;

/// Verifier of tokens for `/wake`.
pub struct WakeTokens {
    tokens: GoogleTokens,
    account: String,
}

impl WakeTokens {
    /// Creates a verifier for tokens of this account with this audience. Loads no key yet.
    pub fn new(account: &str, audience: String, keys_url: &str) -> WakeTokens {
        let rules = TokenRules {
            whose: "accounts.google.com",
            algorithm: Algorithm::RS256,
            key_algorithm: KeyAlgorithm::RS256,
            issuer: ISSUER,
            audiences: vec![audience],
            setting: "wake-url",
            max_life: MAX_LIFE,
        };
        WakeTokens { tokens: GoogleTokens::new(rules, keys_url), account: account.to_lowercase() }
    }

    /// Checks that a request has exactly one token, and that it is one of the account.
    pub(in crate::web) async fn verify(&self, headers: &HeaderMap) -> Result<(), NotBelieved> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let value = values.next().ok_or(NotBelieved::NoToken)?;
        if values.next().is_some() {
            return Err(NotBelieved::Several);
        }
        let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        let claims = self.tokens.verify(token.ok_or(NotBelieved::Unreadable)?).await?;
        match claims.email_verified == true && claims.email.to_lowercase() == self.account {
            true => Ok(()),
            false => Err(NotBelieved::OtherAccount),
        }
    }
}
