//! Signatures of deliveries: `sha256=` and HMAC-SHA256 over the body, in hex
//! (support.atlassian.com/bitbucket-cloud/docs/manage-webhooks, "Secure webhooks").

use crate::webhook::{Rejection, hmac_sha256};
use secrecy::SecretString;

/// Header with the signature.
pub(super) const HEADER: &str = "x-hub-signature";
/// Setting with the secret.
const SETTING: &str = "--bitbucket-webhook-secret";
/// Name of the algorithm before the signature.
const ALGORITHM: &str = "sha256=";

/// Checks the value of the header; it is empty where a webhook has no secret.
pub(super) fn verify(given: &str, body: &[u8], secret: &SecretString) -> Result<(), Rejection> {
    match given.strip_prefix(ALGORITHM) {
        Some(signature) => hmac_sha256::verify(signature, body, secret, SETTING),
        None if given.is_empty() => hmac_sha256::verify("", body, secret, SETTING),
        None => Err(Rejection::new(401, format!("The signature does not begin with {ALGORITHM}"))),
    }
}
