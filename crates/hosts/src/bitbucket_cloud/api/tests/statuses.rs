//! Build statuses.

use super::*;
use tidelock_core::domain::state::StatusState;

fn status(context: &str, state: StatusState) -> CommitStatus {
    CommitStatus {
        context: context.into(),
        state,
        description: "1/1 planned".into(),
        url: "https://t/x".into(),
        waits: false,
        details: None,
    }
}

async fn stage_that_takes_them() -> Stage {
    stage(|_, request| match request.starts_with("POST") {
        true => (StatusCode::CREATED, axum::Json(json!({}))).into_response(),
        false => usual(&[], request),
    })
    .await
}

#[tokio::test]
async fn a_status_is_tied_to_the_source_branch() {
    let stage = stage_that_takes_them().await;
    stage.host.set_status(&id(), &HEAD.into(), &status("atlantis/plan", StatusState::Success)).await.unwrap();
    stage.host.set_status(&id(), &HEAD.into(), &status("atlantis/apply", StatusState::Pending)).await.unwrap();
    let post = format!("POST {AT}/commit/{HEAD}/statuses/build");
    assert_eq!(stage.requests(), [format!("GET {PULL}"), post.clone(), post], "the branch is read once");
    let want = json!({"key": "atlantis/apply", "name": "atlantis/apply", "state": "INPROGRESS", "description": "1/1 planned",
        "url": "https://t/x", "refname": "topic"});
    assert_eq!(stage.body_of("POST"), want);
}

#[tokio::test]
async fn a_status_has_an_address_in_which_nothing_is_replaced() {
    let stage = stage_that_takes_them().await;
    let bare = CommitStatus { url: String::new(), ..status("atlantis/plan", StatusState::Failure) };
    stage.host.set_status(&id(), &HEAD.into(), &bare).await.unwrap();
    assert_eq!(stage.body_of("POST")["url"], "https://tidelock.example.com");
    assert_eq!(stage.body_of("POST")["state"], "FAILED");
    let template = CommitStatus { url: "https://t/{repository}".into(), ..bare };
    stage.host.set_status(&id(), &HEAD.into(), &template).await.unwrap();
    assert_eq!(stage.body_of("POST")["url"], "https://t/%7Brepository%7D");
}

#[tokio::test]
async fn a_long_context_has_a_short_key_and_its_whole_name() {
    let stage = stage_that_takes_them().await;
    let context = format!("atlantis/plan: {}", "staging/".repeat(10));
    stage.host.set_status(&id(), &HEAD.into(), &status(&context, StatusState::Success)).await.unwrap();
    let body = stage.body_of("POST");
    assert_eq!(body["name"], context);
    assert_eq!(body["key"].as_str().unwrap().len(), 40);
}

#[tokio::test]
async fn a_status_of_a_branch_has_no_pull_request() {
    let stage = stage_that_takes_them().await;
    let branch = PullId::of_branches(repo());
    stage.host.set_status(&branch, &HEAD.into(), &status("atlantis/plan", StatusState::Success)).await.unwrap();
    assert_eq!((stage.requests().len(), &stage.body_of("POST")["refname"]), (1, &Value::Null));
}

#[tokio::test]
async fn a_commit_that_the_host_does_not_know_is_told_from_a_missing_pull_request() {
    let unknown = answering(Vec::new()).await;
    let error = unknown.host.set_status(&id(), &HEAD.into(), &status("a", StatusState::Success)).await.unwrap_err();
    assert!(matches!(error, HostError::UnknownCommit { .. }), "{error}");
    let missing = stage(|_, _| refused(404, "gone")).await;
    let error = missing.host.set_status(&id(), &HEAD.into(), &status("a", StatusState::Success)).await.unwrap_err();
    assert!(matches!(error, HostError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn our_own_statuses_are_read_back() {
    let long = format!("atlantis/plan: {}", "x".repeat(60));
    let row = |name: &str, key: &str, state: &str| {
        json!({"type": "build", "name": name, "key": key, "state": state,
        "description": "d", "url": "https://t"})
    };
    let rows = json!([
        row("atlantis/plan", "atlantis/plan", "INPROGRESS"),
        row(&long, &super::super::statuses::key(&long), "SUCCESSFUL"),
        row("atlantis/apply", "atlantis/apply", "STOPPED"),
        row("build", "build", "FAILED"),
        row("atlantis/plan", "ANOTHER-1", "FAILED"),
    ]);
    let stage = answering(vec![("/statuses?pagelen=100", rows)]).await;
    let own = stage.host.own_statuses(&id(), &HEAD.into()).await.unwrap();
    let facts: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state)).collect();
    let want = [
        ("atlantis/plan", StatusState::Pending),
        (long.as_str(), StatusState::Success),
        ("atlantis/apply", StatusState::Failure),
    ];
    assert_eq!(facts, want);
}
