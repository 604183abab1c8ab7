//! Check runs over HTTP: who may post them, GitHub's limits, and what their buttons send.

use super::*;

const KEY: &str = include_str!("../../../../tests/it/github_app/key.pem");

/// A forge with a pull request, and a token of its App.
async fn with_app() -> (TestForge, Pull, String) {
    let test = TestForge::new().await;
    let pull = test.pull().await;
    test.forge.set_app("app", KEY).unwrap();
    let id = test.forge.install_app("acme").unwrap();
    let token = test.forge.shared.change(|state| state.app.as_mut().unwrap().new_token(id, false)).unwrap().0;
    (test, pull, token)
}

async fn send(test: &TestForge, token: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/api/v3/repos/acme/infra{path}", test.forge.url());
    let response = test.client.request(method, url).bearer_auth(token).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn only_an_app_posts_check_runs_and_within_githubs_limits() {
    let (test, pull, token) = with_app().await;
    let sha = pull.head_commit().unwrap();
    let good =
        json!({ "name": "c", "head_sha": sha, "status": "in_progress", "output": { "title": "t", "summary": "s" } });
    let (code, answer) = test.post("/check-runs", good.clone()).await;
    assert_eq!((code, answer["message"].as_str()), (403, Some("You must authenticate via a GitHub App.")));
    let refused = async |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        let (code, answer) = send(&test, &token, Method::POST, "/check-runs", &body).await;
        assert_eq!(code, 422, "{key}: {answer}");
    };
    let output = |more: Value| {
        let mut output = json!({ "title": "t", "summary": "s" });
        output.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        output
    };
    let note = json!({ "path": "a.tf", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "m" });
    refused("head_sha", json!("0".repeat(40))).await;
    refused("status", json!("completed")).await;
    refused("output", json!({ "title": "t" })).await;
    refused("output", output(json!({ "summary": "x".repeat(65_536) }))).await;
    refused("output", output(json!({ "summary": "é".repeat(40_000) }))).await;
    refused("output", output(json!({ "annotations": vec![note.clone(); 51] }))).await;
    refused("output", output(json!({ "annotations": [{ "path": "/a.tf", "message": "m" }] }))).await;
    let action = |label: &str| json!({ "label": label, "description": "d", "identifier": "i" });
    refused("actions", json!(vec![action("a"); 4])).await;
    refused("actions", json!([action(&"a".repeat(21))])).await;
    let whole = json!({ "name": "c", "head_sha": sha, "conclusion": "success", "actions": vec![action("a"); 3],
        "output": output(json!({ "annotations": vec![note; 50], "summary": "x".repeat(65_535) })) });
    assert_eq!(send(&test, &token, Method::POST, "/check-runs", &whole).await.0, 201);
    test.forge.restrict_app("checks", "x").unwrap();
    let (code, answer) = send(&test, &token, Method::POST, "/check-runs", &good).await;
    assert_eq!((code, answer["message"].as_str()), (403, Some("Resource not accessible by integration")));
}

#[tokio::test]
async fn a_completed_check_run_counts_and_its_buttons_send_signed_events() {
    let (test, pull, token) = with_app().await;
    let mut received = test.receiver(200).await;
    let sha = pull.head_commit().unwrap();
    test.repo.require_statuses(&["c"]).unwrap();
    let action = json!({ "label": "Apply", "description": "d", "identifier": "apply" });
    let body = json!({ "name": "c", "head_sha": sha, "external_id": "1:5", "status": "queued", "actions": [action] });
    let (_, made) = send(&test, &token, Method::POST, "/check-runs", &body).await;
    let id = made["id"].as_u64().unwrap();
    assert_eq!(test.get("/pulls/1").await["mergeable_state"], "blocked");
    assert!(pull.press("bob", id, Some("apply")).is_err(), "it is not completed");
    let path = format!("/check-runs/{id}");
    send(&test, &token, Method::PATCH, &path, &json!({ "conclusion": "success" })).await;
    assert_eq!(test.get("/pulls/1").await["mergeable_state"], "clean");
    let (_, kept) = send(&test, &token, Method::PATCH, &path, &json!({ "status": "in_progress" })).await;
    assert_eq!(kept["status"], "completed");
    pull.press("bob", id, Some("apply")).unwrap();
    assert!(pull.press("bob", id, Some("plan")).is_err(), "it has no such button");
    loop {
        let (headers, body) = received.recv().await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        if headers["x-github-event"] == "check_run" {
            assert!(headers.contains_key("x-hub-signature-256"));
            let told = (&body["requested_action"]["identifier"], &body["sender"]["login"]);
            assert_eq!(told, (&json!("apply"), &json!("bob")));
            assert_eq!((&body["check_run"]["external_id"], &body["check_run"]["name"]), (&json!("1:5"), &json!("c")));
            break;
        }
    }
    // GitHub requires both kinds if both have the name.
    test.post(&format!("/statuses/{sha}"), json!({ "state": "pending", "context": "c" })).await;
    assert_eq!(test.get("/pulls/1").await["mergeable_state"], "blocked");
    test.post(&format!("/statuses/{sha}"), json!({ "state": "success", "context": "c" })).await;
    assert_eq!(test.get("/pulls/1").await["mergeable_state"], "clean");
    let latest = format!("/commits/{sha}/check-runs?check_name=c&filter=latest");
    send(&test, &token, Method::POST, "/check-runs", &body).await;
    let (_, found) = send(&test, &token, Method::GET, &latest, &Value::Null).await;
    assert_eq!((&found["total_count"], &found["check_runs"][0]["status"]), (&json!(1), &json!("queued")));
}
