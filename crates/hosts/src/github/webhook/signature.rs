//! Signatures of deliveries: HMAC over the raw body, compared in constant time.

use crate::webhook::Rejection;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};

/// A digest that a signature header can use.
trait Scheme: Mac + KeyInit {
    /// Prefix of the header's value.
    const PREFIX: &'static str;
}

impl Scheme for Hmac<sha2::Sha256> {
    const PREFIX: &'static str = "sha256=";
}

impl Scheme for Hmac<sha1::Sha1> {
    const PREFIX: &'static str = "sha1=";
}

/// Checks `X-Hub-Signature-256`, or `X-Hub-Signature` only if the newer one is absent.
pub(super) fn verify_hub(headers: &http::HeaderMap, body: &[u8], secret: &SecretString) -> Result<(), Rejection> {
    if let Some(value) = headers.get("x-hub-signature-256") {
        verify::<Hmac<sha2::Sha256>>(value, body, secret)
    } else if let Some(value) = headers.get("x-hub-signature") {
        verify::<Hmac<sha1::Sha1>>(value, body, secret)
    } else {
        Err(unauthorized("The delivery is not signed: give the webhook the secret of --gh-webhook-secret"))
    }
}

fn verify<S: Scheme>(value: &http::HeaderValue, body: &[u8], secret: &SecretString) -> Result<(), Rejection> {
    let tag = value
        .to_str()
        .ok()
        .and_then(|value| value.trim().strip_prefix(S::PREFIX))
        .and_then(|tag| hex::decode(tag).ok());
    let Some(tag) = tag else { return Err(unauthorized("The signature header is malformed")) };
    let mut mac = <S as KeyInit>::new_from_slice(secret.expose_secret().as_bytes())
        .map_err(|_| unauthorized("The webhook secret cannot be used as a key"))?;
    mac.update(body);
    mac.verify_slice(&tag)
        .map_err(|_| unauthorized("The signature is wrong: is the webhook's secret the one of --gh-webhook-secret?"))
}

fn unauthorized(message: &str) -> Rejection {
    Rejection::new(401, message)
}
