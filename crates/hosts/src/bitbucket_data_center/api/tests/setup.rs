//! Requests of the doctor.

use super::*;

#[tokio::test]
async fn a_repository_tells_what_the_token_may_do() {
    let stage = answering(vec![
        ("permission=REPO_WRITE&projectkey=PRJ&name=Another%20name", json!([repository("PRJ", "infra")])),
        ("permission=REPO_ADMIN", json!([with(repository("PRJ", "infra-2"), "/id", 13)])),
    ])
    .await;
    let told = stage.host.repository(&repo()).await.unwrap();
    assert_eq!((told.can_write, told.can_administer, told.archived), (true, false, false));
    let reader = answering(vec![("/latest/repos?", json!([]))]).await;
    let told = reader.host.repository(&repo()).await.unwrap();
    assert_eq!((told.can_write, told.can_administer, reader.requests().len()), (false, false, 2));
    let other = answering(vec![("/repos/infra", repository("OPS", "infra"))]).await;
    assert!(matches!(other.host.repository(&repo()).await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn webhooks_are_read() {
    let row = |id: u64, configuration: Value| {
        json!({"id": id, "url": "https://tidelock.example.com/events", "active": true, "events": ["pr:opened", "pr:comment:added"],
            "configuration": configuration, "sslVerificationRequired": true, "name": "tidelock"})
    };
    let rows = json!([row(1, json!({"secret": "******"})), row(2, json!({})), row(3, Value::Null), json!({"id": 4})]);
    let stage = answering(vec![("/webhooks", rows)]).await;
    let hooks = stage.host.repository_hooks(&repo()).await.unwrap();
    let facts: Vec<_> = hooks.iter().map(|hook| (hook.id, hook.has_secret, hook.active, hook.verifies_tls)).collect();
    assert_eq!(facts, [(1, Some(true), true, true), (2, Some(false), true, true), (3, None, true, true)]);
    assert_eq!(hooks[0].events, ["pr:opened", "pr:comment:added"]);
    stage.host.project_hooks("PRJ").await.unwrap();
    let want = ["projects/PRJ/repos/infra/webhooks", "projects/PRJ/webhooks"];
    for (request, part) in stage.requests().iter().zip(want) {
        assert!(request.contains(part), "{request}");
    }
}

#[tokio::test]
async fn a_webhook_that_is_skipped_is_told_by_its_last_deliveries() {
    let delivery = |at: i64, outcome: &str, text: &str| json!({"id": 1, "event": "pr:opened", "start": at - 1, "finish": at, "result": {"outcome": outcome, "description": text}});
    let deliveries = async |success: Value, failure: Value, error: Value| {
        let told = json!({"lastSuccess": success, "lastFailure": failure, "lastError": error,
            "counts": {"successes": 1, "failures": 2, "errors": 3, "window": {"start": 0, "duration": 86_400_000}}});
        answering(vec![("/webhooks/10/statistics", told)]).await.host.deliveries(&repo(), 10).await.unwrap()
    };
    let failing = deliveries(delivery(1000, "SUCCESS", "200"), delivery(2000, "FAILURE", "401"), Value::Null).await;
    let last = failing.failing().unwrap();
    assert_eq!((last.event.as_str(), last.result.as_str(), last.at.as_second()), ("pr:opened", "FAILURE: 401", 2));
    assert_eq!(failing.unsuccessful, 5);
    let over = deliveries(delivery(3000, "SUCCESS", "200"), delivery(2000, "FAILURE", "401"), Value::Null).await;
    assert_eq!(over.failing(), None);
    let broken = deliveries(Value::Null, delivery(2000, "FAILURE", "401"), delivery(2500, "ERROR", "timed\nout")).await;
    assert_eq!(broken.failing().unwrap().result, "ERROR: timed out");
    assert_eq!(deliveries(Value::Null, Value::Null, Value::Null).await.failing(), None);
}
