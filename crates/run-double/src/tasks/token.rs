//! OpenID Connect tokens in the form of those that Google signs for service accounts.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as B64};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Error, Result};

/// Private keys that exist for this double only: the one it publishes, and one it does not.
const TEST_KEY: &str = include_str!("test-key.pem");
const STRANGERS_TEST_KEY: &str = include_str!("strangers-test-key.pem");
/// Id of the published key. The stranger claims to have it too.
const KEY_ID: &str = "cloud-tasks-double";
/// Time for which a token is valid, in seconds (docs.cloud.google.com/docs/authentication/token-types).
const VALID: i64 = 3600;

/// Keys of the double.
pub(crate) struct Signer {
    published: RsaKeyPair,
    stranger: RsaKeyPair,
}

impl Signer {
    pub(crate) fn load() -> Result<Signer> {
        Ok(Signer { published: key(TEST_KEY)?, stranger: key(STRANGERS_TEST_KEY)? })
    }

    /// Signs with the published key, or with that of a stranger.
    pub(crate) fn sign(&self, claims: &Value, by_stranger: bool) -> Result<String> {
        let key = if by_stranger { &self.stranger } else { &self.published };
        let header = json!({"alg": "RS256", "kid": KEY_ID, "typ": "JWT"});
        let text = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let mut signature = vec![0; key.public().modulus_len()];
        let signed = key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature);
        signed.map_err(|_| Error::other("the test key cannot sign"))?;
        Ok(format!("{text}.{}", B64.encode(signature)))
    }

    /// JWK set in the form of www.googleapis.com/oauth2/v3/certs.
    pub(crate) fn keys(&self) -> Value {
        let PublicKeyComponents::<Vec<u8>> { n, e } = self.published.public().into();
        let key = json!({
            "kid": KEY_ID, "kty": "RSA", "alg": "RS256", "use": "sig", "n": B64.encode(n), "e": B64.encode(e),
        });
        json!({"keys": [key]})
    }
}

fn key(pem: &str) -> Result<RsaKeyPair> {
    let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = BASE64_STANDARD.decode(text).map_err(Error::other)?;
    RsaKeyPair::from_der(&der).map_err(|error| Error::other(error.to_string()))
}

/// Returns the claims of a token that Google signs now for a service account (cloud.google.com/run/docs/triggering/using-tasks,
/// docs.cloud.google.com/docs/authentication/token-types). Tests change them for tokens that must be refused.
pub fn claims(account: &str, audience: &str) -> Value {
    let mut hasher = DefaultHasher::new();
    account.hash(&mut hasher);
    // Unique ids of service accounts are numbers with 21 digits.
    let id = format!("1{:020}", hasher.finish());
    let now = Timestamp::now().as_second();
    json!({
        "iss": "https://accounts.google.com", "aud": audience, "email": account, "email_verified": true,
        "sub": id, "azp": id, "iat": now, "exp": now + VALID,
    })
}
