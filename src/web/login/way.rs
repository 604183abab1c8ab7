//! A way to sign in: an identity provider, and one attempt there.

use crate::web::access::people::Person;
use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::Url;

/// An identity provider, at which people sign in by the authorization code flow (RFC 6749, section 4.1) with PKCE (RFC 7636).
#[async_trait]
pub(crate) trait SignInWay: Send + Sync {
    /// Returns its word in addresses.
    fn word(&self) -> &'static str;

    /// Returns its name for people.
    fn title(&self) -> &str;

    /// Returns the provider and the client there, as cookies have them: a cookie of another client is not believed.
    fn realm(&self) -> &str;

    /// Returns its issuer, which its answers may name (RFC 9207, section 2).
    fn issuer(&self) -> Option<&str> {
        None
    }

    /// Returns the secret of the client, from which keys of cookies can derive.
    fn client_secret(&self) -> &SecretString;

    /// Returns the provider's address at which an attempt begins. It sends people back to `callback`.
    async fn begin(&self, attempt: &SignInAttempt, callback: &str) -> anyhow::Result<Url>;

    /// Exchanges the code of an attempt for the person.
    async fn finish(&self, attempt: &SignInAttempt, callback: &str, code: &str) -> Result<Person, SignInError>;
}

/// Reason for which nobody is signed in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    /// The provider did not answer, or has something against this server. Only the log has the cause.
    #[error("the provider did not answer")]
    Unavailable(#[source] anyhow::Error),
    /// The provider or its answer does not prove who this is; the reason is for the person.
    #[error("{0}")]
    NotProven(String),
}

/// One attempt to sign in, as the browser keeps it in a cookie until the provider sends it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SignInAttempt {
    /// Time in seconds after which it is not continued.
    pub(super) until: i64,
    /// [`SignInWay::realm`].
    pub(super) realm: String,
    /// Repeated by the provider: shows that this browser began the attempt.
    pub(crate) state: String,
    /// Repeated in the ID token: shows that it was issued for this attempt.
    pub(crate) nonce: String,
    /// Secret of PKCE: shows that the code is exchanged by who asked for it.
    pub(crate) verifier: String,
    /// Path to open afterwards.
    pub(super) next: String,
}

impl SignInAttempt {
    /// Begins an attempt.
    pub(super) fn new(until: i64, realm: &str, next: &str) -> anyhow::Result<SignInAttempt> {
        Ok(SignInAttempt {
            until,
            realm: realm.to_owned(),
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            next: next.to_owned(),
        })
    }

    /// Returns the challenge of PKCE by its method `S256`.
    pub(crate) fn challenge(&self) -> String {
        B64.encode(Sha256::digest(&self.verifier))
    }
}

/// Returns 256 random bits as 43 characters, all of which PKCE allows in a verifier.
fn random() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("there is no randomness: {error}"))?;
    Ok(B64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let attempt = SignInAttempt { verifier, ..SignInAttempt::new(0, "", "/").unwrap() };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
