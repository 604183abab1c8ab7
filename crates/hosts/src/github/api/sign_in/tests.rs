use super::*;
use axum::extract::Path;
use axum::http::{HeaderMap as Headers, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::Value;

/// Starts a GitHub that exchanges the code `good` once its parameters are right, and knows the memberships of `Ada`.
async fn github() -> String {
    let exchange = async |Json(body): Json<Value>| {
        let is_ours = body["client_id"] == "id" && body["client_secret"] == "app-secret";
        let is_meant = body["redirect_uri"] == "https://tide.example/login/callback" && body["code_verifier"] == "v";
        Json(match body["code"].as_str() {
            _ if !is_ours => json!({"error": "incorrect_client_credentials", "error_description": "…"}),
            Some("good") if is_meant => json!({"access_token": "gho_1", "token_type": "bearer", "scope": "read:org"}),
            Some("odd") => json!({}),
            _ => json!({"error": "bad_verification_code"}),
        })
    };
    let known = |headers: &Headers| headers.get("authorization").is_some_and(|token| token == "Bearer gho_1");
    let user = async move |headers: Headers| match known(&headers) {
        true => (StatusCode::OK, Json(json!({"login": "Ada", "id": 7}))),
        false => (StatusCode::UNAUTHORIZED, Json(json!({"message": "Bad credentials"}))),
    };
    let organization = async |Path(organization): Path<String>| match &*organization {
        "acme" => (StatusCode::OK, Json(json!({"state": "active"}))),
        "sea" => (StatusCode::OK, Json(json!({"state": "pending"}))),
        "closed" => (StatusCode::FORBIDDEN, Json(json!({"message": "has enabled OAuth App access restrictions"}))),
        "broken" => (StatusCode::BAD_REQUEST, Json(json!({"message": "no"}))),
        _ => (StatusCode::NOT_FOUND, Json(json!({"message": "Not Found"}))),
    };
    let team = async |Path((organization, team, login)): Path<(String, String, String)>| match (
        &*organization,
        &*team,
        &*login,
    ) {
        ("acme", "sre", "Ada") => (StatusCode::OK, Json(json!({"state": "active", "role": "member"}))),
        _ => (StatusCode::NOT_FOUND, Json(json!({"message": "Not Found"}))),
    };
    let router = Router::new()
        .route("/login/oauth/access_token", post(exchange))
        .route("/api/v3/user", get(user))
        .route("/api/v3/user/memberships/orgs/{organization}", get(organization))
        .route("/api/v3/orgs/{organization}/teams/{team}/memberships/{login}", get(team));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/api/v3")
}

fn app(api_url: &str, groups: &[&str]) -> OauthApp {
    OauthApp {
        api_url: api_url.to_owned(),
        client_id: "id".into(),
        client_secret: "app-secret".to_owned().into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    }
}

const CALLBACK: &str = "https://tide.example/login/callback";

#[tokio::test]
async fn an_account_is_known_with_those_groups_that_it_is_an_active_member_of() {
    let github = github().await;
    let app = app(&github, &["acme/*", "acme/dev", "acme/sre", "closed/*", "other/*", "sea/*"]);
    let account = app.account("good", CALLBACK, "v").await.unwrap();
    assert_eq!(account, SignedInAccount { login: "Ada".into(), groups: vec!["acme/*".into(), "acme/sre".into()] });
}

#[tokio::test]
async fn a_code_is_good_for_this_app_address_and_verifier() {
    let github = github().await;
    for (code, callback, verifier) in
        [("bad", CALLBACK, "v"), ("good", "https://evil.example/", "v"), ("good", CALLBACK, "w")]
    {
        let error = app(&github, &[]).account(code, callback, verifier).await.unwrap_err();
        assert!(matches!(error, CodeError::NotAccepted), "{code} {callback} {verifier}: {error}");
    }
    let other = OauthApp { client_secret: "stolen".to_owned().into(), ..app(&github, &[]) };
    let error = other.account("good", CALLBACK, "v").await.unwrap_err().to_string();
    assert_eq!(error, "the exchange of a code was refused: incorrect_client_credentials");
    let error = app(&github, &[]).account("odd", CALLBACK, "v").await.unwrap_err();
    assert!(matches!(error, CodeError::Host(_)) && !error.to_string().contains("app-secret"), "{error}");
}

#[tokio::test]
async fn a_membership_that_is_not_told_lets_nobody_in() {
    let github = github().await;
    let error = app(&github, &["broken/*"]).account("good", CALLBACK, "v").await.unwrap_err();
    assert!(matches!(error, CodeError::Host(HostError::Rejected { status: 400, .. })), "{error}");
    let nowhere = app("http://127.0.0.1:9/api/v3", &[]).account("good", CALLBACK, "v").await.unwrap_err();
    assert!(matches!(nowhere, CodeError::Host(HostError::Unavailable { .. })), "{nowhere}");
}

#[test]
fn a_login_is_plain_text() {
    for login in ["ada", "Ada-7", "ada_acme"] {
        assert!(is_login(login), "{login}");
    }
    for login in ["", "-ada", "ada/x", "ada@example.com", "a b", "ada\n", "../x"] {
        assert!(!is_login(login), "{login}");
    }
}
