//! Notifications of applies to Slack and HTTP addresses: Atlantis' payloads and filters. None is lost, and nothing waits for them.

use crate::support::*;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// One request to the receiver, and its answer.
#[derive(Clone)]
pub(crate) struct Got {
    path: String,
    headers: HeaderMap,
    pub(crate) body: Value,
    status: u16,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// Receives notifications on loopback.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    got: Arc<Mutex<Vec<Got>>>,
    /// Status of its answers from now on; 0 for success.
    answer: Arc<Mutex<u16>>,
}

impl Receiver {
    pub(crate) fn serve(&self, listener: std::net::TcpListener) {
        async fn take(
            State(receiver): State<Receiver>,
            uri: Uri,
            headers: HeaderMap,
            body: Bytes,
        ) -> impl IntoResponse {
            let status = Some(*receiver.answer.lock().unwrap()).filter(|status| *status > 0).unwrap_or(200);
            let body = serde_json::from_slice(&body).unwrap_or_default();
            receiver.got.lock().unwrap().push(Got { path: uri.path().to_owned(), headers, body, status });
            let location = [("location", "/latest/meta-data")];
            (StatusCode::from_u16(status).unwrap(), location, axum::Json(json!({"ok": true})))
        }
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = axum::Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }

    fn answers(&self, status: u16) {
        *self.answer.lock().unwrap() = status;
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    pub(crate) fn taken(&self) -> usize {
        self.got().iter().filter(|got| got.status == 200).count()
    }
}

/// A server whose config file has these webhooks; `{receiver}` is the receiver's address.
pub(crate) fn told(webhooks: &str) -> (Setup, Receiver, std::net::TcpListener, tempfile::TempDir) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("settings.yaml");
    std::fs::write(&config, webhooks.replace("{receiver}", &url)).unwrap();
    let flags = [format!("--config={}", config.display()), format!("--slack-api-url={url}/slack")];
    let setup = Setup::one_project().steps(&["init", "plan"], &["apply"]);
    (setup.flags(&[&flags[0], &flags[1]]), Receiver::default(), listener, dir)
}

#[test]
fn slack_and_http_are_told_of_an_apply_as_atlantis_tells_them() {
    let (setup, receiver, listener, _dir) = told(
        "slack-token: xoxb-1\nwebhook-http-headers: '{\"Authorization\": \"Bearer secret-header\"}'\nwebhooks:\n\
         - {event: apply, kind: http, url: '{receiver}/hook', workspace-regex: default, branch-regex: '^main$'}\n\
         - {event: apply, kind: slack, channel: ops}\n\
         - {event: apply, kind: http, url: '{receiver}/other', branch-regex: release}\n\
         - {event: drift, kind: http, url: '{receiver}/drift'}\n",
    );
    run_test(setup, async |ctx| {
        receiver.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.until("both are told", async || receiver.taken() == 2).await;
        let got = receiver.got();
        let hook = got.iter().find(|got| got.path == "/hook").unwrap();
        assert_eq!(
            (hook.header("authorization"), hook.header("content-type")),
            ("Bearer secret-header", "application/json")
        );
        assert!(hook.header("idempotency-key").len() > 16);
        let repo = json!({
            "FullName": "acme/infra", "Owner": "acme", "Name": "infra", "CloneURL": format!("{}/acme/infra.git", ctx.forge.url()),
            "SanitizedCloneURL": format!("{}/acme/infra.git", ctx.forge.url()), "VCSHost": {"Hostname": "127.0.0.1", "Type": 0},
        });
        let expected = json!({
            "Workspace": "default", "Repo": repo,
            "Pull": {
                "Num": pull.number(), "HeadCommit": pull.head_commit().unwrap(), "HeadBranch": "change", "BaseBranch": "main",
                "URL": format!("{}/acme/infra/pull/{}", ctx.forge.url(), pull.number()), "Author": "alice", "State": 0, "BaseRepo": repo,
            },
            "User": {"Username": "alice", "Teams": null}, "Success": true, "Directory": ".", "ProjectName": "",
        });
        assert_eq!(hook.body, expected);
        let slack = got.iter().find(|got| got.path == "/slack/chat.postMessage").unwrap();
        assert_eq!(slack.header("authorization"), "Bearer xoxb-1");
        assert_eq!(slack.header("idempotency-key"), "");
        let attachment = &slack.body["attachments"][0];
        assert_eq!((&slack.body["channel"], &attachment["color"]), (&json!("ops"), &json!("good")));
        let link = format!("Apply succeeded for <{}/acme/infra/pull/{}|acme/infra>", ctx.forge.url(), pull.number());
        assert_eq!(attachment["text"], link);
        let fields: Vec<String> =
            attachment["fields"].as_array().unwrap().iter().map(|f| format!("{}={}", f["title"], f["value"])).collect();
        let quoted = ["Workspace=default", "Branch=change", "User=alice", "Directory=/"];
        let quoted = quoted.map(|text| format!("\"{}\"", text.replace('=', "\"=\"")));
        assert_eq!(fields, quoted);
        assert!(!ctx.server.log().contains("secret-header"));
    });
}

#[test]
fn a_failed_apply_is_told_as_failed_and_a_refused_one_not_at_all() {
    let (setup, receiver, listener, _dir) = told("webhooks: [{event: apply, kind: http, url: '{receiver}/hook'}]\n");
    let setup = setup.steps(&[PLANNED], &["false"]);
    run_test(setup, async |ctx| {
        receiver.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        ctx.until("it is told", async || receiver.taken() == 1).await;
        assert_eq!(receiver.got()[0].body["Success"], false);
        // There is no plan any more.
        ctx.say(&pull, "atlantis apply").await;
        ctx.quiet().await;
        assert_eq!(receiver.got().len(), 1);
    });
}

#[test]
fn an_apply_that_a_kill_cut_is_told_as_failed() {
    let (setup, receiver, listener, _dir) = told("webhooks: [{event: apply, kind: http, url: '{receiver}/hook'}]\n");
    run_test(setup.steps(&[PLANNED], &[&gate("apply")]).own_process(), async |ctx| {
        receiver.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "error").because("interrupted");
        ctx.until("it is told", async || receiver.taken() == 1).await;
        assert_eq!(receiver.got()[0].body["Success"], false);
    });
}

#[test]
fn a_killed_server_loses_no_notification_and_answers_do_not_wait_for_one() {
    let (setup, receiver, listener, _dir) = told("webhooks: [{event: apply, kind: http, url: '{receiver}/hook'}]\n");
    run_test(setup.steps(&[PLANNED], &["echo applied"]).own_process(), async |ctx| {
        receiver.answers(503);
        receiver.serve(listener);
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        // It is answered although nobody accepts the notification.
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.until("it was tried", async || !receiver.got().is_empty()).await;
        ctx.quiet().await;
        ctx.server.kill().await;
        // Now the answer is a redirect, which is not followed.
        receiver.answers(307);
        let before = receiver.got().len();
        ctx.server.start().await;
        ctx.until("it was tried again", async || receiver.got().len() > before).await;
        receiver.answers(0);
        ctx.until("it is taken", async || receiver.taken() == 1).await;
        let left = async || {
            let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
            state.query_row("SELECT count(*) FROM notifications", [], |row| row.get::<_, i64>(0)).unwrap()
        };
        ctx.until("that is recorded", async || left().await == 0).await;
        ctx.quiet().await;
        let got = receiver.got();
        assert!(got.iter().all(|one| one.path == "/hook"), "a redirect was followed");
        let ids: std::collections::BTreeSet<&str> = got.iter().map(|one| one.header("idempotency-key")).collect();
        assert_eq!(ids.len(), 1);
        // No notification is left, so another start sends nothing.
        let count = got.len();
        ctx.server.kill().await;
        ctx.server.start().await;
        let other = ctx.open_input("other", "3").await;
        ctx.next(&other).await;
        ctx.quiet().await;
        assert_eq!(receiver.got().len(), count);
    });
}

#[test]
fn drift_that_was_found_is_told_and_where_there_is_none_nothing_is() {
    let (setup, receiver, listener, _dir) = told(
        "slack-token: xoxb-1\nwebhooks:\n- {event: drift, kind: http, url: '{receiver}/drift', branch-regex: other}\n\
         - {event: drift, kind: slack, channel: ops}\n- {event: apply, kind: http, url: '{receiver}/hook'}\n",
    );
    let setup = setup.steps(
        &[
            "[ ! -e {tmp}/same ] || echo 'No changes. All is well.'",
            "[ -e {tmp}/same ] || echo 'Plan: 1 to add, 0 to change, 2 to destroy.'",
        ],
        &[],
    );
    let setup = setup.flags(&["--api-secret=s3cret", "--enable-drift-detection"]).own_process();
    run_test(setup, async |ctx| {
        receiver.answers(503);
        receiver.serve(listener);
        let detect = async || {
            let body = json!({"repository": "acme/infra", "ref": "main", "type": "Github"}).to_string();
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let asked =
                client.post(format!("{}/api/drift/detect", ctx.server.url())).header("X-Atlantis-Token", "s3cret");
            asked.body(body).send().await.unwrap().json::<Value>().await.unwrap()["data"].clone()
        };
        let found = detect().await;
        assert_eq!(found["summary"]["projects_with_drift"], 1, "{found:#}");
        ctx.until("it was tried", async || !receiver.got().is_empty()).await;
        ctx.server.kill().await;
        receiver.answers(0);
        ctx.server.start().await;
        ctx.until("both are told", async || receiver.taken() == 2).await;
        let got = receiver.got();
        let taken = |path: &str| got.iter().find(|got| got.status == 200 && got.path == path).unwrap().body.clone();
        let http = taken("/drift");
        assert_eq!(
            (&http["event"], &http["repository"], &http["ref"]),
            (&json!("drift"), &json!("acme/infra"), &json!("main"))
        );
        assert_eq!((&http["detection_id"], &http["projects_with_drift"]), (&found["id"], &json!(1)));
        assert_eq!((&http["projects"][0]["directory"], &http["projects"][0]["to_destroy"]), (&json!("."), &json!(2)));
        let slack = taken("/slack/chat.postMessage");
        assert_eq!(slack["attachments"][0]["text"], "Drift detected in acme/infra");
        assert!(
            slack.to_string().contains(found["id"].as_str().unwrap()) && slack.to_string().contains("1 of 1"),
            "{slack}"
        );
        // No notification is sent if there is no drift.
        std::fs::write(ctx.tmp.join("same"), "").unwrap();
        assert_eq!(detect().await["summary"]["projects_without_drift"], 1);
        ctx.quiet().await;
        assert_eq!(receiver.taken(), 2);
    });
}
