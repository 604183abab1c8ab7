//! Comments and reactions.

use super::*;

fn comment(id: u64, user: &str, body: &str) -> Value {
    json!({"id": id, "user": {"id": 5, "login": user}, "body": body, "created_at": "2026-11-01T10:00:00Z",
        "updated_at": "2026-11-01T10:00:00Z", "issue_url": "", "pull_request_url": "https://git.example.com/gitea/Acme/infra/pulls/7"})
}

#[tokio::test]
async fn comments_are_listed_oldest_first() {
    let edited = with(comment(3, "ann", "two"), "/updated_at", "2026-11-01T10:00:05Z");
    let ghost = with(comment(1, "Ghost", "one"), "/user/id", -1);
    let stage = answering(vec![("/issues/7/comments", json!([edited, ghost]))]).await;
    let since = "2026-11-01T09:30:00.9+01:00".parse().unwrap();
    let told = stage.host.comments(&id(), Some(since)).await.unwrap();
    let facts: Vec<_> = told.list.iter().map(|one| (one.id, one.author.as_str(), one.edited)).collect();
    assert_eq!(facts, [(1, "", false), (3, "ann", true)]);
    assert_eq!(stage.requests(), [format!("GET {AT}/issues/7/comments?since=2026-11-01T08:30:00Z")]);
}

#[tokio::test]
async fn comments_of_another_pull_request_are_refused() {
    let other = with(comment(3, "ann", "two"), "/pull_request_url", "https://git.example.com/acme/infra/pulls/17");
    let stage = answering(vec![
        ("/issues/7/comments", json!([other])),
        ("/issues/comments/3", other.clone()),
        ("/repos/acme/infra", repository("acme/infra")),
    ])
    .await;
    assert!(matches!(stage.host.comments(&id(), None).await, Err(HostError::Moved { .. })));
    assert_eq!(stage.host.comment(&id(), 3).await.unwrap(), None);
}

#[tokio::test]
async fn one_comment_is_read() {
    let stage = answering(vec![("/issues/comments/3", comment(3, "ann", "two"))]).await;
    assert_eq!(stage.host.comment(&id(), 3).await.unwrap().unwrap().body, "two");
    assert_eq!(stage.host.comment(&id(), 4).await.unwrap(), None);
    // An event of the timeline.
    let event = stage_of_no_content().await;
    assert_eq!(event.host.comment(&id(), 3).await.unwrap(), None);
}

async fn stage_of_no_content() -> Stage {
    stage(|_, _| StatusCode::NO_CONTENT.into_response()).await
}

#[tokio::test]
async fn posts_follow_a_repository_to_a_served_name() {
    let answer = |_: usize, request: &str| match request {
        _ if request.contains("/repos/acme/infra") => moved(&request["GET ".len()..].replace("acme/infra", "acme/now")),
        _ if request.starts_with("POST") => (StatusCode::CREATED, axum::Json(json!({"id": 5}))).into_response(),
        _ if request.contains("/comments") => {
            page(json!([with(comment(3, "ann", "x"), "/pull_request_url", "http://x/acme/now/pulls/7")]), 1)
        }
        _ => ok(repository("acme/now")),
    };
    let stage = stage(answer).await;
    assert_eq!(stage.host.create_comment(&id(), "hello").await.unwrap(), 5);
    assert_eq!(stage.requests().last().unwrap(), "POST /gitea/api/v1/repos/acme/now/issues/7/comments");
    assert_eq!(stage.body_of("POST"), json!({"body": "hello"}));
    assert_eq!(stage.host.comments(&id(), None).await.unwrap().list.len(), 1);
}

#[tokio::test]
async fn a_circle_of_names_ends() {
    let stage = stage(|_, _| moved("/gitea/api/v1/repos/acme/infra")).await;
    let error = stage.host.create_comment(&id(), "hello").await.unwrap_err();
    assert!(matches!(error, HostError::Moved { .. }), "{error}");
    assert_eq!(stage.requests().len(), 6);
}

#[tokio::test]
async fn posts_do_not_follow_elsewhere() {
    for to in ["/gitea/api/v1/repos/evil/infra", "https://evil.example.com/", "/gitea/api/v1/repos/a b/infra"] {
        let stage = stage(move |_, request| match request.contains("/repos/acme/infra") {
            true => moved(to),
            false => ok(repository("evil/infra")),
        })
        .await;
        let error = stage.host.create_comment(&id(), "hello").await.unwrap_err();
        assert!(matches!(error, HostError::Moved { .. }), "{to}: {error}");
        assert_eq!(stage.count("POST"), 1);
    }
}

#[tokio::test]
async fn a_pull_request_that_is_gone_is_not_asked_for_again() {
    let stage = stage(|_, request| match request.contains("/issues/7/") {
        true => refused(500, ""),
        false => refused(404, "The target couldn't be found."),
    })
    .await;
    let error = stage.host.create_comment(&id(), "hello").await.unwrap_err();
    assert!(matches!(error, HostError::NotFound { .. }), "{error}");
    assert!(matches!(stage.host.comments(&id(), None).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
async fn a_failing_host_stays_transient() {
    let stage = stage(|_, request| match request.contains("/issues/7/") {
        true => refused(500, ""),
        false => ok(pull()),
    })
    .await;
    assert!(stage.host.create_comment(&id(), "hello").await.unwrap_err().is_transient());
}

#[tokio::test]
async fn our_comments_are_folded_once() {
    let ours = comment(3, "tidelock", "Ran Plan\n\n<!-- tidelock:{} -->");
    let folded = comment(4, "Tidelock", "<details><summary>Outdated: replaced by a newer comment</summary>\n\nx");
    let later = with(comment(2, "tidelock", "new"), "/updated_at", "2026-11-01T10:00:05Z");
    let rows = json!([later, ours, folded, comment(5, "ann", "x")]);
    let stage = answering(vec![("/issues/7/comments", rows), ("/issues/comments/3", json!({"id": 3}))]).await;
    let shown = stage.host.shown_comments(&id()).await.unwrap();
    assert_eq!(shown.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["3", "2"]);
    // The second one is deleted.
    stage.host.hide_comments(&id(), &shown).await.unwrap();
    let asked = stage.asked.lock().unwrap();
    let text = asked[1].1["body"].as_str().unwrap().to_owned();
    assert!(text.starts_with("<details>") && text.ends_with("<!-- tidelock:{} -->"), "{text}");
}

#[tokio::test]
async fn a_comment_is_rewritten_and_deleted() {
    let stage = answering(vec![("/issues/comments/3", json!({"id": 3}))]).await;
    let shown = |id: &str| ShownComment { id: id.into(), body: String::new(), written: Timestamp::UNIX_EPOCH };
    assert!(stage.host.rewrite_comment(&id(), &shown("3"), "now").await.unwrap());
    assert_eq!(stage.body_of("PATCH"), json!({"body": "now"}));
    assert!(!stage.host.rewrite_comment(&id(), &shown("4"), "now").await.unwrap());
    assert!(!stage.host.rewrite_comment(&id(), &shown("3/../4"), "now").await.unwrap());
    stage.host.delete_comment(&id(), 3).await.unwrap();
    stage.host.delete_comment(&id(), 4).await.unwrap();
}

#[tokio::test]
async fn a_reaction_that_is_not_offered_is_left_out() {
    let not_offered = stage(|_, _| refused(403, "'+1' is not an allowed reaction")).await;
    not_offered.host.react(&id(), 3, "+1").await.unwrap();
    assert_eq!(not_offered.body_of("POST"), json!({"content": "+1"}));
    assert_eq!(not_offered.requests(), [format!("POST {AT}/issues/comments/3/reactions")]);
    answering(Vec::new()).await.host.react(&id(), 3, "eyes").await.unwrap();
    let denied = stage(|_, _| refused(403, "token does not have at least one of required scope(s)")).await;
    assert!(denied.host.react(&id(), 3, "eyes").await.unwrap_err().is_mendable());
}
