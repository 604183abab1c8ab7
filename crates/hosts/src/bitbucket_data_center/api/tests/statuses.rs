//! Build statuses.

use super::*;
use tidelock_core::domain::state::StatusState;

fn status(context: &str, state: StatusState) -> CommitStatus {
    CommitStatus {
        context: context.into(),
        state,
        description: "d".repeat(300),
        url: "https://tidelock.example.com/jobs/1".into(),
        waits: false,
        details: None,
    }
}

async fn stage_that_takes_them() -> Stage {
    stage(|_, request| if request.starts_with("POST") { no_content() } else { usual(&[], request) }).await
}

async fn set(stage: &Stage, pull: &PullId, status: &CommitStatus) -> Value {
    stage.host.set_status(pull, &HEAD.into(), status).await.unwrap();
    stage.body_of("POST")
}

#[tokio::test]
async fn a_status_is_tied_to_the_source_branch() {
    let stage = stage_that_takes_them().await;
    let sent = set(&stage, &id(), &status("atlantis/plan: a", StatusState::Pending)).await;
    let want = json!({"key": "atlantis/plan: a", "name": "atlantis/plan: a", "state": "INPROGRESS", "description": "d".repeat(255),
        "url": "https://tidelock.example.com/jobs/1", "ref": "refs/heads/topic"});
    assert_eq!(sent, want);
    assert_eq!(set(&stage, &id(), &status("a", StatusState::Success)).await["state"], "SUCCESSFUL");
    assert_eq!(set(&stage, &id(), &status("a", StatusState::Failure)).await["state"], "FAILED");
    assert_eq!(stage.count("GET"), 1, "the branch is remembered");
    assert_eq!(stage.requests()[1], format!("POST {AT}/commits/{HEAD}/builds"));
}

#[tokio::test]
async fn keys_and_addresses_are_short_enough() {
    let stage = stage_that_takes_them().await;
    let mut long = status(&format!("atlantis/plan: {}", "ä".repeat(400)), StatusState::Pending);
    long.url = format!("https://tidelock.example.com/{}", "a".repeat(450));
    let sent = set(&stage, &id(), &long).await;
    let count = |key: &str| sent[key].as_str().unwrap().chars().count();
    assert_eq!((count("key"), count("name"), sent["url"].as_str()), (255, 255, Some("https://tidelock.example.com")));
    assert_ne!(sent["key"], sent["name"]);
    long.url = String::new();
    assert_eq!(set(&stage, &id(), &long).await["url"], "https://tidelock.example.com");
}

#[tokio::test]
async fn a_branch_and_a_fork_have_no_source_branch_there() {
    let stage = stage_that_takes_them().await;
    let sent = set(&stage, &PullId::of_branches(repo()), &status("a", StatusState::Success)).await;
    assert_eq!((sent.get("ref"), stage.requests().len()), (None, 1));
    let fork = with(pull(), "/fromRef/repository", repository("~ann", "infra"));
    let stage = super::stage(move |_, request| match request.starts_with("POST") {
        true => no_content(),
        false => usual(&[("/pull-requests/7", fork.clone())], request),
    })
    .await;
    for _ in 0..2 {
        assert_eq!(set(&stage, &id(), &status("a", StatusState::Success)).await.get("ref"), None);
    }
    assert_eq!(stage.count("GET"), 1);
}

#[tokio::test]
async fn a_commit_that_the_host_does_not_know_is_told() {
    let refused_with = async |code: u16, message: &'static str| {
        let stage = stage(move |_, request| match request.starts_with("POST") {
            true => refused(code, message),
            false => usual(&[], request),
        })
        .await;
        stage.host.set_status(&id(), &HEAD.into(), &status("a", StatusState::Success)).await.unwrap_err()
    };
    let unknown = refused_with(400, "Commit hash '8e0b' is invalid.").await;
    assert!(matches!(unknown, HostError::UnknownCommit { .. }), "{unknown}");
    let key = refused_with(400, "The build key is too long.").await;
    assert!(matches!(key, HostError::Rejected { status: 400, .. }), "{key}");
    let gone = refused_with(404, "Repository PRJ/infra does not exist.").await;
    assert!(matches!(gone, HostError::NotFound { .. }), "{gone}");
}

#[tokio::test]
async fn our_own_statuses_are_read_back() {
    let row = |name: &str, key: &str, state: &str| json!({"name": name, "key": key, "state": state, "url": "https://x", "description": "d"});
    let rows = json!([
        row("atlantis/plan", "atlantis/plan", "INPROGRESS"),
        row("atlantis/plan", "BUILD", "FAILED"),
        row("ci", "ci", "FAILED"),
        row("atlantis/apply", "atlantis/apply", "SUCCESSFUL"),
        row("atlantis/apply: a", "atlantis/apply: a", "CANCELLED")
    ]);
    let stage = answering(vec![("/rest/build-status/latest/commits/", rows)]).await;
    let own = stage.host.own_statuses(&id(), &HEAD.into()).await.unwrap();
    let facts: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state)).collect();
    let want = [
        ("atlantis/plan", StatusState::Pending),
        ("atlantis/apply", StatusState::Success),
        ("atlantis/apply: a", StatusState::Failure),
    ];
    assert_eq!(facts, want);
}
