//! A strict issuer of OpenID Connect on loopback, whose answers tests can change. Section numbers are those of OpenID Connect Core 1.0.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as B64};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use url::Url;

pub(super) const CLIENT: &str = "tide-client";
pub(super) const SECRET: &str = "secret of the client";
/// Access token of every answer.
const ACCESS: &str = "an-access-token";

type Fields = HashMap<String, String>;

/// A key that signs ID tokens.
pub(super) struct SigningKey {
    pub(super) id: &'static str,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(super) fn new(id: &'static str) -> SigningKey {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        SigningKey { id, pair }
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": B64.encode(x), "y": B64.encode(y)})
    }

    fn sign(&self, text: &str) -> String {
        B64.encode(self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap())
    }
}

/// What the issuer knows and answers.
pub(super) struct Issued {
    /// Keys that it publishes, and the one that signs.
    pub(super) keys: Vec<Arc<SigningKey>>,
    pub(super) signs_with: Arc<SigningKey>,
    /// Changes of header and claims of ID tokens.
    pub(super) header: Value,
    pub(super) claims: Value,
    /// Answer of the user info endpoint besides `sub`; `null` if it answers 500.
    pub(super) info: Value,
    /// Makes a whole ID token of the unsigned one.
    pub(super) seal: Option<fn(&str) -> String>,
    /// Codes with the parameters of their requests; each is good for one exchange.
    codes: HashMap<String, Fields>,
}

/// A running issuer.
#[derive(Clone)]
pub(super) struct Provider {
    pub(super) url: String,
    pub(super) state: Arc<Mutex<Issued>>,
}

impl Provider {
    pub(super) async fn start() -> Provider {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = Arc::new(SigningKey::new("one"));
        let issued = Issued {
            keys: vec![Arc::clone(&key)],
            signs_with: key,
            header: json!({}),
            claims: json!({}),
            info: json!({}),
            seal: None,
            codes: HashMap::new(),
        };
        let url = format!("http://{}", listener.local_addr().unwrap());
        let provider = Provider { url, state: Arc::new(Mutex::new(issued)) };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .route("/me", get(info))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Issued> {
        self.state.lock().unwrap()
    }

    /// Answers a request for authorization (3.1.2.1) as if the person had signed in; returns the address to which it leads.
    pub(super) fn authorize(&self, address: &str) -> Url {
        let url = Url::parse(address).unwrap();
        assert_eq!(format!("{}{}", url.origin().ascii_serialization(), url.path()), format!("{}/auth", self.url));
        let fields: Fields = url.query_pairs().into_owned().collect();
        assert_eq!((&*fields["response_type"], &*fields["client_id"]), ("code", CLIENT));
        assert_eq!((&*fields["scope"], &*fields["code_challenge_method"]), ("openid email", "S256"));
        for name in ["state", "nonce", "code_challenge"] {
            assert_eq!(fields[name].len(), 43, "{name}");
        }
        let mut back = Url::parse(&fields["redirect_uri"]).unwrap();
        let mut state = self.state();
        let code = format!("code-{}", state.codes.len());
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &fields["state"]);
        state.codes.insert(code, fields);
        back
    }

    fn id_token(&self, nonce: &str) -> String {
        let state = self.state();
        let now = Timestamp::now().as_second();
        let mut header = json!({"alg": "ES256", "kid": state.signs_with.id});
        let mut claims = json!({
            "iss": self.url, "sub": "7", "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce,
            "email": "Ada@Example.com", "email_verified": true,
        });
        for (all, changes) in [(&mut header, &state.header), (&mut claims, &state.claims)] {
            for (name, value) in changes.as_object().unwrap() {
                match value {
                    Value::Null => drop(all.as_object_mut().unwrap().remove(name)),
                    value => all[name] = value.clone(),
                }
            }
        }
        let unsigned = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        match state.seal {
            Some(seal) => seal(&unsigned),
            None => format!("{unsigned}.{}", state.signs_with.sign(&unsigned)),
        }
    }
}

/// OpenID Connect Discovery 1.0, section 3.
async fn configuration(State(provider): State<Provider>) -> Json<Value> {
    let at = |path: &str| format!("{}/{path}", provider.url);
    Json(json!({
        "issuer": provider.url, "authorization_endpoint": at("auth"), "token_endpoint": at("token"),
        "userinfo_endpoint": at("me"), "jwks_uri": at("keys"), "response_types_supported": ["code"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256", "none", "HS256"],
    }))
}

async fn keys(State(provider): State<Provider>) -> Json<Value> {
    Json(json!({ "keys": provider.state().keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }))
}

/// 3.1.3.2, with the verifier of RFC 7636, section 4.6. Id and secret are form-encoded (RFC 6749, section 2.3.1).
async fn token(State(provider): State<Provider>, headers: HeaderMap, Form(fields): Form<Fields>) -> Response {
    let refuse = |status: StatusCode, error: &str| (status, Json(json!({ "error": error }))).into_response();
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{CLIENT}:{}", SECRET.replace(' ', "+"))));
    if headers.get(header::AUTHORIZATION).is_none_or(|given| *given != basic) {
        return refuse(StatusCode::UNAUTHORIZED, "invalid_client");
    }
    let asked = provider.state().codes.get_mut(&fields["code"]).map(std::mem::take);
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_grant");
    };
    let is_meant = fields["grant_type"] == "authorization_code"
        && fields["redirect_uri"] == asked["redirect_uri"]
        && B64.encode(Sha256::digest(&fields["code_verifier"])) == asked["code_challenge"];
    if !is_meant {
        return refuse(StatusCode::BAD_REQUEST, "invalid_grant");
    }
    let token = provider.id_token(&asked["nonce"]);
    let answer = json!({"access_token": ACCESS, "token_type": "Bearer", "expires_in": 60, "id_token": token});
    ([(header::CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

/// 5.3.
async fn info(State(provider): State<Provider>, headers: HeaderMap) -> Response {
    let bearer = format!("Bearer {ACCESS}");
    if headers.get(header::AUTHORIZATION).is_none_or(|given| *given != bearer) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let state = provider.state();
    let Some(info) = state.info.as_object() else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let mut answer = json!({"sub": "7"});
    for (name, value) in info {
        answer[name] = value.clone();
    }
    Json(answer).into_response()
}

/// Issuer that redirects: no redirect is followed, as it would take the code elsewhere.
pub(super) async fn redirecting(to: &str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = to.to_owned();
    let router = Router::new().fallback(move || std::future::ready(Redirect::temporary(&to)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}
