//! Webhooks: payloads, headers, repetition and switching off.

use super::super::hooks::signature;
use super::*;
use axum::body::Bytes;
use http::HeaderMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::sync::mpsc;

/// Keys of the examples for the merge request, note and push events in client-go's `testdata/webhooks`, go-scm's
/// `scm/driver/gitlab/testdata/webhooks` and go-playground/webhooks' `testdata/gitlab`, as far as the forge sends them. Objects that
/// several events have are named once.
const PERSON: &str = "avatar_url email id name username";
const PROJECT_KEYS: &str = "avatar_url ci_config_path default_branch description git_http_url git_ssh_url homepage http_url id name \
     namespace path_with_namespace ssh_url url visibility_level web_url";
const MERGE_REQUEST: &str = "assignee_id assignee_ids author_id created_at description detailed_merge_status head_pipeline_id \
     human_time_estimate human_total_time_spent id iid labels last_commit last_edited_at last_edited_by_id merge_commit_sha \
     merge_error merge_params merge_status merge_user_id merge_when_pipeline_succeeds milestone_id reviewer_ids source \
     source_branch source_project_id state target target_branch target_project_id time_estimate title total_time_spent updated_at \
     updated_by_id url work_in_progress";
const OF_EVENT: &str = "action blocking_discussions_resolved draft first_contribution human_time_change oldrev state_id \
     system system_action time_change";
const NOTE: &str = "action attachment author_id change_position commit_id created_at description discussion_id id internal line_code \
     note noteable_id noteable_type original_position position project_id resolved_at resolved_by_id resolved_by_push st_diff system \
     type updated_at updated_by_id url";
const PUSH: &str = "after before checkout_sha commits event_name message object_kind project project_id ref ref_protected repository \
     total_commits_count user_avatar user_email user_id user_name user_username";

/// Receives deliveries and answers with a status that can be changed.
async fn receiver(gitlab: &GitlabForge) -> (mpsc::UnboundedReceiver<(HeaderMap, Bytes)>, Arc<AtomicU16>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let status = Arc::new(AtomicU16::new(200));
    let answers = status.clone();
    let answer = async move |headers: HeaderMap, body: Bytes| {
        sender.send((headers, body)).unwrap();
        http::StatusCode::from_u16(answers.load(Ordering::Relaxed)).unwrap()
    };
    let app = axum::Router::new().route("/events", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    gitlab.forge.set_webhook(&format!("http://{}/events", listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (receiver, status)
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn has_only(value: &Value, allowed: &[&str]) {
    let allowed: BTreeSet<&str> = allowed.iter().flat_map(|keys| keys.split_whitespace()).collect();
    let unknown: Vec<_> = keys(value).difference(&allowed).copied().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Checks the keys of a payload against those of the examples.
fn check_keys(event: &str, body: &Value) {
    has_only(&body["project"], &[PROJECT_KEYS]);
    let attributes = &body["object_attributes"];
    match event {
        "Merge Request Hook" => {
            has_only(body, &["object_kind event_type user project object_attributes labels changes repository"]);
            has_only(attributes, &[MERGE_REQUEST, OF_EVENT]);
            has_only(&attributes["source"], &[PROJECT_KEYS]);
            has_only(&body["user"], &[PERSON]);
            has_only(&attributes["last_commit"], &["author id message timestamp title url"]);
        }
        "Note Hook" => {
            has_only(
                body,
                &["object_kind event_type user project_id project repository object_attributes merge_request"],
            );
            has_only(attributes, &[NOTE]);
            has_only(&body["merge_request"], &[MERGE_REQUEST]);
        }
        _ => has_only(body, &[PUSH]),
    }
}

#[tokio::test]
async fn deliveries_have_the_keys_of_the_examples_and_tell_no_more() {
    let gitlab = GitlabForge::new().await;
    let (mut received, _) = receiver(&gitlab).await;
    let options = OpenOptions { draft: true, labels: vec!["infra".to_owned()], ..OpenOptions::default() };
    let pull = gitlab.open(options).await;
    let before = pull.head_commit().unwrap();
    pull.ready().unwrap();
    let id = pull.comment("bob", "atlantis plan").unwrap();
    pull.edit_comment("carol", id, "atlantis apply").unwrap();
    pull.push_as("bob", "More", &[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.approve("bob").unwrap();
    pull.vote("bob", 0).unwrap();
    pull.approve("carol").unwrap();
    gitlab.repo.reset_approvals_on_push(true).unwrap();
    pull.push(&[("main.tf", Some("a = 4\n"))]).await.unwrap();
    pull.close().unwrap();
    pull.reopen().unwrap();
    pull.merge().await.unwrap();
    gitlab.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let mut told = Vec::new();
    while let Ok((headers, body)) = received.try_recv() {
        assert_eq!(headers["x-gitlab-token"], gitlab.forge.webhook_secret().expose_secret());
        assert_eq!(headers["x-gitlab-instance"], gitlab.forge.url());
        assert!(headers.contains_key("idempotency-key") && headers.contains_key("x-gitlab-webhook-uuid"));
        assert!(!headers.contains_key("webhook-signature"), "there is no signing token");
        let body: Value = serde_json::from_slice(&body).unwrap();
        let event = headers["x-gitlab-event"].to_str().unwrap();
        check_keys(event, &body);
        let action = body["object_attributes"]["action"].as_str().unwrap_or_default();
        let user = body["user"]["username"].as_str().or(body["user_username"].as_str()).unwrap();
        told.push((format!("{event} {action} {user}").replace(" Hook", ""), body));
    }
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Merge Request open alice",
            "Merge Request update alice",
            "Note create bob",
            "Note update carol",
            "Push  bob",
            "Merge Request update bob",
            "Merge Request approved bob",
            "Merge Request unapproved bob",
            "Merge Request approved carol",
            "Push  alice",
            "Merge Request update alice",
            "Merge Request unapproved alice",
            "Merge Request close alice",
            "Merge Request reopen alice",
            "Merge Request merge alice",
        ]
    );
    let (ready, edited, pushed) = (&told[1].1, &told[3].1, &told[5].1);
    assert_eq!(ready["changes"]["draft"], json!({"previous": true, "current": false}));
    assert!(ready["object_attributes"].get("oldrev").is_none(), "the head has not moved");
    assert_eq!(pushed["object_attributes"]["oldrev"], json!(before));
    assert_eq!(told[4].1["checkout_sha"], pushed["object_attributes"]["last_commit"]["id"]);
    assert_eq!(edited["object_attributes"]["author_id"], told[2].1["user"]["id"], "carol edits bob's");
    let at = edited["object_attributes"]["updated_at"].as_str().unwrap();
    assert!(at.len() == "2026-01-01 10:00:00 UTC".len() && at.ends_with(" UTC"), "{at}");
    assert_eq!(told[0].1["object_attributes"]["target"]["path_with_namespace"], NAME);
    assert_eq!(told[11].1["object_attributes"]["system_action"], "approvals_reset_on_push");
    let open = told[0].1.to_string();
    assert!(!open.contains(&gitlab.repo.tip("main").await.unwrap()), "no commit of the target branch");
}

#[tokio::test]
async fn a_signing_token_proves_the_body() {
    let gitlab = GitlabForge::new().await;
    let (mut received, _) = receiver(&gitlab).await;
    let token = gitlab.forge.sign_deliveries().unwrap();
    gitlab.pull().await;
    let (headers, body) = received.recv().await.unwrap();
    let text = |name: &str| headers[name].to_str().unwrap();
    assert_eq!(text("webhook-id"), text("idempotency-key"));
    let body = std::str::from_utf8(&body).unwrap();
    let time: i64 = text("webhook-timestamp").parse().unwrap();
    assert_eq!(text("webhook-signature"), signature(token.expose_secret(), text("webhook-id"), time, body));
    // Example of github.com/standard-webhooks/standard-webhooks, in the libraries' tests.
    let known = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        "{\"test\": 2432232314}",
    );
    assert_eq!(known, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[tokio::test]
async fn a_failing_webhook_is_switched_off_and_a_resend_goes_through() {
    let gitlab = GitlabForge::new().await;
    let (_received, status) = receiver(&gitlab).await;
    let pull = gitlab.pull().await;
    gitlab.forge.wait_for_deliveries(LIMIT).await.unwrap();
    status.store(500, Ordering::Relaxed);
    let comment = async |text: &str| {
        pull.comment("bob", text).unwrap();
        gitlab.forge.wait_for_deliveries(LIMIT).await.unwrap();
        gitlab.get("/hooks").await[0]["alert_status"].clone()
    };
    for number in 0..3 {
        assert_eq!(comment(&format!("failure {number}")).await, "executable");
    }
    assert_eq!(comment("the fourth").await, "temporarily_disabled");
    assert!(gitlab.get("/hooks/1").await["disabled_until"].is_string());
    status.store(200, Ordering::Relaxed);
    assert_eq!(comment("dropped").await, "temporarily_disabled");
    let events = gitlab.get("/hooks/1/events?status=server_failure").await;
    assert_eq!(events.as_array().unwrap().len(), 4);
    assert_eq!(events[0]["request_data"]["object_attributes"]["note"], "the fourth");
    assert_eq!(events[0]["request_headers"]["X-Gitlab-Token"], "[REDACTED]");
    gitlab.forge.set_clock_ahead(jiff::SignedDuration::from_secs(61));
    assert_eq!(comment("heard").await, "executable");
    let heard: Vec<String> = gitlab.forge.deliveries().into_iter().map(|delivery| delivery.body).collect();
    assert!(!heard.iter().any(|body| body.contains("dropped")));

    let resend = format!("/hooks/1/events/{}/resend", events[0]["id"]);
    for _ in 0..5 {
        let (status, told) = gitlab.ask(Method::POST, &resend, Value::Null).await;
        assert_eq!((status, told), (201, json!({"response_status": 200})));
    }
    assert_eq!(gitlab.ask(Method::POST, &resend, Value::Null).await.0, 429);
    let all = gitlab.forge.deliveries();
    let first = all.iter().find(|delivery| json!(delivery.id) == events[0]["id"]).unwrap();
    assert_eq!(all.iter().filter(|delivery| delivery.guid == first.guid).count(), 6);
    assert_eq!(gitlab.ask(Method::GET, "/hooks/1/events?per_page=21", Value::Null).await.0, 400);
    let path = format!("{PROJECT}/hooks");
    assert_eq!(gitlab.request(Method::GET, &path, "bob", Value::Null).await.status, 403, "a Developer");
}
