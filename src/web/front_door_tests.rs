//! The router as it is reached over a socket, before state is open.

use super::*;
use axum::extract::connect_info::MockConnectInfo;
use insta::assert_snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(super) const FAR: &str = "203.0.113.7:999";
pub(super) const NEAR: &str = "127.0.0.1:999";

pub(super) fn web_state(ready: Option<Arc<Ready>>) -> WebState {
    WebState {
        secrets: Secrets::default(),
        ready: watch::channel(ready).1,
        access: access::Access { basic_auth: None, open: false },
        url: "http://localhost:4141".into(),
        api_secret: Some("s3cret".to_owned().into()),
        disable_global_apply_lock: false,
        apply_allowed: true,
        executable_name: "atlantis".into(),
    }
}

/// A server whose requests all seem to come from `peer`.
pub(super) async fn serve(state: WebState, peer: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer: SocketAddr = peer.parse().unwrap();
    let router = router(Arc::new(state)).layer(MockConnectInfo(peer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Status and whole answer, head and body.
pub(super) async fn ask(address: SocketAddr, request: &str, headers: &[&str], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut text = format!("{request} HTTP/1.1\r\nhost: localhost:4141\r\nconnection: close\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

const BROWSER: &str = "accept: text/html,*/*";

fn example(path: &str) -> String {
    path.replace("{id}", "0123456789abcdef0123456789abcdef").replace("{name}", "x.css")
}

#[test]
fn every_route_has_its_decision_in_one_table() {
    let rows = table(&web_state(None));
    let text: String =
        rows.iter().map(|r| format!("{:8} {:6} {}\n", format!("{:?}", r.who), r.method, r.path)).collect();
    assert_snapshot!(text, @r##"
    Everyone POST /events
    Everyone GET /healthz
    Everyone GET /readyz
    Everyone GET /status
    Everyone GET /static/{name}
    People   GET /
    People   GET /index.html
    People   GET /lock
    People   DELETE /locks
    People   POST /locks/delete
    People   GET /jobs/{id}
    People   GET /jobs/{id}/log
    People   GET /jobs/{id}/stream
    Api      GET /api/locks
    People   POST /apply/lock
    People   DELETE /apply/unlock
    People   POST /apply/unlock
    "##);
}

#[tokio::test]
async fn what_is_for_people_is_closed_to_far_peers_on_every_route() {
    let address = serve(web_state(None), FAR).await;
    for Route { method, path, who, .. } in table(&web_state(None)) {
        let (status, answer) = ask(address, &format!("{method} {}", example(path)), &[], "").await;
        if who == Who::Everyone {
            assert!(!matches!(status, 401 | 403), "{method} {path}: {status}");
            continue;
        }
        assert_eq!(status, 403, "{method} {path}");
        assert!(answer.contains("--web-basic-auth") && answer.contains("--allow-unauthenticated-pages"), "{answer}");
    }
}

#[tokio::test]
async fn changes_need_our_own_origin_on_every_route() {
    let address = serve(web_state(None), NEAR).await;
    for Route { method, path, who, .. } in table(&web_state(None)) {
        if who == Who::Everyone || method == Method::GET {
            continue;
        }
        for header in ["sec-fetch-site: cross-site", "origin: https://evil.example"] {
            let (status, answer) = ask(address, &format!("{method} {path}"), &[header], "").await;
            assert_eq!(status, 403, "{method} {path} {header}: {answer}");
        }
        let ours = ["sec-fetch-site: same-origin", "origin: http://localhost:4141"];
        assert_eq!(ask(address, &format!("{method} {path}"), &ours, "").await.0, 503, "{method} {path}");
    }
}

#[tokio::test]
async fn before_state_is_open_it_is_healthy_but_not_ready() {
    let address = serve(web_state(None), NEAR).await;
    let (status, answer) = ask(address, "GET /healthz", &[], "").await;
    assert_eq!(status, 200);
    assert!(answer.ends_with(r#"{"status":"ok"}"#));
    let (status, answer) = ask(address, "GET /readyz", &[], "").await;
    assert_eq!(status, 503);
    assert!(answer.ends_with(r#"{"error":"starting: state is not open yet","status":"error"}"#), "{answer}");
    let (status, answer) = ask(address, "GET /status", &[], "").await;
    assert_eq!(status, 200);
    assert!(answer.contains(r#""shutting_down":false,"in_progress_operations":0"#) && answer.contains("starting"));
    let (status, _) = ask(address, "POST /events", &[], "{}").await;
    assert_eq!(status, 400, "what is not authentic does not wait for the start");
    let (status, answer) = ask(address, "GET /", &[BROWSER], "").await;
    assert_eq!(status, 503);
    assert!(answer.contains("<h1>Starting") && answer.contains("http-equiv=\"refresh\""), "{answer}");
}

#[tokio::test]
async fn pages_carry_security_headers_and_static_files_are_kept() {
    let address = serve(web_state(None), NEAR).await;
    let (_, answer) = ask(address, "GET /jobs/x", &[BROWSER], "").await;
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: same-origin",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
    assert!(answer.contains("x-request-id: "));
    let assets = assets::Assets::new();
    assert!(answer.contains(&format!("href=\"../static/{}\"", assets.style.name)), "{answer}");
    let (status, style) = ask(address, &format!("GET /static/{}", assets.style.name), &[], "").await;
    assert_eq!(status, 200);
    assert!(style.contains("immutable") && style.contains("text/css"));
    assert_eq!(ask(address, "GET /static/tidelock.css", &[], "").await.0, 404);
    assert_eq!(ask(address, "GET /static/..%2f..%2fCargo.toml", &[], "").await.0, 404);
}

#[tokio::test]
async fn unknown_paths_are_404_and_the_api_says_so_in_json() {
    let address = serve(web_state(None), FAR).await;
    let (status, answer) = ask(address, "GET /nothing/here", &[BROWSER], "").await;
    assert_eq!(status, 404);
    assert!(answer.contains("<h1>Not found") && answer.contains("href=\"../\""), "{answer}");
    let (status, answer) = ask(address, "POST /api/plan", &[], "").await;
    assert_eq!(status, 404);
    assert!(answer.ends_with(r#"{"error":"There is no such page here."}"#), "{answer}");
    let long = format!("GET /{}", "a/".repeat(500));
    assert_eq!(ask(address, &long, &[BROWSER], "").await.0, 404);
}

#[tokio::test]
async fn the_apply_lock_can_be_taken_out() {
    let address = serve(WebState { disable_global_apply_lock: true, ..web_state(None) }, NEAR).await;
    for request in ["POST /apply/lock", "DELETE /apply/unlock", "POST /apply/unlock"] {
        assert_eq!(ask(address, request, &[], "").await.0, 404, "{request}");
    }
}

#[tokio::test]
async fn a_login_is_asked_for_where_one_is_configured() {
    let access = access::Access { basic_auth: Some(("tide".into(), "pw".to_owned().into())), open: false };
    let address = serve(WebState { access, ..web_state(None) }, NEAR).await;
    let (status, answer) = ask(address, "GET /", &[BROWSER], "").await;
    assert_eq!(status, 401);
    assert!(answer.contains("www-authenticate: Basic realm=\"restricted\""), "{answer}");
    assert_eq!(ask(address, "GET /", &["authorization: Basic dGlkZTpwdw=="], "").await.0, 503);
    assert_eq!(ask(address, "GET /api/locks", &["x-atlantis-token: s3cret"], "").await.0, 503);
    assert_eq!(ask(address, "GET /api/locks", &["x-atlantis-token: wrong"], "").await.0, 401);
}
