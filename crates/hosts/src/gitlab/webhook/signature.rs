//! Signatures of deliveries by Standard Webhooks (docs.gitlab.com/user/project/integrations/webhooks, "Signing tokens"): HMAC-SHA256 over
//! id, time and body, compared in constant time.

use crate::webhook::{Rejection, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Header with the signatures, separated by spaces.
pub(super) const SIGNATURE: &str = "webhook-signature";
/// Header with the id of the delivery, which is signed.
const ID: &str = "webhook-id";
/// Header with the time of the delivery in seconds since 1970, which is signed.
const TIMESTAMP: &str = "webhook-timestamp";
/// Prefix of a signing token, before its key in base64.
const TOKEN_PREFIX: &str = "whsec_";
/// Prefix of a signature of the only scheme that is known.
const SCHEME: &str = "v1,";
/// Largest difference between the time of a delivery and the server's clock.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
/// Most signatures of one delivery that are compared: one for each token while tokens are changed.
const MAX_SIGNATURES: usize = 8;

/// Returns the key of a signing token; absent if the text is none.
fn key(token: &SecretString) -> Option<Vec<u8>> {
    STANDARD.decode(token.expose_secret().trim().strip_prefix(TOKEN_PREFIX)?).ok()
}

/// Checks the signature and the time of a delivery that arrives at `now`.
pub(super) fn verify(
    headers: &http::HeaderMap,
    body: &[u8],
    token: &SecretString,
    now: Timestamp,
) -> Result<(), Rejection> {
    let key = key(token).ok_or_else(|| unauthorized("--gitlab-webhook-signing-token is no signing token"))?;
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key)
        .map_err(|_| unauthorized("--gitlab-webhook-signing-token cannot be used as a key"))?;
    let (id, timestamp) = (header(headers, ID), header(headers, TIMESTAMP));
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    let signatures = header(headers, SIGNATURE).split(' ').take(MAX_SIGNATURES);
    let signatures = signatures.filter_map(|one| STANDARD.decode(one.strip_prefix(SCHEME)?).ok());
    let mut is_signed = false;
    for signature in signatures {
        is_signed |= mac.clone().verify_slice(&signature).is_ok();
    }
    if !is_signed {
        let message = "The signature is wrong: is the webhook's signing token that of --gitlab-webhook-signing-token?";
        return Err(unauthorized(message));
    }
    let sent = timestamp.parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    if sent.is_none_or(|sent| sent.duration_since(now).abs() > TOLERANCE) {
        return Err(unauthorized("The delivery is older or newer than 5 minutes: is the server's clock right?"));
    }
    Ok(())
}

fn unauthorized(message: &str) -> Rejection {
    Rejection::new(401, message)
}
