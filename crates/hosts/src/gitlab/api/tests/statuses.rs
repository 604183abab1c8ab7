//! Statuses and the pipelines that show them.

use super::*;
use tidelock_core::domain::state::StatusState;

fn plan(state: StatusState) -> CommitStatus {
    CommitStatus {
        context: "atlantis/plan".into(),
        state,
        description: "1 to add".into(),
        url: "https://t/jobs/1".into(),
        waits: false,
    }
}

#[tokio::test]
async fn a_status_joins_the_pipeline_that_the_merge_request_shows() {
    let other = with(merge_request(), "head_pipeline", json!({"id": 5, "sha": FIRST}));
    let of_fork = with(merge_request(), "head_pipeline", json!({"id": 5, "sha": HEAD, "project_id": 99}));
    for (told, pipeline, branch) in [
        (merge_request(), json!(77056819), Value::Null),
        (with(merge_request(), "head_pipeline", Value::Null), Value::Null, json!("topic")),
        (other, Value::Null, json!("topic")),
        (of_fork, Value::Null, json!("topic")),
        (with(with(merge_request(), "head_pipeline", Value::Null), "sha", BASE), Value::Null, Value::Null),
    ] {
        let stage = answering(vec![("GET", 200, told), ("POST", 201, json!({"id": 1}))]).await;
        stage.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Pending)).await.unwrap();
        assert_eq!(stage.requests()[1], format!("POST {AT}/statuses/{HEAD}"));
        let body = stage.body_of("POST");
        assert_eq!((&body["pipeline_id"], &body["ref"]), (&pipeline, &branch), "{body}");
        assert_eq!((&body["state"], &body["name"]), (&json!("running"), &json!("atlantis/plan")));
        assert_eq!((&body["description"], &body["target_url"]), (&json!("1 to add"), &json!("https://t/jobs/1")));
    }
}

#[tokio::test]
async fn a_status_that_waits_for_people_does_not_keep_its_pipeline_running() {
    let stage = answering(vec![("GET", 200, merge_request()), ("POST", 201, json!({"id": 1}))]).await;
    let waits = CommitStatus { waits: true, ..plan(StatusState::Pending) };
    stage.host.set_status(&id(), &HEAD.into(), &waits).await.unwrap();
    assert_eq!(stage.body_of("POST")["state"], "canceled");
}

#[tokio::test]
async fn what_is_too_long_is_cut_or_left_out() {
    let stage = answering(vec![("GET", 200, merge_request()), ("POST", 201, json!({"id": 1}))]).await;
    let long = |start: &str| format!("{start}{}", "ä".repeat(300));
    let status = CommitStatus {
        context: long("atlantis/plan: "),
        state: StatusState::Failure,
        description: long(""),
        url: long("https://t/"),
        waits: false,
    };
    stage.host.set_status(&id(), &HEAD.into(), &status).await.unwrap();
    let body = stage.body_of("POST");
    for key in ["name", "description"] {
        assert_eq!(body[key].as_str().unwrap().chars().count(), 255, "{key}");
    }
    assert_eq!((&body["state"], &body["target_url"]), (&json!("failed"), &Value::Null));
}

#[tokio::test]
async fn a_refused_transition_is_no_error_and_a_busy_pipeline_passes() {
    let same = json!({"message": "Cannot transition status via :run from :running (Reason(s): Status cannot transition via \"run\")"});
    let answers = |status: u16, message: Value| vec![("GET", 200, merge_request()), ("POST", status, message)];
    let set = async |answers| {
        let stage = answering(answers).await;
        stage.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Pending)).await
    };
    set(answers(400, same)).await.unwrap();
    let error = set(answers(409, json!({"message": "409 Conflict"}))).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = set(answers(404, json!({"message": "404 Commit Not Found"}))).await.unwrap_err();
    assert!(matches!(error, HostError::UnknownCommit { .. }), "{error}");
    let error = set(answers(400, json!({"message": {"name": ["is invalid"]}}))).await.unwrap_err();
    assert!(matches!(error, HostError::Rejected { status: 400, .. }), "{error}");
}

#[tokio::test]
async fn own_statuses_are_the_latest_of_each_name_in_the_shown_pipeline() {
    let row = |id: u64, name: &str, status: &str, pipeline: u64, author: &str| {
        json!({
            "id": id, "name": name, "status": status, "pipeline_id": pipeline, "author": {"username": author},
            "description": format!("{name} {id}"), "target_url": null, "sha": HEAD, "ref": "topic", "allow_failure": false,
        })
    };
    let us = "project_1_bot_3cca1d02";
    let rows = json!([
        row(1, "atlantis/plan", "failed", 77056819, us),
        row(2, "atlantis/plan", "running", 77056819, us),
        row(3, "build", "success", 77056819, "ann"),
        row(4, "atlantis/apply", "success", 12, us),
        row(5, "atlantis/plan", "success", 12, us),
    ]);
    let stage = answering(vec![("/statuses", 200, rows), ("merge_requests/7", 200, merge_request())]).await;
    let own = stage.host.own_statuses(&id(), &HEAD.into()).await.unwrap();
    let told: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state, one.description.as_str())).collect();
    assert_eq!(
        told,
        [("atlantis/plan", StatusState::Pending, "atlantis/plan 2"), ("atlantis/apply", StatusState::Success, "")],
        "the second differs from what was told, and is set again in the shown pipeline"
    );
}
