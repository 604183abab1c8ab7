//! Verifies the signed assertion of Identity-Aware Proxy (`x-goog-iap-jwt-assertion`) in the server itself, since the
//! load balancer is not the only way in (cloud.google.com/iap/docs/signed-headers-howto).

use super::google_tokens::{GoogleTokens, NotBelieved, TokenRules};
use super::people::Person;
use http::HeaderMap;
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::KeyAlgorithm;

/// Address at which Google publishes the keys, as JWK set.
pub(crate) const KEYS_URL: &str = "https://www.gstatic.com/iap/verify/public_key-jwk";
/// Header of the assertion. IAP drops any header of this name from a client.
pub(crate) const HEADER: &str = "x-goog-iap-jwt-assertion";
const ISSUER: &str = "https://cloud.google.com/iap";
/// Longest lifetime of an assertion, in seconds; IAP's is ten minutes.
const MAX_LIFE: u64 = 600;

/// Verifier of assertions.
pub struct Iap {
    tokens: GoogleTokens,
}

impl Iap {
    /// Creates a verifier for exactly these audiences, such as `/projects/1/global/backendServices/2`. Loads no key yet.
    pub fn new(audiences: Vec<String>, keys_url: &str) -> Iap {
        let rules = TokenRules {
            whose: "Identity-Aware Proxy",
            algorithm: Algorithm::ES256,
            key_algorithm: KeyAlgorithm::ES256,
            issuer: ISSUER,
            audiences,
            setting: "iap-audience",
            max_life: MAX_LIFE,
        };
        Iap { tokens: GoogleTokens::new(rules, keys_url) }
    }

    /// Returns the person who sent this request. Fails if there is not exactly one assertion, or it is rejected.
    pub async fn verify(&self, headers: &HeaderMap) -> Result<Person, NotBelieved> {
        let mut values = headers.get_all(HEADER).iter();
        let assertion = values.next().ok_or(NotBelieved::Absent)?;
        if values.next().is_some() {
            return Err(NotBelieved::Several);
        }
        let claims = self.tokens.verify(assertion.to_str().map_err(|_| NotBelieved::Unreadable)?).await?;
        let domain = claims.hd.map(|domain| domain.to_lowercase());
        Ok(Person { name: claims.email.to_lowercase(), domain, groups: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
