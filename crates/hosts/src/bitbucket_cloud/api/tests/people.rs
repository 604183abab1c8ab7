//! Approvals, and who may write.

use super::*;
use crate::vcs::ReviewVerdict;

fn participant(digit: &str, state: Value) -> Value {
    json!({"type": "participant", "user": person(digit), "role": "REVIEWER", "approved": state == "approved", "state": state,
        "participated_on": "2026-11-02T08:00:00+00:00"})
}

fn permission(digit: &str, word: &str) -> Value {
    json!({"type": "repository_permission", "user": person(digit), "permission": word, "repository": repository("acme/infra")})
}

fn update(hash: &str, date: &str) -> Value {
    json!({"update": {"date": date, "title": "Add a bucket", "state": "OPEN", "source": {"commit": {"hash": &hash[..12]}}}})
}

fn reviewed(participants: Value) -> Vec<(&'static str, Value)> {
    vec![
        (
            "/permissions/repositories/infra",
            json!([permission("1", "write"), permission("2", "read"), permission("3", "admin")]),
        ),
        (
            "/activity",
            json!([{"comment": {"id": 1}}, update(HEAD, "2026-11-02T07:00:00+00:00"), update(OLD, "2026-11-01T07:00:00+00:00")]),
        ),
        ("/pullrequests/7", with(pull(), "/participants", participants)),
    ]
}

#[tokio::test]
async fn verdicts_count_of_people_who_may_write() {
    let author =
        json!({"user": {"uuid": "{87bb15eb-47c1-49b3-9f16-ca824a2979a4}"}, "approved": true, "state": "approved"});
    let named = json!({"user": {"nickname": "712020:11111111", "display_name": "712020:11111111"}, "approved": true, "state": "approved"});
    let stage = answering(reviewed(json!([
        participant("1", json!("approved")),
        participant("2", json!("approved")),
        participant("3", json!("changes_requested")),
        participant("4", json!("approved")),
        participant("5", Value::Null),
        author,
        named,
    ])))
    .await;
    let reviews = stage.host.reviews(&known_pull()).await.unwrap();
    let facts: Vec<_> = reviews.iter().map(|one| (one.user.as_str(), one.can_write, one.verdict)).collect();
    let (yes, no) = (ReviewVerdict::Approved, ReviewVerdict::ChangesRequested);
    let want = [
        ("712020:11111111", true, yes),
        ("712020:22222222", false, yes),
        ("712020:33333333", true, no),
        ("712020:44444444", false, yes),
    ];
    assert_eq!(facts, want);
    assert_eq!(reviews[0].commit.as_ref().map(CommitSha::as_str), Some(HEAD));
    assert_eq!((reviews[0].at, reviews[2].at), ("2026-11-02T08:00:00Z".parse().ok(), None));
    assert_eq!(stage.requests().len(), 3);
    let query = "q=user.uuid%3D%22%7B11111111%7D%22%20OR%20user.uuid%3D%22%7B22222222%7D%22%20OR";
    assert_eq!(stage.count(query), 1, "{:?}", stage.requests());
}

#[tokio::test]
async fn an_approval_from_before_the_push_is_not_of_the_head() {
    let mut answers = reviewed(json!([participant("1", json!("approved"))]));
    answers[1].1 = json!([update(HEAD, "2026-11-02T08:00:01+00:00"), update(OLD, "2026-11-01T07:00:00+00:00")]);
    let stage = answering(answers.clone()).await;
    assert_eq!(stage.host.reviews(&known_pull()).await.unwrap()[0].commit, None);
    // The log lags behind, or is hidden.
    for log in [json!([update(OLD, "2026-11-01T07:00:00+00:00")]), json!([])] {
        answers[1].1 = log;
        let stage = answering(answers.clone()).await;
        assert_eq!(stage.host.reviews(&known_pull()).await.unwrap()[0].commit, None);
    }
    answers.remove(1);
    let stage = super::stage(
        move |_, request| if request.contains("/activity") { refused(404, "no") } else { usual(&answers, request) },
    )
    .await;
    assert_eq!(stage.host.reviews(&known_pull()).await.unwrap()[0].commit, None);
}

#[tokio::test]
async fn a_later_comment_does_not_make_an_approval_one_of_the_head() {
    let mut answers = reviewed(json!([participant("1", json!("approved")), participant("2", json!("approved"))]));
    let approval = |digit: &str, date: &str| json!({"approval": {"date": date, "user": person(digit)}});
    answers[1].1 = json!([
        approval("2", "2026-11-02T07:30:00+00:00"),
        update(HEAD, "2026-11-02T07:00:00+00:00"),
        approval("1", "2026-11-02T06:00:00+00:00"),
        approval("1", "2026-11-02T05:00:00+00:00"),
        update(OLD, "2026-11-01T07:00:00+00:00"),
    ]);
    let reviews = answering(answers).await.host.reviews(&known_pull()).await.unwrap();
    assert_eq!((reviews[0].commit.clone(), reviews[0].at), (None, "2026-11-02T06:00:00Z".parse().ok()));
    assert_eq!(reviews[1].commit.as_ref().map(CommitSha::as_str), Some(HEAD));
    assert_eq!(reviews[1].at, "2026-11-02T07:30:00Z".parse().ok());
}

#[tokio::test]
async fn without_verdicts_nobody_is_asked_for() {
    let stage = answering(Vec::new()).await;
    assert!(stage.host.reviews(&known_pull()).await.unwrap().is_empty());
    assert_eq!(stage.requests(), [format!("GET {PULL}")]);
    let listed = answering(vec![("/pullrequests/7", with(pull(), "/participants", Value::Null))]).await;
    assert!(listed.host.reviews(&known_pull()).await.is_err(), "no list is not an empty one");
}

#[tokio::test]
async fn a_token_that_may_not_read_permissions_is_told_which_right_it_lacks() {
    let stage = stage(|_, request| match request {
        _ if request.contains("/permissions/") => refused(403, "You must be an admin"),
        _ => usual(&reviewed(json!([participant("1", json!("approved"))])), request),
    })
    .await;
    for error in [
        stage.host.reviews(&known_pull()).await.map(drop).unwrap_err(),
        stage.host.can_write(&repo(), "{11111111}").await.map(drop).unwrap_err(),
    ] {
        let words = error.to_string();
        assert!(
            matches!(error, HostError::Denied { .. }) && words.contains("administrator of 127.0.0.1/acme/infra"),
            "{words}"
        );
        assert!(words.contains("--bitbucket-token"), "{words}");
    }
}

#[tokio::test]
async fn permissions_are_those_of_the_person_asked_for() {
    let rows = json!([permission("1", "write"), permission("2", "read"), permission("3", "admin")]);
    let stage = answering(vec![("/permissions/repositories/infra", rows)]).await;
    for (login, can_write, is_admin) in [
        ("{11111111}", true, false),
        ("{22222222}", false, false),
        ("712020:33333333", true, true),
        ("{99999999}", false, false),
        ("712020:44444444", false, false),
        ("Some Body", false, false),
        ("../x", false, false),
        ("", false, false),
    ] {
        assert_eq!(stage.host.can_write(&repo(), login).await.unwrap(), Some(can_write), "{login}");
        assert_eq!(stage.host.is_admin(&repo(), login).await.unwrap(), Some(is_admin), "{login}");
    }
    assert_eq!(stage.count("q=user.account_id%3D%22712020%3A33333333%22"), 2);
    assert_eq!(stage.count("/users/"), 0, "access tokens have no scope for people");
    let other = with(permission("1", "admin"), "/repository", repository("acme/other"));
    let stage = answering(vec![("/permissions/repositories/infra", json!([other]))]).await;
    assert!(matches!(stage.host.can_write(&repo(), "{11111111}").await, Err(HostError::Moved { .. })));
}

#[tokio::test]
async fn many_people_are_asked_for_in_parts() {
    let digit = |number: u64| format!("{number:02}");
    let rows: Vec<Value> = (0..25).map(|number| participant(&digit(number), json!("changes_requested"))).collect();
    let stage = answering(vec![
        ("/permissions/repositories/infra", json!([permission("24", "write")])),
        ("/pullrequests/7", with(pull(), "/participants", rows)),
    ])
    .await;
    let reviews = stage.host.reviews(&known_pull()).await.unwrap();
    assert_eq!((reviews.len(), reviews.iter().filter(|one| one.can_write).count()), (25, 1));
    assert_eq!(stage.count("/permissions/"), 2);
}

#[tokio::test]
async fn nobody_takes_back_an_approval_of_others() {
    let none = answering(Vec::new()).await;
    none.host.dismiss_approvals(&known_pull(), "because").await.unwrap();
    let stage = answering(reviewed(json!([participant("2", json!("approved"))]))).await;
    let error = stage.host.dismiss_approvals(&known_pull(), "because").await.unwrap_err();
    assert!(error.to_string().contains("--discard-approval-on-plan") && !error.is_transient(), "{error}");
    assert_eq!(stage.count("DELETE"), 0);
}

#[tokio::test]
async fn who_pushed_is_not_told() {
    let stage = answering(Vec::new()).await;
    assert!(stage.host.pusher(&known_pull()).await.unwrap().is_unknown());
    assert!(stage.host.contributors(&known_pull()).await.unwrap()[0].is_unknown());
    assert_eq!(stage.host.is_team_member(&repo(), "ops", "{11111111}").await.unwrap(), None);
    assert_eq!(stage.host.teams_of(&repo(), "{11111111}").await.unwrap(), None);
}
