//! Access to every route of the router, tried over sockets against the binary: with every kind of missing login, and with every spelling of
//! `/events` and `X-Forwarded-For`.

mod deliveries;
mod tokens;

use crate::place::{Binary, LIMIT};
use http::Method;
use serde_json::{Value, json};
use std::time::Instant;
use tempfile::TempDir;
use tidelock::web::{Who, routes};
use tidelock_forge::{Forge, ForgeOptions};
use tokens::{Key, Published, SECOND, claims, now, unsigned, with_shared_secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ADA: &str = "ada@example.com";
const ASSERTION: &str = "x-goog-iap-jwt-assertion";

/// A server, the forge that it serves, and its directory.
struct Site {
    server: Binary,
    forge: Forge,
    dir: TempDir,
}

impl Site {
    async fn start(flags: &[&str]) -> Site {
        let dir = TempDir::new().unwrap();
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let server = Binary::start(&forge, dir.path(), flags, None).await;
        Site { server, forge, dir }
    }

    /// Returns the status and the whole answer.
    async fn request(&self, request: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let address = self.server.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut text = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// Repeats a request until the answer has this status.
    async fn wait_for(&self, request: &str, headers: &[(&str, &str)], body: &str, wanted: u16) {
        let until = Instant::now() + LIMIT;
        loop {
            let (status, answer) = self.request(request, headers, body).await;
            if status == wanted {
                return;
            }
            assert!(Instant::now() < until, "{request} {headers:?}: {answer}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// People who may call a route of a server behind IAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// Everybody; with the status of the answer to an empty request.
    All(u16),
    /// Those with an assertion.
    People,
    /// Those with an assertion, or with the API's token.
    PeopleAndToken,
    /// Those with the API's token.
    Token,
}

/// Flags with which there is `/wake`.
const WAKE: [&str; 2] = ["--wake-url=https://tide.example/wake", "--wake-account=wake@acme.iam.gserviceaccount.com"];

/// The decision for each route.
const DECISIONS: [(&str, Open); 58] = [
    ("POST /events", Open::All(400)),
    ("GET /healthz", Open::All(200)),
    ("GET /readyz", Open::All(200)),
    ("POST /wake", Open::All(401)),
    ("GET /status", Open::People),
    ("GET /metrics", Open::PeopleAndToken),
    ("GET /static/{name}", Open::People),
    ("GET /", Open::People),
    ("GET /index.html", Open::People),
    ("GET /api", Open::People),
    ("GET /lock", Open::People),
    ("DELETE /locks", Open::People),
    ("POST /locks/delete", Open::People),
    ("POST /actions/{action}", Open::People),
    ("GET /jobs/{id}", Open::People),
    ("GET /jobs/{id}/log", Open::People),
    ("GET /jobs/{id}/stream", Open::People),
    ("GET /changes", Open::People),
    ("GET /runs", Open::People),
    ("GET /runs/{id}", Open::People),
    ("GET /runs/{id}/plan", Open::People),
    ("GET /pulls/{*pull}", Open::People),
    ("GET /pulls", Open::People),
    ("GET /projects", Open::People),
    ("GET /projects/{*project}", Open::People),
    ("GET /search", Open::People),
    ("GET /drift", Open::People),
    ("POST /drift/check", Open::People),
    ("GET /audit", Open::People),
    ("GET /audit.csv", Open::People),
    ("GET /audit.json", Open::PeopleAndToken),
    ("GET /api/locks", Open::PeopleAndToken),
    ("GET /api/freezes", Open::PeopleAndToken),
    ("GET /openapi.json", Open::People),
    ("DELETE /api/locks", Open::PeopleAndToken),
    ("POST /api/plan", Open::Token),
    ("POST /api/apply", Open::Token),
    ("GET /api/drift/status", Open::Token),
    ("POST /api/drift/detect", Open::Token),
    ("GET /api/drift/remediate", Open::Token),
    ("GET /api/drift/remediate/{id}", Open::Token),
    ("POST /api/drift/remediate", Open::Token),
    ("POST /freezes/lift", Open::People),
    ("GET /api/runs/{id}", Open::PeopleAndToken),
    ("GET /api/runs", Open::PeopleAndToken),
    ("GET /api/runs/{id}/jobs", Open::PeopleAndToken),
    ("GET /api/runs/{id}/changes", Open::PeopleAndToken),
    ("GET /api/projects", Open::PeopleAndToken),
    ("GET /api/pulls", Open::PeopleAndToken),
    ("GET /api/jobs/{id}", Open::PeopleAndToken),
    ("GET /api/jobs/{id}/log", Open::PeopleAndToken),
    ("GET /api/jobs/{id}/stream", Open::PeopleAndToken),
    ("POST /apply/lock", Open::People),
    ("DELETE /apply/unlock", Open::People),
    ("POST /apply/unlock", Open::People),
    ("GET /login", Open::People),
    ("GET /login/callback", Open::People),
    ("POST /logout", Open::People),
];

/// Returns the router's routes with their decisions, as requests.
fn requests() -> Vec<(Method, String, Open)> {
    let decided = |(method, path, _): (Method, &str, Who)| {
        let route = format!("{method} {path}");
        let decision = DECISIONS.iter().find(|(known, _)| *known == route);
        let (_, open) = decision.unwrap_or_else(|| panic!("{route} has no decision in DECISIONS"));
        (
            method,
            route
                .replace("{id}", &"0".repeat(32))
                .replace("{name}", "x.css")
                .replace("{action}", "plan")
                .replace("{*pull}", "h/o/r/1")
                .replace("{*project}", "h/o/r"),
            *open,
        )
    };
    let requests: Vec<_> = routes().into_iter().map(decided).collect();
    assert_eq!(requests.len(), DECISIONS.len(), "a decision is about no route");
    requests
}

/// Name and headers of a caller, and the result: `Ok` for a person whom IAP let in, otherwise a part of the answer.
type Caller = (&'static str, Vec<(&'static str, String)>, Result<(), &'static str>);

fn callers(key: &Key, other: &Key) -> Vec<Caller> {
    let with = |name, changes: Value, expected| (name, vec![(ASSERTION, key.assert(ADA, changes))], expected);
    let raw = |name, assertion: String, expected| (name, vec![(ASSERTION, assertion)], expected);
    let (good, ours) = (key.assert(ADA, json!({})), claims(ADA, json!({})));
    let header = |alg: &str| json!({"alg": alg, "typ": "JWT", "kid": key.id});
    let stranger = other.sign(&header("ES256"), &ours);
    let (start, signature) = good.rsplit_once('.').unwrap();
    let edited = format!("{}.{signature}", unsigned(&header("ES256"), &claims("eve@example.com", json!({}))));
    let pem = format!("{:?}", key.public());
    const UNREADABLE: &str = "cannot be read";
    const TIME: &str = "not valid at this time";
    const AUDIENCE: &str = "for another audience";
    const ALGORITHM: &str = "not signed with ES256";
    const ABSENT: &str = "there is no assertion";
    vec![
        with("good", json!({}), Ok(())),
        with("of the second audience", json!({"aud": SECOND}), Ok(())),
        with("just expired", json!({"iat": now() - 600, "exp": now() - 10}), Ok(())),
        with("just early", json!({"iat": now() + 20, "exp": now() + 620}), Ok(())),
        ("no token", vec![], Err(ABSENT)),
        raw("empty", String::new(), Err(UNREADABLE)),
        raw("not a token", "a.b.c".into(), Err("the token")),
        with("expired", json!({"iat": now() - 640, "exp": now() - 40}), Err(TIME)),
        with("early", json!({"iat": now() + 90, "exp": now() + 690}), Err(TIME)),
        with("not before", json!({"nbf": now() + 90}), Err(TIME)),
        with("of a long life", json!({"exp": now() + 3600}), Err(TIME)),
        with("without an end", json!({"exp": null}), Err("the token")),
        with("other audience", json!({"aud": "/projects/1234/global/backendServices/56789"}), Err(AUDIENCE)),
        with("other audience in front", json!({"aud": "/projects/1234/global/backendServices/567"}), Err(AUDIENCE)),
        with("without audience", json!({"aud": null}), Err("the token")),
        with("other issuer", json!({"iss": "https://accounts.google.com"}), Err("another issuer")),
        with("nobody", json!({"email": ""}), Err("names nobody")),
        raw("none", format!("{}.", unsigned(&header("none"), &ours)), Err(ALGORITHM)),
        raw("none with a signature", key.sign(&header("none"), &ours), Err(ALGORITHM)),
        raw("HS256 with the public key", with_shared_secret(key.public(), &key.id, &ours), Err(ALGORITHM)),
        raw("HS256 with the key in words", with_shared_secret(pem.as_bytes(), &key.id, &ours), Err(ALGORITHM)),
        raw("ES384", key.sign(&header("ES384"), &ours), Err(ALGORITHM)),
        raw("unknown key id", other.assert(ADA, json!({})), Err("key is unknown")),
        raw("no key id", key.sign(&json!({"alg": "ES256"}), &ours), Err("key is unknown")),
        raw("a stranger's signature", stranger, Err("signature is wrong")),
        raw("an edited email", edited, Err("signature is wrong")),
        raw("no signature", format!("{start}."), Err("the token")),
        ("two good ones", vec![(ASSERTION, good.clone()), (ASSERTION, good.clone())], Err("more than one")),
        ("a good and a bad one", vec![(ASSERTION, good.clone()), (ASSERTION, "x".into())], Err("more than one")),
        ("two in one", vec![(ASSERTION, format!("{good}, {good}"))], Err("the token")),
        ("as bearer", vec![("authorization", format!("Bearer {good}"))], Err(ABSENT)),
        (
            "forged plain headers",
            vec![
                ("x-goog-authenticated-user-email", format!("accounts.google.com:{ADA}")),
                ("x-goog-authenticated-user-id", "accounts.google.com:1".into()),
            ],
            Err(ABSENT),
        ),
        ("a login", vec![("authorization", "Basic dGlkZTpwYXNzd29yZC1vZi10aWRl".into())], Err(ABSENT)),
    ]
}

async fn behind_iap(keys: &Published, more: &[&str]) -> Site {
    let audience = format!("--iap-audience={},{SECOND}", tokens::AUDIENCE);
    let url = format!("--iap-keys-url={}", keys.url);
    let usual = [audience.as_str(), &url, "--api-secret=s3cret", "--enable-drift-detection", WAKE[0], WAKE[1]];
    Site::start(&[&usual, more].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_behind_iap_is_for_those_whom_iap_let_in() {
    let (key, other, keys) = (Key::new("one"), Key::new("two"), Published::start().await);
    keys.keys(&[&key]);
    // Neither a correct login nor loopback counts.
    let login =
        ["--web-basic-auth", "--web-username=tide", "--web-password=password-of-tide", "--allow-unauthenticated-pages"];
    let site = behind_iap(&keys, &login).await;
    for (method, request, open) in requests() {
        for (name, headers, expected) in callers(&key, &other) {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let (status, answer) = site.request(&request, &headers, "").await;
            match (open, expected) {
                (Open::All(usual), _) => assert_eq!(status, usual, "{request} with {name}: {answer}"),
                (Open::Token, Ok(())) => assert_eq!(status, 401, "{request} with {name}: {answer}"),
                (_, Ok(())) => assert!(!matches!(status, 401 | 403 | 405 | 500..), "{request} with {name}: {answer}"),
                (_, Err(why)) => {
                    assert_eq!(status, 403, "{request} with {name}: {answer}");
                    assert!(
                        answer.contains(why) && answer.contains("--iap-audience"),
                        "{request} with {name}: {answer}"
                    );
                }
            }
            assert!(answer.contains("x-request-id: "), "{request}: {answer}");
        }
        let (status, answer) = site.request(&request, &[("x-atlantis-token", "s3cret")], "").await;
        match open {
            Open::All(usual) => assert_eq!(status, usual),
            Open::People => assert_eq!(status, 403, "{request} with the API's token: {answer}"),
            Open::Token => assert_eq!(status, 400, "{request} with the API's token: {answer}"),
            // A request for an unknown run is let in as well.
            Open::PeopleAndToken => {
                assert!(matches!(status, 200 | 400 | 404), "{request} with the API's token: {status} {answer}");
            }
        }
        // Methods that the route does not have are closed as well.
        if !matches!(open, Open::All(_)) {
            let put = request.replacen(method.as_str(), "PUT", 1);
            assert_eq!(site.request(&put, &[], "").await.0, 403, "{put}");
        }
    }
    let (_, page) = site.request("GET /", &[(ASSERTION, &key.assert("Ada@Example.com", json!({})))], "").await;
    assert!(page.contains("Signed in as ada@example.com"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_path_gets_around_iap() {
    let (key, keys) = (Key::new("one"), Published::start().await);
    keys.keys(&[&key]);
    let site = behind_iap(&keys, &[]).await;
    let body = "{}";
    let signature = crate::place::sign(&site.forge, body.as_bytes());
    let signed =
        [("content-type", "application/json"), ("x-github-event", "ping"), ("x-hub-signature-256", signature.as_str())];
    assert_eq!(site.request("POST /events", &signed, body).await.0, 200, "the delivery is good");
    let events = [
        "/events/",
        "//events",
        "/events/..",
        "/events/../",
        "/./events",
        "/events%2f",
        "/%65vents",
        "/EVENTS",
        "/x/../events",
    ];
    let pages = [
        "/events/../",
        "/events/../locks",
        "/events/..%2flocks",
        "/events%2f..%2flocks",
        "/events/;/locks",
        "/healthz/",
        "//healthz",
        "/healthz/..",
        "/healthz/../api/locks",
        "/healthz%2f..%2fapi%2flocks",
        "//",
        "/.",
        "/static/..%2fapi%2flocks",
        "/nothing",
        "/api/nothing",
        "/healthz;/../api/locks",
        "/events%00",
    ];
    for path in events.iter().chain(&pages) {
        for method in ["POST", "GET", "DELETE"] {
            let (status, answer) = site.request(&format!("{method} {path}"), &signed, body).await;
            assert_eq!(status, 403, "{method} {path}: {answer}");
        }
        let (status, answer) =
            site.request(&format!("GET {path}"), &[(ASSERTION, &key.assert(ADA, json!({})))], "").await;
        assert_eq!(status, 404, "nothing is hidden from people at {path}: {answer}");
    }
    let absolute = format!("GET {}/api/locks", site.server.url);
    assert_eq!(site.request(&absolute, &[], "").await.0, 403);
    assert_eq!(site.request("GET /events", &[], "").await.0, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_and_go_and_without_any_all_is_closed() {
    let (first, second, keys) = (Key::new("one"), Key::new("two"), Published::start().await);
    let site = behind_iap(&keys, &[]).await;
    let asked = |key: &Key| key.assert(ADA, json!({}));
    let (status, answer) = site.request("GET /status", &[(ASSERTION, &asked(&first))], "").await;
    assert_eq!(status, 403);
    assert!(answer.contains("could not be loaded"), "the key server is down at the start: {answer}");
    keys.keys(&[&first]);
    site.wait_for("GET /status", &[(ASSERTION, &asked(&first))], "", 200).await;
    assert_eq!(site.request("GET /status", &[(ASSERTION, &asked(&second))], "").await.0, 403);
    keys.keys(&[&second]);
    site.wait_for("GET /status", &[(ASSERTION, &asked(&second))], "", 200).await;
    assert_eq!(site.request("GET /status", &[(ASSERTION, &asked(&first))], "").await.0, 403, "its key was taken back");
    keys.set(None);
    assert_eq!(
        site.request("GET /status", &[(ASSERTION, &asked(&second))], "").await.0,
        200,
        "the keys are remembered"
    );
    assert_eq!(site.request("GET /status", &[(ASSERTION, &asked(&first))], "").await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_state_is_for_admins_on_every_route() {
    let (key, keys) = (Key::new("one"), Published::start().await);
    keys.keys(&[&key]);
    let site = behind_iap(&keys, &["--admins=Ada@example.com,@ops.example"]).await;
    let outside = json!({"hd": null});
    let people = [
        (key.assert(ADA, json!({})), true),
        (key.assert("bob@ops.example", json!({})), true),
        (key.assert("eve@example.com", json!({})), false),
        (key.assert("mallory@ops.example", outside), false),
    ];
    for (method, request, open) in requests() {
        if matches!(open, Open::All(_) | Open::Token) {
            continue;
        }
        for (assertion, is_admin) in &people {
            let (status, answer) = site.request(&request, &[(ASSERTION, assertion)], "").await;
            if *is_admin || method == Method::GET {
                assert!(!matches!(status, 401 | 403), "{request}: {answer}");
                // The page offers no action that the person may not do.
                assert!(request != "GET /" || answer.contains("Stop all applies") == *is_admin, "{answer}");
            } else {
                assert_eq!(status, 403, "{request}: {answer}");
                let names = answer.contains("eve@example.com") || answer.contains("mallory@ops.example");
                assert!(names && answer.contains("--admins"), "{request}: {answer}");
            }
        }
    }
    let log = std::fs::read_to_string(&site.server.logs[0]).unwrap();
    let said = |parts: &[&str]| log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    let by_ada = [
        r#""audit":true"#,
        r#""who":"ada@example.com""#,
        r#""act":"apply lock""#,
        r#""result":"done""#,
        r#""request":""#,
    ];
    assert!(said(&by_ada), "{log}");
    assert!(said(&[r#""audit":true"#, r#""who":"eve@example.com""#, "POST /apply/lock", "refused"]), "{log}");
}
