//! Seals of stored deliveries. A verified delivery is stored with a seal over its headers and body, made with a key that is derived from
//! the host's secret. A later reader therefore does not need the host's proof, which may be a password.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Name of the seal among the stored headers.
pub(super) const HEADER: &str = "tidelock-seal";
/// Label of the key, so that the secret proves nothing else with this key.
const KEY_LABEL: &[u8] = b"tidelock inbox seal 1";
/// Label of a secret's id. Requests for the lead name secrets in the same way.
const ID_LABEL: &[u8] = b"tidelock key id 1";
/// Length of such an id, in bytes.
const ID_BYTES: usize = 6;

/// Returns the id of a secret, which does not reveal it.
pub(super) fn key_id(secret: &SecretString) -> String {
    let id = mac(secret.expose_secret().as_bytes(), ID_LABEL).map(|mac| mac.finalize().into_bytes());
    id.map(|id| hex::encode(&id[..ID_BYTES])).unwrap_or_default()
}

/// Returns the seal of a delivery, in hex; absent if the secret cannot be a key.
pub(super) fn seal(secret: &SecretString, headers: &[(String, String)], body: &[u8]) -> Option<String> {
    Some(hex::encode(start_mac(secret, headers, body)?.finalize().into_bytes()))
}

/// Returns true if a seal is that of a delivery, in constant time.
pub(super) fn is_sealed(secret: &SecretString, headers: &[(String, String)], body: &[u8], seal: &str) -> bool {
    let Ok(seal) = hex::decode(seal) else { return false };
    start_mac(secret, headers, body).is_some_and(|mac| mac.verify_slice(&seal).is_ok())
}

/// Starts a MAC over the headers in their order, without the seal itself, and the body. Lengths separate the parts.
fn start_mac(secret: &SecretString, headers: &[(String, String)], body: &[u8]) -> Option<Hmac<Sha256>> {
    let key = mac(secret.expose_secret().as_bytes(), KEY_LABEL)?.finalize().into_bytes();
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key).ok()?;
    for (name, value) in headers.iter().filter(|(name, _)| name != HEADER) {
        for part in [name, value] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
    }
    mac.update(&u64::MAX.to_be_bytes());
    mac.update(body);
    Some(mac)
}

fn mac(key: &[u8], label: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
    mac.update(label);
    Some(mac)
}
