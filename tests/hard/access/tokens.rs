//! Identity-Aware Proxy as the server sees it: keys, assertions signed with them, and the document that publishes the keys.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use hmac::{Hmac, KeyInit, Mac};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Name of our service.
pub(crate) const AUDIENCE: &str = "/projects/1234/global/backendServices/5678";
/// Name of another service of ours.
pub(crate) const SECOND: &str = "/projects/1234/locations/europe-west1/services/tidelock";

/// A key of IAP, or of an attacker.
pub(crate) struct Key {
    pub(crate) id: String,
    pair: EcdsaKeyPair,
}

impl Key {
    pub(crate) fn new(id: &str) -> Key {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Key { id: id.to_owned(), pair }
    }

    pub(crate) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn jwk(&self) -> Value {
        // 4, x, y
        let (x, y) = self.public()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id, "x": B64.encode(x), "y": B64.encode(y)})
    }

    /// Returns an assertion with this header and these claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", B64.encode(signature))
    }

    /// Returns the assertion that IAP would make for this person, with some claims changed.
    pub(crate) fn assert(&self, email: &str, changes: Value) -> String {
        self.sign(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), &claims(email, changes))
    }
}

pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

pub(crate) fn claims(email: &str, changes: Value) -> Value {
    let mut claims = json!({
        "iss": "https://cloud.google.com/iap", "aud": AUDIENCE, "iat": now(), "exp": now() + 600,
        "sub": "accounts.google.com:1", "email": email, "hd": email.rsplit_once('@').map(|(_, domain)| domain),
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()))
}

/// Returns an assertion with HS256, whose secret is the public key, which everybody knows.
pub(crate) fn with_shared_secret(secret: &[u8], kid: &str, claims: &Value) -> String {
    let text = unsigned(&json!({"alg": "HS256", "typ": "JWT", "kid": kid}), claims);
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret).unwrap();
    mac.update(text.as_bytes());
    format!("{text}.{}", B64.encode(mac.finalize().into_bytes()))
}

/// A small document on loopback that can be changed or removed.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) url: String,
    text: Arc<Mutex<Option<String>>>,
}

impl Published {
    pub(crate) async fn start() -> Published {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/document", listener.local_addr().unwrap());
        let text: Arc<Mutex<Option<String>>> = Arc::default();
        let answer = |State(text): State<Arc<Mutex<Option<String>>>>| async move {
            let text = text.lock().unwrap().clone();
            text.map_or((StatusCode::SERVICE_UNAVAILABLE, String::new()), |text| (StatusCode::OK, text))
        };
        let router = Router::new().route("/document", get(answer)).with_state(Arc::clone(&text));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Published { url, text }
    }

    pub(crate) fn keys(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        self.set(Some(json!({ "keys": keys }).to_string()));
    }

    pub(crate) fn set(&self, text: Option<String>) {
        *self.text.lock().unwrap() = text;
    }
}
