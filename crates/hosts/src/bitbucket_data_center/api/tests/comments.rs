//! Comments, which come as activities, and changes of comments at their versions.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn comment(id: u64, name: &str, text: &str) -> Value {
    let at = 1_793_610_000_000_i64 + i64::try_from(id).unwrap();
    json!({"id": id, "version": 0, "text": text, "author": person(name), "createdDate": at, "updatedDate": at, "comments": [],
        "severity": "NORMAL", "state": "OPEN", "threadResolved": false, "properties": {"repositoryId": 12}})
}

fn activity(comment: Value) -> Value {
    json!({"id": 1, "action": "COMMENTED", "commentAction": "ADDED", "user": person("ann"), "comment": comment})
}

async fn listed(rows: Value, since: Option<&str>) -> Vec<(u64, String, bool)> {
    let stage = answering(vec![("/activities", rows)]).await;
    let since = since.map(|at| at.parse().unwrap());
    let found = stage.host.comments(&id(), since).await.unwrap().list;
    found.into_iter().map(|one| (one.id, format!("{}: {}", one.author, one.body), one.edited)).collect()
}

fn facts(list: &[(u64, &str, bool)]) -> Vec<(u64, String, bool)> {
    list.iter().map(|(id, text, edited)| (*id, (*text).to_owned(), *edited)).collect()
}

#[tokio::test]
async fn comments_and_replies_are_listed_oldest_first() {
    let reply = comment(5, "bob", "atlantis apply");
    let thread =
        with(comment(2, "ann", "a"), "/comments", json!([with(reply, "/comments", json!([comment(6, "ann", "c")]))]));
    let task = with(comment(4, "cid", "a task"), "/severity", "BLOCKER");
    let rows = json!([
        activity(comment(9, "ann", "d")),
        activity(task),
        json!({"id": 8, "action": "RESCOPED"}),
        activity(thread.clone()),
        activity(thread),
        json!({"action": "COMMENTED"})
    ]);
    let want = [
        (2, "ann: a", false),
        (4, "cid: a task", false),
        (5, "bob: atlantis apply", false),
        (6, "ann: c", false),
        (9, "ann: d", false),
    ];
    assert_eq!(listed(rows.clone(), None).await, facts(&want));
    assert_eq!(listed(rows, Some("2026-11-02T09:00:00.006Z")).await, facts(&want[3..]));
}

#[tokio::test]
async fn what_is_not_said_to_everybody_is_left_out() {
    let edited = with(comment(3, "ann", "b"), "/updatedDate", 1_793_610_000_999_i64);
    let mut on_line = activity(comment(4, "ann", "c"));
    on_line["commentAnchor"] = json!({"path": "main.tf", "line": 1});
    let rows = json!([
        activity(with(comment(1, "ann", "a"), "/state", "PENDING")),
        activity(edited),
        on_line,
        activity(with(comment(5, "ann", "d"), "/anchor", json!({"path": "main.tf"}))),
        activity(with(comment(6, "ann", "e"), "/version", 1)),
        activity(with(comment(7, "ann", "f"), "/state", "RESOLVED")),
    ]);
    assert_eq!(listed(rows, None).await, facts(&[(3, "ann: b", true), (6, "ann: e", true), (7, "ann: f", false)]));
}

#[tokio::test]
async fn replies_to_a_comment_on_a_line_are_left_out() {
    let thread = |id: u64| {
        let deep = with(comment(id + 1, "bob", "x"), "/comments", json!([comment(id + 2, "cid", "y")]));
        with(comment(id, "ann", "a"), "/comments", json!([deep]))
    };
    let mut on_line = activity(thread(10));
    on_line["commentAnchor"] = json!({"path": "main.tf", "line": 1});
    let on_file = activity(with(thread(20), "/anchor", json!({"path": "main.tf"})));
    let odd = [json!("text"), json!(["a"]), json!(7)].map(activity);
    let mut rows = vec![on_line, on_file, activity(thread(30))];
    rows.extend(odd);
    assert_eq!(
        listed(Value::Array(rows), None).await,
        facts(&[(30, "ann: a", false), (31, "bob: x", false), (32, "cid: y", false)])
    );
}

#[tokio::test]
async fn one_reply_is_read_where_its_thread_is_no_comment_on_a_line() {
    let read = async |root: Value, parent: Value| {
        let stage = answering(vec![
            ("/comments/3", root),
            ("/comments/4", with(comment(4, "bob", "x"), "/parent", json!({"id": 3}))),
            ("/comments/5", with(comment(5, "ann", "atlantis plan"), "/parent", parent)),
        ])
        .await;
        (stage.host.comment(&id(), 5).await.unwrap().map(|found| found.id), stage.count("/comments/"))
    };
    let anchor = json!({"path": "main.tf"});
    assert_eq!(read(comment(3, "ann", "a"), json!({"id": 4})).await, (Some(5), 3));
    assert_eq!(read(with(comment(3, "ann", "a"), "/anchor", anchor.clone()), json!({"id": 4})).await, (None, 3));
    assert_eq!(read(comment(3, "ann", "a"), json!({"id": 4, "anchor": anchor})).await, (None, 1));
    assert_eq!(read(comment(3, "ann", "a"), json!({"id": 9})).await, (None, 2), "its parent is gone");
    assert_eq!(read(comment(3, "ann", "a"), json!("odd")).await, (None, 1));
    let endless = with(comment(3, "ann", "a"), "/parent", json!({"id": 4}));
    assert_eq!(read(endless, json!({"id": 4})).await, (None, 21));
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_parts() {
    let mut stage = stage(|_, request| match request {
        _ if request.contains("limit=100&start=0") => ok(page(&[activity(comment(2, "ann", &"a".repeat(9_000)))])),
        _ if request.contains("limit=10&start=0") => {
            let first = page(&[activity(comment(2, "ann", "a"))]);
            ok(with(with(first, "/isLastPage", false), "/nextPageStart", 10))
        }
        _ if request.contains("limit=10&start=10") => ok(page(&[activity(comment(1, "bob", "b"))])),
        _ => usual(&[], request),
    })
    .await;
    stage.host.http = stage.host.http.reading_at_most(8_000);
    let found = stage.host.comments(&id(), None).await.unwrap().list;
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(stage.count("/activities"), 3);
}

#[tokio::test]
async fn too_many_activities_hide_no_new_comment() {
    let stage = stage(|_, request| match request.split_once("start=") {
        Some((_, start)) => {
            let start: u64 = start.parse().unwrap();
            let at = 1_793_610_000_000_i64 - i64::try_from(start).unwrap();
            let rows: Vec<Value> = (0..100).map(|_| json!({"id": 1, "action": "UPDATED", "createdDate": at})).collect();
            ok(with(with(page(&rows), "/isLastPage", false), "/nextPageStart", start + 100))
        }
        None => usual(&[], request),
    })
    .await;
    let since = |at: i64| Some(Timestamp::from_millisecond(at).unwrap());
    assert!(stage.host.comments(&id(), since(1_793_610_000_000)).await.unwrap().list.is_empty());
    assert_eq!(stage.count("/activities"), 100);
    let error = stage.host.comments(&id(), since(1_793_600_000_000)).await.unwrap_err();
    assert!(error.to_string().contains("more than 10000 entries"), "{error}");
    assert!(stage.host.comments(&id(), None).await.is_err());
}

#[tokio::test]
async fn one_comment_is_read_as_it_is_now() {
    let read = async |told: Value| answering(vec![("/comments/5", told)]).await.host.comment(&id(), 5).await.unwrap();
    let found = read(comment(5, "ann", "atlantis plan")).await.unwrap();
    assert_eq!((found.author.as_str(), found.body.as_str(), found.edited), ("ann", "atlantis plan", false));
    for wrong in [
        comment(6, "ann", "x"),
        with(comment(5, "ann", "x"), "/state", "PENDING"),
        with(comment(5, "ann", "x"), "/anchor", json!({"path": "main.tf"})),
    ] {
        assert_eq!(read(wrong).await, None);
    }
    assert_eq!(answering(Vec::new()).await.host.comment(&id(), 5).await.unwrap(), None, "it is gone");
}

#[tokio::test]
async fn a_marker_of_ours_is_no_command_while_our_account_is_unknown() {
    let ours = "atlantis plan\n<!-- tidelock:{\"v\":1,\"run\":\"a\"} -->";
    let stage = stage_as("", move |_, request| match request.contains("/comments/5") {
        true => axum::Json(comment(5, "bot", ours)).into_response(),
        false => axum::Json(json!({"version": "9.4.3"})).into_response(),
    })
    .await;
    assert_eq!(stage.host.comment(&id(), 5).await.unwrap(), None);
}

#[tokio::test]
async fn a_comment_is_posted_as_it_is() {
    let stage = stage(|_, request| match request == format!("POST {PULL}/comments") {
        true => (StatusCode::CREATED, axum::Json(comment(17, "tidelock", "x"))).into_response(),
        false => usual(&[], request),
    })
    .await;
    assert_eq!(stage.host.create_comment(&id(), "**a** <b>\n").await.unwrap(), 17);
    assert_eq!(stage.body_of("POST"), json!({"text": "**a** <b>\n"}));
}

#[tokio::test]
async fn a_comment_that_is_too_long_is_told_from_other_refusals() {
    let stage = stage(|_, _| refused(400, "Please enter a comment of up to 32768 characters.")).await;
    let long = stage.host.create_comment(&id(), &"ä".repeat(20_000)).await.unwrap_err();
    assert!(matches!(&long, HostError::TooLong { message, .. } if message.contains("32768")), "{long}");
    let short = stage.host.create_comment(&id(), "a").await.unwrap_err();
    assert!(matches!(short, HostError::Rejected { status: 400, .. }), "{short}");
}

/// A host that has one comment, whose version each refused change has been overtaken by as many others.
async fn versioned(overtaken: u64) -> Stage {
    let (version, left) = (AtomicU64::new(4), AtomicU64::new(overtaken));
    stage(move |_, request| {
        let now = version.load(Ordering::SeqCst);
        match request {
            _ if request.starts_with("GET") && request.contains("/comments/5") => {
                ok(with(comment(5, "tidelock", "old"), "/version", now))
            }
            _ if request.starts_with("PUT") || request.starts_with("DELETE") => match left.load(Ordering::SeqCst) {
                0 => ok(comment(5, "tidelock", "new")),
                more => {
                    left.store(more - 1, Ordering::SeqCst);
                    version.store(now + 1, Ordering::SeqCst);
                    refused(409, "You are attempting to modify a comment based on out-of-date information.")
                }
            },
            _ => usual(&[], request),
        }
    })
    .await
}

fn shown(id: u64) -> ShownComment {
    ShownComment { id: id.to_string(), body: "old".into(), written: Timestamp::UNIX_EPOCH }
}

#[tokio::test]
async fn a_change_names_the_version_and_is_tried_again_at_another_one() {
    for overtaken in [0, 2] {
        let stage = versioned(overtaken).await;
        assert!(stage.host.rewrite_comment(&id(), &shown(5), "new").await.unwrap());
        assert_eq!(stage.body_of("PUT"), json!({"text": "new", "version": 4 + overtaken}));
        assert_eq!(stage.count("PUT"), usize::try_from(overtaken).unwrap() + 1);
    }
    let stage = versioned(u64::MAX).await;
    let error = stage.host.rewrite_comment(&id(), &shown(5), "new").await.unwrap_err();
    assert!(matches!(error, HostError::Rejected { status: 409, .. }), "{error}");
    assert_eq!(stage.count("PUT"), 3);
    let stage = versioned(1).await;
    stage.host.delete_comment(&id(), 5).await.unwrap();
    assert!(stage.requests().last().unwrap().ends_with("/comments/5?version=5"), "{:?}", stage.requests());
}

#[tokio::test]
async fn a_refusal_at_the_same_version_is_final() {
    let stage = stage(|_, request| match request.starts_with("PUT") {
        true => refused(409, "The repository is archived."),
        false => usual(&[("/comments/5", comment(5, "tidelock", "old"))], request),
    })
    .await;
    let error = stage.host.rewrite_comment(&id(), &shown(5), "new").await.unwrap_err();
    assert!(error.to_string().contains("archived"), "{error}");
    assert_eq!(stage.count("PUT"), 1);
}

#[tokio::test]
async fn what_is_gone_is_no_error() {
    let stage = answering(Vec::new()).await;
    assert!(!stage.host.rewrite_comment(&id(), &shown(5), "new").await.unwrap());
    stage.host.delete_comment(&id(), 5).await.unwrap();
    stage.host.hide_comments(&id(), &[shown(5)]).await.unwrap();
    assert_eq!(stage.count("PUT") + stage.count("DELETE"), 0);
}

#[tokio::test]
async fn a_comment_with_replies_is_folded_where_it_cannot_be_deleted() {
    let answered = with(comment(5, "tidelock", "a"), "/comments", json!([comment(6, "ann", "why?")]));
    let stage = stage(move |_, request| match request.starts_with("PUT") {
        true => ok(answered.clone()),
        false => usual(&[("/comments/5", answered.clone())], request),
    })
    .await;
    stage.host.delete_comment(&id(), 5).await.unwrap();
    assert_eq!((stage.body_of("PUT"), stage.count("DELETE")), (json!({"threadResolved": true, "version": 0}), 0));
}

#[tokio::test]
async fn a_comment_that_gets_a_reply_while_it_is_deleted_is_folded() {
    let asked = AtomicU64::new(0);
    let stage = stage(move |_, request| match request {
        _ if request.starts_with("DELETE") => refused(409, "The comment has replies."),
        _ if request.starts_with("PUT") => ok(comment(5, "tidelock", "a")),
        _ if request.contains("/comments/5") => match asked.fetch_add(1, Ordering::SeqCst) {
            0 => ok(comment(5, "tidelock", "a")),
            _ => ok(with(comment(5, "tidelock", "a"), "/comments", json!([comment(6, "ann", "why?")]))),
        },
        _ => usual(&[], request),
    })
    .await;
    stage.host.delete_comment(&id(), 5).await.unwrap();
    assert_eq!(stage.body_of("PUT"), json!({"threadResolved": true, "version": 0}));
    assert_eq!((stage.count("DELETE"), stage.count("PUT")), (1, 1));
}

#[tokio::test]
async fn our_own_comments_are_shown_until_their_threads_are_resolved() {
    let own = |id: u64, text: &str| comment(id, "Tidelock@example.com", text);
    let rows = json!([
        activity(own(3, "new")),
        activity(with(own(2, "old"), "/threadResolved", true)),
        activity(with(own(1, "first"), "/updatedDate", 1_793_610_000_900_i64)),
        activity(comment(4, "ann", "x"))
    ]);
    let stage = answering(vec![("/activities", rows)]).await;
    let found: Vec<_> =
        stage.host.shown_comments(&id()).await.unwrap().into_iter().map(|one| (one.id, one.body)).collect();
    assert_eq!(found, [("3".to_owned(), "new".to_owned()), ("1".to_owned(), "first".to_owned())]);
    let stage = versioned(0).await;
    stage.host.hide_comments(&id(), &[shown(5)]).await.unwrap();
    assert_eq!(stage.body_of("PUT"), json!({"threadResolved": true, "version": 4}));
}

#[tokio::test]
async fn reactions_have_the_hosts_names() {
    let stage = stage(|_, request| match request.contains("/unheard") {
        true => refused(400, "unheard is no emoticon"),
        false => ok(json!({})),
    })
    .await;
    for reaction in ["eyes", "+1", "unheard of"] {
        stage.host.react(&id(), 5, reaction).await.unwrap();
    }
    let path = "PUT /bb/rest/comment-likes/latest/projects/PRJ/repos/infra/pull-requests/7/comments/5/reactions";
    let want = ["eyes", "thumbsup", "unheard%20of"].map(|name| format!("{path}/{name}"));
    assert_eq!(stage.requests(), want);
}

#[tokio::test]
async fn posts_follow_a_repository_to_a_served_name() {
    let moving = async |owner: &'static str, key: &'static str, status: u16| {
        let of_owner = with(pull(), "/toRef/repository", repository(owner, "infra"));
        let stage = stage(move |count, request| match request {
            _ if count == 0 => ok(of_owner.clone()),
            _ if request.contains("/repos?") => ok(page(&[repository(key, "now")])),
            _ if request.starts_with("POST") && request.contains("/repos/now/") => ok(comment(17, "tidelock", "x")),
            _ if request.starts_with("PUT") && request.contains("/repos/now/") => no_content(),
            _ if request.contains("/repos/now/pull-requests/8") => {
                ok(with(with(pull(), "/toRef/repository", repository("PRJ", "now")), "/id", 8))
            }
            _ if status == 301 => (StatusCode::MOVED_PERMANENTLY, [("location", "/elsewhere")]).into_response(),
            _ => refused(status, "no"),
        })
        .await;
        let repo = RepoId { owner: owner.into(), ..repo() };
        stage.host.pull_request(&PullId { repo: repo.clone(), number: 7 }).await.unwrap();
        (stage, repo)
    };
    for (owner, status) in [("PRJ", 404), ("PRJ", 301), ("~ann", 500)] {
        let (stage, repo) = moving(owner, "PRJ", status).await;
        let id = PullId { repo, number: 7 };
        assert_eq!(stage.host.create_comment(&id, "done").await.unwrap(), 17, "{status}");
        stage.host.react(&id, 5, "eyes").await.unwrap();
        assert!(stage.requests().last().unwrap().contains("/repos/now/pull-requests/7/comments/5"), "{status}");
        let status = CommitStatus {
            context: "a".into(),
            state: tidelock_core::domain::state::StatusState::Success,
            description: String::new(),
            url: String::new(),
            waits: false,
            details: None,
        };
        stage.host.set_status(&PullId { number: 8, ..id }, &HEAD.into(), &status).await.unwrap();
        assert!(stage.requests().last().unwrap().ends_with(&format!("/repos/now/commits/{HEAD}/builds")));
    }
    let (stage, repo) = moving("PRJ", "OPS", 404).await;
    let error = stage.host.create_comment(&PullId { repo, number: 7 }, "done").await.unwrap_err();
    assert!(matches!(error, HostError::NotFound { .. }), "not served: {error}");
}
