//! Comments, and our own account.

use super::*;

fn comment(id: u64, user: Value, body: &str) -> Value {
    json!({"type": "pullrequest_comment", "id": id, "user": user, "content": {"raw": body, "html": "<p>other</p>"}, "deleted": false,
        "pending": false, "pullrequest": {"id": 7}, "created_on": "2026-11-01T10:00:00.000100+00:00",
        "updated_on": "2026-11-01T10:00:00.000170+00:00"})
}

fn made(id: u64, at: &str) -> Value {
    with(with(comment(id, person("1"), "x"), "/created_on", at), "/updated_on", at)
}

#[tokio::test]
async fn comments_are_listed_oldest_first() {
    let edited = with(comment(3, person("1"), "two"), "/updated_on", "2026-11-01T10:00:05+00:00");
    let ghost = comment(1, Value::Null, "one");
    let stage = answering(vec![("/comments?", json!([edited, ghost]))]).await;
    let since = "2026-11-01T09:30:00.9+01:00".parse().unwrap();
    let told = stage.host.comments(&id(), Some(since)).await.unwrap();
    let facts: Vec<_> =
        told.list.iter().map(|one| (one.id, one.author.as_str(), one.edited, one.body.as_str())).collect();
    assert_eq!(facts, [(1, "", false, "one"), (3, "712020:11111111", true, "two")]);
    let asked = format!("GET {PULL}/comments?sort=created_on&pagelen=50&q=updated_on%3E%3D2026-11-01T08%3A30%3A00Z");
    assert_eq!(stage.requests().last().unwrap(), &asked);
}

#[tokio::test]
async fn a_host_that_does_not_filter_is_filtered_here() {
    let rows = json!([made(1, "2026-11-01T10:00:00+00:00"), made(2, "2026-11-01T11:00:00+00:00")]);
    let stage = answering(vec![("/comments?", rows)]).await;
    let told = stage.host.comments(&id(), "2026-11-01T10:30:00Z".parse().ok()).await.unwrap();
    assert_eq!(told.list.iter().map(|one| one.id).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn what_is_not_said_to_everybody_is_left_out() {
    let base = |id: u64| comment(id, person("1"), "atlantis apply");
    let mut inline = base(4);
    inline["inline"] = json!({"path": "main.tf", "from": null, "to": 3});
    let rows = [with(base(2), "/deleted", true), with(base(3), "/pending", true), inline, base(5)];
    let stage = answering(vec![
        ("/comments?", json!(rows)),
        ("/comments/2", rows[0].clone()),
        ("/comments/3", rows[1].clone()),
        ("/comments/4", rows[2].clone()),
        ("/comments/5", rows[3].clone()),
    ])
    .await;
    let told = stage.host.comments(&id(), None).await.unwrap();
    assert_eq!(told.list.iter().map(|one| one.id).collect::<Vec<_>>(), [5]);
    for hidden in [2, 3, 4, 6] {
        assert_eq!(stage.host.comment(&id(), hidden).await.unwrap(), None, "{hidden}");
    }
    assert_eq!(stage.host.comment(&id(), 5).await.unwrap().unwrap().body, "atlantis apply");
}

#[tokio::test]
async fn comments_of_another_pull_request_are_refused() {
    let other = with(comment(3, person("1"), "two"), "/pullrequest/id", 17);
    let stage =
        answering(vec![("/comments?", json!([other])), ("/comments/3", other.clone()), ("/comments/4", other)]).await;
    assert!(stage.host.comments(&id(), None).await.is_err());
    assert_eq!(stage.host.comment(&id(), 3).await.unwrap(), None);
    assert_eq!(stage.host.comment(&id(), 4).await.unwrap(), None, "another id");
}

#[tokio::test]
async fn a_comment_is_posted_as_it_is() {
    let stage = stage(|_, request| match request.starts_with("POST") {
        true => (StatusCode::CREATED, axum::Json(comment(5, tidelock(), "x"))).into_response(),
        false => usual(&[], request),
    })
    .await;
    assert_eq!(stage.host.create_comment(&id(), "<b> &\n\n[//]: # (tidelock:{})").await.unwrap(), 5);
    assert_eq!(stage.body_of("POST"), json!({"content": {"raw": "<b> &\n\n[//]: # (tidelock:{})"}}));
    assert_eq!(stage.requests(), [format!("POST {PULL}/comments")]);
}

#[tokio::test]
async fn a_comment_that_is_too_long_is_told_from_other_refusals() {
    let error = json!({"type": "error", "error": {"message": "Bad request",
        "fields": {"content": {"raw": ["Ensure this value has at most 32768 characters (it has 40000)."]}}}});
    for status in [400, 413] {
        let body = error.clone();
        let stage =
            stage(move |_, _| (StatusCode::from_u16(status).unwrap(), axum::Json(body.clone())).into_response()).await;
        let refused = stage.host.create_comment(&id(), "x").await.unwrap_err();
        assert!(
            matches!(&refused, HostError::TooLong { message, .. } if message.contains("at most 32768")),
            "{refused}"
        );
    }
    let unreasoned = stage(|_, _| (StatusCode::BAD_REQUEST, "<h1>Bad Request (400)</h1>").into_response()).await;
    let refused_so = unreasoned.host.create_comment(&id(), "x").await.unwrap_err();
    assert!(matches!(refused_so, HostError::TooLong { .. }), "{refused_so}");
    for (status, is_transient) in [(400, false), (409, false), (555, true), (429, true)] {
        let stage = stage(move |_, _| refused(status, "no")).await;
        let error = stage.host.create_comment(&id(), "x").await.unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert_eq!(stage.requests().len(), 1, "a post is not repeated here");
    }
}

#[tokio::test]
async fn comments_of_ours_keep_their_texts_until_they_are_rewritten() {
    let rows = json!([
        comment(4, tidelock(), "Ran Plan"),
        comment(5, person("1"), "Ran Plan"),
        with(comment(7, tidelock(), "gone"), "/deleted", true),
    ]);
    let stage = stage(move |_, request| match request {
        _ if request.starts_with("GET") => usual(&[("/comments?", rows.clone())], request),
        _ if request.ends_with("/comments/9") => refused(404, "gone"),
        _ => ok(json!({})),
    })
    .await;
    let shown = stage.host.shown_comments(&id()).await.unwrap();
    assert_eq!(shown.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["4"]);
    stage.host.hide_comments(&id(), &shown).await.unwrap();
    assert_eq!(stage.count("PUT"), 0, "a plan is not destroyed, as nothing can be hidden");
    assert!(stage.host.rewrite_comment(&id(), &shown[0], "new").await.unwrap());
    assert_eq!(stage.body_of("PUT"), json!({"content": {"raw": "new"}}));
    let gone = ShownComment { id: "9".into(), ..shown[0].clone() };
    assert!(!stage.host.rewrite_comment(&id(), &gone, "new").await.unwrap());
    stage.host.delete_comment(&id(), 4).await.unwrap();
    stage.host.delete_comment(&id(), 9).await.unwrap();
    stage.host.react(&id(), 4, "eyes").await.unwrap();
}

#[tokio::test]
async fn posts_follow_a_repository_to_a_served_name() {
    for (name, is_followed) in [("acme/now", true), ("evil/now", false)] {
        let stage = stage(move |count, request| match request {
            _ if count < 2 && !request.contains("/user") => usual(&[], request),
            _ if request.contains("%7Bbc771cbf") => ok(repository(name)),
            _ if request.contains("/acme/infra") => moved("https://x/2.0/repositories/acme/now"),
            _ if request.starts_with("POST") => {
                (StatusCode::CREATED, axum::Json(comment(5, tidelock(), "x"))).into_response()
            }
            _ => refused(404, "no"),
        })
        .await;
        stage.host.pull(&id()).await.unwrap();
        stage.host.prepare().await.ok();
        let said = stage.host.create_comment(&id(), "hello").await;
        assert_eq!(said.is_ok(), is_followed, "{said:?}");
        assert_eq!(stage.count("POST /2.0/repositories/acme/now/pullrequests/7/comments"), usize::from(is_followed));
        assert_eq!(stage.count("evil.example") + stage.count("POST /2.0/repositories/evil"), 0);
    }
    // Without an earlier answer the repository's id is not known.
    let unknown = stage(|_, _| moved("https://x/2.0/repositories/acme/now")).await;
    assert!(matches!(unknown.host.create_comment(&id(), "x").await, Err(HostError::Moved { .. })));
    assert_eq!(unknown.requests().len(), 1);
}

/// The host may answer 404 under a former name instead of a redirect.
#[tokio::test]
async fn posts_follow_a_repository_whose_former_name_is_unknown() {
    for (name, is_followed) in [("acme/now", true), ("evil/now", false), ("acme/infra", false)] {
        let stage = stage(move |_, request| match request {
            _ if request.contains("%7Bbc771cbf") => ok(repository(name)),
            _ if request.starts_with("POST") && request.contains("/acme/now/") => {
                (StatusCode::CREATED, axum::Json(comment(5, tidelock(), "x"))).into_response()
            }
            _ if request.contains("/acme/now/pullrequests/7/comments?") => ok(page(&[])),
            _ if request.contains("/comments") => refused(404, "Repository acme/infra not found"),
            _ => usual(&[], request),
        })
        .await;
        stage.host.pull(&id()).await.unwrap();
        assert_eq!(stage.host.comments(&id(), None).await.is_ok(), is_followed);
        let said = stage.host.create_comment(&id(), "hello").await;
        assert_eq!(said.is_ok(), is_followed, "{said:?}");
        assert_eq!(stage.count("POST"), if is_followed { 2 } else { 1 }, "{:?}", stage.requests());
    }
    // Without an earlier answer the repository's id is not known.
    let unknown = stage(|_, _| refused(404, "no")).await;
    assert!(matches!(unknown.host.create_comment(&id(), "x").await, Err(HostError::NotFound { .. })));
    assert_eq!(unknown.requests().len(), 1);
}

#[tokio::test]
async fn our_account_is_asked_for_once() {
    let stage = answering(vec![("/comments?", json!([]))]).await;
    assert!(stage.host.bot_login().is_unknown());
    stage.host.prepare().await.unwrap();
    stage.host.comments(&id(), None).await.unwrap();
    assert_eq!(stage.host.bot_login().as_str(), "712020:00000000");
    assert_eq!(stage.host.account().await.unwrap().display_name, "Some Body");
    assert_eq!(stage.count("/user"), 1);
    let nobody = answering(vec![("/user", json!({"nickname": "tidelock", "display_name": "tidelock"}))]).await;
    assert!(nobody.host.prepare().await.is_err(), "a name is no id");
    let denied = self::stage(|_, _| refused(401, "Token is invalid")).await;
    assert!(matches!(denied.host.prepare().await, Err(HostError::Denied { .. })));
}

#[tokio::test]
async fn a_refusal_to_tell_an_access_token_its_account_is_remembered() {
    for status in [403, 404, 400] {
        let stage = stage_with_access_token(move |_, request| match request.ends_with("/user") {
            true => refused(status, "This token has no account"),
            false => usual(&[("/comments?", json!([]))], request),
        })
        .await;
        for _ in 0..2 {
            stage.host.comments(&id(), None).await.unwrap();
        }
        assert_eq!((stage.count("/user"), stage.host.bot_login().is_unknown()), (1, true), "{status}");
        let account = super::stage(move |_, _| refused(status, "no")).await;
        assert!(account.host.prepare().await.is_err(), "an account has to be told to its own token");
    }
}

#[tokio::test]
async fn an_access_token_learns_its_account_from_its_first_comment() {
    let ours = "Ran Plan\n\n[//]: # (tidelock:{\"v\":1})";
    let stage = stage_with_access_token(move |_, request| match request {
        _ if request.ends_with("/user") => refused(403, "This token has no account"),
        _ if request.starts_with("POST") => {
            (StatusCode::CREATED, axum::Json(comment(5, tidelock(), ours))).into_response()
        }
        _ => usual(
            &[("/comments/4", comment(4, tidelock(), ours)), ("/comments/3", comment(3, person("1"), "atlantis plan"))],
            request,
        ),
    })
    .await;
    stage.host.prepare().await.unwrap();
    assert!(stage.host.bot_login().is_unknown());
    assert_eq!(stage.host.comment(&id(), 4).await.unwrap(), None, "it may be ours, which are never commands");
    assert!(stage.host.comment(&id(), 3).await.unwrap().is_some());
    assert_eq!(stage.count("/user"), 1, "it is asked for once");
    stage.host.create_comment(&id(), ours).await.unwrap();
    assert_eq!(stage.host.bot_login().as_str(), "712020:00000000");
    assert!(stage.host.comment(&id(), 4).await.unwrap().unwrap().author.is(stage.host.bot_login()));
}
