//! Tests of each check of an assertion by itself: one claim is wrong, all others are as Identity-Aware Proxy writes them.

use super::super::google_tokens::{FRESH, Keys, MAX_TOKEN, SKEW, lock};
use super::*;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;
use http::HeaderValue;
use jsonwebtoken::DecodingKey;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const AUDIENCE: &str = "/projects/1/global/backendServices/2";
const SECOND: &str = "/projects/1/locations/europe-west1/services/tidelock";

struct Signer {
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Signer { pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap() }
    }

    fn jwk(&self, id: &str, algorithm: &str) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "alg": algorithm, "kid": id, "x": B64.encode(x), "y": B64.encode(y)})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", B64.encode(signature))
    }

    fn assert(&self, changes: Value) -> String {
        self.sign(&header(json!({})), &claims(changes))
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Merges `changes` into `to`; null removes a member.
fn changed(mut to: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(to.as_object_mut().unwrap().remove(name)),
            value => to[name] = value.clone(),
        }
    }
    to
}

fn header(changes: Value) -> Value {
    changed(json!({"alg": "ES256", "typ": "JWT", "kid": "one"}), changes)
}

fn claims(changes: Value) -> Value {
    let all = json!({"iss": ISSUER, "aud": AUDIENCE, "iat": now(), "exp": now() + 600, "sub": "accounts.google.com:1",
        "email": "Ada@Example.com", "hd": "Example.com"});
    changed(all, changes)
}

/// Returns a verifier with loaded and fresh keys.
fn iap(signer: &Signer) -> Iap {
    let iap = Iap::new(vec![AUDIENCE.to_owned(), SECOND.to_owned()], "http://127.0.0.1:9/no-key-server");
    let key = DecodingKey::from_jwk(&serde_json::from_value(signer.jwk("one", "ES256")).unwrap()).unwrap();
    let by_id = HashMap::from([("one".to_owned(), Arc::new(key))]);
    *lock(&iap.tokens.keys) = Keys { by_id, loaded: Some(Instant::now()), asked: Some(Instant::now()) };
    iap
}

async fn believe(iap: &Iap, assertions: &[&str]) -> Result<Person, NotBelieved> {
    let mut headers = HeaderMap::new();
    for assertion in assertions {
        headers.append(HEADER, HeaderValue::from_str(assertion).unwrap());
    }
    iap.verify(&headers).await
}

#[tokio::test]
async fn a_person_is_named_in_lower_case() {
    let signer = Signer::new();
    let iap = iap(&signer);
    let person = believe(&iap, &[&signer.assert(json!({}))]).await.unwrap();
    assert_eq!(
        person,
        Person { name: "ada@example.com".into(), domain: Some("example.com".into()), groups: Vec::new() }
    );
    let alone = believe(&iap, &[&signer.assert(json!({"hd": null, "aud": SECOND}))]).await.unwrap();
    assert_eq!(alone.domain, None);
}

#[tokio::test]
async fn each_claim_is_checked() {
    let signer = Signer::new();
    let iap = iap(&signer);
    let (now, skew) = (now(), i64::try_from(SKEW).unwrap());
    for (changes, wanted) in [
        (json!({"iss": "https://accounts.google.com"}), NotBelieved::Issuer),
        (json!({"iss": null}), NotBelieved::Unreadable),
        (json!({"aud": "/projects/1/global/backendServices/22"}), NotBelieved::Audience("iap-audience")),
        (json!({"aud": []}), NotBelieved::Audience("iap-audience")),
        (json!({"aud": null}), NotBelieved::Unreadable),
        (json!({"exp": now - skew - 5, "iat": now - 605}), NotBelieved::Time),
        (json!({"exp": null}), NotBelieved::Unreadable),
        (json!({"iat": null}), NotBelieved::Unreadable),
        // Issued in the future, or valid for longer than allowed.
        (json!({"iat": now + skew + 60, "exp": now + 600}), NotBelieved::Time),
        (json!({"exp": now + 3600}), NotBelieved::Time),
        (json!({"nbf": now + skew + 60}), NotBelieved::Time),
        (json!({"email": ""}), NotBelieved::Nobody),
        (json!({"email": null}), NotBelieved::Nobody),
        (json!({"email": 7}), NotBelieved::Unreadable),
    ] {
        let answer = believe(&iap, &[&signer.assert(changes.clone())]).await;
        assert_eq!(answer, Err(wanted), "{changes}");
    }
    // Clocks may differ a little.
    for changes in
        [json!({"iat": now + skew - 10, "exp": now + 600}), json!({"exp": now - skew + 10, "iat": now - 590})]
    {
        assert!(believe(&iap, &[&signer.assert(changes.clone())]).await.is_ok(), "{changes}");
    }
}

#[tokio::test]
async fn each_part_of_the_header_is_checked() {
    let (signer, other) = (Signer::new(), Signer::new());
    let iap = iap(&signer);
    let signed = |changes: Value| signer.sign(&header(changes), &claims(json!({})));
    let good = signed(json!({}));
    let (start, _) = good.rsplit_once('.').unwrap();
    for (assertion, wanted) in [
        (signed(json!({"alg": "none"})), NotBelieved::Algorithm(Algorithm::ES256)),
        (signed(json!({"alg": "HS256"})), NotBelieved::Algorithm(Algorithm::ES256)),
        (signed(json!({"alg": "ES384"})), NotBelieved::Algorithm(Algorithm::ES256)),
        (signed(json!({"kid": null})), NotBelieved::UnknownKey),
        (signed(json!({"kid": "two"})), NotBelieved::UnknownKey),
        (other.sign(&header(json!({})), &claims(json!({}))), NotBelieved::Signature),
        (format!("{start}."), NotBelieved::Signature),
        ("nonsense".to_owned(), NotBelieved::Unreadable),
        (signed(json!({"pad": "x".repeat(MAX_TOKEN)})), NotBelieved::Unreadable),
    ] {
        assert_eq!(believe(&iap, &[&assertion]).await, Err(wanted), "{assertion:.200}");
    }
    assert_eq!(believe(&iap, &[]).await, Err(NotBelieved::Absent));
    assert_eq!(believe(&iap, &[&good, &good]).await, Err(NotBelieved::Several));
    assert!(believe(&iap, &[&good]).await.is_ok());
}

/// Starts a key server that answers this, and returns its address and its number of requests.
async fn published(answer: Option<Value>) -> (String, Arc<Mutex<u32>>) {
    type Served = (Option<Value>, Arc<Mutex<u32>>);
    let serve = |State((answer, asked)): State<Served>| async move {
        *lock(&asked) += 1;
        answer.map_or((StatusCode::SERVICE_UNAVAILABLE, String::new()), |answer| (StatusCode::OK, answer.to_string()))
    };
    let asked = Arc::<Mutex<u32>>::default();
    let router = Router::new().route("/keys", get(serve)).with_state((answer, Arc::clone(&asked)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, asked)
}

#[tokio::test]
async fn keys_are_asked_for_once_and_only_those_of_the_right_kind_count() {
    let signer = Signer::new();
    let set = json!({"keys": [signer.jwk("other", "ES384"), signer.jwk("one", "ES256"), {"kty": "EC", "kid": "odd"}]});
    for (answer, wanted) in [
        (Some(set), Ok(())),
        (Some(json!({"keys": [signer.jwk("one", "ES384")]})), Err(NotBelieved::NoKeys("Identity-Aware Proxy"))),
        (Some(json!({"keys": []})), Err(NotBelieved::NoKeys("Identity-Aware Proxy"))),
        (Some(json!("odd")), Err(NotBelieved::NoKeys("Identity-Aware Proxy"))),
        (None, Err(NotBelieved::NoKeys("Identity-Aware Proxy"))),
    ] {
        let (url, asked) = published(answer).await;
        let iap = Iap::new(vec![AUDIENCE.to_owned()], &url);
        for _ in 0..3 {
            let believed = believe(&iap, &[&signer.assert(json!({}))]).await.map(drop);
            assert_eq!(believed, wanted);
        }
        assert_eq!(*lock(&asked), 1, "an unknown key is no way to make the server ask and ask");
    }
}

#[tokio::test]
async fn old_keys_go_on_being_good_while_new_ones_cannot_be_had() {
    let signer = Signer::new();
    let (url, asked) = published(None).await;
    let iap = Iap { tokens: GoogleTokens { keys_url: url, ..iap(&signer).tokens } };
    let old = Instant::now().checked_sub(FRESH + Duration::from_secs(1)).unwrap();
    (lock(&iap.tokens.keys).loaded, lock(&iap.tokens.keys).asked) = (Some(old), Some(old));
    assert!(believe(&iap, &[&signer.assert(json!({}))]).await.is_ok());
    assert_eq!(*lock(&asked), 1);
}
