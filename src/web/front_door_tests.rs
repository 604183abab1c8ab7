//! Tests of the router over a socket, before the state is open.

use super::*;
use crate::meters::WorkMeters;
use crate::server_status::Role;
use crate::settings::MetricsLabels;
use crate::vault::bucket::{Body, Bucket, BucketError, Generation, Listed, Object, Written};
use crate::vault::clock::Boottime;
use crate::vault::directory::Directory;
use crate::vault::inbox::HandOverKey;
use crate::vault::lease::{Identity, Timing};
use crate::vault::wording::Wording;
use crate::vault::{Retention, Vault};
use crate::wake::Attention;
use axum::extract::connect_info::MockConnectInfo;
use bytes::Bytes;
use insta::assert_snapshot;
use std::ops::Range;
use tidelock_hosts::github::GithubDoor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(super) const FAR: &str = "203.0.113.7:999";
pub(super) const NEAR: &str = "127.0.0.1:999";

/// A bucket that can never be used.
struct Nowhere;

fn nothing<T>() -> Result<T, BucketError> {
    let text = |text: &str| text.to_owned();
    Err(BucketError::Refused { location: text("nowhere"), doing: text("ask"), reason: text("it is not there") })
}

#[async_trait::async_trait]
impl Bucket for Nowhere {
    fn location(&self) -> &str {
        "nowhere"
    }
    async fn check(&self) -> Result<Vec<String>, BucketError> {
        nothing()
    }
    async fn get(&self, _: &str) -> Result<Option<Object>, BucketError> {
        nothing()
    }
    async fn get_range(&self, _: &str, _: Generation, _: Range<u64>) -> Result<Option<Bytes>, BucketError> {
        nothing()
    }
    async fn put(&self, _: &str, _: Generation, _: Body, _: &str) -> Result<Written, BucketError> {
        nothing()
    }
    async fn delete(&self, _: &str, _: Generation) -> Result<bool, BucketError> {
        nothing()
    }
    async fn list(&self, _: &str, _: &str) -> Result<Vec<Listed>, BucketError> {
        nothing()
    }
    fn requests(&self) -> Vec<(&'static str, u64)> {
        vec![("put", 0)]
    }
}

fn vault(bucket: Arc<dyn Bucket>) -> Vault {
    let identity = Identity {
        nonce: "0".repeat(32),
        url: "http://localhost:4141".into(),
        machine: "here".into(),
        version: "0".into(),
        fingerprint: String::new(),
        force: false,
    };
    Vault {
        bucket,
        clock: Arc::new(Boottime),
        identity,
        fingerprint: Default::default(),
        timing: Timing::default(),
        retention: Retention::default(),
        handover: HandOverKey::derive(""),
        wording: Wording::default(),
    }
}

/// Returns the state of a server that has just started, and whose bucket does not respond.
pub(super) fn web_state() -> WebState {
    WebState {
        metrics: metrics::MetricsSource {
            namespace: "tidelock".into(),
            path: None,
            atlantis_names: false,
            work: Arc::new(WorkMeters::new(MetricsLabels::None)),
            gauges: metrics::GaugeCache::default(),
        },
        intake: Intake::new(vec![Arc::new(GithubDoor {
            hostname: "github.example.com".into(),
            ..GithubDoor::default()
        })]),
        server_status: watch::channel(Arc::new(ServerStatus::starting())).1,
        meters: Arc::default(),
        vault: vault(Arc::new(Nowhere)),
        attention: Attention::new(None),
        sleeps: false,
        events_only: false,
        protection: None,
        configuration: None,
        access: access::AccessRules::default(),
        url: "http://localhost:4141".into(),
        api_secret: Some("s3cret".to_owned().into()),
        drift_detection: true,
        drift_remediation: false,
        trace_page: None,
        disable_global_apply_lock: false,
        apply_allowed: true,
        pull_marks: BTreeMap::new(),
        commit_addresses: BTreeMap::new(),
        host_pages: Vec::new(),
        executable_name: "atlantis".into(),
    }
}

/// Starts a server whose requests all appear to come from `peer`.
pub(super) async fn serve(state: WebState, peer: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer: SocketAddr = peer.parse().unwrap();
    let router = router(Arc::new(state)).layer(MockConnectInfo(peer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Sends a request; returns the status and the whole response, head and body.
pub(super) async fn send_request(address: SocketAddr, request: &str, headers: &[&str], body: &str) -> (u16, String) {
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
    let rows = table(&web_state());
    let text: String =
        rows.iter().map(|r| format!("{:13} {:6} {}\n", format!("{:?}", r.who), r.method, r.path)).collect();
    assert_snapshot!(text, @r##"
    Host          POST /events
    Probes        GET /healthz
    Probes        GET /readyz
    Everyone      GET /openapi.json
    Everyone      GET /status
    Api(Read)     GET /metrics
    Everyone      GET /static/{name}
    Api(Read)     GET /api/locks
    Api(Unlock)   DELETE /api/locks
    Api(Read)     GET /api/freezes
    Api(Read)     GET /api/runs/{id}
    Token(Plan)   POST /api/plan
    Token(Apply)  POST /api/apply
    People        GET /drift
    People        POST /drift/check
    Token(Drift)  POST /api/drift/detect
    Token(Read)   GET /api/drift/status
    Token(Apply)  POST /api/drift/remediate
    Token(Read)   GET /api/drift/remediate
    Token(Read)   GET /api/drift/remediate/{id}
    People        GET /
    People        GET /index.html
    People        GET /api
    People        GET /lock
    People        DELETE /locks
    People        POST /locks/delete
    People        POST /freezes/lift
    People        POST /actions/{action}
    People        GET /projects
    Api(Read)     GET /api/projects
    People        GET /projects/{*project}
    People        GET /search
    People        GET /jobs/{id}
    People        GET /jobs/{id}/log
    People        GET /jobs/{id}/stream
    Api(Read)     GET /api/jobs/{id}
    Api(Read)     GET /api/jobs/{id}/log
    Api(Read)     GET /api/jobs/{id}/stream
    People        GET /changes
    People        GET /runs
    People        GET /runs/{id}
    People        GET /runs/{id}/plan
    Api(Read)     GET /api/runs
    Api(Read)     GET /api/runs/{id}/jobs
    Api(Read)     GET /api/runs/{id}/changes
    Api(Read)     GET /api/pulls
    People        GET /pulls
    People        GET /pulls/{*pull}
    People        GET /audit
    People        GET /audit.csv
    Api(Read)     GET /audit.json
    People        POST /apply/lock
    People        DELETE /apply/unlock
    People        POST /apply/unlock
    "##);
}

#[tokio::test]
async fn what_is_for_people_is_closed_to_far_peers_on_every_route() {
    let address = serve(web_state(), FAR).await;
    for Route { method, path, who, .. } in table(&web_state()) {
        let (status, answer) = send_request(address, &format!("{method} {}", example(path)), &[], "").await;
        if matches!(who, Who::Host | Who::Probes | Who::Everyone) {
            assert!(!matches!(status, 401 | 403), "{method} {path}: {status}");
            continue;
        }
        if matches!(who, Who::Token(_)) {
            assert_eq!(status, 401, "{method} {path}");
            continue;
        }
        assert_eq!(status, 403, "{method} {path}");
        assert!(answer.contains("--web-basic-auth") && answer.contains("--allow-unauthenticated-pages"), "{answer}");
    }
}

#[tokio::test]
async fn changes_need_our_own_origin_on_every_route() {
    let address = serve(web_state(), NEAR).await;
    for Route { method, path, who, .. } in table(&web_state()) {
        if matches!(who, Who::Host | Who::Everyone) || method == Method::GET {
            continue;
        }
        for header in ["sec-fetch-site: cross-site", "origin: https://evil.example"] {
            let (status, answer) = send_request(address, &format!("{method} {path}"), &[header], "").await;
            assert_eq!(status, 403, "{method} {path} {header}: {answer}");
        }
        let ours = ["sec-fetch-site: same-origin", "origin: http://localhost:4141"];
        let wanted = if matches!(who, Who::Token(_)) { 401 } else { 503 };
        assert_eq!(send_request(address, &format!("{method} {path}"), &ours, "").await.0, wanted, "{method} {path}");
    }
}

#[tokio::test]
async fn before_state_is_open_it_is_healthy_but_not_ready() {
    let address = serve(web_state(), NEAR).await;
    let (status, answer) = send_request(address, "GET /healthz", &[], "").await;
    assert_eq!(status, 200);
    assert!(answer.ends_with(r#"{"status":"ok"}"#));
    let (status, answer) = send_request(address, "GET /readyz", &[], "").await;
    assert_eq!(status, 503);
    let error = r#"{"error":"standby: it has just started, and checks which server leads","status":"error"}"#;
    assert!(answer.ends_with(error), "{answer}");
    let (status, answer) = send_request(address, "GET /status", &[], "").await;
    assert_eq!(status, 200);
    assert!(answer.contains(r#""shutting_down":false,"in_progress_operations":0"#), "{answer}");
    assert!(answer.contains(r#""role":"standby""#) && answer.contains(r#""fingerprint_mismatch":false"#), "{answer}");
    let (status, _) = send_request(address, "POST /events", &[], "{}").await;
    assert_eq!(status, 400, "what is not authentic is not stored");
    let (status, answer) = send_request(address, "GET /metrics", &[], "").await;
    assert_eq!(status, 200);
    assert!(answer.contains("tidelock_role{role=\"standby\"} 1\ntidelock_role{role=\"restoring\"} 0\n"), "{answer}");
}

#[tokio::test]
async fn a_standby_shows_who_leads_and_no_state() {
    let leader = Identity {
        machine: "node-7".into(),
        url: "https://tide.example/x".into(),
        ..vault(Arc::new(Nowhere)).identity
    };
    let server_status = ServerStatus {
        why: "node-7 leads, with epoch 3".into(),
        leader: Some(leader),
        epoch: Some(3),
        ..ServerStatus::starting()
    };
    let address =
        serve(WebState { server_status: watch::channel(Arc::new(server_status)).1, ..web_state() }, NEAR).await;
    let (status, answer) = send_request(address, "GET /", &[BROWSER], "").await;
    assert_eq!(status, 503);
    for part in ["<h1>Standing by", "http-equiv=\"refresh\"", "retry-after: 2", "tide.example&#x2f;x</a>"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    let (status, answer) = send_request(address, "GET /api/locks", &[], "").await;
    assert_eq!(status, 503);
    assert!(answer.contains("node-7 leads: https://tide.example/x"), "{answer}");
    let (_, answer) = send_request(address, "GET /status", &[], "").await;
    assert!(answer.contains(r#""epoch":3,"leader":{"url":"https://tide.example/x","machine":"node-7""#), "{answer}");
}

const COMMENT: &str = include_str!("../../tests/fixtures/webhooks/github/issue_comment_created.json");
const OF_GITHUB: &str = "content-type: application/json";

#[tokio::test]
async fn whoever_does_not_lead_stores_what_causes_work_before_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = Directory::open(&folder.path().join("bucket")).unwrap();
    for role in [Role::Standby, Role::Restoring, Role::Draining] {
        let server_status = watch::channel(Arc::new(ServerStatus { role, ..ServerStatus::starting() })).1;
        let state = WebState { server_status, vault: vault(Arc::new(bucket.clone())), ..web_state() };
        let meters = Arc::clone(&state.meters);
        let address = serve(state, FAR).await;
        for _ in 0..2 {
            let event = [OF_GITHUB, "x-github-event: issue_comment"];
            let (status, answer) = send_request(address, "POST /events", &event, COMMENT).await;
            assert_eq!(status, 202, "{answer}");
        }
        for event in ["x-github-event: ping", "x-github-event: star"] {
            let (status, answer) = send_request(address, "POST /events", &[OF_GITHUB, event], "{}").await;
            assert_eq!(status, 200, "{answer}");
        }
        assert_eq!(bucket.list("inbox/", "").await.unwrap().len(), 1, "the same delivery is one object");
        assert_eq!(meters.stored.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn what_cannot_be_stored_is_to_be_delivered_again() {
    let address = serve(web_state(), FAR).await;
    let event = [OF_GITHUB, "x-github-event: issue_comment"];
    let (status, answer) = send_request(address, "POST /events", &event, COMMENT).await;
    assert_eq!(status, 503);
    assert!(answer.contains("retry-after: 2") && answer.contains("Deliver it again"), "{answer}");
}

#[tokio::test]
async fn pages_carry_security_headers_and_static_files_are_kept() {
    let address = serve(web_state(), NEAR).await;
    let (_, answer) = send_request(address, "GET /jobs/x", &[BROWSER], "").await;
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
    let (status, style) = send_request(address, &format!("GET /static/{}", assets.style.name), &[], "").await;
    assert_eq!(status, 200);
    assert!(style.contains("immutable") && style.contains("text/css"));
    assert_eq!(send_request(address, "GET /static/tidelock.css", &[], "").await.0, 404);
    assert_eq!(send_request(address, "GET /static/..%2f..%2fCargo.toml", &[], "").await.0, 404);
}

#[tokio::test]
async fn unknown_paths_are_404_and_the_api_says_so_in_json() {
    let address = serve(web_state(), FAR).await;
    let (status, answer) = send_request(address, "GET /nothing/here", &[BROWSER], "").await;
    assert_eq!(status, 404);
    assert!(answer.contains("<h1>Not found") && answer.contains("href=\"../\""), "{answer}");
    let (status, answer) = send_request(address, "POST /api/nothing", &[], "").await;
    assert_eq!(status, 404);
    assert!(answer.ends_with(r#"{"error":"There is no such page here."}"#), "{answer}");
    let long = format!("GET /{}", "a/".repeat(500));
    assert_eq!(send_request(address, &long, &[BROWSER], "").await.0, 404);
}

#[tokio::test]
async fn the_apply_lock_can_be_taken_out() {
    let address = serve(WebState { disable_global_apply_lock: true, ..web_state() }, NEAR).await;
    for request in ["POST /apply/lock", "DELETE /apply/unlock", "POST /apply/unlock"] {
        assert_eq!(send_request(address, request, &[], "").await.0, 404, "{request}");
    }
}

#[tokio::test]
async fn a_login_is_asked_for_where_one_is_configured() {
    let basic_auth = Some(("tide".into(), "pw".to_owned().into()));
    let access = access::AccessRules { basic_auth, ..access::AccessRules::default() };
    let address = serve(WebState { access, ..web_state() }, NEAR).await;
    let (status, answer) = send_request(address, "GET /", &[BROWSER], "").await;
    assert_eq!(status, 401);
    assert!(answer.contains("www-authenticate: Basic realm=\"restricted\""), "{answer}");
    assert_eq!(send_request(address, "GET /", &["authorization: Basic dGlkZTpwdw=="], "").await.0, 503);
    assert_eq!(send_request(address, "GET /api/locks", &["x-atlantis-token: s3cret"], "").await.0, 503);
    assert_eq!(send_request(address, "GET /api/locks", &["x-atlantis-token: wrong"], "").await.0, 401);
}
