//! Signatures of deliveries: HMAC-SHA256 over the JSON text, in hex (services/webhook/deliver.go, `addDefaultHeaders`).

use crate::webhook::{Rejection, hmac_sha256};
use secrecy::SecretString;

/// Headers with the signature. Forgejo sends both, with one value.
pub(super) const HEADERS: [&str; 2] = ["x-gitea-signature", "x-forgejo-signature"];

/// Checks a signature.
pub(super) fn verify(given: &str, json: &[u8], secret: &SecretString) -> Result<(), Rejection> {
    hmac_sha256::verify(given, json, secret, "--gitea-webhook-secret")
}
