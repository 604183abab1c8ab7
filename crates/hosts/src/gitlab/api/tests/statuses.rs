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
        details: None,
    }
}

/// As in docs.gitlab.com/api/commits, "List commit statuses".
fn row(id: u64, name: &str, status: &str, pipeline: u64, author: &str) -> Value {
    json!({
        "id": id, "name": name, "status": status, "pipeline_id": pipeline, "author": {"username": author},
        "description": format!("{name} {id}"), "target_url": null, "sha": HEAD, "ref": "topic", "allow_failure": false,
    })
}

const US: &str = "project_1_bot_3cca1d02";

/// Takes all statuses, and has none yet.
async fn taking(told: Value) -> Stage {
    let none = json!([]);
    answering(vec![
        ("POST", 201, json!({"id": 1})),
        ("/repository/commits/", 200, none),
        ("merge_requests/7", 200, told),
    ])
    .await
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
        let stage = taking(told).await;
        stage.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Pending)).await.unwrap();
        assert_eq!(stage.requests()[1..], [format!("POST {AT}/statuses/{HEAD}")], "nothing else is asked");
        let body = stage.body_of("POST");
        assert_eq!((&body["pipeline_id"], &body["ref"]), (&pipeline, &branch), "{body}");
        assert_eq!((&body["state"], &body["name"]), (&json!("running"), &json!("atlantis/plan")));
        assert_eq!((&body["description"], &body["target_url"]), (&json!("1 to add"), &json!("https://t/jobs/1")));
    }
}

#[tokio::test]
async fn a_status_that_waits_for_people_does_not_keep_its_pipeline_running() {
    let stage = taking(merge_request()).await;
    let waits = CommitStatus { waits: true, ..plan(StatusState::Pending) };
    stage.host.set_status(&id(), &HEAD.into(), &waits).await.unwrap();
    assert_eq!(stage.body_of("POST")["state"], "canceled");
}

#[tokio::test]
async fn what_is_too_long_is_cut_or_left_out() {
    let stage = taking(merge_request()).await;
    let long = |start: &str| format!("{start}{}", "ä".repeat(300));
    let status = CommitStatus {
        context: long("atlantis/plan: "),
        state: StatusState::Failure,
        description: long(""),
        url: long("https://t/"),
        waits: false,
        details: None,
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
    let busy = answering(answers(409, json!({"message": "409 Conflict"}))).await;
    for _ in 0..10 {
        let error = busy.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Pending)).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let error = set(answers(404, json!({"message": "404 Commit Not Found"}))).await.unwrap_err();
    assert!(matches!(error, HostError::UnknownCommit { .. }), "{error}");
    let error = set(answers(400, json!({"message": {"name": ["is invalid"]}}))).await.unwrap_err();
    assert!(matches!(error, HostError::Rejected { status: 400, .. }), "{error}");
}

/// Pipelines and states of the statuses that were set.
fn set(stage: &Stage) -> Vec<(Value, Value)> {
    let asked = stage.asked.lock().unwrap();
    let bodies = asked.iter().filter(|(request, _)| request.starts_with("POST")).map(|(_, body)| body);
    bodies.map(|body| (body["pipeline_id"].clone(), body["state"].clone())).collect()
}

#[tokio::test]
async fn a_status_that_ends_does_so_in_every_pipeline() {
    let rows = || {
        json!([
            row(1, "atlantis/plan", "running", 12, US),
            row(2, "atlantis/plan", "success", 77056819, US),
            row(3, "atlantis/plan", "pending", 13, US),
            row(4, "atlantis/plan", "failed", 14, US),
            row(5, "atlantis/plan", "running", 15, "eve"),
            row(6, "atlantis/plan: a", "running", 16, US),
        ])
    };
    let answers = |posted: u16| {
        vec![
            ("POST", posted, json!({"id": 1})),
            ("/repository/commits/", 200, rows()),
            ("merge_requests/7", 200, merge_request()),
        ]
    };
    let waits = CommitStatus { waits: true, ..plan(StatusState::Pending) };
    for (status, state) in
        [(plan(StatusState::Success), "success"), (plan(StatusState::Failure), "failed"), (waits, "canceled")]
    {
        let stage = answering(answers(201)).await;
        stage.host.set_status(&id(), &HEAD.into(), &status).await.unwrap();
        assert_eq!(set(&stage), [77056819, 12, 13].map(|pipeline| (json!(pipeline), json!(state))));
        let filter = "per_page=100&order_by=id&sort=desc&name=atlantis%2Fplan";
        let listed = format!("GET {AT}/repository/commits/{HEAD}/statuses?{filter}");
        assert_eq!(stage.requests().iter().filter(|request| **request == listed).count(), 1);
    }
    let stage = answering(answers(409)).await;
    let error = stage.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Success)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_pipeline_where_a_status_cannot_be_ended_is_passed_over() {
    let rows = json!([row(1, "atlantis/plan", "running", 12, US), row(2, "atlantis/plan", "running", 13, US)]);
    for (refusal, is_passed_over) in [(400, true), (503, false)] {
        let rows = rows.clone();
        let posts = std::sync::atomic::AtomicUsize::new(0);
        let stage = stage(move |_, request| match request {
            _ if request.starts_with("POST") => match posts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => ok(json!({"id": 1})),
                1 => refused(refusal, json!({"message": "no"})),
                _ => refused(if refusal == 400 { 201 } else { refusal }, json!({"id": 1})),
            },
            _ if request.contains("/repository/commits/") => ok(rows.clone()),
            _ if request.contains("merge_requests/7") => ok(merge_request()),
            _ => ok(me()),
        })
        .await;
        let done = stage.host.set_status(&id(), &HEAD.into(), &plan(StatusState::Success)).await;
        assert_eq!(done.is_ok(), is_passed_over, "{refusal}: {done:?}");
        assert_eq!(set(&stage).last().unwrap().0, if is_passed_over { 13 } else { 12 });
    }
}

#[tokio::test]
async fn own_statuses_are_the_latest_of_each_name_in_the_shown_pipeline() {
    let rows = json!([
        row(1, "atlantis/plan", "failed", 77056819, US),
        row(2, "atlantis/plan", "running", 77056819, US),
        row(3, "build", "success", 77056819, "ann"),
        row(4, "atlantis/apply", "success", 12, US),
        row(5, "atlantis/plan", "success", 12, US),
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

#[tokio::test]
async fn the_shown_pipeline_is_asked_for_only_if_there_are_several() {
    for (rows, count, requests) in [
        (json!([row(1, "atlantis/plan", "success", 12, US), row(2, "build", "success", 12, "ann")]), 1, 1),
        (json!([row(2, "build", "success", 12, "ann"), row(3, "build", "success", 13, "ann")]), 0, 1),
        (json!([]), 0, 1),
        // The pipeline of CI came after our statuses.
        (json!([row(1, "atlantis/plan", "success", 12, US), row(2, "build", "running", 77056819, "ann")]), 1, 2),
    ] {
        let stage = answering(vec![("/statuses", 200, rows), ("merge_requests/7", 200, merge_request())]).await;
        stage.host.account().await.unwrap();
        let own = stage.host.own_statuses(&id(), &HEAD.into()).await.unwrap();
        assert_eq!((own.len(), stage.requests().len() - 1), (count, requests));
        assert!(own.iter().all(|one| one.description.is_empty() == (requests == 2)), "{own:?}");
    }
}
