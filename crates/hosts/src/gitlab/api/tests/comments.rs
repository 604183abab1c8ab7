//! Notes and reactions.

use super::*;
use tidelock_core::domain::Login;

/// As in `notes_test.go`.
fn note(id: u64, author: &str, body: &str, created: &str, updated: &str) -> Value {
    json!({
        "id": id, "body": body, "author": {"id": id, "username": author}, "created_at": created, "updated_at": updated,
        "system": false, "internal": false, "confidential": false, "noteable_type": "MergeRequest",
    })
}

const BOT: &str = "project_1_bot_3cca1d02";

#[tokio::test]
async fn a_comment_is_posted_without_quick_actions() {
    let stage = answering(vec![("POST", 201, json!({"id": 302}))]).await;
    let body = "Ran Plan\n```diff\n/merge\n```\n/close\n<!-- tidelock:{} -->";
    assert_eq!(stage.host.create_comment(&id(), body).await.unwrap(), 302);
    assert_eq!(stage.requests(), [format!("POST {AT}/merge_requests/7/notes")]);
    let sent = stage.body_of("POST")["body"].as_str().unwrap().to_owned();
    assert!(!sent.lines().any(|line| line.starts_with('/')), "{sent}");
    assert_eq!(sent.replace('\u{200b}', ""), body);
}

#[tokio::test]
async fn a_comment_may_be_too_long() {
    for message in
        [json!({"note": ["is too long (maximum is 1000000 characters)"]}), json!("400 Bad request - Note is too long")]
    {
        let stage = answering(vec![("POST", 400, json!({ "message": message }))]).await;
        let error = stage.host.create_comment(&id(), "text").await.unwrap_err();
        assert!(matches!(error, HostError::TooLong { .. }), "{error}");
    }
}

#[tokio::test]
async fn comments_are_those_of_people_oldest_first() {
    let (early, late) = ("2026-10-02T09:56:03.000Z", "2026-10-02T09:57:03.123Z");
    let rows = json!([
        note(5, "ann", "edited", early, late),
        note(4, BOT, "ours", late, late),
        with(note(3, "ann", "closed", late, late), "system", true),
        with(note(8, "ann", "for members", late, late), "internal", true),
        note(2, "ann", "atlantis plan", early, early),
    ]);
    let stage = answering(vec![("/notes?", 200, rows)]).await;
    let found = stage.host.comments(&id(), None).await.unwrap().list;
    let told: Vec<_> = found.iter().map(|one| (one.id, one.author.as_str(), one.edited)).collect();
    assert_eq!(told, [(2, "ann", false), (5, "ann", true), (4, BOT, false)]);
    assert!(found[2].author.is(stage.host.bot_login()));
    assert_eq!(found[0].created, "2026-10-02T09:56:03Z".parse().unwrap());
}

#[tokio::test]
async fn comments_since_a_time_end_with_the_first_older_one() {
    let at = |minute: u64| format!("2026-10-02T09:{minute:02}:00.000Z");
    let stage = stage(move |_, request| {
        if request.ends_with("/user") {
            return ok(me());
        }
        let page: u64 = request.rsplit_once("page=").unwrap().1.parse().unwrap();
        // The second page repeats the last row of the first: somebody wrote meanwhile.
        let rows: Vec<Value> = (0..3)
            .map(|row| 50 - page * 3 - row + u64::from(page > 1))
            .map(|m| note(m, "ann", "x", &at(m), &at(m)))
            .collect();
        let mut answer = ok(json!(rows));
        answer.headers_mut().insert("link", "<http://x/?page=9>; rel=\"next\"".parse().unwrap());
        answer
    })
    .await;
    let since: Timestamp = "2026-10-02T09:44:00Z".parse().unwrap();
    let found = stage.host.comments(&id(), Some(since)).await.unwrap().list;
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [44, 45, 46, 47]);
    let notes = format!("GET {AT}/merge_requests/7/notes?sort=desc&order_by=updated_at&per_page=8&page=");
    assert_eq!(stage.requests()[1..], [format!("{notes}1"), format!("{notes}2")]);
}

#[tokio::test]
async fn a_list_that_is_longer_than_its_limit_is_an_error() {
    let stage = stage(|_, request| {
        let mut answer = ok(if request.ends_with("/user") { me() } else { json!([]) });
        answer.headers_mut().insert("link", "<http://x/?page=9>; rel=\"next\"".parse().unwrap());
        answer
    })
    .await;
    let error = stage.host.comments(&id(), None).await.unwrap_err();
    assert!(error.to_string().contains("more than 4800 entries"), "{error}");
    let error = stage.host.open_pulls(&id().repo).await.unwrap_err();
    assert!(error.to_string().contains("more than 10000 entries"), "{error}");
}

#[tokio::test]
async fn a_limit_that_names_no_time_is_waited_for() {
    let stage = answering(vec![(
        "POST",
        429,
        json!({"message": {"error": "This endpoint has been requested too many times."}}),
    )])
    .await;
    let error = stage.host.create_comment(&id(), "text").await.unwrap_err();
    assert!(matches!(error, HostError::RateLimited { wait, .. } if wait.as_secs() == 60), "{error}");
}

#[tokio::test]
async fn outdated_comments_are_folded_once_and_stay_findable() {
    let at = |minute: u64| format!("2026-10-02T09:{minute:02}:00.000Z");
    let marker = r#"<!-- tidelock:{"v":1,"run":"a"} -->"#;
    let rows = json!([
        note(4, BOT, &format!("new\n{marker}"), &at(4), &at(4)),
        note(3, "ann", "text", &at(3), &at(3)),
        note(2, BOT, &format!("old\n/merge\n{marker}"), &at(2), &at(2)),
    ]);
    let stage = answering(vec![("/notes?", 200, rows), ("PUT", 200, json!({"id": 2}))]).await;
    let shown = stage.host.shown_comments(&id()).await.unwrap();
    assert_eq!(shown.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["2", "4"]);
    stage.host.hide_comments(&id(), &shown[..1]).await.unwrap();
    assert_eq!(stage.requests().last().unwrap(), &format!("PUT {AT}/merge_requests/7/notes/2"));
    let folded = stage.body_of("PUT")["body"].as_str().unwrap().to_owned();
    assert!(folded.starts_with("<details>") && folded.ends_with(marker) && !folded.contains("\n/merge"), "{folded}");

    let rows = json!([note(2, BOT, &folded, &at(2), &at(5))]);
    let again = answering(vec![("/notes?", 200, rows)]).await;
    assert_eq!(again.host.shown_comments(&id()).await.unwrap(), []);
    assert!(!again.host.rewrite_comment(&id(), &shown[1], "new").await.unwrap(), "it was deleted");
    assert!(again.host.delete_comment(&id(), 2).await.is_ok());
}

#[tokio::test]
async fn a_reaction_has_the_hosts_name_and_may_be_there_already() {
    let taken = json!({"message": "404 Award Emoji Name has already been taken Not Found"});
    let stage = answering(vec![("award_emoji?name=eyes", 404, taken), ("award_emoji", 201, json!({"id": 1}))]).await;
    for reaction in ["eyes", "+1"] {
        stage.host.react(&id(), 302, reaction).await.unwrap();
    }
    let emoji = format!("POST {AT}/merge_requests/7/notes/302/award_emoji?name=");
    assert_eq!(stage.requests(), [format!("{emoji}eyes"), format!("{emoji}thumbsup")]);
    assert_eq!(stage.host.bot_login(), &Login::unknown(), "nobody has asked for the account");
}
