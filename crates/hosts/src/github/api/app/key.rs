//! The App's private key, and the short-lived tokens that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde_json::{Value, json};

/// Seconds by which tokens are dated back, as GitHub advises.
const DATED_BACK: i64 = 60;
/// Seconds until a token expires; GitHub accepts no more than ten minutes.
const LIFE: i64 = 540;

/// Returns a token of the App's own (a JSON web token with RS256), signed at this time.
pub(super) fn signed(pem: &str, id: u64, now: i64) -> Result<SecretString, String> {
    // Line breaks are often written so where a variable cannot contain them.
    let pem = pem.replace("\\n", "\n");
    let key = match PrivateKeyDer::from_pem_slice(pem.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs1(der)) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        Ok(PrivateKeyDer::Pkcs8(der)) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        Ok(_) => return Err("it is no RSA key".to_owned()),
        Err(error) => return Err(format!("it is no private key in PEM: {error}")),
    };
    let key = key.map_err(|error| format!("it is no RSA key of 2048 bits or more: {error}"))?;
    let claims = json!({ "iat": now - DATED_BACK, "exp": now + LIFE, "iss": id.to_string() });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&json!({ "alg": "RS256", "typ": "JWT" })), part(&claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &ring::rand::SystemRandom::new(), message.as_bytes(), &mut signature)
        .map_err(|_| "nothing could be signed with it".to_owned())?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
}
