//! Commit statuses.

use super::*;
use tidelock_core::domain::state::StatusState;

fn head() -> CommitSha {
    CommitSha::parse(HEAD).unwrap()
}

fn status() -> CommitStatus {
    CommitStatus {
        context: "atlantis/plan".into(),
        state: StatusState::Pending,
        description: "é".repeat(300),
        url: "https://t.example.com/jobs/1".into(),
        waits: true,
        details: None,
    }
}

#[tokio::test]
async fn a_status_is_set() {
    let stage = stage(|_, _| (StatusCode::CREATED, axum::Json(json!({"id": 1}))).into_response()).await;
    stage.host.set_status(&id(), &head(), &status()).await.unwrap();
    assert_eq!(stage.requests(), [format!("POST {AT}/statuses/{HEAD}")]);
    let want = json!({"state": "pending", "context": "atlantis/plan", "description": "é".repeat(255),
        "target_url": "https://t.example.com/jobs/1"});
    assert_eq!(stage.body_of("POST"), want);
    let failed = CommitStatus { state: StatusState::Failure, url: String::new(), ..status() };
    stage.host.set_status(&id(), &head(), &failed).await.unwrap();
    assert_eq!(stage.body_of("POST")["state"], "failure");
    assert!(stage.body_of("POST").get("target_url").is_none());
}

#[tokio::test]
async fn a_commit_that_the_host_does_not_know_is_told_from_a_failing_host() {
    let answer = |known: bool| {
        move |_: usize, request: &str| match request {
            _ if request.starts_with("POST") => refused(500, ""),
            _ if known => ok(json!({"sha": HEAD})),
            _ => refused(404, HEAD),
        }
    };
    let unknown = stage(answer(false)).await.host.set_status(&id(), &head(), &status()).await.unwrap_err();
    assert!(matches!(unknown, HostError::UnknownCommit { .. }), "{unknown}");
    let failing = stage(answer(true)).await.host.set_status(&id(), &head(), &status()).await.unwrap_err();
    assert!(failing.is_transient(), "{failing}");
}

#[tokio::test]
async fn our_latest_statuses_are_read() {
    let row = |context: &str, state: &str, creator: &str| {
        json!({"id": 1, "context": context, "status": state, "description": "done", "target_url": "http://t",
            "creator": {"id": 5, "login": creator}})
    };
    let rows = json!([
        row("atlantis/plan", "success", "Tidelock"),
        row("atlantis/apply", "error", "tidelock"),
        row("build", "pending", "ann"),
        with(row("atlantis/x", "success", "x"), "/creator", Value::Null),
    ]);
    let combined = json!({"state": "failure", "sha": HEAD, "repository": repository("acme/infra"), "statuses": rows});
    let stage = answering(vec![("/status?limit=50&page=1", combined)]).await;
    let own = stage.host.own_statuses(&id(), &head()).await.unwrap();
    let facts: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state)).collect();
    assert_eq!(facts, [("atlantis/plan", StatusState::Success), ("atlantis/apply", StatusState::Failure)]);
    assert_eq!((own[0].description.as_str(), own[0].url.as_str(), own[0].waits), ("done", "http://t", false));
    for repository in [repository("acme/infra"), Value::Null] {
        let none = json!({"state": "pending", "repository": repository, "statuses": null});
        assert_eq!(answering(vec![("/status", none)]).await.host.own_statuses(&id(), &head()).await.unwrap(), []);
    }
    let other = json!({"repository": repository("acme/other"), "statuses": []});
    let error = answering(vec![("/status", other)]).await.host.own_statuses(&id(), &head()).await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
}
