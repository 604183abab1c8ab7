//! Signatures of deliveries with HMAC-SHA256 over the signed bytes, in hex, compared in constant time.

use super::Rejection;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Name of the algorithm before a signature that names it.
const ALGORITHM: &str = "sha256=";

/// Checks a signature that names its algorithm, `sha256=…`. It is empty where a webhook has no secret.
pub(crate) fn verify_named(given: &str, signed: &[u8], secret: &SecretString, setting: &str) -> Result<(), Rejection> {
    match given.strip_prefix(ALGORITHM) {
        Some(signature) => verify(signature, signed, secret, setting),
        None if given.is_empty() => verify("", signed, secret, setting),
        None => Err(unauthorized(format!("The signature does not begin with {ALGORITHM}"))),
    }
}

/// Checks a signature. `setting` has the secret, and is named in refusals. An empty signature, as of a webhook without a secret, never
/// matches.
pub(crate) fn verify(given: &str, signed: &[u8], secret: &SecretString, setting: &str) -> Result<(), Rejection> {
    if given.is_empty() {
        return Err(unauthorized(format!("The delivery is not signed: give the webhook the secret of {setting}")));
    }
    let tag = hex::decode(given).map_err(|_| unauthorized("The signature is malformed".to_owned()))?;
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.expose_secret().as_bytes())
        .map_err(|_| unauthorized("The webhook secret cannot be used as a key".to_owned()))?;
    mac.update(signed);
    let wrong = || unauthorized(format!("The signature is wrong: is the webhook's secret the one of {setting}?"));
    mac.verify_slice(&tag).map_err(|_| wrong())
}

fn unauthorized(message: String) -> Rejection {
    Rejection::new(401, message)
}
