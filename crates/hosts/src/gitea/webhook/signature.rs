//! Signatures of deliveries: HMAC-SHA256 over the JSON text, in hex, compared in constant time (services/webhook/deliver.go,
//! `addDefaultHeaders`).

use crate::webhook::Rejection;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Headers with the signature. Forgejo sends both, with one value.
pub(super) const HEADERS: [&str; 2] = ["x-gitea-signature", "x-forgejo-signature"];

/// Checks a signature. An empty one, as of a webhook without a secret, never matches.
pub(super) fn verify(given: &str, json: &[u8], secret: &SecretString) -> Result<(), Rejection> {
    if given.is_empty() {
        return Err(unauthorized("The delivery is not signed: give the webhook the secret of --gitea-webhook-secret"));
    }
    let tag = hex::decode(given).map_err(|_| unauthorized("The signature is malformed"))?;
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.expose_secret().as_bytes())
        .map_err(|_| unauthorized("The webhook secret cannot be used as a key"))?;
    mac.update(json);
    mac.verify_slice(&tag)
        .map_err(|_| unauthorized("The signature is wrong: is the webhook's secret the one of --gitea-webhook-secret?"))
}

fn unauthorized(message: &str) -> Rejection {
    Rejection::new(401, message)
}
